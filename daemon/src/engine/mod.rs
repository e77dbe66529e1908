//! The engine carries out plans: it runs each CNI verb as a sequence of delegates, writes state before each step, and
//! undoes the steps of an ADD that fails. Every function here blocks, so callers run it on a thread of its own.
//!
//! A request takes these forms on its way to a plugin:
//!
//! 1. `api::Request` (`raw_request`) is the shim's message: environment and configuration, unchecked.
//! 2. `call::CniCall` is its environment, parsed: the verb, the pod, and a `ContainerRequest` for verbs about one container.
//! 3. [`ContainerRequest`] is an ADD, DEL or CHECK: container ID, network namespace, interface, arguments.
//! 4. `DelegateContext` adds what all delegates of a request share: pod, search path, result cache.
//! 5. `cni::chain::Invocation` has the arguments for the plugins of one delegate.

mod add;
mod cached_results;
mod check;
mod del;
mod device_info;
mod devices;
mod durations;
mod expiry;
mod failure;
mod gc;
mod hand_off;
mod invocation;
mod locks;
mod node_files;
mod node_plugins;
mod planned;
mod plug;
mod routes;
mod stale;
mod status;
mod verb_exec;

pub use add::Added;
pub use del::Abandoned;
pub use failure::{Failure, Length};
pub use hand_off::{HandOff, KeptNetwork};
pub use plug::Reconciled;
pub use stale::{IsStale, NetnsState};

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use api::network_report::Attached;
use api::plugins::search_path;
use cni::env::{ContainerId, IfName};
use cni::exec::Exec;
use cni::types::CniError;
use node::root::Root;
use plan::netconf::Netconf;
use plan::{Attachment, Definitions, Family, Inputs, Nad, NoPlugins, PlanError, Plugins};

use self::node_files::NodeFiles;
use crate::devices::{DeviceSource, NoDevices};
use crate::metrics::Metrics;
use crate::state::{PodRef, Store, Writer, boot_id};
use crate::statuses::Statuses;

use self::node_plugins::NodePlugins;

/// Reads the interfaces and sets the default routes of a container's network namespace.
pub trait LinkProbe: Send + Sync {
    /// Opens the namespace's list of interfaces. The list keeps the namespace alive until it is dropped.
    fn interfaces(&self, netns: &str) -> io::Result<Box<dyn Interfaces>>;
    /// Makes these routes the only default routes of the family in the namespace. Of two with the same metric, the later one
    /// takes effect.
    fn set_default_routes(
        &self,
        netns: &str,
        family: Family,
        routes: &[DefaultRoute],
    ) -> io::Result<()>;
}

/// The interfaces of one network namespace, as they are at the moment of each call.
pub trait Interfaces: Send {
    /// Returns whether the namespace has an interface of that name.
    fn contains(&self, ifname: &str) -> io::Result<bool>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The interface.
    pub ifname: String,
    /// The gateway; a route without one is on-link.
    pub gateway: Option<IpAddr>,
    /// The metric; 0 stands for the kernel's default of the family.
    pub metric: u32,
}

/// One ADD, DEL or CHECK of the runtime, with its environment already parsed.
#[derive(Debug, Clone)]
pub struct ContainerRequest {
    /// The sandbox's container ID.
    pub container_id: ContainerId,
    /// The network namespace; a DEL may come without one.
    pub netns: Option<String>,
    /// The interface that the runtime requests.
    pub ifname: IfName,
    /// `CNI_ARGS`.
    pub args: Vec<(String, String)>,
    /// `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// Says whether the runtime has stopped waiting for the answer.
    pub cancellation: Cancellation,
    /// Whether the request was recorded earlier. Its process ids may since belong to other processes.
    pub replayed: bool,
}

/// Says that the runtime no longer waits for an answer. Its DEL may then come at any moment.
#[derive(Debug, Clone)]
pub struct Cancellation {
    is_cancelled: Arc<AtomicBool>,
    /// When the request came.
    since: Instant,
}

impl Default for Cancellation {
    fn default() -> Self {
        Self::since(Instant::now())
    }
}

impl Cancellation {
    /// The cancellation of a request that came at this time.
    fn since(since: Instant) -> Self {
        Self {
            is_cancelled: Arc::default(),
            since,
        }
    }

    /// Marks the request as one that the runtime no longer waits for.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// Returns an error when the runtime no longer waits: an ADD must not go on then, since its DEL may have been answered
    /// already.
    fn check(&self) -> Result<(), CniError> {
        if self.is_cancelled.load(Ordering::SeqCst) {
            let text = "the runtime has given up waiting for this ADD";
            return Err(CniError::new(CniError::TRY_AGAIN_LATER, text));
        }
        Ok(())
    }
}

/// Is called with a network that will never be detached, and the reason, since no answer to the runtime reports it.
pub type OnAbandoned = dyn Fn(&PodRef, &Abandoned) + Send + Sync;

/// Returns the time since the kernel was started, sleep included.
pub type Clock = dyn Fn() -> Duration + Send + Sync;

fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or_default())
}

