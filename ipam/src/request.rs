//! The protocol's blocks and requests as objects and JSON patches (RFC 6902) of the API.
//!
//! The API server applies a patch to the object as it is then, all of it or nothing. So the tests of a patch are what makes two nodes that
//! write at once one after the other.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::claim::usage_of;
use crate::node::{self, Change, Mode, Owner, Test, User};
use crate::object::{self, AddressBlock, Holder, SCHEMA, Slot, SlotPod};
use crate::range::{BLOCK_SIZE, Block};

/// The holder of a closed block, which no node is.
pub const CLOSED: &str = "/closed";

/// An identity in the protocol: a node by its name, a block by its uid, a pod as the owner of a slot.
pub type Id = Arc<str>;

/// This node in the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub holder: Holder,
}

impl Own {
    /// Returns whether this node holds the block of a holder: its directory says so, or the machine was started since another directory was
    /// there, and a Node of this name that was deleted says that its machine is off.
    fn is(&self, holder: &Holder) -> bool {
        let is_node = self.holder.node == holder.node;
        let is_own = self.holder.incarnation == holder.incarnation;
        is_node && (is_own || self.is_former(&holder.boot))
    }

    /// Returns whether a boot is one of before this machine was started, which has ended every use.
    pub fn is_former(&self, boot: &str) -> bool {
        *self.holder.boot != *boot
    }

    /// Returns a block as the protocol sees it. A holder that is not this node has a name that no node has.
    pub fn view(&self, block: &AddressBlock) -> node::Block<Id> {
        let mode = match &block.mode {
            object::Mode::Node(holder) if self.is(holder) => Mode::Node(holder.node.clone()),
            object::Mode::Node(holder) => Mode::Node(foreign(holder)),
            // Nobody gives an address of it, and nobody takes it.
            object::Mode::Closed(_) => Mode::Node(CLOSED.into()),
            object::Mode::Shared(slots) => Mode::Shared(slots.iter().map(owner).collect()),
        };
        node::Block {
            uid: block.uid.clone(),
            turn: block.turn,
            mode,
            is_deleted: block.is_deleted,
        }
    }
}

fn foreign(holder: &Holder) -> Id {
    let Holder {
        node,
        uid,
        incarnation,
        boot,
    } = holder;
    format!("{node}/{uid}/{incarnation}/{boot}").into()
}

fn owner(slot: &Slot) -> Option<Owner<Id>> {
    let user = |pod: &SlotPod| User {
        node: pod.node.as_str().into(),
        pod: usage_of(slot, pod).into(),
    };
    let name = slot.owner.as_str();
    if name.starts_with("claim/") {
        return Some(Owner::Claim(
            name.into(),
            slot.pods.iter().map(user).collect(),
        ));
    }
    let node = slot.pods.first().map_or("", |pod| &pod.node).into();
    let pod = name.into();
    (!name.is_empty()).then_some(Owner::Pod(User { node, pod }))
}

/// Returns the owner of a slot for a pod's interface.
pub fn pod_owner(uid: &str, container: &str, ifname: &str) -> Id {
    format!("pod/{uid}/{container}/{ifname}").into()
}

/// Everything that the text of a request needs besides the request.
pub struct Context<'a> {
    pub own: &'a Own,
    pub space: &'a str,
    pub block: Block,
    /// The block as it was read, unless the request creates it.
    pub seen: Option<&'a AddressBlock>,
    /// Returns the pod of an owner of this node.
    pub pod: &'a dyn Fn(&str) -> Option<SlotPod>,
}

