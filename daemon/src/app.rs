//! The daemon's lifecycle, from top to bottom: build its parts, spawn its tasks, drain.
//!
//! The order matters to the node: the CNI configuration that sends pods to this daemon is written after everything that serves them is
//! up, and it survives every stop of a daemon but the uninstallation.

use std::{
    ffi::OsString,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use cmdline::error_line;
use node::root::Root;
use plan::daemon_config::Config;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
};
use tracing::{info, warn};

use crate::{
    access::{self, AccessError, Client, CurrentClient},
    certificate::Keeper,
    cluster::{self, Cluster, Definitions, OwnObjects, Ownership, Pods},
    config_manager::{self, Manager, Target},
    devices::NodeDevices,
    engine::{Engine, HandOff},
    errors::{failure, recent::RecentFailures},
    host::{
        exec::{ExecContext, RuntimeExec},
        limits,
        links::NetnsProbe,
        orphans::{self, ProcessIdentity},
    },
    hotplug::{self, PodReconciler},
    metrics::Metrics,
    networks::Networks,
    readiness::{Gate, Purpose, Readiness},
    reconcile::{dhcp, ipam, node::NodeReconciler, publish, stale},
    serving::{
        self, Bodies, Queue, metrics_port, replay, server,
        service::Service,
        socket::{self, Socket},
        status_writer,
    },
    state::Writer,
    statuses::Statuses,
};

/// Pause before a failed attempt is repeated.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Limit for writing the statuses of pods that were attached just now, when this daemon ends.
const WRITING: Duration = Duration::from_secs(2);
/// Limit for detaching stale containers while uninstalling; the kubelet kills the pod after 30 s.
const DETACHING: Duration = Duration::from_secs(15);

/// The identity of this process in the cluster; only `main` reads it from arguments and environment.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The node's name in the cluster (`MULTUS_NODE_NAME`).
    pub node: String,
    /// Our pod's uid (`POD_UID`); without it the node's directories must be configured.
    pub pod_uid: Option<String>,
    /// Our namespace (`POD_NAMESPACE`).
    pub namespace: Option<String>,
    /// Our DaemonSet (`MULTUS_DAEMONSET`).
    pub daemon_set: Option<String>,
    /// The chart that installs the CRD of network definitions (`MULTUS_CRD_CHART`).
    pub crd_chart: Option<String>,
    /// The variables of our environment that plugins get.
    pub plugin_environment: Vec<(OsString, OsString)>,
}

impl Identity {
    /// Distinguishes this daemon from others of its node: its pod's uid, or its process id.
    fn id(&self) -> String {
        let own = || std::process::id().to_string();
        self.pod_uid.clone().unwrap_or_else(own)
    }

    fn crd_chart(&self) -> String {
        let either = || "rke2-multus-crd, k3s-multus-crd or multus-crd".to_owned();
        self.crd_chart.clone().unwrap_or_else(either)
    }
}

/// Runs until SIGTERM or SIGINT.
pub async fn run(
    config: Config,
    root: Root,
    identity: Identity,
    purpose: Purpose,
) -> anyhow::Result<()> {
    let mut stop = StopSignals::listen()?;
    let app = App::build(config, root, identity, purpose);
    // Orphaned plugins end before a DEL can ask to undo their work.
    tokio::task::spawn_blocking(orphans::end).await?;
    let socket = app.open_socket()?;
    let tasks = match purpose {
        Purpose::Multiplexer => app.spawn(socket),
        Purpose::Plugins => app.spawn_standalone(socket),
    };
    stop.received().await;
    app.drain(tasks).await
}

/// The first step of `uninstall --detach`: hands containers off to the runtime. The daemon's own file says where state and plugins are.
pub async fn hand_off(config: Config, root: Root, identity: Identity) -> anyhow::Result<HandOff> {
    let app = App::build(config, root, identity, Purpose::Multiplexer);
    let (reconciler, service) = (Arc::clone(&app.reconciler), Arc::clone(&app.service));
    let hand_off = stale::hand_off(reconciler, service).await;
    hand_off.map_err(anyhow::Error::msg)
}

