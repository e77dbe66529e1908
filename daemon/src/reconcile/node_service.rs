//! Keeps a service for plugins running on the daemon that serves the node.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use node::root::Root;
use tracing::{info, warn};

use crate::{
    host::{
        dir_watch::{DirectoryWatch, changed_or_never},
        exec::ExecContext,
        node_service::{NodeService, SocketName},
    },
    readiness::Gate,
    reconcile::node::NodeReconciler,
};

/// The pause before a service that failed is started again, or one whose name another daemon has taken. It doubles with each failure.
const START_AGAIN: Duration = Duration::from_secs(1);
/// The longest pause; a service that ran for so long has not failed at its start.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The pause between two checks of the socket's name where no event reports its loss.
const CHECK_PERIOD: Duration = Duration::from_secs(30);

/// Runs for ever. A service whose socket has lost its name ends: the next daemon serves.
pub(super) async fn keep(
    reconciler: Arc<NodeReconciler>,
    what: &'static str,
    socket: &Path,
    start: impl Fn(&NodeReconciler, &Root) -> anyhow::Result<NodeService> + Send + Sync + 'static,
) {
    let start = Arc::new(start);
    let mut last_logged = None;
    let mut pause = START_AGAIN;
    loop {
        let gates = [Gate::Discovery, Gate::Socket];
        reconciler.readiness.wait_open(&gates).await;
        let (start, own) = (Arc::clone(&start), Arc::clone(&reconciler));
        let start = move || {
            let seen = Seen::by_plugins(&own.exec.context())?;
            start(&own, seen.root())
        };
        let started = tokio::task::spawn_blocking(start).await;
        match started.map_err(anyhow::Error::from).flatten() {
            Ok(mut service) => {
                let (name, started) = (service.name(), Instant::now());
                let failure = tokio::select! {
                    () = name_is_lost(&reconciler, socket, &name) => {
                        info!("the {what} service ends: its socket has lost its name");
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
                    warn!(error, "the {what} service has ended; it is started again");
                    last_logged = Some(error);
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if last_logged.as_ref() != Some(&error) {
                    warn!(
                        error,
                        "cannot start the {what} service: networks get no addresses from it"
                    );
                }
                last_logged = Some(error);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Removes what an earlier daemon has left of a service that is not wanted, once this daemon serves the node. `remove` gets the file tree of
/// plugins, where there is one.
pub(super) async fn remove(
    reconciler: Arc<NodeReconciler>,
    remove: impl FnOnce(&NodeReconciler, Option<&Root>) + Send + 'static,
) {
    let gates = [Gate::Discovery, Gate::Socket];
    reconciler.readiness.wait_open(&gates).await;
    let remove = move || {
        let seen = Seen::by_plugins(&reconciler.exec.context()).ok();
        remove(&reconciler, seen.as_ref().map(Seen::root));
    };
    let _ = tokio::task::spawn_blocking(remove).await;
}

/// Returns once plugins no longer find the service under its name.
async fn name_is_lost(reconciler: &NodeReconciler, socket: &Path, name: &SocketName) {
    let dir = socket.parent().unwrap_or(Path::new("/"));
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
pub(super) enum Seen {
    Runtime(Arc<node::process::Process>),
    Opened(Root),
}

impl Seen {
    pub(super) fn by_plugins(context: &ExecContext) -> Result<Self, node::root::RootError> {
        match (&context.chroot, &context.runtime) {
            (None, Some(runtime)) => Ok(Self::Runtime(Arc::clone(runtime))),
            (chroot, _) => {
                Root::open(chroot.as_deref().unwrap_or(Path::new("/"))).map(Self::Opened)
            }
        }
    }

    pub(super) fn root(&self) -> &Root {
        match self {
            Self::Runtime(runtime) => &runtime.tree,
            Self::Opened(root) => root,
        }
    }
}
