//! Which definitions of the cluster this node can serve. It is found out whenever somebody asks, and where that is published, whenever
//! something changes that a definition needs.

pub(crate) mod publication;
mod verdict;

use std::{
    cell::{Cell, OnceCell},
    collections::{BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use api::network_report::{Network, NetworksReport, SCHEMA};
use cni::{
    chain::{self, ChainError},
    config::NetworkConfig,
    exec::{Exec, ExecError},
    version::Version,
};
use dhcp::wire::sockets;
use ipam::wire::SOCKET as IPAM_SOCKET;
use node::root::{Root, Stamp};
use plan::{Attachment, PlanError, netconf::Netconf};
use plugins::config::{What, needs};
use tokio::sync::{Semaphore, watch};

use self::verdict::{NodeFacts, Status, link_faults, verdict};
use crate::{cluster::Definitions, devices::DeviceSource, engine::Engine, host::links::NodeLinks};

/// The age up to which an answer to STATUS counts: each STATUS starts processes.
const STATUS_AGE: Duration = Duration::from_mins(1);
/// The time for STATUS of all networks of one report.
const STATUS_TIME: Duration = Duration::from_secs(5);

/// Returns the directories of plugins that discovery has found.
pub type PluginDirs = dyn Fn() -> Vec<PathBuf> + Send + Sync;

/// The sources of a report.
pub struct Networks {
    definitions: Arc<Definitions>,
    devices: Arc<dyn DeviceSource>,
    exec: Arc<dyn Exec>,
    plugin_dirs: Box<PluginDirs>,
    /// The last answers to STATUS, by configuration.
    statuses: Mutex<HashMap<Vec<u8>, Answer>>,
    statuses_changed: watch::Sender<()>,
    /// The right to make a report.
    pub turns: Arc<Semaphore>,
}

/// An answer to STATUS.
struct Answer {
    /// The answer counts while the plugins' programs are these.
    programs: Vec<Option<Stamp>>,
    at: Instant,
    status: Status,
}

impl Networks {
    /// Makes reports about these definitions, with plugins that `exec` finds in `plugin_dirs`.
    pub fn new(
        definitions: Arc<Definitions>,
        devices: Arc<dyn DeviceSource>,
        exec: Arc<dyn Exec>,
        plugin_dirs: Box<PluginDirs>,
    ) -> Self {
        Self {
            definitions,
            devices,
            exec,
            plugin_dirs,
            statuses: Mutex::default(),
            statuses_changed: watch::Sender::default(),
            turns: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the verdict on each definition. It blocks while the plugins run STATUS.
    pub fn report(&self, engine: &Engine, netconf: &Netconf) -> NetworksReport {
        let all = self.read(engine, netconf);
        NetworksReport {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            networks: self.examine(engine.root(), &all, STATUS_AGE).networks,
            attached: engine.add_durations(),
        }
    }

    /// Reads the definitions as pods would get them.
    pub(crate) fn read(&self, engine: &Engine, netconf: &Netconf) -> Planned {
        let dirs = (self.plugin_dirs)();
        let all = self.definitions.all();
        let networks = all.iter().map(|nad| {
            let name = format!("{}/{}", nad.namespace, nad.name);
            (name, engine.definition(nad, netconf, &dirs))
        });
        let is_file = all.iter().any(|nad| nad.config.trim().is_empty());
        let faults = all.iter().flat_map(|nad| {
            let network = format!("{}/{}", nad.namespace, nad.name);
            let faults = nad.scheduling_faults();
            faults.map(move |(reason, message)| DefinitionFault {
                network: network.clone(),
                reason,
                message,
            })
        });
        Planned {
            networks: networks.collect(),
            faults: faults.collect(),
            path: Engine::search_path(netconf, &dirs),
            conf_dir: is_file.then(|| netconf.conf_dir.clone()),
        }
    }

    /// Returns the verdict on each definition. An answer to STATUS that the network is ready counts up to an age of `ready`, any other one
    /// up to [`STATUS_AGE`].
    pub(crate) fn examine(&self, root: &Root, all: &Planned, ready: Duration) -> Examined {
        let facts = Facts {
            networks: self,
            root,
            path: &all.path,
            links: read_links(),
            resources: OnceCell::new(),
            ready,
            is_settled: Cell::new(true),
            until: Instant::now() + STATUS_TIME,
        };
        let networks = all.networks.iter().map(|(name, network)| Network {
            network: name.clone(),
            verdict: verdict(network, &facts),
        });
        let examined = Examined {
            networks: networks.collect(),
            link_faults: all.link_faults(&facts.links),
            is_settled: facts.is_settled.get(),
        };
        let planned = all.networks.iter().filter_map(|(_, one)| one.as_ref().ok());
        let current: HashSet<_> = planned.map(|one| one.config.bytes()).collect();
        self.statuses().retain(|one, _| current.contains(&one[..]));
        examined
    }

    /// Returns a receiver that hears of each answer to STATUS from now on that differs from the one before it.
    pub(crate) fn status_changes(&self) -> watch::Receiver<()> {
        self.statuses_changed.subscribe()
    }

    fn statuses(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Answer>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The links of the node, or why they are not known.
pub(crate) type Links = Result<NodeLinks, String>;

/// Reads the links of the node.
pub(crate) fn read_links() -> Links {
    NodeLinks::read().map_err(|error| format!("cannot list the node's links: {error}"))
}

/// A fault of a definition because of which the scheduler finds no nodes by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DefinitionFault {
    /// The definition, as `namespace/name`.
    pub network: String,
    /// The reason of its event.
    pub reason: &'static str,
    pub message: String,
}

/// The definitions as pods would get them, each with its name, in the order of the names.
pub(crate) struct Planned {
    networks: Vec<(String, Result<Attachment, PlanError>)>,
    /// The definitions' own faults, which are the same on every node.
    faults: Vec<DefinitionFault>,
    /// The directories in which plugins are searched.
    path: Vec<PathBuf>,
    /// The directory of configurations, if a definition has none of its own.
    conf_dir: Option<PathBuf>,
}

impl Planned {
    /// Returns the directories in which plugins are searched.
    pub(crate) fn plugin_dirs(&self) -> &[PathBuf] {
        &self.path
    }

    /// Returns the directories of the files, without those of plugins, whose presence decides about a definition.
    pub(crate) fn fact_dirs(&self) -> BTreeSet<PathBuf> {
        let needs = self.attachments().flat_map(|one| needs(&one.config));
        let files = needs.flat_map(|need| match need.what {
            What::Directory(path) => vec![path],
            What::DhcpService(socket) => sockets(&socket).into_iter().map(PathBuf::from).collect(),
            What::IpamService => vec![PathBuf::from(IPAM_SOCKET)],
            _ => Vec::new(),
        });
        let dir = |file: PathBuf| file.parent().map(Path::to_owned);
        files.filter_map(dir).chain(self.conf_dir.clone()).collect()
    }

    pub(crate) fn faults(&self) -> &[DefinitionFault] {
        &self.faults
    }

    /// Whether a definition needs a device.
    pub(crate) fn has_resources(&self) -> bool {
        self.attachments().any(|one| one.device.is_some())
    }

    /// Returns what the definitions lack of the node's links: while it is the same, a change of the links changes no verdict.
    pub(crate) fn link_faults(&self, links: &Links) -> Vec<String> {
        match links {
            Ok(links) => {
                let all = self.attachments();
                all.flat_map(|one| link_faults(&one.config, links))
                    .collect()
            }
            Err(reason) => vec![reason.clone()],
        }
    }

    fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.networks
            .iter()
            .filter_map(|(_, one)| one.as_ref().ok())
    }
}

/// The outcome of an examination.
#[derive(Debug)]
pub(crate) struct Examined {
    /// The verdict on each definition.
    pub(crate) networks: Vec<Network>,
    /// The faults of links ([`Planned::link_faults`]) at the time of the examination.
    pub(crate) link_faults: Vec<String>,
    /// False if a plugin is not ready, or if the kubelet, the API server or a plugin gave no answer: no change of the node says when that is over.
    pub(crate) is_settled: bool,
}

/// The facts of this node at one moment.
struct Facts<'a> {
    networks: &'a Networks,
    root: &'a Root,
    path: &'a [PathBuf],
    links: Links,
    /// Read once a definition names one.
    resources: OnceCell<Result<BTreeSet<String>, String>>,
    /// The age up to which an answer to STATUS counts that says that the network is ready.
    ready: Duration,
    is_settled: Cell<bool>,
    /// The time after which no plugin runs STATUS any more.
    until: Instant,
}

impl NodeFacts for Facts<'_> {
    fn find_plugin(&self, plugin: &str) -> Result<(), String> {
        let found = self.networks.exec.find(plugin, self.path);
        found.map(drop).map_err(|error| error.to_string())
    }

    fn links(&self) -> Result<&NodeLinks, String> {
        self.links.as_ref().map_err(Clone::clone)
    }

    fn exists(&self, path: &Path) -> bool {
        self.root.exists(path)
    }

    fn resources(&self) -> Result<&BTreeSet<String>, String> {
        let resources = self
            .resources
            .get_or_init(|| self.networks.devices.resources());
        if resources.is_err() {
            self.is_settled.set(false);
        }
        resources.as_ref().map_err(Clone::clone)
    }

    fn status(&self, config: &NetworkConfig) -> Status {
        if config.version() < Version::V1_1_0 {
            return Status::NotServed;
        }
        let status = self.known_or_new_status(config);
        if status != Status::Ready {
            self.is_settled.set(false);
        }
        status
    }
}

impl Facts<'_> {
    fn known_or_new_status(&self, config: &NetworkConfig) -> Status {
        // The stamps are taken before STATUS runs: the answer of a program that is replaced meanwhile does not count for the new one.
        let programs = self.programs(config);
        if let Some(known) = self.networks.statuses().get(config.bytes()) {
            let age = match known.status {
                Status::Ready => self.ready,
                _ => STATUS_AGE,
            };
            if known.programs == programs && known.at.elapsed() < age {
                return known.status.clone();
            }
        }
        if Instant::now() >= self.until {
            let reason = "plugins of other networks took too long to answer STATUS";
            return Status::NoAnswer(reason.to_owned());
        }
        let exec = Until(&*self.networks.exec, self.until);
        let status = match chain::status(&exec, config, self.path) {
            Ok(()) => Status::Ready,
            Err(
                error @ ChainError::Plugin {
                    source: ExecError::Plugin(_),
                    ..
                },
            ) => Status::NotReady(error.to_string()),
            Err(error) => Status::NoAnswer(error.to_string()),
        };
        let answer = Answer {
            programs,
            at: Instant::now(),
            status: status.clone(),
        };
        let before = self
            .networks
            .statuses()
            .insert(config.bytes().to_vec(), answer);
        if before.is_none_or(|before| before.status != status) {
            self.networks.statuses_changed.send_replace(());
        }
        status
    }

    /// Returns the stamps of the programs of a network's plugins, and of the plugins that these run.
    fn programs(&self, config: &NetworkConfig) -> Vec<Option<Stamp>> {
        let find = |plugin| self.networks.exec.find(plugin, self.path).ok();
        let all = plan::plugin_types(config).map(find);
        all.map(|program| self.root.stamp(program?)).collect()
    }
}

/// Runs plugins until a time is over.
struct Until<'a>(&'a dyn Exec, Instant);

impl Exec for Until<'_> {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        self.0.find(plugin, dirs)
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let left = self.1.saturating_duration_since(Instant::now());
        self.0.run_within(left, path, env, stdin)
    }
}

#[cfg(test)]
mod tests;