/// The signals that end a daemon.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// All parts of a daemon.
struct App {
    config: Arc<Config>,
    root: Arc<Root>,
    identity: Identity,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    pods: Arc<Pods>,
    definitions: Arc<Definitions>,
    ownership: Arc<Ownership>,
    /// Unset until the daemon has access to the API server.
    cluster: Arc<OnceLock<Cluster>>,
    service: Arc<Service>,
    reconciler: Arc<NodeReconciler>,
}

/// The tasks that a shutdown waits for.
struct Tasks {
    stop: Arc<Notify>,
    serving: JoinHandle<()>,
    /// The tasks that write to the node.
    writing: Vec<JoinHandle<()>>,
    leasing: JoinHandle<()>,
}

impl App {
    /// Builds all parts; none of them does anything before [`spawn`](Self::spawn).
    fn build(config: Config, root: Root, identity: Identity, purpose: Purpose) -> Arc<Self> {
        let (config, root) = (Arc::new(config), Arc::new(root));
        let readiness = match purpose {
            Purpose::Multiplexer => readiness(&config),
            Purpose::Plugins => Readiness::for_plugins(&[Gate::Discovery, Gate::Plugins]),
        };
        let (readiness, metrics) = (Arc::new(readiness), Arc::<Metrics>::default());
        let definitions = Arc::new(Definitions::new(identity.crd_chart()));
        let cluster = Arc::<OnceLock<Cluster>>::default();
        let exec = Arc::new(exec(&config, &root, &identity));
        let reconciler = Arc::new(NodeReconciler {
            config: Arc::clone(&config),
            root: Arc::clone(&root),
            pod_uid: identity.pod_uid.clone(),
            exec: Arc::clone(&exec),
            readiness: Arc::clone(&readiness),
            target: Mutex::default(),
            last_logged: Mutex::default(),
            dirs_changed: watch::Sender::default(),
            installed: Mutex::default(),
            metrics: Arc::clone(&metrics),
        });
        let devices = Arc::new(NodeDevices {
            root: Arc::clone(&root),
            kubelet_dir: config.kubelet_dir.clone(),
            node: identity.node.clone(),
            cluster: Arc::clone(&cluster),
            runtime: Handle::current(),
        });
        let node = Arc::clone(&reconciler);
        let networks = Networks::new(
            Arc::clone(&definitions),
            Arc::clone(&devices) as _,
            Arc::clone(&exec) as _,
            Box::new(move || node.plugin_dirs()),
        );
        let statuses = Arc::<Statuses>::default();
        let service = Service {
            engine: Engine::new(
                Arc::clone(&exec) as _,
                Arc::new(NetnsProbe::new(Arc::clone(&root), Arc::clone(&exec))),
                Arc::clone(&root),
                Arc::clone(&definitions) as _,
            )
            .with_on_abandoned(failure::report_abandoned_networks(
                Arc::clone(&cluster),
                Arc::clone(&metrics),
            ))
            .with_metrics(Arc::clone(&metrics))
            .with_statuses(Arc::clone(&statuses))
            .with_writer(writer())
            .with_devices(devices),
            exec: Arc::clone(&exec),
            cluster: Arc::clone(&cluster),
            config: Arc::clone(&config),
            readiness: Arc::clone(&readiness),
            metrics: Arc::clone(&metrics),
            statuses,
            failures: RecentFailures::default(),
            busy: watch::Sender::new(0),
            withdrawn: watch::Sender::new(false),
            queue: Arc::new(Queue::new(serving::limits(config.verbs_at_once))),
            bodies: Bodies::default(),
            journal: Arc::default(),
            networks,
            snapshots: Arc::new(Semaphore::new(1)),
        };
        Arc::new(Self {
            config,
            root,
            identity,
            readiness,
            metrics,
            pods: Arc::default(),
            definitions,
            ownership: Arc::new(Ownership::new(purpose)),
            cluster,
            service: Arc::new(service),
            reconciler,
        })
    }

