//! The daemon's life: what starts in which order, what runs beside what, and how it ends.
//!
//! The order makes the node's answer true: the configuration that sends pods here is written after everything that serves them is up,
//! and it stays over every end but the last.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use node::{
    dirs::Overrides,
    discover::{Question, Report, discover},
    install,
    process::Process,
    root::Root,
};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
};
use tracing::{error, info, warn};

use crate::{
    causes::causes,
    cluster::{self, Cluster, Definitions, Ownership, Pods},
    config::Config,
    confmgr::{self, Manager, Target},
    engine::Engine,
    exec::{Place, RuntimeExec},
    indicator, journal,
    links::NetnsProbe,
    readiness::{Part, Readiness},
    server,
    service::Service,
};

/// Pause between two questions while there is no answer, and once there is one.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_PERIOD: Duration = Duration::from_secs(30);
/// The shim's name in the runtime's directory.
pub const SHIM: &str = "multus-shim";

/// Who and where this process is; read from arguments and environment by `main` alone.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The node's name in the cluster (`MULTUS_NODE_NAME`).
    pub node: String,
    /// Our pod's uid (`POD_UID`); without it the node's directories must be given.
    pub pod_uid: Option<String>,
    /// Our namespace (`POD_NAMESPACE`).
    pub namespace: Option<String>,
    /// Our DaemonSet (`MULTUS_DAEMONSET`).
    pub daemon_set: Option<String>,
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(config: Config, root: Root, identity: Identity) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let daemon = Daemon::new(config, root, identity);
    let listener = server::listen(&daemon.root, &daemon.config.socket_dir)?;
    let (pods, definitions, ownership) = (
        Arc::default(),
        Arc::default(),
        Arc::new(Ownership::default()),
    );
    let cluster = daemon.watch(&pods, &definitions, &ownership).await;
    let links = Arc::new(NetnsProbe::new(
        Arc::clone(&daemon.root),
        Arc::clone(&daemon.exec),
    ));
    let engine = Engine::new(
        Arc::clone(&daemon.exec) as _,
        links,
        Arc::clone(&daemon.root),
        definitions,
    );
    let service = Arc::new(Service {
        engine,
        cluster,
        config: Arc::clone(&daemon.config),
        readiness: Arc::clone(&daemon.readiness),
    });
    let (targets, told) = watch::channel(None);
    tokio::spawn(Arc::clone(&daemon).follow_node(targets));
    tokio::spawn(Arc::clone(&daemon).replay(Arc::clone(&service)));
    let manager = tokio::spawn(Arc::clone(&daemon).manage(told));
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let serving =
        tokio::spawn(async move { server::serve(listener, service, stopped.notified()).await });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!(uninstall = ownership.is_deleted(), "shutting down");
    daemon.readiness.missing(Part::Shutdown, "shutting down");
    manager.abort();
    // Its last write is over before anything is removed.
    let _ = manager.await;
    if ownership.is_deleted() {
        daemon.leave();
    }
    stop.notify_one();
    serving.await.context("the server ended early")
}

struct Daemon {
    config: Arc<Config>,
    root: Arc<Root>,
    identity: Identity,
    exec: Arc<RuntimeExec>,
    readiness: Arc<Readiness>,
    /// Where the configuration was last put.
    target: std::sync::Mutex<Option<Target>>,
}

impl Daemon {
    fn new(config: Config, root: Root, identity: Identity) -> Arc<Self> {
        let root = Arc::new(root);
        let place = Place {
            runtime: None,
            chroot: config.chroot_dir.clone(),
        };
        let parts = [
            Part::Discovery,
            Part::Shim,
            Part::Journal,
            Part::Watches,
            Part::Configuration,
        ];
        Arc::new(Self {
            config: Arc::new(config),
            exec: Arc::new(RuntimeExec::new(Arc::clone(&root), place)),
            root,
            identity,
            readiness: Arc::new(Readiness::new(&parts)),
            target: std::sync::Mutex::default(),
        })
    }

