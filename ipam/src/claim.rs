//! Claims: the `IPAMClaim` of NPWG's specification (1.3, section 8), by which an address outlives its pod.
//!
//! The slot of a claim's address belongs to the claim, and names the pods that use it: two at most, while a machine moves from one to the
//! other. A pod uses the address only after it was written into the claim's own status, so that a claim has one address whatever two nodes
//! do at once. No node frees the address of a claim that exists.

use std::fmt;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::object::{Slot, SlotPod};
use crate::range;
use crate::request::{add, test};

/// How many pods may use the address of a claim: those of a machine that moves.
pub const MOST_PODS: usize = 2;

const GROUP: &str = "k8s.cni.cncf.io/v1alpha1";
/// The resource of the API, and the path of all claims.
pub const RESOURCE: &str = "ipamclaims";
pub const PATH: &str = "/apis/k8s.cni.cncf.io/v1alpha1/ipamclaims";
const CONDITION: &str = "IPsAllocated";

/// Why a claim gives a pod no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("claim {0} does not exist: create it, or correct the pod's \"ipam-claim-reference\"")]
    Missing(String),
    #[error("claim {0} is being deleted: wait until it is gone, and create it again")]
    Deleted(String),
    #[error("claim {name} is one of network {network:?}, not of {asked:?}: refer to another claim")]
    Network {
        name: String,
        network: String,
        asked: String,
    },
    #[error(
        "claim {name}: status.ips has {text:?}, which is no address: correct or delete the claim"
    )]
    Address { name: String, text: String },
    #[error("claim {0} cannot be read: it has no uid")]
    Unreadable(String),
    #[error("claim {name}: its address is used by {pods}: wait until one of them has ended")]
    InUse { name: String, pods: String },
    #[error("a pod has either \"ips\" or a claim: leave one out")]
    WithAddresses,
}

/// Which claim a slot belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// A claim as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub reference: Reference,
    /// The addresses of its status. They never change once they are there.
    pub addresses: Vec<IpAddr>,
    version: String,
    /// The status as it was read, or null.
    status: Value,
}

impl Reference {
    /// Returns the owner of the claim's slots.
    pub fn owner(&self) -> String {
        format!("claim/{}/{}/{}", self.uid, self.namespace, self.name)
    }

