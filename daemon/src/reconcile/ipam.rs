//! Addresses for the whole cluster, if the option `ipam` is on: the daemon that serves the node gives them to our plugins `multus-ipam` and,
//! with the option of this name, `whereabouts`.

use std::sync::{Arc, OnceLock};

use node::root::Root;

use crate::{
    cluster::Cluster,
    host::ipam_service::{self, Parts, Paths},
    reconcile::{node::NodeReconciler, node_service},
};

/// Runs for ever. Of two daemons only the one that serves the node takes part.
pub async fn run(reconciler: Arc<NodeReconciler>, cluster: Arc<OnceLock<Cluster>>, node: String) {
    let paths = Paths::new(&reconciler.config.cni_dir);
    if !reconciler.config.ipam {
        let remove = move |_: &NodeReconciler, seen: Option<&Root>| {
            if let Some(seen) = seen {
                paths.remove(seen);
            }
        };
        return node_service::remove(reconciler, remove).await;
    }
    let socket = paths.socket.clone();
    let start = move |reconciler: &NodeReconciler, seen: &Root| {
        let parts = Parts {
            root: Arc::clone(&reconciler.root),
            metrics: Arc::clone(&reconciler.metrics),
            node: node.clone(),
            whereabouts: reconciler.config.whereabouts.clone(),
            cluster: Arc::clone(&cluster),
        };
        ipam_service::start(parts, &paths, seen)
    };
    node_service::keep(reconciler, "IPAM", &socket, start).await;
}
