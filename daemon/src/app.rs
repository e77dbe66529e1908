//! The daemon's life: what starts in which order, what runs beside what, and how it ends.
//!
//! The order makes the node's answer true: the configuration that sends pods here is written after everything that serves them is up,
//! and it stays over every end but the last.

use std::{
    ffi::OsString,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use cmdline::causes;
use node::root::Root;
use plan::daemon_config::Config;
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
};
use tracing::{info, warn};

use crate::{
    access::{self, AccessError, Client, Current},
    certificate::Keeper,
    cluster::{self, Cluster, Definitions, Own, Ownership, Pods},
    config_manager::{self, Manager, Target},
    devices::NodeDevices,
    engine::{Engine, HandedOver},
    errors::{failure, recent::Failures},
    host::{
        exec::{Place, RuntimeExec},
        limits,
        links::NetnsProbe,
        orphans,
    },
    hotplug::{self, Follower},
    metrics::Metrics,
    readiness::{Part, Readiness},
    reconcile::{dhcp, node::Upkeep, stale},
    serving::{
        self, Bodies, Queue, metrics_port, replay, server,
        service::Service,
        socket::{self, Socket},
    },
};

/// Pause before something that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// At the last end, detaching what is left may take so long; the kubelet kills the pod after 30 s.
const DETACHING: Duration = Duration::from_secs(15);

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
    /// The chart that brings the kind of network definitions (`MULTUS_CRD_CHART`).
    pub crd_chart: Option<String>,
    /// What plugins get of our environment.
    pub plugin_environment: Vec<(OsString, OsString)>,
}

impl Identity {
    /// What tells this daemon from others of its node: its pod's uid, or its process id.
    fn id(&self) -> String {
        let own = || std::process::id().to_string();
        self.pod_uid.clone().unwrap_or_else(own)
    }

    fn crd_chart(&self) -> String {
        let either = || "rke2-multus-crd or k3s-multus-crd".to_owned();
        self.crd_chart.clone().unwrap_or_else(either)
    }
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(config: Config, root: Root, identity: Identity) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let daemon = Daemon::new(config, root, identity);
    // Before anyone asks to undo what they may still be at.
    tokio::task::spawn_blocking(orphans::end).await?;
    let id = daemon.identity.id();
    socket::sweep(&daemon.root, &daemon.config.socket_dir);
    let socket = Socket::bind(Arc::clone(&daemon.root), &daemon.config.socket_dir, &id)?;
    let (pods, definitions, ownership) = (
        Arc::<Pods>::default(),
        Arc::new(Definitions::new(daemon.identity.crd_chart())),
        Arc::new(Ownership::default()),
    );
    let cluster = Arc::<OnceLock<_>>::default();
    let access = Arc::clone(&cluster);
    let watches = Arc::clone(&daemon).watch(
        Arc::clone(&cluster),
        Arc::clone(&pods),
        Arc::clone(&definitions),
        Arc::clone(&ownership),
    );
    tokio::spawn(watches);
    let service = Arc::new(daemon.service(cluster, definitions));
    let upkeep = Arc::new(daemon.upkeep());
    if daemon.config.dynamic_networks {
        let (service, upkeep) = (Arc::clone(&service), Arc::clone(&upkeep));
        let follower = Follower { service, upkeep };
        tokio::spawn(hotplug::run(follower, pods.listen()));
    }
    tokio::spawn(dhcp::Keeper::new(Arc::clone(&upkeep)).run(daemon.config.dhcp));
    if let Some(port) = daemon.config.metrics_port {
        tokio::spawn(metrics_port::serve(Arc::clone(&service), port));
    }
    let (targets, told) = watch::channel(None);
    let following = tokio::spawn(Arc::clone(&upkeep).follow(targets));
    tokio::spawn(Arc::clone(&daemon).replay(Arc::clone(&service)));
    tokio::spawn(stale::remove(Arc::clone(&upkeep), Arc::clone(&service)));
    let manager = tokio::spawn(Arc::clone(&daemon).manage(told));
    let stop = Arc::new(Notify::new());
    let detaching = Arc::clone(&service);
    let (stopped, takeover) = (Arc::clone(&stop), Arc::clone(&daemon));
    let serving = tokio::spawn(async move {
        server::serve(socket, service, takeover.its_turn(), stopped.notified()).await;
    });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    daemon.readiness.missing(Part::Shutdown, "shutting down");
    let ends = daemon.ends(&ownership, access.get()).await;
    info!(uninstall = ends, "shutting down");
    manager.abort();
    following.abort();
    // Their last writes are over before anything is removed.
    let _ = tokio::join!(manager, following);
    if ends {
        if daemon.config.detach_on_uninstall {
            let handed_over = stale::hand_over(Arc::clone(&upkeep), detaching);
            match tokio::time::timeout(DETACHING, handed_over).await {
                Ok(Ok(left)) => left.log(),
                Ok(Err(reason)) => warn!(reason, "cannot detach what is left"),
                Err(_) => warn!("detaching what is left took too long"),
            }
        }
        upkeep.leave();
    }
    stop.notify_one();
    serving.await.context("the server ended early")
}

