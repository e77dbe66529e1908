//! Publishes which definitions the node can serve, if the option `publish` says so, for schedulers, the kubelet or Node Feature Discovery.
//! The daemon that serves the node looks again when something changes that a definition needs, or when a report gets another answer to STATUS
//! from plugins. Nothing is written unless a verdict changed.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use api::network_report::Network;
use k8s_openapi::api::core::v1::ObjectReference;
use plan::daemon_config::Publish;
use serde::de::IgnoredAny;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::{
    access::{ApiRequest, Client},
    backoff::doubled,
    cluster::{
        Cluster, Definitions, api_path,
        event::event,
        reflector::{self, Event, Resource, Selector, selector},
    },
    host::{
        dir_watch::{DirectoryWatch, changed_or_never},
        links::LinkWatch,
        node_features::{self, FeatureFiles},
        node_resources::{self, Resources},
    },
    networks::{
        DefinitionFault, Examined, Planned,
        publication::{self, Labels},
        read_links,
    },
    readiness::Gate,
    reconcile::node::NodeReconciler,
    serving::service::Service,
};

/// The directories below the kubelet's in which device plugins and drivers register, and the kubelet listens.
const DEVICE_DIRS: [&str; 3] = ["device-plugins", "plugins_registry", "pod-resources"];
/// The subject of the note about a failure.
const SUBJECT: &str = "publish";
/// Changes that follow each other are looked at together.
const SETTLE: Duration = Duration::from_secs(1);
/// The pause after the first failure, doubled with each further one up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// The pause before a plugin, kubelet or API server that gave no answer is asked again.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// The time limit of a request.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// The parts of the daemon that the publisher uses.
pub struct Parts {
    /// Finds out what the node can serve.
    pub service: Arc<Service>,
    /// Knows the node's directories.
    pub reconciler: Arc<NodeReconciler>,
    /// The cluster's definitions.
    pub definitions: Arc<Definitions>,
    /// This node's name.
    pub node: String,
}

/// Runs for ever, or until nothing is left to do.
pub async fn run(parts: Parts) {
    let serving = [Gate::Discovery, Gate::Watches, Gate::Socket];
    let readiness = Arc::clone(&parts.reconciler.readiness);
    readiness.wait_open(&serving).await;
    let publish = parts.reconciler.config.publish;
    let reconciler = Arc::clone(&parts.reconciler);
    let _ = tokio::task::spawn_blocking(move || remove_old(&reconciler)).await;
    let Some(cluster) = parts.service.cluster.get().cloned() else {
        return;
    };
    let target = match publish {
        Publish::None => return,
        Publish::Features => Target::Files(FeatureFiles::new(Arc::clone(&parts.reconciler.root))),
        Publish::Labels => Target::Node(NodeLabels::follow(&cluster, &parts.node)),
        Publish::Resources => Target::Kubelet(Resources::new(
            Arc::clone(&parts.reconciler.root),
            &parts.reconciler.config.kubelet_dir,
            Arc::clone(&readiness),
        )),
    };
    let mut publisher = Publisher {
        parts: Arc::new(parts),
        client: cluster.client(),
        target,
        slices: Arc::default(),
        follows_slices: false,
        reported: HashSet::new(),
    };
    let mut failures = 0;
    loop {
        readiness.wait_open(&serving).await;
        match publisher.publish_until_change().await {
            Ok(()) => failures = 0,
            Err(reason) => {
                failures += 1;
                let note = format!("cannot publish which networks this node can serve: {reason}");
                readiness.note(SUBJECT, Some(note));
                tokio::time::sleep(doubled(failures, FIRST_PAUSE, LONGEST_PAUSE)).await;
            }
        }
        // Pods that start and end change links many times a second.
        tokio::time::sleep(SETTLE).await;
    }
}

/// Removes what a daemon before this one has published in another way, or has left behind.
fn remove_old(reconciler: &NodeReconciler) {
    let config = &reconciler.config;
    if config.publish != Publish::Features {
        node_features::remove(&reconciler.root);
    }
    node_resources::sweep(&reconciler.root, &config.kubelet_dir);
}

/// Where labels are published.
enum Target {
    Files(FeatureFiles),
    Node(NodeLabels),
    /// As resources with the same names.
    Kubelet(Resources),
}

