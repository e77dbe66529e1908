//! A snapshot of one pod and everything around it that `status` and `why` use, read once.

use anyhow::Context as _;
use plan::netconf::Netconf;
use plugins::config::parse_address;
use serde_json::Map;

use crate::{
    cluster::{Cluster, Event, Options},
    cluster_health::{self, ClusterHealth},
    node_daemon::{self, DaemonReply},
    pod_state::PodState,
    validate::{self, KnownDefinitions},
};

/// One pod, its events and definitions, and the reply of its node's daemon, at one moment.
pub(crate) struct PodSnapshot {
    /// The pod's object.
    pub(crate) pod_state: PodState,
    /// The pod's events, the oldest first.
    pub(crate) events: Vec<Event>,
    /// The definitions that the pod selects.
    pub(crate) known: KnownDefinitions,
    /// The reply of the daemon on the pod's node.
    pub(crate) reply: DaemonReply,
    /// The options of that daemon, or the defaults.
    pub(crate) netconf: Netconf,
    /// Other pods of the node; read only for pods that request fixed addresses.
    pub(crate) neighbours: Vec<PodState>,
    /// Faults of the cluster; read only for pods without a daemon or without a node that is ready.
    pub(crate) health: ClusterHealth,
    /// Everything that could not be read, with the reasons.
    pub(crate) unread: Vec<String>,
}

impl PodSnapshot {
    /// Reads everything that the user may read; fails only without the pod itself.
    pub(crate) async fn read(
        options: &Options,
        pod: &str,
        daemon_namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut cluster = Cluster::new(options).await?;
        let name = match pod.split_once('/') {
            None => pod,
            Some(("pod" | "pods" | "po", name)) => name,
            Some((namespace, name)) => {
                namespace.clone_into(&mut cluster.namespace);
                name
            }
        };
        let object = cluster.pod(name).await?;
        let pod_state = PodState::read(&object).map_err(anyhow::Error::msg)?;
        let mut unread = Vec::new();
        let view = &pod_state.pod.view;
        let events = cluster.events(&view.namespace, &view.name, &view.uid).await;
        let events = events.unwrap_or_else(|reason| {
            unread.push(format!("events were not read: {reason}"));
            Vec::new()
        });
        let reply = node_daemon::query(
            &cluster,
            &pod_state.node,
            &pod_state.name(),
            daemon_namespace,
        )
        .await;
        let is_waiting = pod_state
            .unscheduled
            .as_deref()
            .is_some_and(cluster_health::names_unready_nodes);
        let health = if is_waiting || matches!(reply, DaemonReply::NoDaemon) {
            ClusterHealth::read(&cluster, is_waiting).await
        } else {
            ClusterHealth::default()
        };
        let daemon_options = reply.answer().map(|answer| answer.options.clone());
        let netconf = validate::netconf(daemon_options.unwrap_or_else(lenient_options)).context(
            "cannot read the daemon's options: use kubectl-multus of the daemon's version",
        )?;
        let mut known = KnownDefinitions::default();
        let selected = validate::selected(&pod_state.pod, &netconf);
        let names = selected.into_iter().map(|one| (one.namespace, one.name));
        if let Err(reason) = cluster.complete(&mut known, names).await {
            unread.push(reason);
        }
        let neighbours = if validate::fixed_addresses(&pod_state.pod, &netconf).is_empty() {
            Vec::new()
        } else {
            // They serve to name the holder of an address; without the right to list pods it stays unknown.
            let listed = cluster.pods_of_node(&pod_state.node, None).await;
            let others = listed.unwrap_or_default();
            let others = others.iter().filter_map(|pod| PodState::read(pod).ok());
            others
                .filter(|pod| pod.name() != pod_state.name())
                .collect()
        };
        Ok(Self {
            pod_state,
            events,
            known,
            reply,
            netconf,
            neighbours,
            health,
            unread,
        })
    }

    /// Returns what the pod's object says; nothing else is read.
    pub(crate) fn from_object(pod_state: PodState) -> anyhow::Result<Self> {
        Ok(Self {
            pod_state,
            events: Vec::new(),
            known: KnownDefinitions::default(),
            reply: DaemonReply::NoNode,
            netconf: validate::netconf(lenient_options()).context("cannot use the defaults")?,
            neighbours: Vec::new(),
            health: ClusterHealth::default(),
            unread: Vec::new(),
        })
    }

    /// Returns the pod of this node that has the address, as `namespace/name`.
    pub(crate) fn holder(&self, address: &str) -> Option<String> {
        let address = parse_address(address)?;
        let has = |pod: &&PodState| {
            let mut networks = pod.status.iter().flatten();
            networks.any(|network| {
                let mut ips = network.ips.iter();
                ips.any(|ip| parse_address(ip) == Some(address))
            })
        };
        self.neighbours.iter().find(has).map(PodState::name)
    }

    /// Returns everything that could not be queried or read, here and by the daemon.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let daemon_gaps = self.reply.answer().map(|answer| answer.unread.clone());
        let mut gaps: Vec<_> = self.reply.gap().into_iter().collect();
        gaps.extend(daemon_gaps.unwrap_or_default());
        gaps.extend(self.unread.iter().cloned());
        gaps
    }
}

/// Returns options for a daemon that was not queried, which report no request as unserved.
pub(crate) fn lenient_options() -> Map<String, serde_json::Value> {
    Map::from_iter([("unservedRequests".to_owned(), "silent".into())])
}

#[cfg(test)]
pub(crate) mod tests;
