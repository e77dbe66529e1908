//! DHCP on this node, if the option `dhcp` is on: the daemon that serves the node holds the leases of our plugin `dhcp`. Where the search
//! for plugins finds the node's own `dhcp` first, that one is kept serving, too ([`keeper`]).

mod keeper;

use std::sync::{Arc, OnceLock};

use node::root::Root;

use crate::{
    cluster::Cluster,
    host::{
        dhcp_server,
        dhcp_service::{self, Parts, Paths},
    },
    reconcile::{node::NodeReconciler, node_service},
};

use self::keeper::Keeper;

/// Runs for ever. Of two daemons only the one that serves the node takes part. `cluster` gets events about pods.
pub async fn run(
    reconciler: Arc<NodeReconciler>,
    cluster: Arc<OnceLock<Cluster>>,
    is_wanted: bool,
) {
    let paths = Paths::new(&reconciler.config.cni_dir);
    if !is_wanted {
        // Leases of running pods stay on disk.
        let remove = move |reconciler: &NodeReconciler, seen: Option<&Root>| {
            dhcp_server::end();
            if let Some(seen) = seen {
                paths.remove(seen, &reconciler.root);
            }
        };
        return node_service::remove(reconciler, remove).await;
    }
    let keeper = Keeper::new(Arc::clone(&reconciler));
    tokio::join!(hold_leases(reconciler, cluster, paths), keeper.run());
}

/// Keeps the service running that holds the leases.
async fn hold_leases(
    reconciler: Arc<NodeReconciler>,
    cluster: Arc<OnceLock<Cluster>>,
    paths: Paths,
) {
    let socket = paths.socket.clone();
    let start = move |reconciler: &NodeReconciler, seen: &Root| {
        let parts = Parts {
            root: Arc::clone(&reconciler.root),
            exec: Arc::clone(&reconciler.exec),
            metrics: Arc::clone(&reconciler.metrics),
            cni_dir: reconciler.config.cni_dir.clone(),
            cluster: Arc::clone(&cluster),
        };
        dhcp_service::start(parts, &paths, seen)
    };
    node_service::keep(reconciler, "DHCP", &socket, start).await;
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::Shutdown,
        os::unix::net::UnixStream,
        path::Path,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        host::exec::{ExecContext, RuntimeExec},
        readiness::{Gate, Readiness},
    };
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
            dirs_changed: tokio::sync::watch::Sender::default(),
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