/// This node's Node.
struct NodeLabels {
    path: String,
    /// Our labels of it; `None` while there is no Node.
    known: watch::Receiver<Option<Labels>>,
}

impl NodeLabels {
    fn follow(cluster: &Cluster, node: &str) -> Self {
        let (sender, known) = watch::channel(None);
        let resource = Resource {
            what: "nodes",
            path: "/api/v1/nodes",
            selector: Some(Selector::Field(selector("metadata.name", node))),
            metadata_only: true,
        };
        tokio::spawn(reflector::run(cluster.client(), resource, move |event| {
            let now = match event {
                Event::All(all) => all.first().map(publication::own_labels),
                Event::Put(node) => Some(publication::own_labels(&node)),
                Event::Remove(_) | Event::UnknownKind => None,
            };
            // The kubelet changes its Node all the time.
            sender.send_if_modified(|known| {
                let is_other = *known != now;
                *known = now;
                is_other
            });
        }));
        Self {
            path: api_path::node(node),
            known,
        }
    }
}

/// One look at the node, and the watches that began before it.
struct Look {
    planned: Planned,
    examined: Examined,
    plugins: io::Result<DirectoryWatch>,
    facts: io::Result<DirectoryWatch>,
    links: io::Result<LinkWatch>,
    /// Begins after the look, in the same turn: an answer that the look itself heard causes no further look.
    statuses: watch::Receiver<()>,
}

impl Parts {
    /// Looks at definitions and node. It blocks while the plugins run STATUS.
    fn look(&self) -> Result<Look, String> {
        let (service, reconciler) = (&self.service, &self.reconciler);
        let networks = &service.networks;
        let netconf = service.effective_netconf();
        let netconf = netconf.map_err(|error| error.to_string())?;
        let links = LinkWatch::new();
        let planned = networks.read(&service.engine, &netconf);
        let plugins: Vec<&Path> = planned.plugin_dirs().iter().map(AsRef::as_ref).collect();
        let plugins = DirectoryWatch::of_programs(&reconciler.root, &plugins);
        let mut facts = planned.fact_dirs();
        if planned.has_resources() {
            let kubelet = &reconciler.config.kubelet_dir;
            facts.extend(DEVICE_DIRS.map(|dir| kubelet.join(dir)));
        }
        let facts: Vec<&Path> = facts.iter().map(AsRef::as_ref).collect();
        let facts = DirectoryWatch::with_parents(&reconciler.root, &facts);
        let root = service.engine.root();
        let examined = networks.examine(root, &planned, Duration::MAX);
        Ok(Look {
            planned,
            examined,
            plugins,
            facts,
            links,
            statuses: networks.status_changes(),
        })
    }
}

struct Publisher {
    parts: Arc<Parts>,
    client: Client,
    target: Target,
    /// Notified of changes of the node's resource slices.
    slices: Arc<Notify>,
    follows_slices: bool,
    /// The faults for which the daemon has sent an event.
    reported: HashSet<DefinitionFault>,
}

