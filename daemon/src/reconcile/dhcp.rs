//! DHCP on this node, if the option `dhcp` is on: the daemon that serves the node holds the leases of our plugin `dhcp`. Where the search
//! for plugins finds the node's own `dhcp` first, that one is kept serving, too ([`keeper`]).

mod keeper;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use node::root::Root;
use tracing::{info, warn};

use crate::{
    cluster::Cluster,
    host::{
        dhcp_server,
        dhcp_service::{DhcpService, Parts, Paths, SocketName},
        dir_watch::{DirectoryWatch, changed_or_never},
        exec::ExecContext,
    },
    readiness::Gate,
    reconcile::node::NodeReconciler,
};

use self::keeper::Keeper;

/// The pause before a service that failed is started again, or one whose name another daemon has taken. It doubles with each failure.
const START_AGAIN: Duration = Duration::from_secs(1);
/// The longest pause; a service that ran for so long has not failed at its start.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The pause between two checks of the socket's name where no event reports its loss.
const CHECK_PERIOD: Duration = Duration::from_secs(30);

/// Runs for ever. Of two daemons only the one that serves the node takes part. `cluster` gets events about pods.
pub async fn run(
    reconciler: Arc<NodeReconciler>,
    cluster: Arc<OnceLock<Cluster>>,
    is_wanted: bool,
) {
    let paths = Paths::new(&reconciler.config.cni_dir);
    if !is_wanted {
        let gates = [Gate::Discovery, Gate::Socket];
        reconciler.readiness.wait_open(&gates).await;
        let _ = tokio::task::spawn_blocking(move || remove(&reconciler, &paths)).await;
        return;
    }
    let keeper = Keeper::new(Arc::clone(&reconciler));
    tokio::join!(hold_leases(reconciler, cluster, paths), keeper.run());
}

/// Ends everything that this or an earlier daemon has started for DHCP; leases of running pods stay on disk.
pub fn remove(reconciler: &NodeReconciler, paths: &Paths) {
    dhcp_server::end();
    if let Ok(seen) = Seen::by_plugins(&reconciler.exec.context()) {
        paths.remove(seen.root(), &reconciler.root);
    }
}

