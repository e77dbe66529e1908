//! Reads a cluster into a snapshot for the report. What the user may not read and nodes that do not answer are gaps.

use std::collections::BTreeMap;

use anyhow::anyhow;
use ipam::object::{GROUP, KIND, RESOURCE, VERSION};
use serde_json::Value;

use super::{model, vpn::VpnNode};
use crate::{
    addresses::Overview,
    cluster::Cluster,
    node_daemon::{AllReplies, DaemonReply, DaemonStatus, Daemons, daemon_pods, not_listed},
    object::DEFINITION,
    preflight,
    validate::KnownDefinitions,
};

/// The most pods about which daemons are queried. What others have is in their objects and events.
const QUERIED: usize = 100;
const NETWORKS: &str = "k8s.cni.cncf.io";

/// A cluster at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// In seconds since 1970.
    pub(super) now: u64,
    /// The namespace whose pods are reported; `None` for all.
    pub(super) namespace: Option<String>,
    pub(super) pods: Vec<Value>,
    /// `None` when they may not be listed; then `known` has what pods select.
    pub(super) definitions: Option<Vec<Value>>,
    pub(super) known: KnownDefinitions,
    pub(super) nodes: Option<Vec<Value>>,
    pub(super) daemon_sets: Option<Vec<Value>>,
    pub(super) blocks: Vec<Value>,
    pub(super) claims: Option<Vec<Value>>,
    /// Whether the cluster has the kind of claims.
    pub(super) has_claims: Option<bool>,
    /// Whether daemons give addresses of `multus-ipam`.
    pub(super) is_ipam_on: Option<bool>,
    pub(super) events: Vec<Value>,
    /// What the daemons say about networks and about themselves, by node.
    pub(super) replies: AllReplies,
    pub(super) statuses: BTreeMap<String, DaemonStatus>,
    /// What they say about pods, by namespace and name.
    pub(super) pod_replies: BTreeMap<String, DaemonReply>,
    pub(super) addresses: Overview,
    pub(super) vpn: Vec<VpnNode>,
    /// Everything that could not be read, with the reasons.
    pub(super) gaps: Vec<String>,
}

/// Reads everything that the user may read. Fails only without the right to list the pods.
pub(super) async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
    daemon_namespace: Option<&str>,
    now: u64,
) -> anyhow::Result<Snapshot> {
    let core = ("", "v1");
    let (pods, definitions, nodes, sets, blocks, claims, events) = tokio::join!(
        cluster.pods(None),
        cluster.all(
            (NETWORKS, "v1"),
            DEFINITION,
            "network-attachment-definitions"
        ),
        cluster.all(core, "Node", "nodes"),
        cluster.all(("apps", "v1"), "DaemonSet", "daemonsets"),
        cluster.all((GROUP, VERSION), KIND, RESOURCE),
        cluster.all((NETWORKS, "v1alpha1"), "IPAMClaim", "ipamclaims"),
        cluster.all_events(namespace),
    );
    let mut gaps = Vec::new();
    let is_whole = pods.is_ok();
    // Without the blocks, every address would seem to be in none.
    let are_comparable = is_whole && blocks.is_ok();
    let has_claims = claims.as_ref().ok().map(Option::is_some);
    let mut listed = |what: &str, list: Result<Option<Vec<Value>>, String>| {
        let list = list.map_err(|reason| gaps.push(format!("{what} were not read: {reason}")));
        list.ok().map(Option::unwrap_or_default)
    };
    let mut snapshot = Snapshot {
        now,
        namespace: namespace.map(str::to_owned),
        definitions: listed("network-attachment-definitions", definitions),
        nodes: listed("nodes", nodes),
        daemon_sets: listed("daemonsets", sets),
        blocks: listed(RESOURCE, blocks).unwrap_or_default(),
        // Without the kind there may be claims of a version that is not known here.
        claims: listed("ipamclaims", claims).filter(|_| has_claims == Some(true)),
        has_claims,
        is_ipam_on: preflight::is_ipam_on(cluster).await,
        events: listed("events", events.map(Some)).unwrap_or_default(),
        ..Snapshot::default()
    };
    snapshot.pods = match (pods, namespace) {
        (Ok(pods), _) => pods,
        (Err(reason), Some(_)) => {
            gaps.push(format!(
                "pods of other namespaces were not read, so addresses were not compared: {reason}"
            ));
            let pods = cluster.pods(namespace).await;
            pods.map_err(|reason| anyhow!("cannot list pods: {reason}"))?
        }
        (Err(reason), None) => return Err(anyhow!("cannot list pods: {reason}")),
    };
    let definitions = snapshot.definitions.iter_mut().flatten();
    definitions.for_each(|one| complete(one, "k8s.cni.cncf.io/v1", DEFINITION));
    let pods = snapshot.pods.iter_mut();
    pods.for_each(|pod| complete(pod, "v1", "Pod"));
    snapshot.known = model::known(snapshot.definitions.as_deref());
    if snapshot.definitions.is_none() {
        let names = model::selected(&snapshot);
        if let Err(reason) = cluster.complete(&mut snapshot.known, names).await {
            gaps.push(reason);
        }
    }
    let daemons = if is_whole && daemon_namespace.is_none() {
        Ok(Daemons::of(&snapshot.pods))
    } else {
        let pods = daemon_pods(cluster, daemon_namespace).await;
        pods.map(|pods| Daemons::of(&pods))
    };
    match daemons {
        Ok(daemons) => {
            let (mut pods, urgent) = model::by_urgency(&snapshot);
            pods.truncate(QUERIED);
            if urgent > QUERIED {
                gaps.push(format!(
                    "daemons were queried about {QUERIED} of {urgent} pods that miss something: name a namespace with -n for others"
                ));
            }
            (snapshot.replies, snapshot.statuses, snapshot.pod_replies) = tokio::join!(
                daemons.networks(cluster),
                daemons.statuses(cluster),
                daemons.pods(cluster, pods),
            );
        }
        Err(reason) => gaps.push(format!("no daemon was queried: {}", not_listed(&reason))),
    }
    if are_comparable {
        snapshot.addresses = model::addresses(&snapshot);
        if let Err(error) = snapshot.addresses.confirm(cluster).await {
            gaps.push(format!("addresses were compared only once: {error:#}"));
        }
    }
    snapshot.gaps = gaps;
    Ok(snapshot)
}

/// Adds what objects of a list do not repeat.
fn complete(object: &mut Value, version: &str, kind: &str) {
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
}
