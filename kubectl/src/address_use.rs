//! Definitions together, and with the pods that use them: addresses that would be given twice or not at all. What is wrong with one
//! definition or one pod alone, `validate` says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cmdline::counted;
use ipam::{Definition, Sticky, Subnet};
use plan::{Attachment, Nad, netconf::Netconf};
use plugins::config::Range;
use serde_json::Value;

use crate::{
    diagnostic::Severity,
    object::Pod,
    validate::{self, KnownDefinitions},
};

/// Namespace and name of a definition.
pub(crate) type NetworkName = (String, String);

/// Plugins whose interface is always on a network that nodes share. Only the node knows where a bridge ends, so `bridge` is none of them.
const ON_LAN: [&str; 5] = ["host-device", "ipvlan", "macvlan", "sriov", "vlan"];

/// The plugin whose addresses all nodes share.
const SHARED: &str = "multus-ipam";

/// What is known of the cluster besides definitions and pods.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ClusterFacts {
    /// The number of nodes.
    pub(crate) nodes: Option<usize>,
    /// Whether the daemons give addresses of `multus-ipam`.
    pub(crate) is_ipam_on: Option<bool>,
    /// Whether the cluster has the kind of claims.
    pub(crate) has_claims: Option<bool>,
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
    /// The daemons of the cluster give no addresses.
    #[error("multus-ipam gives no address here: set ipam.enabled=true in the chart's values")]
    NotServed {
        /// Whether a pod has this network.
        is_used: bool,
    },
    /// Addresses are to be kept in claims, which the cluster does not have.
    #[error(
        "\"sticky\": \"owner\" keeps addresses in IPAMClaims, and the cluster has no ipamclaims.k8s.cni.cncf.io: install their CRD, or leave \"sticky\" out"
    )]
    NoClaims {
        /// Whether a pod has this network.
        is_used: bool,
    },
    /// Definitions share addresses, and each gives them with another prefix length.
    #[error(
        "{subnet} shares addresses with {other} of network {network}, and pods get them with different prefix lengths: write one subnet, or give each definition a \"space\" of its own"
    )]
    PrefixLength {
        subnet: Subnet,
        other: Subnet,
        network: String,
    },
    /// A pod may get the address to which pods of another definition send.
    #[error(
        "{subnet} has {gateway} for a pod, and that is the gateway of network {network} in the same space: write it as \"gateway\" or in \"exclude\" here, or give each definition a \"space\" of its own"
    )]
    OthersGateway {
        subnet: Subnet,
        gateway: IpAddr,
        network: String,
    },
    /// A pod has an address of before the definition was changed.
    #[error(
        "{pod} has {address}, which the definition does not give any more: it keeps it until it ends; delete the pod to give it another one"
    )]
    Outside { pod: String, address: String },
    /// There are more requests than addresses.
    #[error(
        "{subnets} has {count} for pods, and {requested} are requested, {most} of them by {pod}: enlarge the range, or run fewer pods"
    )]
    TooFew {
        subnets: String,
        /// The number of addresses.
        count: String,
        requested: u128,
        most: u128,
        /// The pod or template that requests most.
        pod: String,
    },
}

impl AddressFault {
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::NotServed { is_used: true } | Self::NoClaims { is_used: true } => Severity::Error,
            _ => Severity::Warning,
        }
    }
}

/// The use of one network by a pod or template.
#[derive(Debug)]
struct Use<'a> {
    pod: &'a Pod,
    /// How often each pod has the network.
    attachments: u128,
}

impl Use<'_> {
    /// Returns how many addresses of each list of ranges all its pods request. A `DaemonSet` counts as one pod: its nodes are unknown.
    fn requested(&self) -> u128 {
        u128::from(self.pod.replicas) * self.attachments
    }
}

/// The addresses of a network that all nodes share.
#[derive(Debug)]
struct Shared<'a> {
    name: &'a NetworkName,
    definition: Definition,
}

type Uses<'a> = BTreeMap<NetworkName, Vec<Use<'a>>>;

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
    let nads = known.nads.iter();
    let shared: Vec<_> = nads
        .flat_map(|(name, nad)| {
            let all = shared_addresses(nad, netconf).into_iter();
            all.map(move |definition| Shared { name, definition })
        })
        .collect();
    let is_off = facts.is_ipam_on == Some(false);
    let off = shared.iter().filter(|_| is_off).map(|one| {
        let is_used = uses.contains_key(one.name);
        (one.name.clone(), AddressFault::NotServed { is_used })
    });
    let has_no_claims = facts.has_claims == Some(false);
    let sticky = shared
        .iter()
        .filter(|one| has_no_claims && one.definition.sticky == Sticky::Owner);
    let unkept = sticky.map(|one| {
        let is_used = uses.contains_key(one.name);
        (one.name.clone(), AddressFault::NoClaims { is_used })
    });
    let found = counted.chain(off).chain(unkept);
    found
        .chain(contradictions(&shared))
        .chain(outside(&shared, &uses))
        .chain(too_few(&shared, &uses))
        .collect()
}

/// Returns true when the addresses of a network depend on other pods and nodes than those that are known.
pub(crate) fn depends_on_cluster(known: &KnownDefinitions, netconf: &Netconf) -> bool {
    let mut nads = known.nads.values();
    nads.any(|nad| {
        !ranges_per_node(nad, netconf).is_empty() || !shared_addresses(nad, netconf).is_empty()
    })
}

