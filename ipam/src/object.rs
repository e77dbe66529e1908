//! The `AddressBlock` as the API has it, parsed by hand.
//!
//! A block that somebody edited into something that is none is an error and is never used. A block of a newer schema is an error of its
//! own: this release must not write it.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::range::{self, BLOCK_SIZE, Block, RangeError};

/// The schema that this release writes.
pub const SCHEMA: u64 = 1;
/// The group of the API, its version, and the resource.
pub const GROUP: &str = "ipam.multus-rs.cni.cncf.io";
pub const VERSION: &str = "v1alpha1";
pub const RESOURCE: &str = "addressblocks";
pub const KIND: &str = "AddressBlock";
/// The path of all blocks.
pub const PATH: &str = "/apis/ipam.multus-rs.cni.cncf.io/v1alpha1/addressblocks";
/// The label with the name of the node that holds a block.
pub const NODE_LABEL: &str = "ipam.multus-rs.cni.cncf.io/node";
/// The label with the space's part of a block's name; empty for the space that all definitions share.
pub const SPACE_LABEL: &str = "ipam.multus-rs.cni.cncf.io/space";
/// Only the holder of a block, or whoever found all of its slots free, removes it.
pub const FINALIZER: &str = "ipam.multus-rs.cni.cncf.io/in-use";
/// What the owner of an address begins with that came with a pool. Its node has no record of it in the block, so a boot does not free it.
pub const POOL_OWNER: &str = "pool/";

/// Why an object is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    #[error(
        "block {name}: {field} is missing or not {expected}; restore it, or delete the block once no pod uses it"
    )]
    Field {
        name: String,
        field: &'static str,
        expected: &'static str,
    },
    #[error("block {name}: spec.first: {source}")]
    First { name: String, source: RangeError },
    #[error("block {name}: spec.first {first} does not begin a block; write {block}")]
    NotAligned {
        name: String,
        first: IpAddr,
        block: IpAddr,
    },
    #[error(
        "block {name}: its space and first address belong to the name {expected}; restore them"
    )]
    Name { name: String, expected: String },
    #[error("block {name}: spec.slots has {found} entries; restore its {BLOCK_SIZE}")]
    Slots { name: String, found: usize },
    #[error("block {name}: schema {schema} is of a newer release; upgrade this node's daemon")]
    Newer { name: String, schema: u64 },
}

/// A block that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    pub uid: Arc<str>,
    pub resource_version: Arc<str>,
    /// Somebody asked for its deletion: no address of it may be given any more.
    pub is_deleted: bool,
    pub space: String,
    pub block: Block,
    pub turn: u64,
    pub mode: Mode,
    /// The slots that its node has given, as a set of bits: bit 0 is the block's first address. It is for readers and up to 5 s old, so it
    /// decides nothing, and one that cannot be read is `None`.
    pub used: Option<u32>,
    /// Nodes that ask its holder to share it.
    pub wanted: Vec<Arc<str>>,
}

/// Who gives addresses of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One node, which has the truth on its disk.
    Node(Holder),
    /// Each node, by writing a slot; there are [`BLOCK_SIZE`].
    Shared(Vec<Slot>),
    /// Nobody: the pools go back to `whereabouts`.
    Closed(Vec<Slot>),
}

/// The node that has a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    pub node: Arc<str>,
    pub uid: Arc<str>,
    /// The name of the node's directory of records.
    pub incarnation: Arc<str>,
    /// The boot of the machine in which it has taken the block, or raised its turn: later ones have ended every use.
    pub boot: Arc<str>,
}

/// An address of a block that is not one node's. An empty owner means that it is free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// `pod/<uid>/<container>/<ifname>`, `claim/<uid>/<namespace>/<name>`, or `pool/<container>/<ifname>` of a pod that a pool of whereabouts
    /// has given the address.
    pub owner: String,
    pub pods: Vec<SlotPod>,
}