    /// Opens the daemon's own socket, on which it serves before it takes the name that shims connect to.
    fn open_socket(&self) -> anyhow::Result<Socket> {
        if socket::was_served_lately(&self.root, &self.config.socket_dir) {
            self.readiness.begin_restart(Instant::now());
        }
        socket::sweep(&self.root, &self.config.socket_dir);
        let id = self.identity.id();
        Socket::bind(Arc::clone(&self.root), &self.config.socket_dir, &id)
    }

    /// Spawns all tasks. Each waits for the gates that it needs.
    fn spawn(self: &Arc<Self>, socket: Socket) -> Tasks {
        let (service, reconciler) = (&self.service, &self.reconciler);
        tokio::spawn(Arc::clone(self).watch());
        if self.config.dynamic_networks {
            let pod_reconciler = PodReconciler {
                service: Arc::clone(service),
                reconciler: Arc::clone(reconciler),
            };
            tokio::spawn(hotplug::run(pod_reconciler, self.pods.listen()));
        }
        let leases = dhcp::run(
            Arc::clone(reconciler),
            Arc::clone(&self.cluster),
            self.config.dhcp,
        );
        let addresses = ipam::run(
            Arc::clone(reconciler),
            Arc::clone(&self.cluster),
            self.identity.node.clone(),
        );
        let leasing = tokio::spawn(async move {
            tokio::join!(leases, addresses);
        });
        if let Some(port) = self.config.metrics_port {
            tokio::spawn(metrics_port::serve(Arc::clone(service), port));
        }
        let (sender, targets) = watch::channel(None);
        let reconciling = tokio::spawn(Arc::clone(reconciler).run(sender));
        tokio::spawn(Arc::clone(self).replay());
        tokio::spawn(status_writer::write(Arc::clone(service)));
        tokio::spawn(status_writer::resend(Arc::clone(service)));
        let publishing = tokio::spawn(publish::run(publish::Parts {
            service: Arc::clone(service),
            reconciler: Arc::clone(reconciler),
            definitions: Arc::clone(&self.definitions),
            node: self.identity.node.clone(),
        }));
        tokio::spawn(stale::detach_at_start(
            Arc::clone(reconciler),
            Arc::clone(service),
        ));
        let configuring = tokio::spawn(Arc::clone(self).configure(targets));
        let publish = Arc::clone(self).until_takeover();
        let writing = vec![reconciling, configuring, publishing];
        self.serve(socket, publish, writing, leasing)
    }

    /// Spawns the tasks of a daemon that installs plugins and serves no pods: its socket serves only probes.
    fn spawn_standalone(self: &Arc<Self>, socket: Socket) -> Tasks {
        let reconciler = &self.reconciler;
        tokio::spawn(Arc::clone(self).follow_daemon_set());
        let leasing = tokio::spawn(dhcp::run(
            Arc::clone(reconciler),
            Arc::clone(&self.cluster),
            self.config.dhcp,
        ));
        if let Some(port) = self.config.metrics_port {
            tokio::spawn(metrics_port::serve(Arc::clone(&self.service), port));
        }
        let (sender, _) = watch::channel(None);
        let reconciling = tokio::spawn(Arc::clone(reconciler).run(sender));
        let writing = vec![reconciling];
        self.serve(socket, std::future::pending(), writing, leasing)
    }

    /// Spawns the server; it takes the name that shims connect to once `publish` is done.
    fn serve(
        &self,
        socket: Socket,
        publish: impl Future<Output = ()> + Send + 'static,
        writing: Vec<JoinHandle<()>>,
        leasing: JoinHandle<()>,
    ) -> Tasks {
        let stop = Arc::new(Notify::new());
        let (stopped, service) = (Arc::clone(&stop), Arc::clone(&self.service));
        let serving = tokio::spawn(async move {
            server::serve(socket, service, publish, stopped.notified()).await;
        });
        Tasks {
            stop,
            serving,
            writing,
            leasing,
        }
    }

