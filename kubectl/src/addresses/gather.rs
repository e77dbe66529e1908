//! Reads the cluster into a snapshot for the commands about addresses. Objects that the user may not read are reported.

use anyhow::{Context as _, anyhow};
use ipam::object::{GROUP, KIND, RESOURCE, VERSION};
use serde_json::{Map, Value};

use super::snapshot::{self, Node, Snapshot};
use crate::{cluster::Cluster, object::DEFINITION, validate};

const NETWORKS: &str = "k8s.cni.cncf.io";

/// Reads blocks, definitions and nodes. Fails only without the right to list blocks.
pub(super) async fn ranges(cluster: &Cluster) -> anyhow::Result<Snapshot> {
    let mut snapshot = blocks(cluster).await?;
    let netconf = validate::netconf(Map::new()).context("cannot use the defaults")?;
    let group = (NETWORKS, "v1");
    let kind = "network-attachment-definitions";
    for object in list(cluster, &mut snapshot, group, DEFINITION, kind).await {
        snapshot.add_definition(object, &netconf);
    }
    let (group, before) = (("", "v1"), snapshot.gaps.len());
    let nodes = list(cluster, &mut snapshot, group, "Node", "nodes").await;
    if snapshot.gaps.len() == before {
        snapshot.nodes = Some([].into());
    }
    for object in nodes {
        snapshot.add_node(&object);
    }
    Ok(snapshot)
}

/// Reads also pods and claims. The pods come last, so each pod that a block names exists in them or not any more.
pub(super) async fn all(cluster: &Cluster) -> anyhow::Result<Snapshot> {
    let mut snapshot = ranges(cluster).await?;
    let group = (NETWORKS, "v1alpha1");
    match cluster.all(group, "IPAMClaim", "ipamclaims").await {
        Ok(claims) => {
            // Without the kind there may be claims of a version that is not known here.
            snapshot.claims = claims.as_ref().map(|_| [].into());
            for object in claims.iter().flatten() {
                snapshot.add_claim(object);
            }
        }
        Err(reason) => snapshot
            .gaps
            .push(format!("ipamclaims were not read: {reason}")),
    }
    let pods = cluster.pods(None).await.map_err(|reason| {
        anyhow!("cannot list the pods of all namespaces: {reason}; request the right to list pods")
    })?;
    for object in &pods {
        snapshot.add_pod(object);
    }
    Ok(snapshot)
}

/// Reads the blocks.
pub(super) async fn blocks(cluster: &Cluster) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let blocks = cluster.all((GROUP, VERSION), KIND, RESOURCE).await;
    let blocks = blocks.map_err(|reason| anyhow!("cannot list {RESOURCE}: {reason}"))?;
    if blocks.is_none() {
        let gap = format!("the cluster does not know {KIND}: install Multus with ipam.enabled");
        snapshot.gaps.push(gap);
    }
    for object in blocks.into_iter().flatten() {
        snapshot.add_block(object);
    }
    Ok(snapshot)
}

/// Reads one node; `None` when it does not exist.
pub(super) async fn node(cluster: &Cluster, name: &str) -> anyhow::Result<Option<Node>> {
    let found = cluster.object(("", "v1"), "Node", "nodes", "", name).await;
    let found = found.map_err(|reason| anyhow!("cannot read node {name}: {reason}"))?;
    Ok(found.as_ref().map(snapshot::node))
}

async fn list(
    cluster: &Cluster,
    snapshot: &mut Snapshot,
    group: (&str, &str),
    kind: &str,
    plural: &str,
) -> Vec<Value> {
    match cluster.all(group, kind, plural).await {
        Ok(objects) => objects.unwrap_or_default(),
        Err(reason) => {
            let gap = format!("{plural} were not read: {reason}");
            snapshot.gaps.push(gap);
            Vec::new()
        }
    }
}