/// Returns who uses each network. Pods of the node's own network, and templates that run no pod, use none.
fn uses<'a>(pods: impl IntoIterator<Item = &'a Pod>, netconf: &Netconf) -> Uses<'a> {
    let mut uses = Uses::new();
    let attached = |pod: &&Pod| !pod.host_network && pod.replicas > 0;
    for pod in pods.into_iter().filter(attached) {
        let mut counts = BTreeMap::<NetworkName, u128>::new();
        for one in validate::selected(pod, netconf) {
            *counts.entry((one.namespace, one.name)).or_default() += 1;
        }
        for (name, attachments) in counts {
            let of_network = uses.entry(name).or_default();
            of_network.push(Use { pod, attachments });
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
    if let Some(Use { pod, .. }) = anywhere().find(|one| one.pod.kind == "DaemonSet") {
        return Some(format!("{} runs on every node", pod.title()));
    }
    if let Some(Use { pod, .. }) = anywhere().find(|one| one.pod.replicas > 1) {
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

/// Returns what a network says about addresses that all nodes share. A wrong definition says nothing.
fn shared_addresses(nad: &Nad, netconf: &Netconf) -> Vec<Definition> {
    let objects = validate::ipam_objects(nad, netconf).unwrap_or_default();
    let is_shared = |kind: Option<&Value>| kind.and_then(Value::as_str) == Some(SHARED);
    let own = objects.iter().filter(|ipam| is_shared(ipam.get("type")));
    own.filter_map(|ipam| ipam::config::parse(ipam).ok())
        .collect()
}

/// Returns what definitions that share addresses say differently about them. Other limits of one subnet are no contradiction.
fn contradictions(shared: &[Shared<'_>]) -> Vec<(NetworkName, AddressFault)> {
    let mut found = Vec::new();
    for one in shared {
        let others = shared.iter().filter(|other| {
            other.name != one.name && other.definition.space == one.definition.space
        });
        for other in others {
            let pairs = one.definition.lists.iter().flatten().flat_map(|range| {
                let others = other.definition.lists.iter().flatten();
                others.map(move |other| (range, other))
            });
            let network = format!("{}/{}", other.name.0, other.name.1);
            let fault = pairs
                .into_iter()
                .find_map(|(range, other)| contradiction(range, other, &network));
            found.extend(fault.map(|fault| (one.name.clone(), fault)));
        }
    }
    found
}

fn contradiction(range: &ipam::Range, other: &ipam::Range, network: &str) -> Option<AddressFault> {
    let (subnet, network) = (range.subnet(), network.to_owned());
    if range.overlaps(other) && subnet != other.subnet() {
        let other = other.subnet();
        return Some(AddressFault::PrefixLength {
            subnet,
            other,
            network,
        });
    }
    let gateway = other.gateway().filter(|gateway| range.contains(*gateway))?;
    Some(AddressFault::OthersGateway {
        subnet,
        gateway,
        network,
    })
}

/// Returns the addresses of pods that no definition of their network gives.
fn outside(shared: &[Shared<'_>], uses: &Uses<'_>) -> Vec<(NetworkName, AddressFault)> {
    let mut found = Vec::new();
    let mut names: Vec<_> = shared.iter().map(|one| one.name).collect();
    names.dedup();
    for name in names {
        let gives = |address: &IpAddr| {
            let mut all = shared.iter().filter(|one| one.name == name);
            all.any(|one| {
                let mut ranges = one.definition.lists.iter().flatten();
                ranges.any(|range| range.contains(*address))
            })
        };
        let network = format!("{}/{}", name.0, name.1);
        for Use { pod, .. } in uses.get(name).into_iter().flatten() {
            let of_network = pod.status.iter().filter(|one| one.name == network);
            let addresses = of_network.flat_map(|one| &one.ips);
            let mut parsed = addresses.filter_map(|text| text.parse().ok());
            if let Some(address) = parsed.find(|address| !gives(address)) {
                let (pod, address) = (pod.title(), address.to_string());
                found.push((name.clone(), AddressFault::Outside { pod, address }));
            }
        }
    }
    found
}

/// Returns the lists of ranges with fewer addresses than the pods of all definitions with this list request.
fn too_few(shared: &[Shared<'_>], uses: &Uses<'_>) -> Vec<(NetworkName, AddressFault)> {
    let mut found = Vec::new();
    for one in shared {
        for list in &one.definition.lists {
            let same = shared.iter().filter(|other| {
                let other = &other.definition;
                other.space == one.definition.space && other.lists.contains(list)
            });
            let requests = same.filter_map(|other| uses.get(other.name)).flatten();
            let requests: Vec<_> = requests.collect();
            let requested: u128 = requests.iter().map(|one| one.requested()).sum();
            let count: u128 = list.iter().map(ipam::Range::count).sum();
            let most = requests.iter().max_by_key(|one| one.requested());
            if let Some(most) = most.filter(|_| requested > count) {
                let subnets: Vec<_> = list
                    .iter()
                    .map(|range| range.subnet().to_string())
                    .collect();
                let fault = AddressFault::TooFew {
                    subnets: subnets.join(", "),
                    count: counted(count, "address"),
                    requested,
                    most: most.requested(),
                    pod: most.pod.title(),
                };
                found.push((one.name.clone(), fault));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