    /// Reads the owner of a slot, or of a use of its address; `None` is one of a pod.
    pub fn parse(owner: &str) -> Option<Self> {
        let mut parts = owner.strip_prefix("claim/")?.splitn(4, '/');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        Some(Self {
            uid: next(),
            namespace: next(),
            name: next(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod's interface that uses the address of a claim, as a node's records name it: `<owner of the slot>/<pod>/<container>/<ifname>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage<'a> {
    /// The owner of the slot.
    pub owner: &'a str,
    /// The uid of the pod.
    pub pod: &'a str,
    /// `<container>/<ifname>`.
    pub interface: &'a str,
}

impl<'a> Usage<'a> {
    /// Reads a use; `None` is that of a pod's own slot.
    pub fn parse(text: &'a str) -> Option<Self> {
        let owner = slot_owner(text);
        let (pod, interface) = text[owner.len()..].strip_prefix('/')?.split_once('/')?;
        Some(Self {
            owner,
            pod,
            interface,
        })
    }

    /// Returns the name of the use.
    pub fn text(&self) -> String {
        format!("{}/{}/{}", self.owner, self.pod, self.interface)
    }

    /// Returns the other pods of the claim's slot.
    pub fn others<'b>(self, slot: &'b Slot) -> impl Iterator<Item = &'b SlotPod> + use<'a, 'b> {
        let is_own = move |pod: &SlotPod| pod.uid == self.pod && pod.interface == self.interface;
        slot.pods.iter().filter(move |pod| !is_own(pod))
    }
}

/// Returns the name of a pod's use of a slot: that of a pod's own slot is its owner.
pub fn usage_of(slot: &Slot, pod: &SlotPod) -> String {
    if pod.interface.is_empty() {
        return slot.owner.clone();
    }
    let (owner, pod, interface) = (&*slot.owner, &*pod.uid, &*pod.interface);
    Usage {
        owner,
        pod,
        interface,
    }
    .text()
}

/// Returns the owner of a slot by its use: that of a pod's own slot is its use.
pub fn slot_owner(usage: &str) -> &str {
    let is_claim = usage.starts_with("claim/");
    let end = usage.match_indices('/').nth(3).filter(|_| is_claim);
    end.map_or(usage, |(end, _)| &usage[..end])
}

/// Returns the path of a namespace's claims.
pub fn list_path(namespace: &str) -> String {
    format!("/apis/{GROUP}/namespaces/{namespace}/{RESOURCE}")
}

/// Returns the path of a claim.
pub fn path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", list_path(namespace))
}

impl Claim {
    /// Reads a claim that a pod of this network refers to; `None` is one that does not exist.
    pub fn parse(
        object: Option<&Value>,
        namespace: &str,
        name: &str,
        network: &str,
    ) -> Result<Self, ClaimError> {
        let full = format!("{namespace}/{name}");
        let object = object.ok_or_else(|| ClaimError::Missing(full.clone()))?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        if text("/metadata/deletionTimestamp").is_some() {
            return Err(ClaimError::Deleted(full));
        }
        let of = text("/spec/network").unwrap_or_default();
        if of != network {
            return Err(ClaimError::Network {
                name: full,
                network: of.to_owned(),
                asked: network.to_owned(),
            });
        }
        let uid = text("/metadata/uid").zip(text("/metadata/resourceVersion"));
        let (uid, version) = uid.ok_or_else(|| ClaimError::Unreadable(full.clone()))?;
        Ok(Self {
            reference: Reference {
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            addresses: addresses(object)
                .map_err(|text| ClaimError::Address { name: full, text })?,
            version: version.to_owned(),
            status: object.get("status").cloned().unwrap_or_default(),
        })
    }

    /// Returns the patch of the status that gives the claim its addresses and names the pod: it fails if the claim is another one by now, so
    /// two nodes never give it two addresses. Addresses that it has stay as they are written.
    pub fn allocated(&self, cidrs: &[String], pod: &str, time: &str) -> Value {
        let mut status = self.status.clone();
        if !status.is_object() {
            status = json!({});
        }
        if self.addresses.is_empty() {
            status["ips"] = cidrs.into();
        }
        status["ownerPod"] = json!({"name": pod});
        let message = format!("the claim has {}", cidrs.join(", "));
        self.patch(status, "True", "SuccessfulAllocation", &message, time)
    }

    /// Returns the patch of the status that says why there is no address.
    pub fn failed(&self, reason: &str, message: &str, time: &str) -> Value {
        let mut status = self.status.clone();
        if !status.is_object() {
            status = json!({"ips": []});
        }
        self.patch(status, "False", reason, message, time)
    }

    fn patch(&self, mut status: Value, is: &str, reason: &str, message: &str, time: &str) -> Value {
        let known = status.get("conditions").and_then(Value::as_array);
        let mut all = known.cloned().unwrap_or_default();
        let former = all.iter().find(|one| one["type"] == CONDITION);
        // A condition that says the same has begun before.
        let since = former
            .filter(|former| former["status"] == is)
            .map(|former| former["lastTransitionTime"].clone());
        let condition = json!({
            "type": CONDITION, "status": is, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| time.into()),
        });
        all.retain(|one| one["type"] != CONDITION);
        all.push(condition);
        status["conditions"] = all.into();
        json!([
            test("/metadata/uid", &*self.reference.uid),
            test("/metadata/resourceVersion", &*self.version),
            add("/status", status),
        ])
    }
}

/// Returns the addresses of a claim's status, or the text that is none.
fn addresses(object: &Value) -> Result<Vec<IpAddr>, String> {
    let list = object.pointer("/status/ips").and_then(Value::as_array);
    let read = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let address = text.split('/').next().unwrap_or_default();
        range::parse_address(address).map_err(|_| text.to_owned())
    };
    list.into_iter().flatten().map(read).collect()
}

/// Returns whether a slot of a claim is free for others: the claim, as it was read now, does not exist or has another address. The API
/// server tests that the slot has no pod.
pub fn is_over(object: Option<&Value>, reference: &Reference, address: IpAddr) -> bool {
    let uid = object.and_then(|object| object.pointer("/metadata/uid")?.as_str());
    if uid != Some(&*reference.uid) {
        return true;
    }
    let addresses = object.map(addresses).and_then(Result::ok);
    addresses.is_some_and(|all| !all.is_empty() && !all.contains(&address))
}

/// The pod or machine that keeps its address with `"sticky": "owner"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// The owner reference of the claim.
    pub owner: Value,
    /// The name of the pod, or of its machine.
    pub name: String,
}

/// Returns who keeps a pod's address: a pod of a `StatefulSet` has its name again, and a machine is one pod after the other. `machine` reads
/// the `VirtualMachine` of a name, which outlives its instances.
pub fn sticky<E>(
    pod: &Value,
    machine: impl FnOnce(&str) -> Result<Option<Value>, E>,
) -> Result<Option<Sticky>, E> {
    let owners = pod
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let controller = owners
        .into_iter()
        .flatten()
        .find(|one| one["controller"] == true);
    let Some(controller) = controller else {
        return Ok(None);
    };
    let text = |key: &str| controller[key].as_str().unwrap_or_default();
    let name = pod.pointer("/metadata/name").and_then(Value::as_str);
    let owner = |version: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid});
    let own = owner(text("apiVersion"), text("kind"), text("name"), text("uid"));
    Ok(match text("kind") {
        "StatefulSet" => Some(Sticky {
            owner: own,
            name: name.unwrap_or_default().to_owned(),
        }),
        "VirtualMachineInstance" => {
            let machine = machine(text("name"))?;
            let uid = machine
                .as_ref()
                .and_then(|it| it.pointer("/metadata/uid")?.as_str());
            let kept =
                uid.map(|uid| owner(text("apiVersion"), "VirtualMachine", text("name"), uid));
            Some(Sticky {
                owner: kept.unwrap_or(own),
                name: text("name").to_owned(),
            })
        }
        _ => None,
    })
}

impl Sticky {
    /// Returns the name of the claim, and the object that makes it.
    pub fn claim(&self, namespace: &str, network: &str, ifname: &str) -> (String, Value) {
        let plain = network.rsplit('/').next().unwrap_or(network).to_lowercase();
        let plain: String = plain
            .chars()
            .map(|one| {
                if one.is_ascii_alphanumeric() || one == '-' {
                    one
                } else {
                    '-'
                }
            })
            .collect();
        let name = format!(
            "{}.{}.{}",
            self.name,
            plain.trim_matches('-'),
            ifname.to_lowercase()
        );
        let object = json!({
            "apiVersion": GROUP,
            "kind": "IPAMClaim",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [self.owner]},
            "spec": {"network": network, "interface": ifname},
        });
        (name, object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {"name": "vm.lan", "uid": "u", "resourceVersion": "7"},
            "spec": {"network": "lan", "interface": "net1"},
            "status": {"ips": ["10.20.0.9/16", "fd00:20::9/64"], "conditions": [{"type": "Other", "status": "True"}]},
        })
    }