    /// Ends the daemon: removes what it installed if it is uninstalled, finishes requests in flight, closes the socket.
    async fn drain(&self, tasks: Tasks) -> anyhow::Result<()> {
        self.readiness.close(Gate::Shutdown, "shutting down");
        let is_uninstall = self.is_uninstalled().await;
        info!(uninstall = is_uninstall, "shutting down");
        for task in &tasks.writing {
            task.abort();
        }
        // All must have made their last write before anything is removed.
        for task in tasks.writing {
            let _ = task.await;
        }
        let mut is_removed = false;
        if is_uninstall {
            tasks.leasing.abort();
            let _ = tasks.leasing.await;
            if self.config.detach_on_uninstall && self.readiness.purpose() == Purpose::Multiplexer {
                self.detach_stale().await;
            }
            is_removed = self.reconciler.uninstall();
        }
        tasks.stop.notify_one();
        let served = tasks.serving.await.context("the server ended early");
        // What is left is pending in the state, and the next daemon writes it.
        let written = status_writer::all_written(&self.service.statuses);
        let _ = tokio::time::timeout(WRITING, written).await;
        // Last, since a request in flight makes the file of its lock again.
        if is_removed {
            self.reconciler.remove_locks();
        }
        served
    }

    async fn detach_stale(&self) {
        let (reconciler, service) = (Arc::clone(&self.reconciler), Arc::clone(&self.service));
        let hand_off = stale::hand_off(reconciler, service);
        match tokio::time::timeout(DETACHING, hand_off).await {
            Ok(Ok(left)) => left.log(),
            Ok(Err(reason)) => warn!(reason, "cannot detach stale containers"),
            Err(_) => warn!("detaching stale containers took too long"),
        }
    }

