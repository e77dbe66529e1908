//! The `IPPool` of a range as the API has it, parsed by hand, and the patches that take and free its addresses.

use std::collections::BTreeMap;
use std::iter;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{API_VERSION, MAX_OFFSET, Owner, object_name};
use crate::range::{Range, Subnet};
use crate::request::{add, test};

/// Why a pool is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("IPPool {name}: {field} is missing or not {expected}; restore it")]
    Field {
        name: String,
        field: &'static str,
        expected: &'static str,
    },
    /// Offsets are counted from the first address of the subnet, so another subnet gives every key another meaning.
    #[error("IPPool {name}: spec.range is {written}, and not {subnet}; restore it")]
    Range {
        name: String,
        written: String,
        subnet: Subnet,
    },
    #[error(
        "NodeSlicePool {name}: the slice of node {node}, {slice}, has no address of the definition's range; delete the NodeSlicePool, which the controller of whereabouts makes again"
    )]
    Slice {
        name: String,
        node: String,
        slice: String,
    },
}

/// The addresses of one range that pods have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    subnet: Subnet,
    resource_version: String,
    /// Whether the API server keeps which client has written which field.
    is_tracked: bool,
    stamp: Option<Stamp>,
    /// By the offset from the subnet's first address.
    entries: BTreeMap<u128, Owner>,
}

/// The label of a pool that does not give addresses by the rules of `whereabouts`; the others have none.
pub const STAMP: &str = "ipam.multus-rs.cni.cncf.io/pool";
/// The annotation of an adopted pool with the space of its addresses.
pub const SPACE: &str = "ipam.multus-rs.cni.cncf.io/space";
pub const NEW: &str = "new";
pub const ADOPTING: &str = "adopting";
pub const ADOPTED: &str = "adopted";
pub const RETURNING: &str = "returning";

/// Who gives the addresses of a pool instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nobody yet: it was just made, and whether the other pools are in blocks is to be read.
    New,
    /// Nobody: its addresses are being written into blocks, or back.
    Moving,
    /// Blocks of this space.
    Adopted(String),
}

/// An address that an owner may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub address: IpAddr,
    /// Whether the owner has it already.
    pub is_taken: bool,
}

/// Returns the name of the pool of a range, or of a node's slice.
pub fn name(network_name: &str, node: &str, subnet: Subnet) -> String {
    object_name(network_name, node, &subnet.to_string())
}

/// Returns the object of a new pool without addresses.
pub fn object(namespace: &str, name: &str, subnet: Subnet) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "IPPool",
        "metadata": {"name": name, "namespace": namespace, "labels": {STAMP: NEW}},
        "spec": {"range": subnet.to_string(), "allocations": {}},
    })
}

