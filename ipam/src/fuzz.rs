//! Targets for fuzzing: readers of what users write into definitions, of objects that anybody with rights may edit, of files on disk, and of
//! what comes through the socket.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::guest::moving::{self, StoredPool};
use crate::guest::pool::{ADOPTED, SPACE, STAMP};
use crate::node::Node;
use crate::object::{AddressBlock, Holder, Mode};
use crate::range::{BLOCK_SIZE, Range};
use crate::request::{Own, want};
use crate::store::Record;
use crate::wire::{Answer, Ask};
use crate::{config, object};

/// The `ipam` object of a definition.
pub fn definitions(input: &[u8]) -> bool {
    let Ok(Value::Object(written)) = serde_json::from_slice(input) else {
        return false;
    };
    let Ok(definition) = config::parse(&written) else {
        return false;
    };
    for range in definition.lists.iter().flatten() {
        assert!(range.count() > 0);
        let blocks = range.block_count();
        for place in [0, blocks / 2, blocks - 1] {
            let block = range.block_at(place).expect("it is one of them");
            assert_ne!(range.slots(block), 0, "a block without an address");
        }
        assert_eq!(range.block_at(blocks), None);
        check_ends(range);
    }
    true
}

/// The range gives no address outside of its subnet, and not its gateway.
fn check_ends(range: &Range) {
    let subnet = range.subnet();
    let gateway = range.gateway();
    assert!(gateway.is_none_or(|gateway| !range.contains(gateway)));
    let blocks = range.block_count();
    for block in [0, blocks - 1].map(|place| range.block_at(place).expect("it is one")) {
        for slot in 0..BLOCK_SIZE {
            let is_given = range.slots(block) & (1 << slot) != 0;
            assert!(!is_given || subnet.contains(block.address(slot)));
        }
    }
}

/// A block as somebody may have edited it.
pub fn blocks(input: &[u8]) -> bool {
    let Ok(written) = serde_json::from_slice(input) else {
        return false;
    };
    let Ok(block) = AddressBlock::parse(&written) else {
        return false;
    };
    let name = written.pointer("/metadata/name").and_then(Value::as_str);
    assert_eq!(name, Some(&*object::name(&block.space, block.block)));
    if let Mode::Shared(slots) | Mode::Closed(slots) = &block.mode {
        assert_eq!(slots.len(), BLOCK_SIZE as usize);
    }
    let own = Own {
        holder: Holder {
            node: "a".into(),
            uid: "1".into(),
            incarnation: "i".into(),
            boot: "o".into(),
        },
    };
    let view = own.view(&block);
    assert_eq!(view.turn, block.turn);
    assert!(want(&block, "a").is_array());
    let given_back = Node::new("a".into(), 32).give_back(&view);
    assert_eq!(given_back.is_some(), block.is_unused());
    true
}

/// A pool of whereabouts as somebody may have edited it: what becomes of its entries in blocks becomes the same entries again.
pub fn pools(input: &[u8]) -> bool {
    let Ok(mut written) = serde_json::from_slice::<Value>(input) else {
        return false;
    };
    let Ok(pool) = StoredPool::parse(&written) else {
        return false;
    };
    let space = pool.space_to_be(&BTreeMap::new(), &BTreeMap::new());
    let pools = [pool];
    let plan = moving::adopt(
        &pools.each_ref(),
        std::slice::from_ref(&space),
        &BTreeMap::new(),
        |_| None,
        &[],
    );
    assert_eq!(plan.obstacles, []);
    let blocks = plan.blocks.iter().map(|((space, block), slots)| {
        let mut object = moving::block(space, *block, slots);
        object["metadata"]["uid"] = "u".into();
        object["metadata"]["resourceVersion"] = "1".into();
        AddressBlock::parse(&object).expect("it was written by us")
    });
    let blocks: Vec<_> = blocks.collect();
    written["metadata"]["labels"] = json!({STAMP: ADOPTED});
    written["metadata"]["annotations"] = json!({SPACE: space});
    let adopted = [StoredPool::parse(&written).expect("it was read before")];
    let back = moving::give_back(&adopted, &blocks);
    assert_eq!(back.obstacles, []);
    assert_eq!(back.addresses, plan.addresses);
    for (offset, entry) in &back.allocations[0] {
        // Neither has a slash, which parts them in the owner of a slot.
        let is_plain = !format!("{}{}", entry["id"], entry["ifname"]).contains('/');
        let before = &written["spec"]["allocations"][offset];
        for key in ["id", "podref", "ifname"] {
            let before = before[key].as_str().unwrap_or_default();
            assert!(!is_plain || before.is_empty() || entry[key] == before);
        }
    }
    true
}

/// The record of a block on disk.
pub fn records(input: &[u8]) -> bool {
    let Some(record) = Record::parse(input) else {
        return false;
    };
    let again = Record::parse(&record.document("b")).expect("it was written by us");
    assert_eq!((again.uses, again.held), (record.uses, record.held));
    true
}

/// A request of a plugin, or the answer of the service.
pub fn requests(input: &[u8]) -> bool {
    if let Some(answer) = Answer::parse(input) {
        assert_eq!(Answer::parse(&answer.document()), Some(answer));
        return true;
    }
    let Some(ask) = Ask::parse(input) else {
        return false;
    };
    assert_eq!(Ask::parse(&ask.document()), Some(ask));
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn definitions() {
        run("ipam_definitions", super::definitions);
    }

    #[test]
    fn blocks() {
        run("ipam_blocks", super::blocks);
    }

    #[test]
    fn pools() {
        run("ipam_pools", super::pools);
    }

    #[test]
    fn records() {
        run("ipam_records", super::records);
    }

    #[test]
    fn requests() {
        run("ipam_requests", super::requests);
    }
}
