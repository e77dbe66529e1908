//! Keeps the node's plugin `dhcp` serving if the option `dhcp` is on: it holds the leases of pods whose networks get their addresses by
//! DHCP, and renews them for as long as the pods live.
//!
//! The plugin keeps its leases only in memory, so it is started where it outlives this daemon: in the runtime's cgroup and mount namespace.
//! A plugin that serves already is kept, whether an earlier daemon or another process started it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cni::exec::{Exec as _, ExecError};
use node::root::{Kind, Root};
use tracing::{info, warn};

use crate::{
    host::{
        dhcp_server::{self, MARK, PLUGIN},
        exec::{Detached, Fate},
        orphans,
    },
    readiness::{Gate, Readiness},
    reconcile::node::NodeReconciler,
    serving::socket,
};

/// The socket that plugins connect to, in the runtime's file tree.
const SOCKET: &str = "/run/cni/dhcp.sock";
/// Pause between two checks.
const PERIOD: Duration = Duration::from_secs(5);

/// Keeps the plugin serving.
pub struct Keeper {
    reconciler: Arc<NodeReconciler>,
    socket: PathBuf,
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Served,
    Started(PathBuf),
    /// It runs but does not serve yet.
    Starting,
    Failed(String),
}

impl Keeper {
    /// Creates the keeper of this node.
    pub fn new(reconciler: Arc<NodeReconciler>) -> Self {
        Self {
            reconciler,
            socket: SOCKET.into(),
        }
    }

