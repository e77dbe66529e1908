//! Doing what was decided: each CNI verb as a sequence of delegates, with state written before each step and undone on
//! failure. Everything here blocks; whoever calls it brings a thread.

mod add;
mod check;
mod del;
mod device_info;
mod devices;
mod expiry;
mod failure;
mod gc;
mod hand_over;
mod invocation;
mod locks;
mod node_files;
mod on_node;
mod planned;
mod plug;
mod recall;
mod routes;
mod status;
mod sweep;

pub use add::{AddError, Added};
pub use del::Abandoned;
pub use hand_over::{HandedOver, Kept};
pub use plug::Followed;
pub use sweep::{Gone, Namespace};

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use cni::env::{ContainerId, IfName};
use cni::exec::Exec;
use cni::types::CniError;
use node::root::Root;
use plan::netconf::Netconf;
use plan::{Definitions, Family, Inputs, NoPlugins, Plugins};

use self::node_files::NodeFiles;
use crate::devices::{DeviceSource, NoDevices};
use crate::metrics::Metrics;
use crate::state::{PodRef, Store, boot_id};

use self::on_node::OnNode;

/// Our own plugins on the node; searched last.
pub const OWN_PLUGIN_DIR: &str = "/var/lib/multus/bin";

/// Looks into a container's network namespace.
pub trait LinkProbe: Send + Sync {
    /// Opens the namespace's list of interfaces, which keeps the namespace alive until it is dropped.
    fn interfaces(&self, netns: &str) -> io::Result<Box<dyn Interfaces>>;
    /// Makes these the only default routes of the family in the namespace; of two with one metric, the later is in force.
    fn set_default_routes(
        &self,
        netns: &str,
        family: Family,
        routes: &[DefaultRoute],
    ) -> io::Result<()>;
}

/// The interfaces of one network namespace, at the moment of each call.
pub trait Interfaces: Send {
    /// Returns whether the namespace has an interface of that name.
    fn contains(&self, ifname: &str) -> io::Result<bool>;
}

/// A default route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Its interface.
    pub ifname: String,
    /// Its gateway; without one it leads to the link.
    pub gateway: Option<IpAddr>,
    /// Its metric; 0 is the family's usual one.
    pub metric: u32,
}

/// One ADD, DEL or CHECK of the runtime, its environment already parsed.
#[derive(Debug, Clone)]
pub struct Request {
    /// The container.
    pub container_id: ContainerId,
    /// Its network namespace; DEL may come without.
    pub netns: Option<String>,
    /// The interface that the runtime asks for.
    pub ifname: IfName,
    /// `CNI_ARGS`.
    pub args: Vec<(String, String)>,
    /// `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// Whether the answer is still awaited.
    pub waiting: Waiting,
    /// Whether it was written down earlier: process ids in it may be those of other processes by now.
    pub replayed: bool,
}

/// Tells that nobody waits for an answer any more: the runtime has given up, and its DEL may come at any moment.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// From now on nobody waits.
    pub fn gone(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// An ADD that nobody waits for must not go on: its DEL may have been answered already.
    fn or_give_up(&self) -> Result<(), CniError> {
        if self.0.load(Ordering::SeqCst) {
            let text = "the runtime has given up waiting for this ADD";
            return Err(CniError::new(CniError::TRY_AGAIN_LATER, text));
        }
        Ok(())
    }
}

/// Hears of what cannot be told to whoever asked: the network that nobody will detach any more, and why.
pub type Witness = dyn Fn(&PodRef, &Abandoned) + Send + Sync;

/// The time since the kernel was started, sleep included.
pub type Clock = dyn Fn() -> Duration + Send + Sync;

fn uptime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or_default())
}

/// Runs verbs. One for the life of the daemon: it holds the locks of containers and the last answer to STATUS.
pub struct Engine {
    exec: Arc<dyn Exec>,
    links: Arc<dyn LinkProbe>,
    root: Arc<Root>,
    files: NodeFiles,
    definitions: Arc<dyn Definitions>,
    devices: Arc<dyn DeviceSource>,
    locks: locks::Locks,
    /// Held by every ADD while it makes itself known, and by GC while it tells plugins who is known.
    adding: RwLock<()>,
    status: status::Cache,
    readiness: Patience,
    /// Whose containers are, as far as somebody asked.
    owners: Mutex<HashMap<ContainerId, PodRef>>,
    given_up: Box<Witness>,
    clock: Box<Clock>,
    boot: OnceLock<Option<Arc<str>>>,
    metrics: Arc<Metrics>,
}

/// How long to wait for the readiness indicator, and how often to look.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Pause between two looks.
    pub interval: Duration,
    /// How often to look.
    pub attempts: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            attempts: 45,
        }
    }
}

impl Engine {
    /// An engine on the node below `root`.
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
            locks: locks::Locks::default(),
            adding: RwLock::default(),
            status: status::Cache::default(),
            readiness: Patience::default(),
            owners: Mutex::default(),
            given_up: Box::new(|_, _| {}),
            clock: Box::new(uptime),
            boot: OnceLock::new(),
            metrics: Arc::default(),
        }
    }

    /// The same engine with somebody who is told of networks that were given up.
    #[must_use]
    pub fn with_witness(mut self, given_up: Box<Witness>) -> Self {
        self.given_up = given_up;
        self
    }

    /// The same engine with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Box<Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The same engine with somebody who counts delegates.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The same engine with another patience for the readiness indicator.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.readiness = patience;
        self
    }

    /// The same engine with somebody who knows the pods' devices.
    #[must_use]
    pub fn with_devices(mut self, devices: Arc<dyn DeviceSource>) -> Self {
        self.devices = devices;
        self
    }

    /// The node's file tree.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The same for work that may outlive a call.
    pub fn shared_root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// What a plan is made from where no plugin needs to be asked.
    fn inputs<'a>(&'a self, netconf: &'a Netconf) -> Inputs<'a> {
        self.inputs_with(netconf, &NoPlugins)
    }

    /// What a plan is made from; `plugins` are those of a request.
    fn inputs_with<'a>(&'a self, netconf: &'a Netconf, plugins: &'a dyn Plugins) -> Inputs<'a> {
        Inputs {
            netconf,
            definitions: &*self.definitions,
            files: &self.files,
            plugins,
        }
    }

    /// The plugins that a request finds.
    fn plugins(&self, netconf: &Netconf, path: &[PathBuf]) -> OnNode<'_> {
        OnNode {
            exec: &*self.exec,
            path: Self::search_path(netconf, path),
        }
    }

    fn store(&self, netconf: &Netconf) -> Store {
        let boot = self.boot.get_or_init(|| boot_id(&self.root));
        Store::new(Arc::clone(&self.root), &netconf.cni_dir).in_boot(boot.clone())
    }

    /// Where delegates are looked for: a directory that someone set, those of the runtime, our own.
    fn search_path(netconf: &Netconf, request: &[PathBuf]) -> Vec<PathBuf> {
        let own = PathBuf::from(OWN_PLUGIN_DIR);
        let mut path: Vec<PathBuf> = Vec::new();
        for dir in netconf.bin_dir.iter().chain(request).chain([&own]) {
            if dir.is_absolute() && !path.contains(dir) {
                path.push(dir.clone());
            }
        }
        path
    }

    fn is_ready(&self, indicator: &Path) -> bool {
        self.root.exists(indicator)
    }
}

#[cfg(test)]
mod tests;