impl Context<'_> {
    /// Returns the object that a request creates.
    pub fn object(&self, mode: &Mode<Id>) -> Value {
        match mode {
            Mode::Node(node) => {
                let mut object = new_block(self.space, self.block, node);
                let spec = &mut object["spec"];
                spec["mode"] = "node".into();
                spec["holder"] = holder(&self.own.holder);
                spec["used"] = used(0).into();
                object
            }
            Mode::Shared(owners) => shared(self.space, self.block, self.slots(owners)),
        }
    }

    /// Returns the patch of a request that changes a block. A request that creates one or asks for its deletion has no patch.
    pub fn patch(&self, request: &node::Request<Id>) -> Option<Value> {
        let mut patch = self.tests(&request.tests)?;
        match &request.change {
            Change::Create(_) | Change::Delete => return None,
            Change::Hold { turn, .. } => {
                let own = &self.own.holder;
                patch.push(replace("/spec/holder", holder(own)));
                patch.push(replace("/spec/turn", *turn));
                patch.push(add("/spec/used", used(0)));
                patch.push(label(&own.node));
            }
            Change::Share { owners, turn } => {
                patch.push(replace("/spec/mode", "shared"));
                patch.push(json!({"op": "remove", "path": "/spec/holder"}));
                patch.push(replace("/spec/turn", *turn));
                patch.push(add("/spec/slots", self.slots(owners)));
                patch.push(add("/spec/used", ""));
                patch.push(add("/spec/wanted", json!([])));
                patch.push(label(""));
            }
            Change::LetGo => {
                patch.push(json!({"op": "remove", "path": "/metadata/finalizers"}));
            }
            Change::Slot(slot, owner) => {
                let value = match owner {
                    Some(owner) => self.slot(*slot, owner)?,
                    None => free_slot(),
                };
                patch.push(replace(&format!("/spec/slots/{slot}"), value));
            }
        }
        Some(Value::Array(patch))
    }

    fn seen_slot(&self, slot: usize) -> Option<&Slot> {
        let object::Mode::Shared(slots) = &self.seen?.mode else {
            return None;
        };
        slots.get(slot)
    }

    fn tests(&self, tests: &[Test<Id>]) -> Option<Vec<Value>> {
        let mut patch = Vec::new();
        for one in tests {
            let next = match one {
                Test::Absent => return None,
                Test::Unchanged(block) => {
                    let version = &*self.seen?.resource_version;
                    patch.push(test("/metadata/uid", &*block.uid));
                    test("/metadata/resourceVersion", version)
                }
                Test::Uid(uid) => test("/metadata/uid", &**uid),
                Test::Turn(turn) => test("/spec/turn", *turn),
                Test::HeldBy(_) => {
                    let object::Mode::Node(seen) = &self.seen?.mode else {
                        return None;
                    };
                    patch.push(test("/spec/mode", "node"));
                    test("/spec/holder", holder(seen))
                }
                Test::Shared => test("/spec/mode", "shared"),
                // The API server takes what is missing for null here.
                Test::NotDeleted => test("/metadata/deletionTimestamp", Value::Null),
                Test::Slot(slot, owner) => {
                    if let Some(Owner::Claim(..)) = owner {
                        let seen = self.seen_slot(*slot);
                        let seen = seen.filter(|seen| self::owner(seen) == *owner)?;
                        let pods: Value = seen.pods.iter().map(slot_pod).collect();
                        patch.push(test(&format!("/spec/slots/{slot}/pods"), pods));
                    }
                    let owner = owner.as_ref().map_or("", |owner| owner.name());
                    test(&format!("/spec/slots/{slot}/owner"), owner)
                }
            };
            patch.push(next);
        }
        Some(patch)
    }

    /// An owner whose use has ended since the request was made has no slot: without a pod it would not say which node frees it.
    fn slots(&self, owners: &[Option<Owner<Id>>]) -> Value {
        let slots = owners.iter().enumerate();
        slots
            .map(|(slot, owner)| {
                let owned = owner.as_ref().and_then(|owner| self.slot(slot, owner));
                owned.unwrap_or_else(free_slot)
            })
            .collect()
    }

    /// Returns a slot with its owner, unless a use has ended since the request was made: nobody waits for it any more.
    fn slot(&self, slot: usize, owner: &Owner<Id>) -> Option<Value> {
        let other = |user: &User<Id>| {
            let seen = self.seen_slot(slot)?;
            let mut pods = seen.pods.iter();
            pods.find(|pod| usage_of(seen, pod) == *user.pod).cloned()
        };
        let users = owner.users().iter();
        let pods = users.map(|user| {
            let new = || {
                let mut pod = (self.pod)(&user.pod)?;
                self.own.holder.boot.as_ref().clone_into(&mut pod.boot);
                Some(pod)
            };
            Some(slot_pod(&other(user).or_else(new)?))
        });
        let pods = pods.collect::<Option<Value>>()?;
        Some(json!({"owner": &**owner.name(), "pods": pods}))
    }
}