    /// Starts the watches. Without an API server there are none: deletions are served all the same.
    async fn watch(
        &self,
        pods: &Arc<Pods>,
        definitions: &Arc<Definitions>,
        ownership: &Arc<Ownership>,
    ) -> Option<Cluster> {
        let client = match kube::Client::try_default().await {
            Ok(client) => client,
            Err(error) => {
                self.readiness.missing(
                    Part::Watches,
                    format!("no access to the API server: {}", causes(&error)),
                );
                return None;
            }
        };
        self.readiness
            .missing(Part::Watches, "the API server has not answered yet");
        let synced = {
            let (readiness, left) = (
                Arc::clone(&self.readiness),
                Arc::new(std::sync::Mutex::new(vec!["pods", "definitions"])),
            );
            move |what: &str| {
                let mut left = left
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                left.retain(|one| *one != what);
                if left.is_empty() {
                    readiness.well(Part::Watches);
                }
            }
        };
        let (node, store, done) = (self.identity.node.clone(), Arc::clone(pods), synced.clone());
        let api = client.clone();
        tokio::spawn(async move { cluster::follow_pods(api, &node, store, || done("pods")).await });
        let (api, store) = (client.clone(), Arc::clone(definitions));
        tokio::spawn(async move {
            cluster::follow_definitions(api, store, || synced("definitions")).await;
        });
        if let (Some(namespace), Some(name)) = (
            self.identity.namespace.clone(),
            self.identity.daemon_set.clone(),
        ) {
            let (api, ownership) = (client.clone(), Arc::clone(ownership));
            tokio::spawn(async move {
                cluster::follow_daemon_set(api, &namespace, &name, ownership).await;
            });
        }
        Some(Cluster::new(client, Handle::current(), Arc::clone(pods)))
    }