    /// Follows the daemon's own `DaemonSet`, the only object that a daemon without pods reads, as soon as there are credentials.
    async fn follow_daemon_set(self: Arc<Self>) {
        let (Some(namespace), Some(name)) = (&self.identity.namespace, &self.identity.daemon_set)
        else {
            return;
        };
        let mut is_logged = false;
        let client = loop {
            match access::client() {
                Ok(client) => break client.observed(Arc::clone(&self.metrics)),
                Err(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        warn!(error = %error_line(&error), "no access to the API server: an uninstallation would leave the plugins");
                    }
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        };
        self.connect(client.clone());
        self.ownership.follow(client, namespace, name).await;
    }

    /// Sets what needs access to the API server.
    fn connect(&self, client: Client) {
        let (pods, metrics) = (Arc::clone(&self.pods), Arc::clone(&self.metrics));
        let cluster = Cluster::new(client, Handle::current(), pods, metrics);
        let reader = cluster.clone();
        let read = move |namespace: &str, name: &str| reader.definition(namespace, name);
        self.definitions.read_with(Box::new(read));
        // Nothing else sets it.
        let _ = self.cluster.set(cluster);
    }

    /// Starts the watches as soon as there are credentials. Deletions are served without them.
    async fn watch(self: Arc<Self>) {
        let client = loop {
            match self.client() {
                Ok(client) => break client.observed(Arc::clone(&self.metrics)),
                Err(error) => {
                    let reason = format!("no access to the API server: {}", error_line(&error));
                    self.readiness.close(Gate::Watches, reason);
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        };
        self.readiness
            .close_while_starting(Gate::Watches, "the API server has not answered yet");
        self.connect(client.clone());
        let synced = {
            let (readiness, left) = (
                Arc::clone(&self.readiness),
                Arc::new(Mutex::new(vec!["pods", "definitions"])),
            );
            move |listed: &str| {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.retain(|one| *one != listed);
                if left.is_empty() {
                    readiness.open(Gate::Watches);
                }
            }
        };
        let (node, done) = (self.identity.node.clone(), synced.clone());
        let (api, pods) = (client.clone(), Arc::clone(&self.pods));
        tokio::spawn(async move { cluster::watch_pods(api, &node, pods, || done("pods")).await });
        let (api, definitions) = (client.clone(), Arc::clone(&self.definitions));
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
            cluster::watch_definitions(api, Arc::clone(&definitions), listed).await;
        });
        if let (Some(namespace), Some(name)) = (
            self.identity.namespace.clone(),
            self.identity.daemon_set.clone(),
        ) {
            tokio::spawn(async move { self.ownership.follow(client, &namespace, &name).await });
        }
    }

    /// Returns whether this stop is an uninstallation, as far as the API server knows.
    async fn is_uninstalled(&self) -> bool {
        let Identity {
            namespace: Some(namespace),
            daemon_set: Some(name),
            ..
        } = &self.identity
        else {
            return false;
        };
        match self.cluster.get() {
            Some(cluster) => {
                let uid = self.identity.pod_uid.as_deref();
                let own = OwnObjects {
                    namespace,
                    daemon_set: name,
                    node: &self.identity.node,
                    pod: &|| cluster.watched_pod_by_uid(uid?).map(|pod| pod.name.clone()),
                };
                self.ownership.check_at_end(cluster.client(), own).await
            }
            None => false,
        }
    }

    /// A client with the pod's credentials, or with those of this node once it has a certificate. Until then its requests wait, as for a
    /// slow API server.
    fn client(&self) -> Result<Client, AccessError> {
        let Some(settings) = self.config.certificate.clone() else {
            return access::client();
        };
        let current = Arc::new(CurrentClient::default());
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

    /// Returns when this daemon should take the socket that shims connect to: at once if no daemon serves there, else as soon as this
    /// one can serve as well as the other.
    async fn until_takeover(self: Arc<Self>) {
        let gates = [Gate::Discovery, Gate::Journal, Gate::Watches];
        while socket::is_served(&self.root, &self.config.socket_dir) {
            tokio::select! {
                () = self.readiness.wait_open(&gates) => {
                    self.readiness.begin_restart(Instant::now());
                    return;
                }
                () = tokio::time::sleep(TRY_AGAIN) => {}
            }
        }
    }

    /// Replays the journal once the node is known, and later the DELs that shims journal because they could not reach the daemon.
    async fn replay(self: Arc<Self>) {
        self.readiness.wait_open(&[Gate::Discovery]).await;
        let (root, service) = (Arc::clone(&self.root), Arc::clone(&self.service));
        let dirs = move || config_manager::state_dirs(&self.root, &self.config);
        replay::replay(root, dirs, service).await;
    }

    /// Writes the CNI configuration as the last step of a start, and keeps it.
    async fn configure(self: Arc<Self>, targets: watch::Receiver<Option<Target>>) {
        self.readiness
            .wait_open(&[Gate::Shim, Gate::Journal, Gate::Watches])
            .await;
        let (root, config) = (Arc::clone(&self.root), Arc::clone(&self.config));
        let manager = Manager::new(root, config, Arc::clone(&self.readiness));
        manager.run(targets).await;
    }
}

/// All gates of this configuration, closed.
fn readiness(config: &Config) -> Readiness {
    let mut gates = vec![
        Gate::Discovery,
        Gate::Journal,
        Gate::Watches,
        Gate::Socket,
        Gate::Shim,
        Gate::Configuration,
    ];
    if config.certificate.is_some() {
        gates.push(Gate::Certificate);
    }
    Readiness::new(&gates)
}

/// This daemon as the writer of records. Without `/proc` no process is marked, and none could be found.
fn writer() -> Option<Writer> {
    let own = ProcessIdentity::own().ok()?;
    Some(Writer {
        daemon: own.to_string().into(),
        end_plugins_of: orphans::end_plugins_of,
    })
}

fn exec(config: &Config, root: &Arc<Root>, identity: &Identity) -> RuntimeExec {
    let context = ExecContext {
        runtime: None,
        chroot: config.chroot_dir.clone(),
    };
    let exec = RuntimeExec::new(Arc::clone(root), context)
        .with_environment(identity.plugin_environment.clone());
    match limits::original() {
        Some(files) => exec.with_file_limit(files),
        None => exec,
    }
}