/// Returns the object of a new block, but for its mode and what belongs to that.
fn new_block(space: &str, block: Block, node: &str) -> Value {
    json!({
        "apiVersion": format!("{}/{}", object::GROUP, object::VERSION),
        "kind": object::KIND,
        "metadata": {
            "name": object::name(space, block),
            "labels": {object::NODE_LABEL: node, object::SPACE_LABEL: object::space_label(space)},
            "finalizers": [object::FINALIZER],
        },
        "spec": {
            "schema": SCHEMA, "space": space, "first": block.first().to_string(), "turn": 1, "wanted": [],
        },
    })
}

/// Returns the object of a new shared block.
pub(crate) fn shared(space: &str, block: Block, slots: Value) -> Value {
    let mut object = new_block(space, block, "");
    object["spec"]["mode"] = "shared".into();
    object["spec"]["slots"] = slots;
    object
}

/// Returns slots as a block's object has them.
pub(crate) fn written(slots: &[Slot]) -> Value {
    let slot = |slot: &Slot| json!({"owner": slot.owner, "pods": slot.pods.iter().map(slot_pod).collect::<Value>()});
    slots.iter().map(slot).collect()
}

fn free_slot() -> Value {
    json!({"owner": "", "pods": []})
}

/// Returns the patch that says how many addresses of a held block are in use. Nothing is decided by it.
pub fn report(uid: &str, turn: u64, slots: u32) -> Value {
    json!([
        test("/metadata/uid", uid),
        test("/spec/turn", turn),
        add("/spec/used", used(slots))
    ])
}

/// Returns the patch by which a node asks the holder of a block to share it.
pub fn want(block: &AddressBlock, node: &str) -> Value {
    let wanted: Vec<&str> = block.wanted.iter().map(|node| &**node).collect();
    let others = wanted.into_iter().filter(|one| *one != node);
    let all: Vec<&str> = others.chain([node]).collect();
    json!([
        test("/metadata/uid", &*block.uid),
        test("/spec/turn", block.turn),
        test("/spec/mode", "node"),
        add("/spec/wanted", json!(all))
    ])
}

/// Returns the patch that frees a slot of a shared block, if it still has its owner.
pub fn free(block: &AddressBlock, slot: usize) -> Option<Value> {
    let object::Mode::Shared(slots) = &block.mode else {
        return None;
    };
    let (seen, path) = (slots.get(slot)?, format!("/spec/slots/{slot}"));
    Some(json!([
        test("/metadata/uid", &*block.uid),
        test("/spec/mode", "shared"),
        test(&format!("{path}/owner"), &*seen.owner),
        replace(&path, free_slot()),
    ]))
}

fn holder(of: &Holder) -> Value {
    json!({"node": &*of.node, "uid": &*of.uid, "incarnation": &*of.incarnation, "boot": &*of.boot})
}

fn slot_pod(pod: &SlotPod) -> Value {
    let SlotPod {
        namespace,
        name,
        uid,
        node,
        boot,
        interface,
        pool,
    } = pod;
    let mut value = json!({"namespace": namespace, "name": name, "uid": uid, "node": node});
    let may_be_empty = [("boot", boot), ("interface", interface), ("pool", pool)];
    for (key, text) in may_be_empty
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
    {
        value[key] = text.as_str().into();
    }
    value
}

