//! Keeps the node's own plugin `dhcp` serving where the search for plugins finds it before ours: it speaks to no other service than its own.
//!
//! The plugin keeps its leases only in memory, so it is started where it outlives this daemon: in the runtime's cgroup and mount namespace.
//! A plugin that serves already is kept, whether an earlier daemon or another process started it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api::plugins::PROGRAM;
use cni::exec::{Exec as _, ExecError};
use node::root::Root;
use tracing::{info, warn};

use crate::{
    host::{
        dhcp_server::{MARK, PLUGIN},
        exec::{Detached, Fate},
        node_service::remove_socket,
        orphans,
    },
    readiness::{Gate, Readiness},
    reconcile::{node::NodeReconciler, node_service::Seen},
};

/// The socket that the reference's plugin connects to, in the runtime's file tree.
const SOCKET: &str = dhcp::wire::REFERENCE_SOCKET;
/// Pause between two checks.
const PERIOD: Duration = Duration::from_secs(5);

/// Keeps the plugin serving.
pub(super) struct Keeper {
    reconciler: Arc<NodeReconciler>,
    socket: PathBuf,
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The search finds our plugin, whose service is the daemon's.
    Own,
    Served,
    Started(PathBuf),
    /// It runs but does not serve yet.
    Starting,
    Failed(String),
}

impl Keeper {
    /// Creates the keeper of this node.
    pub(super) fn new(reconciler: Arc<NodeReconciler>) -> Self {
        Self {
            reconciler,
            socket: SOCKET.into(),
        }
    }

    /// Runs for ever. Of two daemons only the one that serves the node starts or ends the plugin.
    pub(super) async fn run(self) {
        let readiness: Arc<Readiness> = Arc::clone(&self.reconciler.readiness);
        let keeper = Arc::new(self);
        let (mut child, mut last_logged) = (None, None);
        loop {
            readiness.wait_open(&[Gate::Discovery, Gate::Shim]).await;
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
        let exec = &self.reconciler.exec;
        let path = match exec.find(PLUGIN, &self.reconciler.plugin_dirs()) {
            Ok(path) => path,
            Err(error) => return State::Failed(missing(&error)),
        };
        if is_own(&self.reconciler.root, &path) {
            return State::Own;
        }
        let seen = match Seen::by_plugins(&exec.context()) {
            Ok(seen) => seen,
            Err(error) => return State::Failed(error.to_string()),
        };
        let seen = seen.root();
        if seen.accepts(&self.socket) {
            return State::Served;
        }
        match child.as_mut().map(Detached::fate) {
            Some(Fate::Running) => return State::Starting,
            // It may be about to serve, and two of them must not serve at once.
            Some(Fate::Unknown) => {
                orphans::end_marked(MARK, &|_| true);
            }
            Some(Fate::Ended(_)) | None => {}
        }
        match self.start(&path, seen) {
            Ok(started) => {
                *child = Some(started);
                State::Started(path)
            }
            Err(reason) => State::Failed(reason),
        }
    }

    fn start(&self, path: &Path, seen: &Root) -> Result<Detached, String> {
        // A socket that stays would prevent the plugin from binding its name.
        remove_socket(seen, &self.socket).map_err(|error| error.to_string())?;
        let socket = self.socket.display().to_string();
        let arguments = ["daemon", "-socketpath", &socket];
        let started = self.reconciler.exec.start(path, &arguments, MARK);
        started.map_err(|error| error.to_string())
    }
}

fn log(state: &State) {
    match state {
        State::Started(path) => {
            info!(path = %path.display(), "started the node's plugin dhcp, which holds leases");
        }
        State::Failed(reason) => warn!(
            reason,
            "cannot start the node's plugin dhcp: networks get no addresses by DHCP"
        ),
        State::Served => info!(socket = SOCKET, "the node's plugin dhcp serves"),
        State::Own | State::Starting => {}
    }
}

/// Returns whether a plugin is a name of our program, which lies next to it.
fn is_own(root: &Root, path: &Path) -> bool {
    let program = root.identity(path.with_file_name(PROGRAM));
    program.is_some() && root.identity(path) == program
}

fn missing(error: &ExecError) -> String {
    format!(
        "{error}; let ownPlugins (the chart's cniplugins) install it, or put the reference plugin into one of them"
    )
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::net::UnixListener};

    use super::*;
    use crate::{host::dhcp_server, reconcile::dhcp::tests::reconciler};

    /// A keeper whose plugin records its arguments and keeps running.
    fn keeper(dir: &Path, plugins: &Path) -> Keeper {
        Keeper {
            reconciler: reconciler(dir, plugins),
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

        // Ours needs no process.
        fs::hard_link(plugins.join(PLUGIN), plugins.join(PROGRAM)).unwrap();
        assert_eq!(keeper.check(&mut None), State::Own);
        fs::remove_file(plugins.join(PROGRAM)).unwrap();

        // A plugin that serves is kept.
        let listener = UnixListener::bind(&keeper.socket).unwrap();
        assert_eq!(keeper.check(&mut None), State::Served);
        drop(listener);

        // The leases of ours are on disk, so it can end by itself.
        fs::copy("/bin/sleep", plugins.join(PROGRAM)).unwrap();
        let mut own = std::process::Command::new(plugins.join(PROGRAM))
            .env(MARK.0, MARK.1)
            .arg("600")
            .spawn()
            .unwrap();
        dhcp_server::end_own();
        let status = own.wait().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(15));

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
