//! Everything that `status` and `why` look at, read once.

use anyhow::Context as _;
use plan::netconf::Netconf;
use serde_json::Map;

use crate::{
    cluster::{Cluster, Event, Options},
    facts::Facts,
    ipam,
    judge::{self, Known},
    node::{self, Asked},
    outage::{self, Outage},
};

/// What is known of a pod.
pub(crate) struct Scene {
    /// Its object.
    pub(crate) facts: Facts,
    /// Its events, the oldest first.
    pub(crate) events: Vec<Event>,
    /// The definitions that it selects.
    pub(crate) known: Known,
    /// What its node's daemon says.
    pub(crate) asked: Asked,
    /// The options of that daemon, or the defaults.
    pub(crate) netconf: Netconf,
    /// Other pods of its node and their networks; read only where the pod requests fixed addresses.
    pub(crate) neighbours: Vec<Facts>,
    /// What the cluster lacks; read only where the pod has no daemon or no node that is ready.
    pub(crate) outage: Outage,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

impl Scene {
    /// Reads everything that may be read.
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
        let facts = Facts::read(&object).map_err(anyhow::Error::msg)?;
        let mut unread = Vec::new();
        let view = &facts.pod.view;
        let events = cluster.events(&view.namespace, &view.name, &view.uid).await;
        let events = events.unwrap_or_else(|reason| {
            unread.push(format!("events were not read: {reason}"));
            Vec::new()
        });
        let asked = node::ask(&cluster, &facts.node, &facts.name(), daemon_namespace).await;
        let is_waiting = facts
            .unscheduled
            .as_deref()
            .is_some_and(outage::is_of_nodes);
        let outage = if is_waiting || matches!(asked, Asked::NoDaemon) {
            Outage::read(&cluster, is_waiting).await
        } else {
            Outage::default()
        };
        let daemon_options = asked.answer().map(|answer| answer.options.clone());
        let netconf = judge::netconf(daemon_options.unwrap_or_else(lenient)).context(
            "the daemon's options cannot be read by this program: take one of its version",
        )?;
        let mut known = Known::default();
        let selected = judge::selected(&facts.pod, &netconf);
        let names = selected.into_iter().map(|one| (one.namespace, one.name));
        if let Err(reason) = cluster.complete(&mut known, names).await {
            unread.push(reason);
        }
        let neighbours = if judge::fixed_addresses(&facts.pod, &netconf).is_empty() {
            Vec::new()
        } else {
            // Only for the name of an address's holder: without the right to list pods it stays unknown.
            let listed = cluster.pods_of_node(&facts.node, None).await;
            let others = listed.unwrap_or_default();
            let others = others.iter().filter_map(|pod| Facts::read(pod).ok());
            others.filter(|pod| pod.name() != facts.name()).collect()
        };
        Ok(Self {
            facts,
            events,
            known,
            asked,
            netconf,
            neighbours,
            outage,
            unread,
        })
    }

    /// The pod of this node that has the address, as `namespace/name`.
    pub(crate) fn holder(&self, address: &str) -> Option<String> {
        let address = ipam::parse_address(address)?;
        let has = |pod: &&Facts| {
            let mut networks = pod.status.iter().flatten();
            networks.any(|network| {
                let mut ips = network.ips.iter();
                ips.any(|ip| ipam::parse_address(ip) == Some(address))
            })
        };
        self.neighbours.iter().find(has).map(Facts::name)
    }

    /// What could not be asked or read.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let of_daemon = self.asked.answer().map(|answer| answer.unread.clone());
        let mut gaps: Vec<_> = self.asked.gap().into_iter().collect();
        gaps.extend(of_daemon.unwrap_or_default());
        gaps.extend(self.unread.iter().cloned());
        gaps
    }
}

/// Of a daemon that was not asked nothing is assumed that would be a fault.
fn lenient() -> Map<String, serde_json::Value> {
    Map::from_iter([("unservedRequests".to_owned(), "silent".into())])
}

#[cfg(test)]
pub(crate) mod tests;
