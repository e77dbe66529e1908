//! Definitions together with the pods that use them: addresses that would be given twice. What is wrong with one definition or one pod alone,
//! `validate` says.

use std::collections::BTreeMap;

use plan::{Attachment, Nad, netconf::Netconf};
use plugins::config::Range;

use crate::{
    diagnostic::Severity,
    object::Pod,
    validate::{self, KnownDefinitions},
};

/// Namespace and name of a definition.
pub(crate) type NetworkName = (String, String);

/// Plugins whose interface is always on a network that nodes share. Only the node knows where a bridge ends, so `bridge` is not one of them.
const ON_LAN: [&str; 5] = ["host-device", "ipvlan", "macvlan", "sriov", "vlan"];

/// What is known of the cluster besides definitions and pods.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ClusterFacts {
    /// The number of nodes.
    pub(crate) nodes: Option<usize>,
    /// Whether the daemons give addresses of `multus-ipam`.
    pub(crate) is_ipam_on: Option<bool>,
}

/// A fault of a definition's addresses, for the pods that use it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressFault {
    /// Each node gives the range's addresses to its own pods.
    #[error(
        "each node gives {ranges} by itself, and {pods}, so two pods can get one address: change \"host-local\" to \"multus-ipam\"{and_switch}"
    )]
    CountedPerNode {
        ranges: String,
        /// Why the pods can be on several nodes.
        pods: String,
        /// What has to be done besides; empty where nothing has.
        and_switch: &'static str,
    },
}

impl AddressFault {
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::CountedPerNode { .. } => Severity::Warning,
        }
    }
}

/// The use of one network by a pod or template.
#[derive(Debug)]
struct Use<'a> {
    pod: &'a Pod,
}

/// Returns the faults of all networks with these pods.
pub(crate) fn faults<'a>(
    known: &KnownDefinitions,
    pods: impl IntoIterator<Item = &'a Pod>,
    netconf: &Netconf,
    facts: ClusterFacts,
) -> Vec<(NetworkName, AddressFault)> {
    let uses = uses(pods, netconf);
    let counted = known.nads.iter().filter_map(|(name, nad)| {
        let fault = counted_per_node(nad, uses.get(name)?, netconf, facts)?;
        Some((name.clone(), fault))
    });
    counted.collect()
}

/// Returns true when the addresses of a network depend on other pods and nodes than those that are known.
pub(crate) fn depends_on_cluster(known: &KnownDefinitions, netconf: &Netconf) -> bool {
    let mut nads = known.nads.values();
    nads.any(|nad| !ranges_per_node(nad, netconf).is_empty())
}

/// Returns who uses each network. Pods of the node's own network, and templates that run no pod, use none.
fn uses<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    netconf: &Netconf,
) -> BTreeMap<NetworkName, Vec<Use<'a>>> {
    let mut uses = BTreeMap::<_, Vec<Use<'a>>>::new();
    let attached = |pod: &&Pod| !pod.host_network && pod.replicas > 0;
    for pod in pods.into_iter().filter(attached) {
        let selected = validate::selected(pod, netconf);
        let mut names: Vec<_> = selected
            .into_iter()
            .map(|one| (one.namespace, one.name))
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            uses.entry(name).or_default().push(Use { pod });
        }
    }
    uses
}

fn counted_per_node(
    nad: &Nad,
    uses: &[Use<'_>],
    netconf: &Netconf,
    facts: ClusterFacts,
) -> Option<AddressFault> {
    let ranges = ranges_per_node(nad, netconf);
    if facts.nodes == Some(1) || ranges.is_empty() {
        return None;
    }
    let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
    Some(AddressFault::CountedPerNode {
        ranges: ranges.join(", "),
        pods: on_several_nodes(uses)?,
        and_switch: match facts.is_ipam_on {
            Some(true) => "",
            _ => ", and set ipam.enabled=true in the chart's values",
        },
    })
}

/// Returns the ranges of a network that nodes share, from which each node gives by itself.
fn ranges_per_node(nad: &Nad, netconf: &Netconf) -> Vec<Range> {
    let Ok(Attachment { config, .. }) = validate::network(nad, netconf) else {
        return Vec::new();
    };
    let mut kinds = config.plugins.iter().map(|plugin| plugin.kind.as_str());
    if kinds.any(|kind| ON_LAN.contains(&kind)) {
        plugins::config::ranges(&config)
    } else {
        Vec::new()
    }
}

/// Returns the reason why these pods can be on more than one node, or `None` when they cannot.
fn on_several_nodes(uses: &[Use<'_>]) -> Option<String> {
    let anywhere = || uses.iter().filter(|one| one.pod.node.is_empty());
    if let Some(Use { pod }) = anywhere().find(|one| one.pod.kind == "DaemonSet") {
        return Some(format!("{} runs on every node", pod.title()));
    }
    if let Some(Use { pod }) = anywhere().find(|one| one.pod.replicas > 1) {
        return Some(format!("{} has {} replicas", pod.title(), pod.replicas));
    }
    let (first, others) = uses.split_first()?;
    let is_elsewhere =
        |other: &&Use<'_>| other.pod.node.is_empty() || other.pod.node != first.pod.node;
    let other = others.iter().find(is_elsewhere)?;
    let (one, other, nodes) = (
        first.pod.title(),
        other.pod.title(),
        [&first.pod.node, &other.pod.node],
    );
    Some(if nodes.iter().any(|node| node.is_empty()) {
        format!("{one} and {other} can be on different nodes")
    } else {
        format!("{one} and {other} are on different nodes")
    })
}

#[cfg(test)]
mod tests;
