//! Addresses for the whole cluster, if the option `ipam` is on: the daemon that serves the node gives them to our plugin `multus-ipam`.

use std::sync::{Arc, OnceLock};

use node::root::Root;

use crate::{
    cluster::Cluster,
    host::ipam_service::{self, Parts, Paths},
    readiness::Gate,
    reconcile::{
        node::NodeReconciler,
        node_service::{self, Seen},
    },
};

/// Runs for ever. Of two daemons only the one that serves the node takes part.
pub async fn run(
    reconciler: Arc<NodeReconciler>,
    cluster: Arc<OnceLock<Cluster>>,
    node: String,
    is_wanted: bool,
) {
    let paths = Paths::new(&reconciler.config.cni_dir);
    if !is_wanted {
        let gates = [Gate::Discovery, Gate::Socket];
        reconciler.readiness.wait_open(&gates).await;
        let _ = tokio::task::spawn_blocking(move || remove(&reconciler, &paths)).await;
        return;
    }
    let socket = paths.socket.clone();
    let start = move |reconciler: &NodeReconciler, seen: &Root| {
        let parts = Parts {
            root: Arc::clone(&reconciler.root),
            metrics: Arc::clone(&reconciler.metrics),
            node: node.clone(),
            cluster: Arc::clone(&cluster),
        };
        ipam_service::start(parts, &paths, seen)
    };
    node_service::keep(reconciler, "IPAM", &socket, start).await;
}

/// Removes the socket of an earlier daemon.
pub fn remove(reconciler: &NodeReconciler, paths: &Paths) {
    if let Ok(seen) = Seen::by_plugins(&reconciler.exec.context()) {
        paths.remove(seen.root());
    }
}