    fn parse(object: &Value) -> Result<Claim, ClaimError> {
        Claim::parse(Some(object), "shop", "vm.lan", "lan")
    }

    #[test]
    fn owner_of_a_slot_names_the_claim_and_its_use_the_pod() {
        let reference = parse(&object()).unwrap().reference;
        assert_eq!(reference.owner(), "claim/u/shop/vm.lan");
        let owner = reference.owner();
        let text = format!("{owner}/p/c/net1");
        let usage = Usage::parse(&text).unwrap();
        assert_eq!(
            (usage.owner, usage.pod, usage.interface),
            (&*owner, "p", "c/net1")
        );
        assert_eq!(usage.text(), text);
        assert_eq!(Usage::parse("pod/u/c/net1"), None);
        assert_eq!(Usage::parse(&owner), None);
        assert_eq!(slot_owner(&text), owner);
        assert_eq!(slot_owner("pod/u/c/net1"), "pod/u/c/net1");
        assert_eq!(Reference::parse(&text), Some(reference));
        assert_eq!(Reference::parse("pod/u/c/net1"), None);
    }

    #[test]
    fn claims_that_give_nothing_say_why() {
        let with = |pointer: &str, value: Value| {
            let mut object = object();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value;
            parse(&object).unwrap_err().to_string()
        };
        let deleted = with("/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into());
        assert!(
            deleted.contains("claim shop/vm.lan is being deleted"),
            "{deleted}"
        );
        let network = with("/spec/network", "other".into());
        assert!(
            network.contains("is one of network \"other\", not of \"lan\""),
            "{network}"
        );
        let address = with("/status/ips", json!(["10.20.0"]));
        assert!(address.contains("status.ips has \"10.20.0\""), "{address}");
        let missing = Claim::parse(None, "shop", "vm.lan", "lan").unwrap_err();
        assert!(
            missing
                .to_string()
                .contains("claim shop/vm.lan does not exist")
        );
    }

    #[test]
    fn status_keeps_addresses_other_conditions_and_the_time_of_a_change() {
        let claim = parse(&object()).unwrap();
        let cidrs = ["10.20.0.9/16".to_owned(), "fd00:20::9/64".to_owned()];
        let patch = claim.allocated(&cidrs, "launcher-a", "T1");
        assert_eq!(patch[1]["value"], "7");
        let mut after = object();
        after["status"] = patch[2]["value"].clone();
        assert_eq!(after["status"]["ips"], object()["status"]["ips"]);
        assert_eq!(after["status"]["ownerPod"], json!({"name": "launcher-a"}));
        assert_eq!(after["status"]["conditions"][0]["type"], "Other");
        assert_eq!(after["status"]["conditions"][1]["lastTransitionTime"], "T1");
        let again = parse(&after).unwrap().allocated(&cidrs, "launcher-b", "T2");
        assert_eq!(
            again[2]["value"]["conditions"][1]["lastTransitionTime"],
            "T1"
        );
        let failed = parse(&after)
            .unwrap()
            .failed("IPAddressConflict", "in use", "T3");
        let status = &failed[2]["value"];
        assert_eq!(status["ips"], object()["status"]["ips"]);
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "T3");
        assert_eq!(status["conditions"][1]["status"], "False");
        let mut new = object();
        new["status"] = Value::Null;
        let new = parse(&new).unwrap();
        assert_eq!(
            new.allocated(&cidrs[..1], "p", "T")[2]["value"]["ips"],
            json!(["10.20.0.9/16"])
        );
        assert_eq!(
            new.failed("SubnetExhausted", "full", "T")[2]["value"]["ips"],
            json!([])
        );
    }