/// The lowest bit is the block's first address.
fn used(slots: u32) -> String {
    format!("{slots:0width$x}", width = BLOCK_SIZE as usize / 4)
}

fn label(node: &str) -> Value {
    let key = object::NODE_LABEL.replace('~', "~0").replace('/', "~1");
    add(&format!("/metadata/labels/{key}"), node)
}

/// Fails the patch unless the member has this value.
pub(crate) fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "test", "path": path, "value": value.into()})
}

/// Sets a member that there is.
pub(crate) fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path, "value": value.into()})
}

/// Sets a member, whether there is one or not.
pub(crate) fn add(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "add", "path": path, "value": value.into()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Answer, Node, Outcome};

    fn own() -> Own {
        Own {
            holder: Holder {
                node: "a".into(),
                uid: "1".into(),
                incarnation: "i".into(),
                boot: "o".into(),
            },
        }
    }

    const POD: &dyn Fn(&str) -> Option<SlotPod> = &|owner| {
        Some(SlotPod {
            namespace: "shop".to_owned(),
            name: owner.to_owned(),
            uid: "u".to_owned(),
            node: "a".to_owned(),
            boot: String::new(),
            interface: String::new(),
            pool: String::new(),
        })
    };

    fn block() -> Block {
        Block::of([10, 20, 3, 0].into())
    }

    /// Returns the block that the API server makes of an object.
    fn stored(mut object: Value) -> AddressBlock {
        object["metadata"]["uid"] = "block".into();
        object["metadata"]["resourceVersion"] = "1".into();
        AddressBlock::parse(&object).unwrap()
    }

    fn context<'a>(own: &'a Own, seen: Option<&'a AddressBlock>) -> Context<'a> {
        Context {
            own,
            space: "",
            block: block(),
            seen,
            pod: POD,
        }
    }

    fn sent(answer: Answer<Id>) -> node::Request<Id> {
        match answer {
            Answer::Send(request) => request,
            other => panic!("{other:?}"),
        }
    }

    /// Everything that a request relies on is tested at the moment of the change.
    #[test]
    fn each_patch_has_all_tests_of_its_request() {
        let own = own();
        let mut node: Node<Id> = Node::new("a".into(), 32);
        let all: Vec<usize> = (0..32).collect();
        let create = sent(node.add(None, None, &"pod/1".into(), &all, false, |_| false));
        let Change::Create(mode) = &create.change else {
            panic!("{create:?}")
        };
        let object = context(&own, None).object(mode);
        assert_eq!(object["metadata"]["finalizers"], json!([object::FINALIZER]));
        let held = stored(object);
        node.answered(Outcome::Made(&own.view(&held)));
        let granted = node.add(None, None, &"pod/1".into(), &[5], false, |_| false);
        assert_eq!(granted, Answer::Granted(5));

        let label = "/metadata/labels/ipam.multus-rs.cni.cncf.io~1node";
        let holder = json!({"node": "a", "uid": "1", "incarnation": "i", "boot": "o"});
        let tests = [
            test("/metadata/uid", "block"),
            test("/spec/turn", 1),
            test("/spec/mode", "node"),
            test("/spec/holder", holder.clone()),
        ];
        node.boot();
        let confirm = node.confirm(&own.view(&held)).unwrap();
        let expected = [
            &tests[..],
            &[
                replace("/spec/holder", holder),
                replace("/spec/turn", 2),
                add("/spec/used", "00000000"),
                add(label, "a"),
            ],
        ];
        let patch = |request, seen| context(&own, Some(seen)).patch(request).unwrap();
        assert_eq!(patch(&confirm, &held), json!(expected.concat()));
        node.answered(Outcome::Made(&own.view(&held)));
        node.add(None, None, &"pod/2".into(), &[7], false, |_| false);

        let share = node.share().unwrap();
        let patch_of_share = patch(&share, &held);
        let mut slots = vec![json!({"owner": "", "pods": []}); 32];
        slots[7] = json!({"owner": "pod/2", "pods": [{"namespace": "shop", "name": "pod/2", "uid": "u", "node": "a", "boot": "o"}]});
        let expected = [
            &tests[..],
            &[
                replace("/spec/mode", "shared"),
                json!({"op": "remove", "path": "/spec/holder"}),
                replace("/spec/turn", 2),
                add("/spec/slots", slots.clone()),
                add("/spec/used", ""),
                add("/spec/wanted", json!([])),
                add(label, ""),
            ],
        ];
        assert_eq!(patch_of_share, json!(expected.concat()));
        // The pod was deleted before the request was sent.
        let without = Context {
            pod: &|_| None,
            ..context(&own, Some(&held))
        };
        let patch_without = without.patch(&share).unwrap();
        let written = patch_without.as_array().unwrap().iter();
        let written: Vec<_> = written
            .filter(|step| step["path"] == "/spec/slots")
            .collect();
        assert_eq!(written.len(), 1);
        assert!(
            written[0]["value"][7] == json!({"owner": "", "pods": []}),
            "{written:?}"
        );

        let spec = json!({"schema": 1, "space": "", "first": "10.20.3.0", "turn": 2, "mode": "shared", "slots": slots});
        let shared = stored(json!({"metadata": {"name": "10.20.3.0"}, "spec": spec}));
        let mut other: Node<Id> = Node::new("b".into(), 32);
        let view = own.view(&shared);
        let take = sent(other.add(Some(&view), None, &"pod/3".into(), &[9], true, |_| false));
        let taken = json!({"owner": "pod/3", "pods": [{"namespace": "shop", "name": "pod/3", "uid": "u", "node": "a", "boot": "o"}]});
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/spec/mode", "shared"),
            test("/spec/slots/9/owner", ""),
            test("/metadata/deletionTimestamp", Value::Null),
            replace("/spec/slots/9", taken),
        ]);
        assert_eq!(patch(&take, &shared), expected);
        let free = node::Node::new("a".into(), 32).free(&view, |_| false);
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/spec/mode", "shared"),
            test("/spec/slots/7/owner", "pod/2"),
            replace("/spec/slots/7", json!({"owner": "", "pods": []})),
        ]);
        assert_eq!(patch(&free[0].1, &shared), expected);
    }

    #[test]
    fn slot_of_a_claim_changes_only_as_it_was_read() {
        let own = own();
        let pod = |name: &str, interface: &str| json!({"namespace": "shop", "name": name, "uid": name, "node": "b", "interface": interface});
        let (source, target) = (pod("source", "c/net1"), pod("target", "d/net1"));
        let claim = "claim/u/shop/vm";
        let mut slots = vec![json!({"owner": "", "pods": []}); 32];
        slots[7] = json!({"owner": claim, "pods": [source]});
        let mut spec = json!({"schema": 1, "space": "", "first": "10.20.3.0", "turn": 2, "mode": "shared", "slots": slots});
        let read = |spec: &Value| stored(json!({"metadata": {"name": "10.20.3.0"}, "spec": spec}));
        let shared = read(&spec);
        let tests = |pods: &[&Value]| {
            vec![
                test("/metadata/uid", "block"),
                test("/spec/mode", "shared"),
                test("/spec/slots/7/owner", claim),
                test("/spec/slots/7/pods", json!(pods)),
            ]
        };
        let sorted = |patch: Value| {
            let mut steps: Vec<String> = patch
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect();
            steps.sort();
            steps
        };
        let expect = |pods: &[&Value], slot: Value| {
            let change = vec![replace("/spec/slots/7", slot)];
            sorted(json!([tests(pods), change].concat()))
        };
        // One more pod.
        let usage: Id = format!("{claim}/u/d/net1").into();
        let mut node: Node<Id> = Node::new("a".into(), 32);
        let hold = node.hold(&own.view(&shared), 7, &usage, 2).unwrap();
        let new =
            json!({"namespace": "shop", "name": &*usage, "uid": "u", "node": "a", "boot": "o"});
        let patch = context(&own, Some(&shared)).patch(&hold).unwrap();
        assert_eq!(
            sorted(patch),
            expect(&[&source], json!({"owner": claim, "pods": [source, new]}))
        );
        // There were two by the time it was to be sent.
        spec["slots"][7]["pods"] = json!([source, target]);
        let moving = read(&spec);
        assert_eq!(context(&own, Some(&moving)).patch(&hold), None);
        let mut other: Node<Id> = Node::new("c".into(), 32);
        assert_eq!(other.hold(&own.view(&moving), 7, &usage, 2), None);
        let ended = Node::new("b".into(), 32).free(&own.view(&moving), |_| false);
        let patch = context(&own, Some(&moving)).patch(&ended[0].1).unwrap();
        assert_eq!(
            sorted(patch),
            expect(
                &[&source, &target],
                json!({"owner": claim, "pods": [target]})
            )
        );
        assert_eq!(own.view(&moving).free_claim(7, &claim.into()), None);
        spec["slots"][7]["pods"] = json!([]);
        let left = read(&spec);
        let free = own.view(&left).free_claim(7, &claim.into()).unwrap();
        let patch = context(&own, Some(&left)).patch(&free).unwrap();
        assert_eq!(sorted(patch), expect(&[], json!({"owner": "", "pods": []})));
    }

    #[test]
    fn deleted_block_is_let_go_only_as_it_was_read() {
        let slots = vec![json!({"owner": ""}); 32];
        let spec = json!({"schema": 1, "space": "", "first": "10.20.3.0", "turn": 2, "mode": "shared", "slots": slots});
        let metadata = json!({"name": "10.20.3.0", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let shared = stored(json!({"metadata": metadata, "spec": spec}));
        let own = own();
        let mut node: Node<Id> = Node::new("a".into(), 32);
        let request = node.give_back(&own.view(&shared)).unwrap();
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/metadata/resourceVersion", "1"),
            {"op": "remove", "path": "/metadata/finalizers"},
        ]);
        let patch = context(&own, Some(&shared)).patch(&request);
        assert_eq!(patch, Some(expected));
    }

    #[test]
    fn slot_is_freed_only_with_its_owner() {
        let mut slots = vec![json!({"owner": ""}); 32];
        slots[5]["owner"] = "claim/c/shop/web".into();
        let spec = json!({"schema": 1, "space": "", "first": "10.20.3.0", "turn": 2, "mode": "shared", "slots": slots});
        let block = stored(json!({"metadata": {"name": "10.20.3.0"}, "spec": spec}));
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/spec/mode", "shared"),
            test("/spec/slots/5/owner", "claim/c/shop/web"),
            replace("/spec/slots/5", free_slot()),
        ]);
        assert_eq!(free(&block, 5), Some(expected));
        assert_eq!(free(&block, 32), None);
    }

    #[test]
    fn wish_is_written_once_for_each_node() {
        let spec = json!({"schema": 1, "space": "", "first": "10.20.3.0", "turn": 2, "mode": "node", "wanted": ["b", "c"],
            "holder": {"node": "x", "uid": "1", "incarnation": "i", "boot": "o"}});
        let block = stored(json!({"metadata": {"name": "10.20.3.0"}, "spec": spec}));
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/spec/turn", 2),
            test("/spec/mode", "node"),
            add("/spec/wanted", json!(["c", "b"])),
        ]);
        assert_eq!(want(&block, "b"), expected);
    }

    #[test]
    fn number_of_used_addresses_is_written_only_under_its_turn() {
        let expected = json!([
            test("/metadata/uid", "block"),
            test("/spec/turn", 2),
            add("/spec/used", "00000005"),
        ]);
        assert_eq!(report("block", 2, 5), expected);
    }
}