/// What `uninstall --detach` does first. The daemon's own file says where state and plugins are.
pub async fn hand_over(
    config: Config,
    root: Root,
    identity: Identity,
) -> anyhow::Result<HandedOver> {
    let daemon = Daemon::new(config, root, identity);
    let definitions = Arc::new(Definitions::new(daemon.identity.crd_chart()));
    let service = Arc::new(daemon.service(Arc::default(), definitions));
    let handed_over = stale::hand_over(Arc::new(daemon.upkeep()), service).await;
    handed_over.map_err(anyhow::Error::msg)
}

struct Daemon {
    config: Arc<Config>,
    root: Arc<Root>,
    identity: Identity,
    exec: Arc<RuntimeExec>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
}

impl Daemon {
    fn new(config: Config, root: Root, identity: Identity) -> Arc<Self> {
        let root = Arc::new(root);
        let place = Place {
            runtime: None,
            chroot: config.chroot_dir.clone(),
        };
        let mut parts = vec![
            Part::Discovery,
            Part::Journal,
            Part::Watches,
            Part::Socket,
            Part::Shim,
            Part::Configuration,
        ];
        if config.certificate.is_some() {
            parts.push(Part::Certificate);
        }
        let mut exec = RuntimeExec::new(Arc::clone(&root), place)
            .with_environment(identity.plugin_environment.clone());
        if let Some(files) = limits::original() {
            exec = exec.with_file_limit(files);
        }
        Arc::new(Self {
            config: Arc::new(config),
            exec: Arc::new(exec),
            root,
            identity,
            readiness: Arc::new(Readiness::new(&parts)),
            metrics: Arc::default(),
        })
    }

    /// What serves requests; everything in it is idle until the first one.
    fn service(&self, cluster: Arc<OnceLock<Cluster>>, definitions: Arc<Definitions>) -> Service {
        let links = NetnsProbe::new(Arc::clone(&self.root), Arc::clone(&self.exec));
        let abandoned =
            failure::tell_of_networks_given_up(Arc::clone(&cluster), Arc::clone(&self.metrics));
        let devices = NodeDevices {
            root: Arc::clone(&self.root),
            kubelet_dir: self.config.kubelet_dir.clone(),
            node: self.identity.node.clone(),
            cluster: Arc::clone(&cluster),
            runtime: Handle::current(),
        };
        let engine = Engine::new(
            Arc::clone(&self.exec) as _,
            Arc::new(links),
            Arc::clone(&self.root),
            definitions,
        );
        Service {
            engine: engine
                .with_witness(abandoned)
                .with_metrics(Arc::clone(&self.metrics))
                .with_devices(Arc::new(devices)),
            cluster,
            config: Arc::clone(&self.config),
            readiness: Arc::clone(&self.readiness),
            metrics: Arc::clone(&self.metrics),
            failures: Failures::default(),
            busy: watch::Sender::new(0),
            withdrawn: watch::Sender::new(false),
            queue: Arc::new(Queue::new(serving::limits(self.config.verbs_at_once))),
            bodies: Bodies::default(),
            journal: Arc::default(),
        }
    }

    /// What keeps the node as the runtime wants it.
    fn upkeep(&self) -> Upkeep {
        Upkeep {
            config: Arc::clone(&self.config),
            root: Arc::clone(&self.root),
            pod_uid: self.identity.pod_uid.clone(),
            exec: Arc::clone(&self.exec),
            readiness: Arc::clone(&self.readiness),
            target: std::sync::Mutex::default(),
            told: std::sync::Mutex::default(),
            metrics: Arc::clone(&self.metrics),
        }
    }