    /// Finds out where things are on this node, and again, as they may move.
    async fn follow_node(self: Arc<Self>, targets: watch::Sender<Option<Target>>) {
        loop {
            let pause = match self.settle().await {
                Ok(target) => {
                    self.remember(&target);
                    targets.send_if_modified(|known| {
                        let changed = known.as_ref() != Some(&target);
                        *known = Some(target);
                        changed
                    });
                    ASK_PERIOD
                }
                Err((part, reason)) => {
                    self.readiness.missing(part, reason);
                    ASK_AGAIN
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// One look at the node: the runtime, its directories, the shim in them.
    async fn settle(&self) -> Result<Target, (Part, String)> {
        let report = self.report().await;
        if let Some(runtime) = &report.runtime
            && self
                .exec
                .place()
                .runtime
                .is_none_or(|known| known.pid != runtime.pid)
        {
            let process = Process::open(&self.root, runtime.pid).map_err(|error| {
                (
                    Part::Discovery,
                    format!(
                        "cannot reach the namespaces of {} (pid {}): {error}",
                        runtime.name, runtime.pid
                    ),
                )
            })?;
            info!(
                name = runtime.name,
                version = runtime.version,
                pid = runtime.pid,
                "found the runtime"
            );
            self.exec.set_runtime(Arc::new(process));
        }
        let Some(dirs) = report.dirs else {
            return Err((
                Part::Discovery,
                report
                    .problem
                    .unwrap_or_else(|| "the runtime's directories are not known".to_owned()),
            ));
        };
        if self.identity.pod_uid.is_some() && report.runtime.is_none() {
            let reason = report
                .problem
                .unwrap_or_else(|| "the runtime that runs this pod was not found".to_owned());
            return Err((Part::Discovery, reason));
        }
        self.readiness.well(Part::Discovery);
        let shim = shim_bytes().map_err(|error| (Part::Shim, format!("{error:#}")))?;
        let outcome = install::install(&self.root, &dirs.install_dir, SHIM, &shim)
            .map_err(|error| (Part::Shim, error.to_string()))?;
        if outcome == install::Outcome::Installed {
            info!(dir = %dirs.install_dir.display(), source = ?dirs.source, "installed the shim");
        }
        self.readiness.well(Part::Shim);
        Ok(Target {
            dir: dirs.conf_dir,
            accepted: report.cni_version,
        })
    }

    async fn report(&self) -> Report {
        let overrides = Overrides {
            bin_dir: self.config.bin_dir.clone(),
            conf_dir: self.config.conf_dir.clone(),
        };
        if self.identity.pod_uid.is_none()
            && self.config.cri_socket.is_none()
            && overrides.complete().is_some()
        {
            // No pod, so no runtime runs us, and there is nothing left to ask.
            return Report {
                runtime: None,
                dirs: overrides.complete(),
                cni_version: None,
                rejected: Vec::new(),
                problem: None,
            };
        }
        let question = Question {
            socket: self.config.cri_socket.clone(),
            pod_uid: self.identity.pod_uid.clone(),
            overrides,
        };
        discover(&self.root, &question).await
    }

    /// Replays the journal once the node is known.
    async fn replay(self: Arc<Self>, service: Arc<Service>) {
        self.readiness.wait_for(&[Part::Discovery]).await;
        loop {
            let (daemon, service) = (Arc::clone(&self), Arc::clone(&service));
            let replay = move || {
                journal::replay(&daemon.root, &daemon.config.cni_dir, |request| {
                    service.serve(&request).map(drop)
                })
            };
            match tokio::task::spawn_blocking(replay).await {
                Ok(Ok(replayed)) => {
                    if replayed != journal::Replayed::default() {
                        info!(
                            done = replayed.done,
                            failed = replayed.failed.len(),
                            "replayed the journal"
                        );
                    }
                    return self.readiness.well(Part::Journal);
                }
                Ok(Err(error)) => self.readiness.missing(Part::Journal, error.to_string()),
                Err(error) => self.readiness.missing(Part::Journal, error.to_string()),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Writes the configuration last, and keeps it.
    async fn manage(self: Arc<Self>, targets: watch::Receiver<Option<Target>>) {
        if let Some(file) = self.config.readiness_file.clone() {
            let (root, readiness) = (Arc::clone(&self.root), Arc::clone(&self.readiness));
            indicator::look(&root, &readiness, &file);
            tokio::spawn(indicator::follow(root, readiness, file));
        }
        self.readiness
            .wait_for(&[
                Part::Discovery,
                Part::Shim,
                Part::Journal,
                Part::Watches,
                Part::Indicator,
            ])
            .await;
        let manager = Manager {
            root: Arc::clone(&self.root),
            config: Arc::clone(&self.config),
            readiness: Arc::clone(&self.readiness),
        };
        manager.run(targets).await;
    }

    fn remember(&self, target: &Target) {
        *self
            .target
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(target.clone());
    }

    /// The last end: the configuration first, so that no pod is sent to a shim that is gone; state of running pods stays.
    fn leave(&self) {
        let target = self
            .target
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        if let Some(target) = target {
            match confmgr::remove(&self.root, &target.dir) {
                Ok(_) => info!(dir = %target.dir.display(), "removed the CNI configuration"),
                Err(error) => {
                    return error!(%error, "cannot remove the CNI configuration: the shim stays, too");
                }
            }
        }
        match install::remove_all(&self.root, None) {
            Ok(removed) => info!(?removed, "removed what was installed"),
            Err(error) => warn!(%error, "cannot remove all that was installed"),
        }
    }
}

/// The shim that came with this daemon.
pub fn shim_bytes() -> anyhow::Result<Vec<u8>> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let shim: PathBuf = own.with_file_name(SHIM);
    std::fs::read(&shim).with_context(|| {
        format!(
            "cannot read {}: it belongs beside multus-daemon",
            shim.display()
        )
    })
}
