//! The pools of `whereabouts`, of which our nodes are guests: they take addresses by its rules and its objects, so that nodes with its program
//! and nodes with ours give addresses of one range at the same time.
//!
//! An `IPPool` has all addresses of one range that pods have ([`pool`]). Whoever takes or frees one tests the pool's `resourceVersion`, so two
//! nodes never take the same. An `OverlappingRangeIPReservation` ([`reservation`]) has the address as its name: ranges that overlap have
//! different pools and the same reservations. Here is neither I/O nor a clock; [`record`] is what the node keeps on its disk, and the service
//! is in [`crate::service`].

pub mod mover;
pub mod moving;
pub mod pool;
pub mod record;
pub mod reservation;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::config::{self, ConfigError};
use crate::object::POOL_OWNER;
use crate::range::{Range, Subnet};

pub use pool::{Pool, PoolError, Stamp};
pub use reservation::Reservation;

/// The type of the definitions.
pub const TYPE: &str = "whereabouts";
/// The group and version of the objects.
pub const API_VERSION: &str = "whereabouts.cni.cncf.io/v1alpha1";
pub const POOLS: &str = "ippools";
pub const RESERVATIONS: &str = "overlappingrangeipreservations";
pub const SLICES: &str = "nodeslicepools";
/// The offset of an address is a key that the reference reads as a signed number of 64 bits.
const MAX_OFFSET: u128 = i64::MAX as u128;

/// Returns the path of a collection of its objects.
pub fn collection(namespace: &str, resource: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/{resource}")
}

/// What a definition asks of the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// A pod gets one address of each, without the first and the last one of its subnet.
    pub ranges: Vec<Range>,
    /// Networks of different names have different pools and reservations; empty for the common ones.
    pub network_name: String,
    /// Whether an address has a reservation that ranges with other pools see.
    pub is_reserved: bool,
    /// The gateway of each address of its family, in whatever subnet it is.
    pub gateway: Option<IpAddr>,
    /// Whether each node gives addresses of a slice of the range alone, which [`Self::of_node`] returns.
    pub has_slices: bool,
    /// The node whose slice the range is; empty for a range that nodes share.
    pub node: String,
    /// The prefix length of addresses of a slice, which is that of the whole range.
    length: Option<u8>,
}

/// The pod's interface that an address is taken for, as the objects name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub container: String,
    /// Namespace and name of the pod.
    pub pod: String,
    pub ifname: String,
}

impl Definition {
    /// Reads the `ipam` object of a network's configuration.
    pub fn parse(ipam: &Map<String, Value>) -> Result<Self, ConfigError> {
        let definition = config::parse(ipam)?;
        let has_slices = has_slices(ipam);
        let is_reserved = match ipam.get("enable_overlapping_ranges") {
            None | Some(Value::Null) => true,
            Some(value) => value
                .as_bool()
                .ok_or_else(|| config::kind("enable_overlapping_ranges", "true or false"))?,
        };
        let network_name = definition.space;
        let ranges = definition.lists.into_iter().flatten();
        let ranges: Vec<_> = ranges.map(usable).collect::<Result<_, _>>()?;
        if has_slices && ranges.len() != 1 {
            return Err(ConfigError::NodeSlices);
        }
        for range in &ranges {
            let name = pool::name(&network_name, "", range.subnet());
            if !is_object_name(&name) {
                return Err(ConfigError::PoolName(name));
            }
        }
        Ok(Self {
            ranges,
            network_name,
            is_reserved,
            gateway: config::whereabouts_gateway(ipam)?,
            has_slices,
            node: String::new(),
            length: None,
        })
    }

