//! The objects that decide about addresses, at one moment: definitions, blocks, nodes, pods and claims, without any decision about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipam::{AddressBlock, Mode, ObjectError, Range, Slot, object::SlotPod, range::BLOCK_SIZE};
use plan::netconf::Netconf;
use serde_json::Value;

use crate::{network_status::NetworkStatus, pod_state::PodState, validate};

/// The plugin whose addresses are in blocks.
const OWN: &str = "multus-ipam";
/// The plugin whose definitions are read as well.
const WHEREABOUTS: &str = "whereabouts";

/// What is known of the cluster's addresses.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) networks: Vec<Network>,
    /// Definitions whose configuration is a file on the nodes, so that their ranges are unknown.
    pub(super) on_nodes: Vec<String>,
    pub(super) blocks: Vec<StoredBlock>,
    /// Places in `blocks` by name.
    blocks_by_name: BTreeMap<String, usize>,
    /// Blocks and definitions from which nothing is given, with the reasons.
    pub(super) unusable: Vec<Unusable>,
    /// Nodes by name; `None` when they were not read.
    pub(super) nodes: Option<BTreeMap<String, Node>>,
    pods: Vec<PodState>,
    /// Places in `pods` by UID, and of static pods by namespace and name.
    pods_by_uid: BTreeMap<String, usize>,
    static_pods: BTreeMap<String, usize>,
    /// UIDs of claims; `None` when they were not read.
    pub(super) claims: Option<BTreeSet<String>>,
    /// Everything that could not be read, with the reasons.
    pub(super) gaps: Vec<String>,
}

/// The ranges of one definition.
#[derive(Debug)]
pub(super) struct Network {
    /// Namespace and name.
    pub(super) name: String,
    pub(super) space: String,
    pub(super) ranges: Vec<Range>,
    /// False for definitions of whereabouts, whose pools may have the addresses.
    pub(super) is_own: bool,
}

/// A block, and the object that it was read from.
#[derive(Debug)]
pub(super) struct StoredBlock {
    pub(super) name: String,
    pub(super) content: AddressBlock,
    pub(super) object: Value,
}

/// A block or definition that cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Kind and name.
    pub(super) object: String,
    /// What is wrong with it, and the cure.
    pub(super) reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) uid: String,
    pub(super) readiness: Readiness,
}

/// The condition `Ready` of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// The kubelet reports that it is not ready, so the machine is on.
    NotReady,
    /// The kubelet has stopped reporting.
    Silent,
}

/// An address of a running pod by its network status.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use<'a> {
    pub(super) pod: &'a PodState,
    pub(super) network: &'a NetworkStatus,
    pub(super) address: IpAddr,
}

impl Snapshot {
    /// Adds a definition if its addresses come from blocks.
    pub(super) fn add_definition(&mut self, object: Value, netconf: &Netconf) {
        let nad = match plan::objects::definition(object) {
            Ok(nad) => nad,
            Err(reason) => return self.gaps.push(reason),
        };
        let name = format!("{}/{}", nad.namespace, nad.name);
        if nad.config.trim().is_empty() {
            return self.on_nodes.push(name);
        }
        let unusable = |reason: String| Unusable {
            object: format!("definition {name}"),
            reason,
        };
        let objects = match validate::ipam_objects(&nad, netconf) {
            Ok(objects) => objects,
            // `lint` reports what else is wrong with definitions.
            Err(error) => {
                let is_ours = [OWN, WHEREABOUTS]
                    .iter()
                    .any(|kind| nad.config.contains(kind));
                let unusable = is_ours.then(|| unusable(error.to_string()));
                return self.unusable.extend(unusable);
            }
        };
        for ipam in objects {
            let kind = ipam.get("type").and_then(Value::as_str).unwrap_or_default();
            if ![OWN, WHEREABOUTS].contains(&kind) {
                continue;
            }
            match ipam::config::parse(&ipam) {
                Ok(definition) => self.networks.push(Network {
                    name: name.clone(),
                    space: definition.space,
                    ranges: definition.lists.into_iter().flatten().collect(),
                    is_own: kind == OWN,
                }),
                Err(error) => self.unusable.push(unusable(error.to_string())),
            }
        }
    }

    pub(super) fn add_block(&mut self, object: Value) {
        let name = text(&object, "/metadata/name");
        match AddressBlock::parse(&object) {
            Ok(content) => {
                self.blocks_by_name.insert(name.clone(), self.blocks.len());
                self.blocks.push(StoredBlock {
                    name,
                    content,
                    object,
                });
            }
            Err(ObjectError::Newer { .. }) => self.gaps.push(format!(
                "block {name} is of a newer release: use its kubectl-multus"
            )),
            Err(error) => {
                let object = format!("block {name}");
                let error = error.to_string();
                let reason = error.strip_prefix(&format!("{object}: ")).unwrap_or(&error);
                let reason = reason.to_owned();
                self.unusable.push(Unusable { object, reason });
            }
        }
    }

    pub(super) fn add_node(&mut self, object: &Value) {
        let name = text(object, "/metadata/name");
        let nodes = self.nodes.get_or_insert_default();
        nodes.insert(name, node(object));
    }