    /// Starts the watches, as soon as there are credentials. Until then there are none: deletions are served all the same.
    async fn watch(
        self: Arc<Self>,
        cluster: Arc<OnceLock<Cluster>>,
        pods: Arc<Pods>,
        definitions: Arc<Definitions>,
        ownership: Arc<Ownership>,
    ) {
        let client = loop {
            match self.client() {
                Ok(client) => break client.observed(Arc::clone(&self.metrics)),
                Err(error) => {
                    let reason = format!("no access to the API server: {}", causes(&error));
                    self.readiness.missing(Part::Watches, reason);
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        };
        self.readiness
            .waiting(Part::Watches, "the API server has not answered yet");
        let access = Cluster::new(
            client.clone(),
            Handle::current(),
            Arc::clone(&pods),
            Arc::clone(&self.metrics),
        );
        // Nobody else sets it.
        let _ = cluster.set(access);
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
        let (node, done) = (self.identity.node.clone(), synced.clone());
        let api = client.clone();
        tokio::spawn(async move { cluster::follow_pods(api, &node, pods, || done("pods")).await });
        let api = client.clone();
        let readiness = Arc::clone(&self.readiness);
        tokio::spawn(async move {
            let listed = || {
                let absent = plan::Definitions::missing_crd(&*definitions);
                let sentence = |chart| {
                    format!("the CRD NetworkAttachmentDefinition is not installed: install {chart}")
                };
                readiness.note("crd", absent.map(sentence));
                synced("definitions");
            };
            cluster::follow_definitions(api, Arc::clone(&definitions), listed).await;
        });
        if let (Some(namespace), Some(name)) = (
            self.identity.namespace.clone(),
            self.identity.daemon_set.clone(),
        ) {
            tokio::spawn(async move { ownership.follow(client, &namespace, &name).await });
        }
    }

    /// Whether this end is the last one, as far as anyone knows.
    async fn ends(&self, ownership: &Ownership, cluster: Option<&Cluster>) -> bool {
        let Identity {
            namespace: Some(namespace),
            daemon_set: Some(name),
            ..
        } = &self.identity
        else {
            return false;
        };
        match cluster {
            Some(cluster) => {
                let uid = self.identity.pod_uid.as_deref();
                let own = Own {
                    namespace,
                    daemon_set: name,
                    pod: &|| cluster.pod_with(uid?).map(|pod| pod.name.clone()),
                };
                ownership.ends_now(cluster.client(), own).await
            }
            None => false,
        }
    }

    /// Access as the pod, or as this node once it has a certificate: until then requests wait, as for an API server that is slow.
    fn client(&self) -> Result<Client, AccessError> {
        let Some(settings) = self.config.certificate.clone() else {
            return access::client();
        };
        let current = Arc::new(Current::default());
        let client = current.client();
        let keeper = Keeper {
            root: Arc::clone(&self.root),
            node: self.identity.node.clone(),
            settings,
            readiness: Arc::clone(&self.readiness),
            current,
        };
        tokio::spawn(keeper.run());
        Ok(client)
    }

    /// Returns when shims are to find this daemon: at once where they find none, else as soon as it serves as well as the other one.
    async fn its_turn(self: Arc<Self>) {
        let able = [Part::Discovery, Part::Journal, Part::Watches];
        while socket::is_served(&self.root, &self.config.socket_dir) {
            tokio::select! {
                () = self.readiness.wait_for(&able) => return,
                () = tokio::time::sleep(TRY_AGAIN) => {}
            }
        }
    }

    /// Replays the journal once the node is known, and what a shim that had given us up adds to it.
    async fn replay(self: Arc<Self>, service: Arc<Service>) {
        self.readiness.wait_for(&[Part::Discovery]).await;
        let root = Arc::clone(&self.root);
        let dirs = move || config_manager::state_dirs(&self.root, &self.config);
        replay::replay(root, dirs, service).await;
    }

    /// Writes the configuration last, and keeps it.
    async fn manage(self: Arc<Self>, targets: watch::Receiver<Option<Target>>) {
        self.readiness
            .wait_for(&[Part::Shim, Part::Journal, Part::Watches])
            .await;
        let (root, config) = (Arc::clone(&self.root), Arc::clone(&self.config));
        let manager = Manager::new(root, config, Arc::clone(&self.readiness));
        manager.run(targets).await;
    }
}
