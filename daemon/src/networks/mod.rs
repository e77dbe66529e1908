//! Which definitions of the cluster this node can serve. It is found out whenever somebody asks, and never by a timer: links, plugins and
//! devices come and go without a word to the daemon.

mod verdict;

use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::network_report::{Network, NetworksReport, SCHEMA};
use cni::{
    chain::{self, ChainError},
    config::NetworkConfig,
    exec::{Exec, ExecError},
    version::Version,
};
use node::root::Root;
use plan::netconf::Netconf;
use tokio::sync::Semaphore;

use self::verdict::{NodeFacts, Status, verdict};
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
    statuses: Mutex<HashMap<Vec<u8>, (Instant, Status)>>,
    /// The right to make a report.
    pub turns: Arc<Semaphore>,
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
            turns: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the verdict on each definition. It blocks while the plugins run STATUS.
    pub fn report(&self, engine: &Engine, netconf: &Netconf) -> NetworksReport {
        let dirs = (self.plugin_dirs)();
        let facts = Facts {
            networks: self,
            root: engine.root(),
            path: Engine::search_path(netconf, &dirs),
            links: NodeLinks::read()
                .map_err(|error| format!("cannot list the node's links: {error}")),
            resources: OnceCell::new(),
            until: Instant::now() + STATUS_TIME,
        };
        let all = self.definitions.all();
        let networks = all.iter().map(|nad| Network {
            network: format!("{}/{}", nad.namespace, nad.name),
            verdict: verdict(&engine.definition(nad, netconf, &dirs), &facts),
        });
        let report = NetworksReport {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            networks: networks.collect(),
            attached: engine.add_durations(),
        };
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.retain(|_, (at, _)| at.elapsed() < STATUS_AGE);
        report
    }
}

/// The facts of this node at one moment.
struct Facts<'a> {
    networks: &'a Networks,
    root: &'a Root,
    path: Vec<PathBuf>,
    links: Result<NodeLinks, String>,
    /// Read once a definition names one.
    resources: OnceCell<Result<BTreeSet<String>, String>>,
    /// The time after which no plugin runs STATUS any more.
    until: Instant,
}

impl NodeFacts for Facts<'_> {
    fn find_plugin(&self, plugin: &str) -> Result<(), String> {
        let found = self.networks.exec.find(plugin, &self.path);
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
        resources.as_ref().map_err(Clone::clone)
    }

    fn status(&self, config: &NetworkConfig) -> Status {
        if config.version() < Version::V1_1_0 {
            return Status::NotServed;
        }
        let known = &self.networks.statuses;
        {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let last = known.get(config.bytes());
            if let Some((_, status)) = last.filter(|(at, _)| at.elapsed() < STATUS_AGE) {
                return status.clone();
            }
        }
        if Instant::now() >= self.until {
            let reason = "plugins of other networks took too long to answer STATUS";
            return Status::NoAnswer(reason.to_owned());
        }
        let exec = Until(&*self.networks.exec, self.until);
        let status = match chain::status(&exec, config, &self.path) {
            Ok(()) => Status::Ready,
            Err(
                error @ ChainError::Plugin {
                    source: ExecError::Plugin(_),
                    ..
                },
            ) => Status::NotReady(error.to_string()),
            Err(error) => Status::NoAnswer(error.to_string()),
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(config.bytes().to_vec(), (Instant::now(), status.clone()));
        status
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