/// Returns the set of the slots that have no owner; the lowest bit is the first slot.
pub fn free_slots(slots: &[Slot]) -> u32 {
    let free = slots.iter().enumerate();
    let free = free.filter(|(_, slot)| slot.owner.is_empty());
    free.fold(0, |set, (slot, _)| set | 1 << slot)
}

/// A pod that uses a slot's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
    /// The boot of the node's machine in which the pod has got the address; empty for one that came with a pool.
    pub boot: String,
    /// Of a claim's slot: `<container>/<ifname>`, which use of the address it is. Otherwise it is empty, and the owner says it.
    pub interface: String,
    /// The `IPPool` of an adopted range, to which a return gives the address; empty for others.
    pub pool: String,
}

/// Returns the name of a block's object: its first address, behind 8 digits of the space's SHA-256 where the space has a name.
///
/// IPv6 is written with all its groups, because a name must neither have colons nor end in a dash.
pub fn name(space: &str, block: Block) -> String {
    let first = match block.first() {
        IpAddr::V4(first) => first.to_string(),
        IpAddr::V6(first) => {
            let groups = first.segments().map(|group| format!("{group:x}"));
            groups.join("-")
        }
    };
    if space.is_empty() {
        return first;
    }
    format!("{}.{first}", space_label(space))
}

/// Returns the parts of a name: the label of the space, and the first address as names have it.
pub fn split_name(name: &str) -> (&str, &str) {
    let parts = name.split_once('.');
    parts
        .filter(|(space, _)| space.len() == 8)
        .unwrap_or(("", name))
}

/// Returns the value of the label by which the blocks of a space are found: empty for the space that all definitions share.
pub fn space_label(space: &str) -> String {
    if space.is_empty() {
        return String::new();
    }
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(space.as_bytes()));
    format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
}

impl AddressBlock {
    /// Returns whether the block is shared and no address of it has an owner.
    pub fn is_unused(&self) -> bool {
        matches!(&self.mode, Mode::Shared(slots) if slots.iter().all(|slot| slot.owner.is_empty()))
    }

    /// Returns whether the block is shared and an address of it has this owner.
    pub(crate) fn has(&self, owner: &str) -> bool {
        matches!(&self.mode, Mode::Shared(slots) if slots.iter().any(|slot| slot.owner == *owner))
    }

    /// Reads an object of the API.
    pub fn parse(object: &Value) -> Result<Self, ObjectError> {
        let empty = Map::new();
        let map = |key| object.get(key).and_then(Value::as_object).unwrap_or(&empty);
        let (metadata, spec) = (map("metadata"), map("spec"));
        let named = text(metadata, "name").unwrap_or_default().to_owned();
        let wrong = |field, expected| ObjectError::Field {
            name: named.clone(),
            field,
            expected,
        };
        let schema = spec
            .get("schema")
            .and_then(Value::as_u64)
            .ok_or_else(|| wrong("spec.schema", "a number"))?;
        if schema > SCHEMA {
            return Err(ObjectError::Newer {
                name: named,
                schema,
            });
        }
        let uid = text(metadata, "uid").ok_or_else(|| wrong("metadata.uid", "a text"))?;
        let version = text(metadata, "resourceVersion")
            .ok_or_else(|| wrong("metadata.resourceVersion", "a text"))?;
        let space = spec
            .get("space")
            .and_then(Value::as_str)
            .ok_or_else(|| wrong("spec.space", "a text"))?;
        let first = text(spec, "first").ok_or_else(|| wrong("spec.first", "an address"))?;
        let first = range::parse_address(first).map_err(|source| ObjectError::First {
            name: named.clone(),
            source,
        })?;
        let block = Block::of(first);
        if block.first() != first {
            let block = block.first();
            return Err(ObjectError::NotAligned {
                name: named,
                first,
                block,
            });
        }
        let expected = name(space, block);
        if named != expected {
            return Err(ObjectError::Name {
                name: named,
                expected,
            });
        }
        let slots = || -> Result<Vec<Slot>, ObjectError> {
            let list = spec
                .get("slots")
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            if list.len() != BLOCK_SIZE as usize {
                let found = list.len();
                return Err(ObjectError::Slots {
                    name: named.clone(),
                    found,
                });
            }
            let slots: Option<_> = list.iter().map(slot).collect();
            slots.ok_or_else(|| wrong("spec.slots", "a list of slots"))
        };
        let mode = match text(spec, "mode") {
            Some("node") => Mode::Node(holder(spec).ok_or_else(|| {
                wrong("spec.holder", "a node with its uid, incarnation and boot")
            })?),
            Some("shared") => Mode::Shared(slots()?),
            Some("closed") => Mode::Closed(slots()?),
            _ => return Err(wrong("spec.mode", "\"node\", \"shared\" or \"closed\"")),
        };
        let wanted = match spec.get("wanted") {
            None => Some(Vec::new()),
            Some(list) => list.as_array().and_then(|list| {
                list.iter()
                    .map(|node| node.as_str().map(Arc::from))
                    .collect()
            }),
        };
        Ok(Self {
            uid: uid.into(),
            resource_version: version.into(),
            is_deleted: metadata.contains_key("deletionTimestamp"),
            space: space.to_owned(),
            block,
            turn: spec
                .get("turn")
                .and_then(Value::as_u64)
                .ok_or_else(|| wrong("spec.turn", "a number"))?,
            mode,
            used: used(spec),
            wanted: wanted.ok_or_else(|| wrong("spec.wanted", "a list of nodes"))?,
        })
    }
}