impl Pool {
    /// Reads the object of a range's pool. Keys that are no offset of the range stay as they are.
    pub fn parse(object: &Value, subnet: Subnet) -> Result<Self, PoolError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = || text("/metadata/name").unwrap_or_default().to_owned();
        let missing = |field, expected| PoolError::Field {
            name: name(),
            field,
            expected,
        };
        let version = text("/metadata/resourceVersion");
        let version = version.ok_or_else(|| missing("metadata.resourceVersion", "a text"))?;
        let written = text("/spec/range").ok_or_else(|| missing("spec.range", "a subnet"))?;
        if written.parse() != Ok(subnet) {
            return Err(PoolError::Range {
                name: name(),
                written: written.to_owned(),
                subnet,
            });
        }
        let entries = object.pointer("/spec/allocations");
        let entries = entries.and_then(Value::as_object);
        let entries = entries.ok_or_else(|| missing("spec.allocations", "an object"))?;
        let entries = entries.iter().filter_map(|(key, entry)| {
            let offset = key.parse().ok().filter(|offset| *offset <= MAX_OFFSET)?;
            Some((offset, owner(entry.as_object()?)))
        });
        Ok(Self {
            subnet,
            resource_version: version.to_owned(),
            is_tracked: is_tracked(object),
            stamp: stamp(object),
            entries: entries.collect(),
        })
    }

    pub fn stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref()
    }

    /// Returns who has which address.
    pub fn entries(&self) -> impl Iterator<Item = (IpAddr, &Owner)> {
        let entries = self.entries.iter();
        entries.filter_map(|(offset, owner)| Some((self.subnet.at(*offset)?, owner)))
    }

    /// Leaves out the entries of other addresses and pods.
    pub(super) fn retain(&mut self, is_kept: impl Fn(IpAddr, &str) -> bool) {
        let subnet = self.subnet;
        self.entries.retain(|offset, owner| {
            let address = subnet.at(*offset);
            address.is_some_and(|address| is_kept(address, &owner.pod))
        });
    }

    /// Returns the patch that lets a new pool give addresses, unless it has changed since it was read.
    pub fn open(&self) -> Value {
        let open = json!({"op": "remove", "path": place("labels", STAMP)});
        self.unchanged().chain([open]).collect()
    }

    /// Returns the address for an owner by the reference's rules: the one that the pod's interface has, whatever its container, else the
    /// lowest free one. Refused addresses, of which pods of other pools have reservations, are passed over. `None` is a full range.
    pub fn choose(
        &self,
        range: &Range,
        owner: &Owner,
        is_refused: impl Fn(IpAddr) -> bool,
    ) -> Option<Choice> {
        let own = self.entries.iter().filter(|(_, entry)| {
            let Owner { pod, ifname, .. } = entry;
            (pod, ifname) == (&owner.pod, &owner.ifname)
        });
        let own = own.filter_map(|(offset, entry)| Some((self.subnet.at(*offset)?, entry)));
        let mut own: Vec<_> = own.filter(|(address, _)| !is_refused(*address)).collect();
        own.sort_by_key(|(_, entry)| entry.container != owner.container);
        if let Some((address, entry)) = own.first() {
            return Some(Choice {
                address: *address,
                is_taken: *entry == owner,
            });
        }
        let writable = range.addresses().take_while(|address| {
            let offset = self.subnet.offset(*address);
            offset.is_some_and(|offset| offset <= MAX_OFFSET)
        });
        let mut free = writable.filter(|address| {
            let offset = self.subnet.offset(*address).unwrap_or_default();
            !self.entries.contains_key(&offset) && !is_refused(*address)
        });
        free.next().map(|address| Choice {
            address,
            is_taken: false,
        })
    }

    /// Returns how many addresses of a range are in use.
    pub fn used(&self, range: &Range) -> usize {
        let used = self.entries();
        used.filter(|(address, _)| range.contains(*address)).count()
    }

    /// Returns the addresses of a container's interface.
    pub fn of(&self, container: &str, ifname: &str) -> Vec<IpAddr> {
        let own = self
            .entries()
            .filter(|(_, entry)| (&*entry.container, &*entry.ifname) == (container, ifname));
        own.map(|(address, _)| address).collect()
    }

    /// Returns who has an address.
    pub fn owner(&self, address: IpAddr) -> Option<&Owner> {
        self.entries.get(&self.subnet.offset(address)?)
    }

    /// Returns the patch that gives an address to an owner, unless the pool has changed since it was read.
    pub fn take(&self, address: IpAddr, owner: &Owner) -> Value {
        let entry = json!({"id": owner.container, "podref": owner.pod, "ifname": owner.ifname});
        let take = add(&self.path(address), entry);
        self.unchanged().chain([take]).collect()
    }

    /// Returns the patch that frees addresses, unless the pool has changed since it was read.
    pub fn free(&self, addresses: &[IpAddr]) -> Value {
        let remove = |address: &IpAddr| json!({"op": "remove", "path": self.path(*address)});
        self.unchanged()
            .chain(addresses.iter().map(remove))
            .collect()
    }

    /// Returns the first steps of a patch, which fails when the pool has changed since it was read. The API server compares a tracked object
    /// field by field at each write, which is more than half of the work; with the list of an empty entry it tracks it no more.
    pub(super) fn unchanged(&self) -> impl Iterator<Item = Value> {
        let test = test("/metadata/resourceVersion", &*self.resource_version);
        let untrack = add("/metadata/managedFields", json!([{}]));
        iter::once(test).chain(self.is_tracked.then_some(untrack))
    }

    fn path(&self, address: IpAddr) -> String {
        let offset = self.subnet.offset(address).unwrap_or_default();
        format!("/spec/allocations/{offset}")
    }
}

/// Returns the place of a label or an annotation in a patch.
pub(super) fn place(of: &str, key: &str) -> String {
    format!("/metadata/{of}/{}", key.replace('/', "~1"))
}

/// Reads the stamp of a pool. A word of another release is one of a pool that nobody may use.
pub(crate) fn stamp(object: &Value) -> Option<Stamp> {
    let metadata = object.get("metadata")?;
    let word = metadata.get("labels")?.get(STAMP)?;
    Some(match word.as_str() {
        Some(NEW) => Stamp::New,
        Some(ADOPTED) => {
            let space = metadata.get("annotations").and_then(|all| all.get(SPACE));
            match space.and_then(Value::as_str) {
                Some(space) => Stamp::Adopted(space.to_owned()),
                None => Stamp::Moving,
            }
        }
        _ => Stamp::Moving,
    })
}

fn is_tracked(object: &Value) -> bool {
    let fields = object.pointer("/metadata/managedFields");
    let fields = fields.and_then(Value::as_array);
    fields.is_some_and(|fields| !fields.is_empty())
}

fn owner(entry: &Map<String, Value>) -> Owner {
    let text = |key: &str| {
        let text = entry.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    Owner {
        container: text("id"),
        pod: text("podref"),
        ifname: text("ifname"),
    }
}