    /// Runs for ever. Of two daemons only the one that serves the node starts or ends the plugin.
    pub async fn run(self, is_wanted: bool) {
        let readiness: Arc<Readiness> = Arc::clone(&self.reconciler.readiness);
        let keeper = Arc::new(self);
        let (mut child, mut last_logged) = (None, None);
        loop {
            readiness.wait_open(&[Gate::Discovery, Gate::Shim]).await;
            if !is_wanted {
                let _ = tokio::task::spawn_blocking(dhcp_server::end).await;
                return;
            }
            let checker = Arc::clone(&keeper);
            let check = move || (checker.check(&mut child), child);
            let Ok((state, left)) = tokio::task::spawn_blocking(check).await else {
                return;
            };
            child = left;
            if state != State::Starting && last_logged.as_ref() != Some(&state) {
                log(&state);
                last_logged = Some(state);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn check(&self, child: &mut Option<Detached>) -> State {
        let context = self.reconciler.exec.context();
        let opened;
        let seen = match (&context.chroot, &context.runtime) {
            (None, Some(runtime)) => &runtime.tree,
            (chroot, _) => match Root::open(chroot.as_deref().unwrap_or(Path::new("/"))) {
                Ok(root) => {
                    opened = root;
                    &opened
                }
                Err(error) => return State::Failed(error.to_string()),
            },
        };
        if socket::is_served_at(seen, &self.socket) {
            return State::Served;
        }
        match child.as_mut().map(Detached::fate) {
            Some(Fate::Running) => return State::Starting,
            // It may be about to serve, and two of them must not serve at once.
            Some(Fate::Unknown) => {
                orphans::end_marked(MARK);
            }
            Some(Fate::Ended(_)) | None => {}
        }
        match self.start(seen) {
            Ok((path, started)) => {
                *child = Some(started);
                State::Started(path)
            }
            Err(reason) => State::Failed(reason),
        }
    }

    fn start(&self, seen: &Root) -> Result<(PathBuf, Detached), String> {
        let exec = &self.reconciler.exec;
        let path = exec
            .find(PLUGIN, &self.reconciler.plugin_dirs())
            .map_err(|error| missing(&error))?;
        remove_stale(seen, &self.socket)
            .map_err(|error| format!("cannot remove {}: {error}", self.socket.display()))?;
        let socket = self.socket.display().to_string();
        let started = exec
            .start(&path, &["daemon", "-socketpath", &socket], MARK)
            .map_err(|error| error.to_string())?;
        Ok((path, started))
    }
}

fn log(state: &State) {
    match state {
        State::Started(path) => {
            info!(path = %path.display(), "started the plugin dhcp, which holds leases");
        }
        State::Failed(reason) => warn!(
            reason,
            "cannot start the plugin dhcp: networks get no addresses by DHCP"
        ),
        State::Served => info!(socket = SOCKET, "the plugin dhcp serves"),
        State::Starting => {}
    }
}

fn missing(error: &ExecError) -> String {
    format!("{error}; install it into one of them: it is one of the reference plugins")
}

/// Removes a socket without a process behind it, which would prevent the plugin from binding its name.
fn remove_stale(seen: &Root, path: &Path) -> io::Result<()> {
    let is_socket = matches!(seen.kind(path), Ok(Some(Kind::Socket)));
    if is_socket {
        seen.remove(path).map_err(|error| error.source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::net::UnixListener};

    use super::*;
    use crate::host::exec::{ExecContext, RuntimeExec};
    use plan::daemon_config::Config;

    /// A keeper whose plugin records its arguments and keeps running.
    fn keeper(dir: &Path, plugins: &Path) -> Keeper {
        let config = serde_json::json!({"binDir": plugins, "cniConfigDir": dir});
        let serde_json::Value::Object(config) = config else {
            unreachable!("it is an object");
        };
        let config = Arc::new(Config::parse(config).unwrap());
        let root = Arc::new(Root::open("/").unwrap());
        let reconciler = NodeReconciler {
            exec: Arc::new(
                RuntimeExec::new(Arc::clone(&root), ExecContext::default()).with_spawner_thread(),
            ),
            readiness: Arc::new(Readiness::new(&[])),
            pod_uid: None,
            target: std::sync::Mutex::default(),
            last_logged: std::sync::Mutex::default(),
            metrics: Arc::default(),
            config,
            root,
        };
        Keeper {
            reconciler: Arc::new(reconciler),
            socket: dir.join("dhcp.sock"),
        }
    }

    #[test]
    fn plugin_is_started_once_and_ended_by_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, called) = (dir.path().join("bin"), dir.path().join("called"));
        let keeper = keeper(dir.path(), &plugins);
        let mut child = None;
        let State::Failed(reason) = keeper.check(&mut child) else {
            panic!("there is no plugin");
        };
        assert!(
            reason.contains("dhcp") && reason.contains("install it"),
            "{reason}"
        );

        fs::create_dir(&plugins).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$@ $MULTUS_KEEPS\" > {0}.new\nmv {0}.new {0}\nexec sleep 600\n",
            called.display()
        );
        fs::write(plugins.join(PLUGIN), script).unwrap();
        fs::set_permissions(plugins.join(PLUGIN), fs::Permissions::from_mode(0o755)).unwrap();
        // A killed plugin left its socket.
        drop(UnixListener::bind(&keeper.socket).unwrap());
        assert_eq!(
            keeper.check(&mut child),
            State::Started(plugins.join(PLUGIN))
        );
        assert!(!keeper.socket.exists());
        assert_eq!(keeper.check(&mut child), State::Starting);
        while !called.exists() {
            std::thread::yield_now();
        }
        let args = fs::read_to_string(&called).unwrap();
        let expected = format!("daemon -socketpath {} dhcp\n", keeper.socket.display());
        assert_eq!(args, expected);

        // A plugin that serves is kept.
        let listener = UnixListener::bind(&keeper.socket).unwrap();
        assert_eq!(keeper.check(&mut None), State::Served);
        drop(listener);

        assert_eq!(dhcp_server::end(), 1);
        let child = child.as_mut().unwrap();
        let status = loop {
            match child.fate() {
                Fate::Running => std::thread::yield_now(),
                Fate::Ended(status) => break status,
                Fate::Unknown => panic!("the spawner watches it"),
            }
        };
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(15)
        );
        assert_eq!(dhcp_server::end(), 0);
    }
}
