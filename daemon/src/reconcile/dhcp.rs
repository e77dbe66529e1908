//! The node's plugin `dhcp`, kept serving where the option `dhcp` is on: it holds the leases of pods whose networks take their
//! addresses by DHCP, and renews them for as long as the pods live.
//!
//! It knows its leases by heart alone. So it is started where it outlives this daemon: charged to the runtime, in its mount
//! namespace. Whoever serves already is let be, be it an earlier daemon's or another's.

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
        exec::{Detached, Fate},
        orphans,
    },
    readiness::{Part, Readiness},
    reconcile::node::Upkeep,
    serving::socket,
};

/// The plugin's name.
const PLUGIN: &str = "dhcp";
/// Where plugins find it, as the runtime's file tree has it.
const SOCKET: &str = "/run/cni/dhcp.sock";
/// How often it is looked after.
const PERIOD: Duration = Duration::from_secs(5);
/// What it carries, so that a later daemon knows it.
const MARK: (&str, &str) = ("MULTUS_KEEPS", PLUGIN);

/// Looks after it.
pub struct Keeper {
    upkeep: Arc<Upkeep>,
    socket: PathBuf,
}

/// What became of one look.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Served,
    Started(PathBuf),
    /// It runs and does not serve yet.
    Starting,
    Failed(String),
}

impl Keeper {
    /// For this node.
    pub fn new(upkeep: Arc<Upkeep>) -> Self {
        Self {
            upkeep,
            socket: SOCKET.into(),
        }
    }

    /// Runs for ever. Of two daemons only the one that serves the node does anything.
    pub async fn run(self, is_wanted: bool) {
        let readiness: Arc<Readiness> = Arc::clone(&self.upkeep.readiness);
        let keeper = Arc::new(self);
        let (mut child, mut told) = (None, None);
        loop {
            readiness.wait_for(&[Part::Discovery, Part::Shim]).await;
            if !is_wanted {
                let _ = tokio::task::spawn_blocking(end).await;
                return;
            }
            let looker = Arc::clone(&keeper);
            let look = move || (looker.look(&mut child), child);
            let Ok((state, left)) = tokio::task::spawn_blocking(look).await else {
                return;
            };
            child = left;
            if state != State::Starting && told.as_ref() != Some(&state) {
                tell(&state);
                told = Some(state);
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    fn look(&self, child: &mut Option<Detached>) -> State {
        let place = self.upkeep.exec.place();
        let opened;
        let seen = match (&place.chroot, &place.runtime) {
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
            // It may be about to serve, and must not do so beside another one.
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
        let exec = &self.upkeep.exec;
        let path = exec
            .find(PLUGIN, &self.upkeep.plugin_dirs())
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

fn tell(state: &State) {
    match state {
        State::Started(path) => {
            info!(path = %path.display(), "started the plugin that holds leases");
        }
        State::Failed(reason) => warn!(reason, "networks that take addresses by DHCP get none"),
        State::Served => info!(socket = SOCKET, "leases are held"),
        State::Starting => {}
    }
}

fn missing(error: &ExecError) -> String {
    format!("{error}; put it into one of them, the reference plugins have it")
}

/// A socket that nobody serves keeps others from its name.
fn remove_stale(seen: &Root, path: &Path) -> io::Result<()> {
    let is_socket = matches!(seen.kind(path), Ok(Some(Kind::Socket)));
    if is_socket {
        seen.remove(path).map_err(|error| error.source)?;
    }
    Ok(())
}

/// Ends what this or an earlier daemon has started; how many there were.
pub fn end() -> usize {
    let ended = orphans::end_marked(MARK);
    if ended > 0 {
        info!("ended the plugin that held leases");
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::net::UnixListener};

    use super::*;
    use crate::host::exec::{Place, RuntimeExec};
    use plan::daemon_config::Config;

    /// A keeper whose plugin writes down how it was called, and stays.
    fn keeper(dir: &Path, plugins: &Path) -> Keeper {
        let config = serde_json::json!({"binDir": plugins, "cniConfigDir": dir});
        let serde_json::Value::Object(config) = config else {
            unreachable!("it is an object");
        };
        let config = Arc::new(Config::parse(config).unwrap());
        let root = Arc::new(Root::open("/").unwrap());
        let upkeep = Upkeep {
            exec: Arc::new(
                RuntimeExec::new(Arc::clone(&root), Place::default()).with_spawner_thread(),
            ),
            readiness: Arc::new(Readiness::new(&[])),
            pod_uid: None,
            target: std::sync::Mutex::default(),
            told: std::sync::Mutex::default(),
            metrics: Arc::default(),
            config,
            root,
        };
        Keeper {
            upkeep: Arc::new(upkeep),
            socket: dir.join("dhcp.sock"),
        }
    }

    #[test]
    fn it_is_started_once_and_ended_by_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, called) = (dir.path().join("bin"), dir.path().join("called"));
        let keeper = keeper(dir.path(), &plugins);
        let mut child = None;
        let State::Failed(reason) = keeper.look(&mut child) else {
            panic!("there is no plugin");
        };
        assert!(
            reason.contains("dhcp") && reason.contains("put it"),
            "{reason}"
        );

        fs::create_dir(&plugins).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$@ $MULTUS_KEEPS\" > {0}.new\nmv {0}.new {0}\nexec sleep 600\n",
            called.display()
        );
        fs::write(plugins.join(PLUGIN), script).unwrap();
        fs::set_permissions(plugins.join(PLUGIN), fs::Permissions::from_mode(0o755)).unwrap();
        // A killed one has left its socket.
        drop(UnixListener::bind(&keeper.socket).unwrap());
        assert_eq!(
            keeper.look(&mut child),
            State::Started(plugins.join(PLUGIN))
        );
        assert!(!keeper.socket.exists());
        assert_eq!(keeper.look(&mut child), State::Starting);
        while !called.exists() {
            std::thread::yield_now();
        }
        let words = fs::read_to_string(&called).unwrap();
        let expected = format!("daemon -socketpath {} dhcp\n", keeper.socket.display());
        assert_eq!(words, expected);

        // Whoever serves is let be.
        let listener = UnixListener::bind(&keeper.socket).unwrap();
        assert_eq!(keeper.look(&mut None), State::Served);
        drop(listener);

        assert_eq!(end(), 1);
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
        assert_eq!(end(), 0);
    }
}