fn used(spec: &Map<String, Value>) -> Option<u32> {
    let digits = text(spec, "used")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

fn holder(spec: &Map<String, Value>) -> Option<Holder> {
    let holder = spec.get("holder")?.as_object()?;
    Some(Holder {
        node: text(holder, "node")?.into(),
        uid: text(holder, "uid")?.into(),
        incarnation: text(holder, "incarnation")?.into(),
        boot: text(holder, "boot")?.into(),
    })
}

fn slot(value: &Value) -> Option<Slot> {
    let owner = value.get("owner")?.as_str()?.to_owned();
    let is_owner = ["pod/", "claim/", POOL_OWNER]
        .iter()
        .any(|kind| owner.starts_with(kind));
    let pods = match value.get("pods") {
        None => Vec::new(),
        Some(pods) => pods
            .as_array()?
            .iter()
            .map(slot_pod)
            .collect::<Option<_>>()?,
    };
    (owner.is_empty() || is_owner).then_some(Slot { owner, pods })
}

fn slot_pod(value: &Value) -> Option<SlotPod> {
    let map = value.as_object()?;
    let field = |key| text(map, key).map(str::to_owned);
    Some(SlotPod {
        namespace: field("namespace")?,
        name: field("name")?,
        uid: field("uid")?,
        node: field("node")?,
        boot: field("boot").unwrap_or_default(),
        interface: field("interface").unwrap_or_default(),
        pool: field("pool").unwrap_or_default(),
    })
}

/// Returns a text that is not empty.
fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {"name": "10.20.3.0", "uid": "u", "resourceVersion": "7"},
            "spec": {"schema": 1, "space": "", "first": "10.20.3.0", "mode": "node", "turn": 4,
                "holder": {"node": "b", "uid": "n", "incarnation": "i", "boot": "o"}, "wanted": ["a"]}
        })
    }

    fn check_error(pointer: &str, value: Value, message: &str) {
        let mut object = object();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(
            AddressBlock::parse(&object).unwrap_err().to_string(),
            message
        );
    }

    #[test]
    fn names_are_those_of_the_first_address_and_the_space() {
        let block = |text: &str| Block::of(text.parse().unwrap());
        assert_eq!(name("", block("10.20.3.7")), "10.20.3.0");
        assert_eq!(name("", block("fd00:20::41")), "fd00-20-0-0-0-0-0-40");
        // The first digits of `printf abc | sha256sum`.
        assert_eq!(name("abc", block("10.20.3.7")), "ba7816bf.10.20.3.0");
        for (space, first) in [
            ("", "10.20.3.7"),
            ("abc", "10.20.3.7"),
            ("abc", "fd00:20::41"),
        ] {
            let (named, first) = (name(space, block(first)), name("", block(first)));
            assert_eq!(split_name(&named), (&*space_label(space), &*first));
        }
    }

    #[test]
    fn path_is_that_of_the_resource() {
        assert_eq!(PATH, format!("/apis/{GROUP}/{VERSION}/{RESOURCE}"));
    }

    #[test]
    fn a_nodes_block_is_read() {
        let block = AddressBlock::parse(&object()).unwrap();
        assert_eq!((block.turn, block.is_deleted), (4, false));
        assert_eq!(block.wanted, ["a".into()]);
        assert!(matches!(block.mode, Mode::Node(holder) if &*holder.node == "b"));
    }

    #[test]
    fn used_slots_are_read_from_hexadecimal_digits() {
        for (written, expected) in [
            (json!("000000ff"), Some(0xff)),
            (json!("80000001"), Some(0x8000_0001)),
            (json!("100000000"), None),
            (json!("+f"), None),
            (json!(255), None),
            (Value::Null, None),
        ] {
            let mut object = object();
            object["spec"]["used"] = written.clone();
            assert_eq!(
                AddressBlock::parse(&object).unwrap().used,
                expected,
                "{written}"
            );
        }
    }

    #[test]
    fn a_shared_block_is_read_with_its_pods() {
        let mut object = object();
        let mut slots = vec![json!({"owner": "", "pods": []}); 32];
        let pod = json!({"namespace": "shop", "name": "web-0", "uid": "p", "node": "b"});
        slots[5] = json!({"owner": "claim/c", "pods": [pod]});
        object["spec"]["mode"] = json!("shared");
        object["spec"]["slots"] = json!(slots);
        let Mode::Shared(slots) = AddressBlock::parse(&object).unwrap().mode else {
            panic!("the block is shared");
        };
        assert_eq!(
            (slots[5].owner.as_str(), slots[5].pods[0].name.as_str()),
            ("claim/c", "web-0")
        );
        assert_eq!(slots[4], Slot::default());
        object["spec"]["slots"].as_array_mut().unwrap().pop();
        let error = AddressBlock::parse(&object).unwrap_err().to_string();
        assert_eq!(
            error,
            "block 10.20.3.0: spec.slots has 31 entries; restore its 32"
        );
    }

    #[test]
    fn edited_blocks_are_refused() {
        let cure = "restore it, or delete the block once no pod uses it";
        check_error(
            "/spec/mode",
            json!("mine"),
            &format!(
                "block 10.20.3.0: spec.mode is missing or not \"node\", \"shared\" or \"closed\"; {cure}"
            ),
        );
        check_error(
            "/spec/holder",
            json!({"uid": "n", "incarnation": "i", "boot": "o"}),
            &format!(
                "block 10.20.3.0: spec.holder is missing or not a node with its uid, incarnation and boot; {cure}"
            ),
        );
        check_error(
            "/spec/turn",
            json!(-1),
            &format!("block 10.20.3.0: spec.turn is missing or not a number; {cure}"),
        );
        check_error(
            "/spec/wanted",
            json!([1]),
            &format!("block 10.20.3.0: spec.wanted is missing or not a list of nodes; {cure}"),
        );
        check_error(
            "/spec/first",
            json!("10.20.3.1"),
            "block 10.20.3.0: spec.first 10.20.3.1 does not begin a block; write 10.20.3.0",
        );
        check_error(
            "/spec/first",
            json!("10.20.3.32"),
            "block 10.20.3.0: its space and first address belong to the name 10.20.3.32; restore them",
        );
        check_error(
            "/spec/schema",
            json!(2),
            "block 10.20.3.0: schema 2 is of a newer release; upgrade this node's daemon",
        );
    }
}
