//! Reads what of a cluster decides about the addresses of networks: pods, nodes, other definitions, and whether Multus gives addresses.

use super::Rest;
use crate::{
    address_use::ClusterFacts,
    cluster::Cluster,
    diagnostic::Diagnostic,
    object::{self, has_ended},
    preflight,
    validate::KnownDefinitions,
};

/// Reads the rest of the cluster, and the definitions that are not known yet. Those and pods that the user may not read are reported; nodes
/// and Multus' own objects stay unknown.
pub(super) async fn rest(cluster: &Cluster, known: &mut KnownDefinitions) -> Rest {
    let mut rest = Rest::default();
    if let Err(reason) = cluster.complete_all(known).await {
        let what = "definitions";
        rest.unread.push(Diagnostic::Unread { what, reason });
    }
    match cluster.pods(None).await {
        Ok(mut pods) => {
            for pod in &mut pods {
                pod["kind"] = "Pod".into();
            }
            let running = pods.iter().filter(|pod| !has_ended(pod));
            // The daemon cannot read it either, and it is not this one that is validated.
            let read = running.filter_map(|pod| object::pod(pod, "").ok());
            rest.pods = read.collect();
        }
        Err(reason) => {
            let what = "pods";
            rest.unread.push(Diagnostic::Unread { what, reason });
        }
    }
    let nodes = cluster.all(("", "v1"), "Node", "nodes").await;
    let claims = cluster.all(("k8s.cni.cncf.io", "v1alpha1"), "IPAMClaim", "ipamclaims");
    rest.facts = ClusterFacts {
        has_claims: claims.await.ok().map(|claims| claims.is_some()),
        nodes: nodes.ok().flatten().map(|nodes| nodes.len()),
        is_ipam_on: preflight::is_ipam_on(cluster).await,
    };
    rest
}