    pub(super) fn add_pod(&mut self, object: &Value) {
        match PodState::read(object) {
            Ok(pod) => {
                let place = self.pods.len();
                self.pods_by_uid.insert(pod.pod.view.uid.clone(), place);
                if pod.pod.view.is_static {
                    self.static_pods.insert(pod.name(), place);
                }
                self.pods.push(pod);
            }
            Err(reason) => {
                let at = |key: &str| text(object, &format!("/metadata/{key}"));
                let gap = format!("pod {}/{}: {reason}", at("namespace"), at("name"));
                self.gaps.push(gap);
            }
        }
    }

    pub(super) fn add_claim(&mut self, object: &Value) {
        let claims = self.claims.get_or_insert_default();
        claims.insert(text(object, "/metadata/uid"));
    }

    /// Returns the block of an address, and its slot there.
    pub(super) fn block(&self, space: &str, address: IpAddr) -> Option<(&StoredBlock, usize)> {
        let name = ipam::object::name(space, ipam::Block::of(address));
        let block = &self.blocks[*self.blocks_by_name.get(&name)?];
        Some((block, block.slot(address)?))
    }

    /// Returns the definitions of a network, which has several where several plugins of a chain assign addresses.
    pub(super) fn networks_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Network> {
        self.networks
            .iter()
            .filter(move |network| network.name == name)
    }

    /// Returns all addresses of running pods, those of other networks included.
    pub(super) fn uses(&self) -> impl Iterator<Item = Use<'_>> {
        let pods = self.pods.iter().filter(|pod| is_running(pod));
        pods.flat_map(|pod| {
            let networks = pod.status.iter().flatten();
            networks.flat_map(move |network| {
                let addresses = network.ips.iter();
                let addresses =
                    addresses.filter_map(|address| ipam::range::parse_address(address).ok());
                addresses.map(move |address| Use {
                    pod,
                    network,
                    address,
                })
            })
        })
    }

    /// Returns the pod that a slot names. The runtime knows a static pod by another UID than the API server.
    pub(super) fn pod(&self, named: &SlotPod) -> Option<&PodState> {
        let place = self.pods_by_uid.get(&named.uid).or_else(|| {
            let name = format!("{}/{}", named.namespace, named.name);
            self.static_pods.get(&name)
        })?;
        self.pods.get(*place)
    }

    /// Returns the readiness of a node, or `None` when there is no Node of this name and UID. When nodes were not read, all count as ready.
    pub(super) fn readiness(&self, node: &str, uid: Option<&str>) -> Option<Readiness> {
        let Some(nodes) = &self.nodes else {
            return Some(Readiness::Ready);
        };
        let found = nodes.get(node)?;
        let is_same = uid.is_none_or(|uid| uid == found.uid);
        is_same.then_some(found.readiness)
    }
}

impl StoredBlock {
    /// Returns the slot of an address of this block.
    pub(super) fn slot(&self, address: IpAddr) -> Option<usize> {
        let slot = self.content.block.slot(address)?;
        usize::try_from(slot).ok()
    }

    /// Returns the slots of a block that is not one node's; none otherwise.
    pub(super) fn slots(&self) -> &[Slot] {
        match &self.content.mode {
            Mode::Node(_) => &[],
            Mode::Shared(slots) | Mode::Closed(slots) => slots,
        }
    }

    /// Returns the slots in use, as a set of bits, as far as the block says.
    pub(super) fn used(&self) -> u32 {
        match &self.content.mode {
            Mode::Node(_) => self.content.used.unwrap_or(0),
            Mode::Shared(slots) | Mode::Closed(slots) => bits(slots, |slot| !slot.owner.is_empty()),
        }
    }
}

impl Use<'_> {
    /// Returns pod, interface and node as a text.
    pub(super) fn title(&self) -> String {
        let Self { pod, network, .. } = self;
        format!("{} {} on {}", pod.name(), network.interface, pod.node)
    }
}

/// Returns false for a pod whose containers have ended for good; its addresses are free again.
pub(super) fn is_running(pod: &PodState) -> bool {
    !["Succeeded", "Failed"].contains(&pod.phase.as_str())
}

/// Returns the slots for which the test holds, as a set of bits.
pub(super) fn bits(slots: &[Slot], test: impl Fn(&Slot) -> bool) -> u32 {
    (0..BLOCK_SIZE)
        .zip(slots)
        .filter(|(_, slot)| test(slot))
        .fold(0, |set, (index, _)| set | 1 << index)
}

/// Reads UID and readiness of a node.
pub(super) fn node(object: &Value) -> Node {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|one| one["type"] == "Ready");
    let readiness = match ready.and_then(|one| one["status"].as_str()) {
        Some("True") => Readiness::Ready,
        Some("False") => Readiness::NotReady,
        _ => Readiness::Silent,
    };
    Node {
        uid: text(object, "/metadata/uid"),
        readiness,
    }
}

fn text(object: &Value, pointer: &str) -> String {
    let value = object.pointer(pointer).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(super) mod tests;