impl Publisher {
    /// Looks once, publishes what has changed, and returns when that may have changed again.
    async fn publish_until_change(&mut self) -> Result<(), String> {
        let mut definitions = self.parts.definitions.changes();
        let mut dirs = self.parts.reconciler.dirs_changed.subscribe();
        let Look {
            planned,
            examined,
            plugins,
            facts,
            links,
            mut statuses,
        } = self.look().await?;
        if planned.has_resources() {
            self.follow_slices();
        }
        let words = examined.networks.iter();
        let words = words.map(|one| (one.network.clone(), one.verdict.word()));
        self.parts.service.metrics.set_networks(words.collect());
        self.publish(&examined.networks).await?;
        self.report_faults(planned.faults()).await;
        self.parts.reconciler.readiness.note(SUBJECT, None);
        // Without a watch nothing reports a change.
        let is_blind = plugins.is_err() || facts.is_err() || links.is_err();
        let again = async {
            if examined.is_settled && !is_blind {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        };
        tokio::select! {
            () = changed_or_never(plugins) => {}
            () = changed_or_never(facts) => {}
            () = links_changed(links, &planned, &examined) => {}
            // Nothing closes these channels.
            _ = definitions.changed() => {}
            _ = dirs.changed() => {}
            _ = statuses.changed() => {}
            () = self.target.changed() => {}
            () = self.slices.notified() => {}
            () = again => {}
        }
        Ok(())
    }

    async fn look(&self) -> Result<Look, String> {
        let turns = Arc::clone(&self.parts.service.networks.turns);
        // Nothing closes the semaphore.
        let turn = turns.acquire_owned().await;
        let parts = Arc::clone(&self.parts);
        let look = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            parts.look()
        });
        look.await.map_err(|error| error.to_string()).flatten()
    }

    /// Writes what differs from what is published.
    async fn publish(&mut self, networks: &[Network]) -> Result<(), String> {
        let labels = publication::labels(networks);
        match &mut self.target {
            // Not on another thread, whose write could come after the end of this task.
            Target::Files(files) => {
                let written = files.set(&publication::feature_files(&labels));
                written.map_err(|error| error.to_string())
            }
            Target::Kubelet(resources) => {
                resources.set(labels.into_keys().collect());
                Ok(())
            }
            Target::Node(node) => {
                let known = node.known.borrow_and_update().clone();
                let Some(patch) = known.and_then(|known| publication::patch(&known, &labels))
                else {
                    return Ok(());
                };
                let request = ApiRequest::patch(&node.path, &patch).metadata();
                let sent = self.client.send(&request, REQUEST_TIME).await;
                sent.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Reports what is wrong with definitions, each in one event of the cluster.
    async fn report_faults(&mut self, faults: &[DefinitionFault]) {
        for fault in faults {
            if !self.reported.insert(fault.clone()) {
                continue;
            }
            let (namespace, name) = fault.network.split_once('/').unwrap_or_default();
            let event = event_about(namespace, name, fault);
            let request = ApiRequest::post(api_path::events(namespace), &event);
            match self.client.send(&request, REQUEST_TIME).await {
                Ok(_) => {}
                // The daemon of another node was faster.
                Err(error) if error.code() == Some(409) => {}
                Err(error) => {
                    let DefinitionFault {
                        network, message, ..
                    } = fault;
                    warn!(%error, network, message, "cannot report what is wrong with a definition");
                }
            }
        }
    }

    /// Follows the devices of drivers of this node from now on.
    fn follow_slices(&mut self) {
        if std::mem::replace(&mut self.follows_slices, true) {
            return;
        }
        let resource = Resource {
            what: "resourceslices",
            path: "/apis/resource.k8s.io/v1/resourceslices",
            selector: Some(Selector::Field(selector("spec.nodeName", &self.parts.node))),
            metadata_only: true,
        };
        let changed = Arc::clone(&self.slices);
        let handle = move |_: Event<IgnoredAny>| changed.notify_one();
        tokio::spawn(reflector::run(self.client.clone(), resource, handle));
    }
}

impl Target {
    /// Returns once somebody else has changed what is published. Meanwhile readers of the files hear of our changes.
    async fn changed(&mut self) {
        match self {
            Self::Files(files) => files.tell().await,
            Self::Kubelet(_) => std::future::pending().await,
            // The follower never ends.
            Self::Node(node) => drop(node.known.changed().await),
        }
    }
}

/// Returns once the links have changed in a way that a definition may need.
async fn links_changed(watch: io::Result<LinkWatch>, planned: &Planned, before: &Examined) {
    let mut watch = watch.ok();
    while let Some(one) = watch {
        one.changed().await;
        tokio::time::sleep(SETTLE).await;
        watch = LinkWatch::new().ok();
        if planned.link_faults(&read_links()) != before.link_faults {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Returns the event about a definition. Its name is that of the fault and the same on every node, so that there is one.
fn event_about(
    namespace: &str,
    name: &str,
    fault: &DefinitionFault,
) -> k8s_openapi::api::core::v1::Event {
    let about = ObjectReference {
        api_version: Some("k8s.cni.cncf.io/v1".to_owned()),
        kind: Some("NetworkAttachmentDefinition".to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    };
    let mut event = event("multus", about, true, fault.reason, fault.message.clone());
    let start: String = name.chars().take(200).collect();
    let start = start.trim_end_matches(['-', '.']);
    event.metadata.generate_name = None;
    let fault = BuildHasherDefault::<DefaultHasher>::default().hash_one(fault);
    event.metadata.name = Some(format!("{start}.{fault:016x}"));
    event
}