    /// Returns what a node gives of a definition with slices, by the `NodeSlicePool` of its network; `None` where the node has no slice.
    pub fn of_node(mut self, slices: &Value, node: &str) -> Result<Option<Self>, PoolError> {
        let Some(slice) = slice_of(slices, node) else {
            return Ok(None);
        };
        let whole = self.ranges.pop();
        let range = whole.as_ref().and_then(|whole| {
            let part: Subnet = slice.parse().ok()?;
            let first = Subnet::from(part.first());
            let range = whole.within(part)?.without(&[first]).ok()?;
            usable(range).ok()
        });
        let range = range.ok_or_else(|| PoolError::Slice {
            name: slices["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            node: node.to_owned(),
            slice: slice.to_owned(),
        })?;
        Ok(Some(Self {
            length: whole.map(|whole| whole.subnet().length()),
            ranges: vec![range],
            node: node.to_owned(),
            ..self
        }))
    }

    /// Returns the name of the `NodeSlicePool` with the slices of a definition for a network.
    pub fn slices(&self, network: &str) -> Option<String> {
        let name = Some(&*self.network_name).filter(|name| !name.is_empty());
        self.has_slices.then(|| name.unwrap_or(network).to_owned())
    }

    /// Returns the prefix length of the addresses of a range.
    pub fn length(&self, range: &Range) -> u8 {
        self.length.unwrap_or(range.subnet().length())
    }

    /// Returns the names of its pools.
    pub fn pools(&self) -> impl Iterator<Item = String> {
        self.ranges.iter().map(|range| self.pool(range))
    }

    /// Returns the name of the pool of one of its ranges.
    pub fn pool(&self, range: &Range) -> String {
        pool::name(&self.network_name, &self.node, range.subnet())
    }

    /// Returns the space of a range that has no pool, where the pools are in blocks. Addresses without reservations are those of one pool.
    pub fn space(&self, range: &Range) -> String {
        if self.is_reserved {
            return self.network_name.clone();
        }
        own_space(&self.pool(range))
    }

    /// Returns the gateway of a range's addresses.
    pub fn gateway(&self, range: &Range) -> Option<IpAddr> {
        let is_ipv4 = range.subnet().first().is_ipv4();
        self.gateway.filter(|gateway| gateway.is_ipv4() == is_ipv4)
    }
}

/// Returns the space of a pool whose addresses have no reservations.
pub fn own_space(pool: &str) -> String {
    format!("pool {pool}")
}

/// Returns the owner of an address in a block that a container's interface has got from a pool.
pub fn slot_owner(container: &str, ifname: &str) -> String {
    format!("{POOL_OWNER}{container}/{ifname}")
}

/// Returns whether ranges are cut into slices; as the reference does, by the key beside them and not by one of theirs.
fn has_slices(ipam: &Map<String, Value>) -> bool {
    let size = ipam.get("node_slice_size");
    size.is_some_and(|size| !size.is_null() && size != "")
}

/// Returns the slice that a `NodeSlicePool` has for a node.
pub(crate) fn slice_of<'a>(slices: &'a Value, node: &str) -> Option<&'a str> {
    let all = slices.pointer("/status/allocations")?.as_array()?;
    let own = all.iter().find(|one| one["nodeName"] == node)?;
    own["sliceRange"].as_str()
}

/// Returns the addresses of a range that the reference would give: of each family neither the first nor the last one of the subnet.
fn usable(range: Range) -> Result<Range, ConfigError> {
    let subnet = range.subnet();
    let no_pool = |why| ConfigError::NoPool { subnet, why };
    if subnet.offset(subnet.last()).is_some_and(|last| last < 2) {
        return Err(no_pool("which has none but its first and its last one"));
    }
    let range = range.without(&[Subnet::from(subnet.last())]);
    let range = range.map_err(|_| no_pool("which are all excluded"))?;
    let first = subnet.offset(range.first()).unwrap_or_default();
    if first > MAX_OFFSET {
        return Err(no_pool(
            "which begins too far behind the subnet's first one",
        ));
    }
    Ok(range)
}

/// Returns whether an object of the API may have this name (RFC 1123).
fn is_object_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut labels = name.split('.');
    name.len() < 254
        && labels.all(|label| {
            let ends = [label.bytes().next(), label.bytes().last()];
            ends.iter().all(|end| end.is_some_and(is_word))
                && label.bytes().all(|byte| is_word(byte) || byte == b'-')
        })
}

/// Returns the written form of an address or a subnet in the names of objects, which have no colons, behind the names of the network and of
/// the node with this slice.
fn object_name(network_name: &str, node: &str, written: &str) -> String {
    let mut name = written.replace([':', '/'], "-");
    // As the reference does: a name must not end in a dash.
    if written.ends_with(':') {
        name.push('0');
    }
    for before in [node, network_name] {
        if !before.is_empty() {
            name = [before, "-", &name].concat();
        }
    }
    name
}