/// Runs CNI verbs. The daemon has one engine for its whole lifetime: it holds the containers' locks and the last answer to STATUS.
pub struct Engine {
    exec: Arc<dyn Exec>,
    links: Arc<dyn LinkProbe>,
    root: Arc<Root>,
    files: NodeFiles,
    definitions: Arc<dyn Definitions>,
    devices: Arc<dyn DeviceSource>,
    /// Gets the statuses of pods; an engine without it writes none.
    statuses: Option<Arc<Statuses>>,
    locks: locks::Locks,
    /// An ADD holds it shared while it writes its first record, GC holds it exclusively while it reports valid attachments to
    /// plugins.
    gc_lock: RwLock<()>,
    status: status::Cache,
    readiness_polling: ReadinessPolling,
    /// The pod of each container that was looked up so far.
    owners: Mutex<HashMap<ContainerId, PodRef>>,
    on_abandoned: Box<OnAbandoned>,
    clock: Box<Clock>,
    boot: OnceLock<Option<Arc<str>>>,
    writer: Option<Writer>,
    metrics: Arc<Metrics>,
    durations: durations::AddDurations,
}

/// How an ADD waits for the readiness indicator file.
#[derive(Debug, Clone, Copy)]
pub struct ReadinessPolling {
    /// The pause between two checks.
    pub interval: Duration,
    /// The number of checks.
    pub attempts: u32,
}

impl Default for ReadinessPolling {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            attempts: 45,
        }
    }
}

impl Engine {
    /// Returns an engine for the node below `root`.
    pub fn new(
        exec: Arc<dyn Exec>,
        links: Arc<dyn LinkProbe>,
        root: Arc<Root>,
        definitions: Arc<dyn Definitions>,
    ) -> Self {
        Self {
            exec,
            links,
            files: NodeFiles(Arc::clone(&root)),
            root,
            definitions,
            devices: Arc::new(NoDevices),
            statuses: None,
            locks: locks::Locks::default(),
            gc_lock: RwLock::default(),
            status: status::Cache::default(),
            readiness_polling: ReadinessPolling::default(),
            owners: Mutex::default(),
            on_abandoned: Box::new(|_, _| {}),
            clock: Box::new(uptime),
            boot: OnceLock::new(),
            writer: None,
            metrics: Arc::default(),
            durations: durations::AddDurations::default(),
        }
    }

    /// Returns how long the ADD of each attachment took that was made since the start and is still there.
    pub fn add_durations(&self) -> Vec<Attached> {
        self.durations.sorted()
    }

    /// Calls `on_abandoned` for each network that is abandoned.
    #[must_use]
    pub fn with_on_abandoned(mut self, on_abandoned: Box<OnAbandoned>) -> Self {
        self.on_abandoned = on_abandoned;
        self
    }

    /// Names the daemon in the records that it writes.
    #[must_use]
    pub fn with_writer(mut self, writer: Option<Writer>) -> Self {
        self.writer = writer;
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Box<Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Counts delegates in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Replaces the time that an ADD waits for the readiness indicator file.
    #[must_use]
    pub fn with_readiness_polling(mut self, polling: ReadinessPolling) -> Self {
        self.readiness_polling = polling;
        self
    }

    /// Asks `devices` for the devices of pods.
    #[must_use]
    pub fn with_devices(mut self, devices: Arc<dyn DeviceSource>) -> Self {
        self.devices = devices;
        self
    }

    /// Hands the statuses of pods over to `statuses`.
    #[must_use]
    pub fn with_statuses(mut self, statuses: Arc<Statuses>) -> Self {
        self.statuses = Some(statuses);
        self
    }

    /// The node's file tree.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The node's file tree, for work that may outlive a call.
    pub fn shared_root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// The inputs of a plan that needs no plugin's VERSION.
    fn inputs<'a>(&'a self, netconf: &'a Netconf) -> Inputs<'a> {
        self.inputs_with(netconf, &NoPlugins)
    }

    fn inputs_with<'a>(&'a self, netconf: &'a Netconf, plugins: &'a dyn Plugins) -> Inputs<'a> {
        Inputs {
            netconf,
            definitions: &*self.definitions,
            files: &self.files,
            plugins,
        }
    }

    fn plugins(&self, netconf: &Netconf, path: &[PathBuf]) -> NodePlugins<'_> {
        NodePlugins {
            exec: &*self.exec,
            path: Self::search_path(netconf, path),
        }
    }

    /// Returns what a pod would get of a definition. `runtime_dirs` are the runtime's directories of plugins.
    pub fn definition(
        &self,
        nad: &Nad,
        netconf: &Netconf,
        runtime_dirs: &[PathBuf],
    ) -> Result<Attachment, PlanError> {
        let plugins = self.plugins(netconf, runtime_dirs);
        plan::definition_attachment(nad, self.inputs_with(netconf, &plugins))
    }

    fn store(&self, netconf: &Netconf) -> Store {
        let store = Store::new(Arc::clone(&self.root), &netconf.cni_dir);
        store
            .in_boot(self.boot_id())
            .written_by(self.writer.clone())
    }

    fn boot_id(&self) -> Option<Arc<str>> {
        let boot = self.boot.get_or_init(|| boot_id(&self.root));
        boot.clone()
    }

    /// The directories that are searched for plugins of a request, whose `CNI_PATH` has the runtime's.
    pub fn search_path(netconf: &Netconf, request: &[PathBuf]) -> Vec<PathBuf> {
        let runtime_dirs = request.iter().map(PathBuf::as_path);
        search_path(
            netconf.bin_dir.as_deref(),
            runtime_dirs,
            netconf.own_plugins_first,
        )
    }

    fn is_ready(&self, indicator: &Path) -> bool {
        self.root.exists(indicator)
    }
}

#[cfg(test)]
mod tests;