    #[test]
    fn slot_is_free_when_its_claim_is_gone_or_has_another_address() {
        let claim = parse(&object()).unwrap().reference;
        let [its, other] = ["10.20.0.9", "10.20.0.8"].map(|text| text.parse().unwrap());
        assert!(!is_over(Some(&object()), &claim, its));
        assert!(is_over(Some(&object()), &claim, other));
        assert!(is_over(None, &claim, its));
        let mut unbound = object();
        unbound["status"]["ips"] = json!([]);
        assert!(!is_over(Some(&unbound), &claim, other));
        unbound["metadata"]["uid"] = "another".into();
        assert!(is_over(Some(&unbound), &claim, its));
    }

    #[test]
    fn stateful_pods_and_machines_keep_their_address() {
        let pod = |kind: &str, name: &str| {
            json!({"metadata": {"name": "web-0", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"},
                {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "2", "controller": true},
            ]}})
        };
        let found =
            |pod: &Value, machine: Option<Value>| sticky(pod, |_| Ok::<_, ()>(machine)).unwrap();
        let set = found(&pod("StatefulSet", "web"), None).unwrap();
        let (name, object) = set.claim("shop", "shop/Storage_1", "net1");
        assert_eq!(name, "web-0.storage-1.net1");
        assert_eq!(
            object["spec"],
            json!({"network": "shop/Storage_1", "interface": "net1"})
        );
        assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "web");
        let instance = pod("VirtualMachineInstance", "vm");
        let alone = found(&instance, None).unwrap();
        assert_eq!(
            (alone.name.as_str(), &alone.owner["uid"]),
            ("vm", &json!("2"))
        );
        let machine = found(&instance, Some(json!({"metadata": {"uid": "3"}}))).unwrap();
        assert_eq!(
            machine.owner,
            json!({"apiVersion": "x/v1", "kind": "VirtualMachine", "name": "vm", "uid": "3"})
        );
        assert_eq!(found(&pod("ReplicaSet", "web"), None), None);
        assert_eq!(found(&json!({"metadata": {"name": "alone"}}), None), None);
    }
}