/// Keeps a service running. One whose socket has lost its name ends: the next daemon serves.
async fn hold_leases(
    reconciler: Arc<NodeReconciler>,
    cluster: Arc<OnceLock<Cluster>>,
    paths: Paths,
) {
    let mut last_logged = None;
    let mut pause = START_AGAIN;
    loop {
        let gates = [Gate::Discovery, Gate::Socket];
        reconciler.readiness.wait_open(&gates).await;
        match start(&reconciler, &cluster, &paths).await {
            Ok(mut service) => {
                let (name, started) = (service.name(), Instant::now());
                let failure = tokio::select! {
                    () = name_is_lost(&reconciler, &paths, &name) => {
                        info!("the DHCP service ends: its socket has lost its name");
                        None
                    }
                    error = service.ended() => Some(format!("{error:#}")),
                };
                if failure.is_none() || started.elapsed() > LONGEST_PAUSE {
                    last_logged = None;
                    pause = START_AGAIN;
                }
                if let Some(error) = failure
                    && last_logged.as_ref() != Some(&error)
                {
                    warn!(error, "the DHCP service has ended; it is started again");
                    last_logged = Some(error);
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if last_logged.as_ref() != Some(&error) {
                    warn!(
                        error,
                        "cannot start the DHCP service: networks get no addresses by DHCP"
                    );
                }
                last_logged = Some(error);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

async fn start(
    reconciler: &Arc<NodeReconciler>,
    cluster: &Arc<OnceLock<Cluster>>,
    paths: &Paths,
) -> anyhow::Result<DhcpService> {
    let (reconciler, paths) = (Arc::clone(reconciler), paths.clone());
    let cluster = Arc::clone(cluster);
    let start = move || {
        let parts = Parts {
            root: Arc::clone(&reconciler.root),
            exec: Arc::clone(&reconciler.exec),
            metrics: Arc::clone(&reconciler.metrics),
            cni_dir: reconciler.config.cni_dir.clone(),
            cluster,
        };
        let seen = Seen::by_plugins(&reconciler.exec.context())?;
        DhcpService::start(parts, &paths, seen.root())
    };
    tokio::task::spawn_blocking(start).await?
}

/// Returns once plugins no longer find the service under its name.
async fn name_is_lost(reconciler: &NodeReconciler, paths: &Paths, name: &SocketName) {
    let dir = paths.socket.parent().unwrap_or(Path::new("/"));
    loop {
        let watch = {
            // A runtime that was restarted may have another file tree.
            let Ok(seen) = Seen::by_plugins(&reconciler.exec.context()) else {
                return;
            };
            let watch = DirectoryWatch::new(seen.root(), &[dir]);
            if !name.is_ours(seen.root()) {
                return;
            }
            watch
        };
        let _ = tokio::time::timeout(CHECK_PERIOD, changed_or_never(watch)).await;
    }
}

/// The file tree in which plugins find their files.
enum Seen {
    Runtime(Arc<node::process::Process>),
    Opened(Root),
}

impl Seen {
    fn by_plugins(context: &ExecContext) -> Result<Self, node::root::RootError> {
        match (&context.chroot, &context.runtime) {
            (None, Some(runtime)) => Ok(Self::Runtime(Arc::clone(runtime))),
            (chroot, _) => {
                Root::open(chroot.as_deref().unwrap_or(Path::new("/"))).map(Self::Opened)
            }
        }
    }

    fn root(&self) -> &Root {
        match self {
            Self::Runtime(runtime) => &runtime.tree,
            Self::Opened(root) => root,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::Shutdown,
        os::unix::net::UnixStream,
    };

    use super::*;
    use crate::{host::exec::RuntimeExec, readiness::Readiness};
    use plan::daemon_config::Config;

    /// The node's part of a daemon that finds its plugins in this directory.
    pub(super) fn reconciler(dir: &Path, plugins: &Path) -> Arc<NodeReconciler> {
        let config = serde_json::json!({"binDir": plugins, "cniConfigDir": dir});
        let serde_json::Value::Object(config) = config else {
            unreachable!("it is an object");
        };
        let config = Arc::new(Config::parse(config).unwrap());
        // Plugins that this machine has must not be found, and the same path leads to a file below the root and without it.
        let here = dir.join(dir.strip_prefix("/").unwrap());
        std::fs::create_dir_all(here.parent().unwrap()).unwrap();
        // The second daemon of a test finds the link of the first.
        let _ = std::os::unix::fs::symlink("/", here);
        let root = Arc::new(Root::open(dir).unwrap());
        let exec = RuntimeExec::new(Arc::clone(&root), ExecContext::default());
        Arc::new(NodeReconciler {
            exec: Arc::new(exec.with_spawner_thread()),
            readiness: Arc::new(Readiness::new(&[])),
            pod_uid: None,
            target: std::sync::Mutex::default(),
            last_logged: std::sync::Mutex::default(),
            installed: std::sync::Mutex::default(),
            metrics: Arc::default(),
            config,
            root,
        })
    }

    /// Sends a request to the service and returns its answer, which is empty when the service has ended.
    fn answer(socket: &Path) -> String {
        let ask = r#"{"verb": "release", "client": "c", "netns": "", "ifname": "", "provide": [], "request": []}"#;
        let mut text = String::new();
        // Every error is that of a service which ends.
        let _ = UnixStream::connect(socket).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(ask.as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
            stream.read_to_string(&mut text)
        });
        text
    }

    /// Waits for a condition.
    async fn until(what: &str, condition: impl Fn() -> bool + Send + 'static) {
        let end = Instant::now() + Duration::from_secs(30);
        let wait = move || {
            while !condition() && Instant::now() < end {
                std::thread::yield_now();
            }
            Instant::now() < end
        };
        let is_met = tokio::task::spawn_blocking(wait).await.unwrap();
        assert!(is_met, "not in time: {what}");
    }

    async fn served(socket: &Path) {
        let socket = socket.to_owned();
        until("the service answers", move || {
            answer(&socket) == r#"{"done":null}"#
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn daemon_that_loses_the_name_lets_the_next_one_serve() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths {
            socket: dir.path().join("run/multus-dhcp.sock"),
            former_socket: dir.path().join("run/dhcp.sock"),
            leases: dir.path().join("leases"),
        };
        let daemons = [(), ()].map(|()| reconciler(dir.path(), dir.path()));
        daemons[1]
            .readiness
            .close(Gate::Socket, "the other daemon serves");
        let tasks = daemons.each_ref().map(|daemon| {
            tokio::spawn(hold_leases(
                Arc::clone(daemon),
                Arc::default(),
                paths.clone(),
            ))
        });
        served(&paths.socket).await;
        let (root, socket) = (Arc::clone(&daemons[0].root), paths.socket.clone());
        let owner = root.identity(&socket);

        daemons[0]
            .readiness
            .close(Gate::Socket, "the next daemon serves");
        daemons[1].readiness.open(Gate::Socket);
        until("the next daemon takes the name", move || {
            root.identity(&socket) != owner
        })
        .await;
        // The next one waits for the lock, which the first one gives up.
        served(&paths.socket).await;

        // A name that was removed is made again.
        std::fs::remove_file(&paths.socket).unwrap();
        served(&paths.socket).await;
        for task in tasks {
            task.abort();
        }
    }
}
