//! Claims, and addresses that a pod chooses.

use super::*;
use crate::claim::MOST_PODS;
use crate::range::Block;
use crate::service::claims::MOST_QUESTIONS;

pub(super) const PREFIX: &str = "claim ";

/// The name of a claim on the server.
pub(super) fn key(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}/{name}")
}

impl Server {
    pub(super) fn apply_to_claim(
        &self,
        key: &str,
        write: &Write,
    ) -> Result<Option<Value>, ApiError> {
        let Write::Patch(patch) = write else {
            panic!("nobody deletes a claim")
        };
        let mut claims = self.claims.lock().unwrap();
        let refused = || ApiError::Refused("a test failed".to_owned());
        let claim = claims.get_mut(key).ok_or_else(refused)?;
        let mut changed = patched(claim, patch).ok_or_else(refused)?;
        let version = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        changed["metadata"]["resourceVersion"] = version.into();
        *claim = changed.clone();
        Ok(Some(changed))
    }

    pub(super) fn create_claim_object(
        &self,
        namespace: &str,
        object: &Value,
    ) -> Result<(), ApiError> {
        let key = key(namespace, object["metadata"]["name"].as_str().unwrap());
        let mut claims = self.claims.lock().unwrap();
        if claims.contains_key(&key) {
            return Err(ApiError::Refused("it exists".to_owned()));
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let mut object = object.clone();
        object["metadata"]["uid"] = format!("uid-{number}").into();
        object["metadata"]["resourceVersion"] = number.into();
        claims.insert(key, object);
        Ok(())
    }

    /// Creates a claim of network `lan`; returns its uid.
    fn claim_for(&self, name: &str, ips: &[&str]) -> String {
        let object = json!({
            "metadata": {"name": name},
            "spec": {"network": "lan", "interface": "net1"},
            "status": {"ips": ips},
        });
        self.create_claim_object("shop", &object).unwrap();
        self.claim_value(name, "/metadata/uid")
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn claim_value(&self, name: &str, pointer: &str) -> Value {
        self.claims.lock().unwrap()[&key("shop", name)]
            .pointer(pointer)
            .cloned()
            .unwrap()
    }

    fn remove_claim(&self, name: &str) {
        self.claims.lock().unwrap().remove(&key("shop", name));
    }

    /// Changes every slot of shared blocks.
    fn for_each_slot(&self, change: impl FnMut(&mut Value)) {
        let mut objects = self.objects.lock().unwrap();
        let blocks = objects.values_mut();
        let slots = blocks.filter_map(|object| object["spec"]["slots"].as_array_mut());
        slots.flatten().for_each(change);
    }

    /// The owners and pods of all slots that are not free.
    fn slots(&self) -> Vec<(String, Vec<String>)> {
        let objects = self.objects.lock().unwrap();
        let slots = objects
            .values()
            .filter_map(|object| object["spec"]["slots"].as_array());
        let owned = slots.flatten().filter(|slot| slot["owner"] != "");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        owned
            .map(|slot| {
                let pods = slot["pods"].as_array().unwrap().iter();
                (
                    text(&slot["owner"]),
                    pods.map(|pod| text(&pod["name"])).collect(),
                )
            })
            .collect()
    }
}

impl Machine {
    /// Frees slots of claims that are gone, as an ADD does that finds the range full.
    pub(super) fn free_abandoned(&self) {
        let own = self.service.own().unwrap();
        for name in self.server.names() {
            self.service.read(&own, &name).unwrap();
            for number in 0..32 {
                let path = format!("/spec/slots/{number}/owner");
                let object = self.server.objects.lock().unwrap().get(&name).cloned();
                let owner = object.and_then(|object| object.pointer(&path).cloned());
                let owner = owner.unwrap_or_default();
                if let Some(claim) = Reference::parse(owner.as_str().unwrap_or_default()) {
                    let abandoned = (name.clone(), number, claim);
                    self.service.free_abandoned(&own, &abandoned).unwrap();
                }
            }
        }
    }

    fn add_claimed(&self, pod: &str, claim: &str, ipam: &Value) -> Result<Vec<String>, String> {
        self.allocate(&Allocation {
            claim: claim.to_owned(),
            ..allocation(pod, ipam)
        })
    }

    fn add_chosen(
        &self,
        pod: &str,
        addresses: &[&str],
        ipam: &Value,
    ) -> Result<Vec<String>, String> {
        self.allocate(&Allocation {
            addresses: addresses
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            ..allocation(pod, ipam)
        })
    }
}

#[test]
fn chosen_addresses_are_given_to_one_pod_each() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    b.follow();
    let lan = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.20.0.0/16"}], [{"subnet": "fd00::/64"}]],
        "exclude": ["10.20.0.64/27"]});
    let both = ["fd00::9", "10.20.0.40"];
    assert_eq!(
        a.add_chosen("1", &both, &lan).unwrap(),
        ["10.20.0.40/16", "fd00::9/64"]
    );
    let requests = server.requests();
    assert_eq!(
        requests.len(),
        5,
        "the Node, and each block read and created: {requests:?}"
    );
    let taken = b.add_chosen("2", &["10.20.0.40"], &lan).unwrap_err();
    assert_eq!(
        taken,
        "network lan: 10.20.0.40 is in use by pod shop/1 on node a"
    );
    assert_eq!(
        b.add_chosen("3", &["10.20.0.41"], &lan).unwrap()[0],
        "10.20.0.41/16"
    );
    // A block that another node holds is shared for it.
    let held = b.add("4", &lan).unwrap()[0].clone();
    let held: IpAddr = held.split('/').next().unwrap().parse().unwrap();
    let block = Block::of(held);
    let mut free = (1..32).map(|slot| block.address(slot).to_string());
    let is_other = |address: &String| *address != held.to_string() && address != "10.20.0.1";
    let free = free.rfind(is_other).unwrap();
    assert_eq!(
        a.add_chosen("5", &[&free], &lan).unwrap()[0],
        format!("{free}/16")
    );
    let taken = a.add_chosen("6", &[&held.to_string()], &lan).unwrap_err();
    assert!(
        taken.ends_with("is in use by pod shop/4 on node b"),
        "{taken}"
    );
    // The other family of a pod that fails is free again.
    a.work();
    assert_eq!(
        a.add_chosen("7", &["fd00::a"], &lan).unwrap()[1],
        "fd00::a/64"
    );
    a.del("1");
    a.work();
    assert_eq!(
        b.add_chosen("8", &both, &lan).unwrap(),
        ["10.20.0.40/16", "fd00::9/64"]
    );
    for (addresses, expected) in [
        (
            &["10.21.0.1"][..],
            "10.21.0.1 is not an address that the network gives from 10.20.0.0/16, fd00::/64",
        ),
        (
            &["10.20.0.1"],
            "10.20.0.1 is not an address that the network gives",
        ),
        (
            &["10.20.0.65"],
            "10.20.0.65 is not an address that the network gives",
        ),
        (
            &["10.20.0.9", "10.20.0.8"],
            "10.20.0.9 and 10.20.0.8 are of one list of ranges",
        ),
    ] {
        let failed = a.add_chosen("9", addresses, &lan).unwrap_err();
        assert!(failed.starts_with(expected), "{failed}");
    }
}

#[test]
fn claim_keeps_its_address_from_pod_to_pod_until_it_is_deleted() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.20.0.0/16"}], [{"subnet": "fd00::/64"}]]});
    let uid = server.claim_for("vm", &[]);
    let addresses = a.add_claimed("1", "vm", &lan).unwrap();
    assert_eq!(server.claim_value("vm", "/status/ips"), json!(addresses));
    assert_eq!(server.claim_value("vm", "/status/ownerPod/name"), "1");
    assert_eq!(
        server.claim_value("vm", "/status/conditions/0/reason"),
        "SuccessfulAllocation"
    );
    // The machine moves: both pods have the address, and a third one does not.
    assert_eq!(b.add_claimed("2", "vm", &lan).unwrap(), addresses);
    assert_eq!(server.claim_value("vm", "/status/ownerPod/name"), "2");
    let third = b.add_claimed("3", "vm", &lan).unwrap_err();
    assert_eq!(
        third,
        "claim shop/vm: its address is used by shop/1 on a and shop/2 on b: wait until one of them has ended"
    );
    a.del("1");
    a.work();
    b.del("3");
    b.work();
    let owner = format!("claim/{uid}/shop/vm");
    let expected = (owner.clone(), vec!["2".to_owned()]);
    assert_eq!(server.slots(), [expected.clone(), expected]);
    b.del("2");
    b.work();
    let expected = (owner, Vec::new());
    assert_eq!(server.slots(), [expected.clone(), expected]);
    assert!(b.service.has_claims() && !a.service.has_claims());
    assert_eq!(a.add_claimed("4", "vm", &lan).unwrap(), addresses);
    // Deleted under a running pod, the address stays the pod's.
    server.remove_claim("vm");
    b.service.claims_changed(&uid);
    b.work();
    assert_eq!(server.slots().len(), 2);
    a.del("4");
    a.work();
    assert_eq!(server.slots(), []);
    assert!(!a.service.has_claims() && !b.service.has_claims());
}

#[test]
fn node_that_refused_a_third_pod_gives_it_the_address_once_another_one_has_ended() {
    let server = Server::with_nodes(&["a", "b", "c"]);
    let [a, b, c] = ["a", "b", "c"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    let addresses = a.add_claimed("1", "vm", &lan).unwrap();
    assert_eq!(b.add_claimed("2", "vm", &lan).unwrap(), addresses);
    c.add_claimed("3", "vm", &lan).unwrap_err();
    a.del("1");
    a.work();
    assert_eq!(c.add_claimed("3", "vm", &lan).unwrap(), addresses);
}

#[test]
fn slot_of_a_claim_is_freed_when_the_claim_goes_later() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/28");
    let uid = server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    a.del("1");
    a.work();
    a.boot();
    a.work();
    server.requests();
    a.work();
    assert_eq!(
        server.requests(),
        Vec::<String>::new(),
        "nothing happens, nothing is asked"
    );
    assert_eq!(server.slots().len(), 1);
    server.remove_claim("vm");
    assert!(a.service.claims_changed(&uid));
    assert!(!a.service.claims_changed("another"));
    a.work();
    assert_eq!(server.slots(), []);
    assert!(!a.service.has_claims());
}

#[test]
fn full_range_frees_what_claims_have_left() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/29");
    for name in ["gone", "kept"] {
        server.claim_for(name, &[]);
        a.add_claimed(name, name, &lan).unwrap();
        a.del(name);
    }
    assert_eq!(server.slots().len(), 2);
    a.work();
    server.remove_claim("gone");
    for pod in 0..4 {
        b.add(&pod.to_string(), &lan).unwrap();
    }
    let full = b.add("4", &lan).unwrap_err();
    assert_eq!(
        full,
        "network lan: 10.30.0.0/29 has no free address: 5 in use"
    );
    server.claim_for("new", &[]);
    b.add_claimed("5", "new", &lan).unwrap_err();
    assert_eq!(
        server.claim_value("new", "/status/conditions/0/reason"),
        "SubnetExhausted"
    );
    assert_eq!(server.claim_value("new", "/status/ips"), json!([]));
    assert!(a.add_claimed("6", "kept", &lan).is_ok());
}

#[test]
fn pods_that_try_again_find_the_claim_that_is_gone_among_many() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/27");
    for number in 0..29 {
        let name = format!("vm-{number}");
        server.claim_for(&name, &[]);
        a.add_claimed(&name, &name, &lan).unwrap();
        a.del(&name);
    }
    a.work();
    server.remove_claim("vm-17");
    server.requests();
    a.add("first", &lan).unwrap_err();
    let asked = server.requests().into_iter();
    let asked = asked
        .filter(|request| request.starts_with("get claim"))
        .count();
    assert_eq!(asked, MOST_QUESTIONS);
    let mut tries = (0..100).map(|number| a.add(&format!("try-{number}"), &lan));
    assert!(tries.any(|outcome| outcome.is_ok()));
}

#[test]
fn claim_with_addresses_gets_exactly_these() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.20.0.0/16");
    let other = a.add("1", &lan).unwrap()[0].clone();
    server.claim_for("restored", &["10.20.7.7/16"]);
    assert_eq!(
        a.add_claimed("2", "restored", &lan).unwrap(),
        ["10.20.7.7/16"]
    );
    assert_eq!(
        server.claim_value("restored", "/status/ips"),
        json!(["10.20.7.7/16"])
    );
    // In a block that this node holds, and whose address a pod has.
    server.claim_for("conflict", &[&other]);
    let failed = a.add_claimed("3", "conflict", &lan).unwrap_err();
    assert!(
        failed.ends_with("is in use by pod shop/1 on node a"),
        "{failed}"
    );
    assert_eq!(
        server.claim_value("conflict", "/status/conditions/0/reason"),
        "IPAddressConflict"
    );
    assert_eq!(
        server.claim_value("conflict", "/status/ips"),
        json!([other])
    );
    a.del("1");
    a.work();
    assert_eq!(a.add_claimed("3", "conflict", &lan).unwrap(), [other]);
    server.claim_for("outside", &["10.9.9.9"]);
    let failed = a.add_claimed("4", "outside", &lan).unwrap_err();
    assert!(failed.starts_with("10.9.9.9 is not an address"), "{failed}");
    server.claim_for("two", &["10.20.7.8", "10.20.7.9"]);
    let failed = a.add_claimed("5", "two", &lan).unwrap_err();
    assert!(failed.contains("are of one list"), "{failed}");
    let dual = json!({"type": "multus-ipam", "ranges": [[{"subnet": "10.20.0.0/16"}], [{"subnet": "fd00::/64"}]]});
    let failed = a.add_claimed("6", "restored", &dual).unwrap_err();
    assert!(
        failed.contains("has 1 addresses in status.ips, and the network gives 2"),
        "{failed}"
    );
    let failed = a.add_claimed("7", "missing", &lan).unwrap_err();
    assert!(
        failed.starts_with("claim shop/missing does not exist"),
        "{failed}"
    );
    let both = Allocation {
        claim: "restored".to_owned(),
        addresses: vec!["10.20.7.7".parse().unwrap()],
        ..allocation("8", &lan)
    };
    assert!(
        a.allocate(&both)
            .unwrap_err()
            .contains("either \"ips\" or a claim")
    );
}

#[test]
fn node_that_loses_the_race_for_a_claim_uses_the_address_of_the_other() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    // Both nodes read the claim without addresses; that of the other is written first.
    let before = server.claims.lock().unwrap().clone();
    let first = a.add_claimed("1", "vm", &lan).unwrap();
    let after = std::mem::replace(&mut *server.claims.lock().unwrap(), before);
    // The slot of the first one is not seen either.
    server.for_each_slot(|slot| {
        if slot["pods"][0]["name"] == "1" {
            slot["owner"] = format!("{}-later", slot["owner"].as_str().unwrap()).into();
        }
    });
    let swap = Arc::clone(&server);
    *server.at_claim_write.lock().unwrap() = Some(Box::new(move || {
        *swap.claims.lock().unwrap() = after;
        swap.for_each_slot(|slot| {
            let owner = slot["owner"].as_str().unwrap();
            slot["owner"] = owner.trim_end_matches("-later").to_owned().into();
        });
    }));
    assert_eq!(b.add_claimed("2", "vm", &lan).unwrap(), first);
    b.work();
    let slots = server.slots();
    assert_eq!(
        slots.len(),
        1,
        "the slot that was taken in vain is free: {slots:?}"
    );
    assert_eq!(slots[0].1, ["1", "2"]);
}

#[test]
fn stateful_pod_gets_its_claim_by_itself() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let sticky = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "sticky": "owner"});
    let pod = |kind: &str| {
        json!({"metadata": {"name": "web-0", "uid": "u-web-0", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "s", "controller": true}]}})
    };
    server
        .pods
        .lock()
        .unwrap()
        .insert("shop/web-0".to_owned(), pod("StatefulSet"));
    let addresses = a.add("web-0", &sticky).unwrap();
    assert_eq!(
        server.claim_value("web-0.lan.net1", "/status/ips"),
        json!(addresses)
    );
    assert_eq!(
        server.claim_value("web-0.lan.net1", "/metadata/ownerReferences/0/uid"),
        "s"
    );
    a.del("web-0");
    a.work();
    assert_eq!(b.add("web-0", &sticky).unwrap(), addresses);
    b.del("web-0");
    // A pod of a Deployment has no claim.
    server
        .pods
        .lock()
        .unwrap()
        .insert("shop/web-0".to_owned(), pod("ReplicaSet"));
    assert_ne!(b.add("web-0", &sticky).unwrap(), addresses);
    let gone = b.add("web-1", &sticky).unwrap_err();
    assert!(gone.contains("the pod no longer exists"), "{gone}");
}

#[test]
fn pod_of_a_claim_on_a_node_that_is_gone_makes_room() {
    let server = Server::with_nodes(&["a", "b", "c"]);
    let [a, b, c] = ["a", "b", "c"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    let addresses = a.add_claimed("1", "vm", &lan).unwrap();
    b.add_claimed("2", "vm", &lan).unwrap();
    server.nodes.lock().unwrap().remove("a");
    assert_eq!(c.add_claimed("3", "vm", &lan).unwrap(), addresses);
    assert_eq!(server.slots()[0].1, ["2", "3"]);
}

#[test]
fn node_ends_its_own_use_before_it_says_that_there_are_too_many() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    b.add_claimed("2", "vm", &lan).unwrap();
    a.del("1");
    a.add_claimed("3", "vm", &lan).unwrap();
    assert_eq!(server.slots()[0].1, ["2", "3"]);
}

#[test]
fn late_end_of_a_use_does_not_end_the_next_one() {
    let server = Server::with_nodes(&["a"]);
    let times = Times {
        settled: Duration::from_millis(300),
        ..TIMES
    };
    let a = Machine::with_times(&server, "a", times);
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    let addresses = a.add_claimed("1", "vm", &lan).unwrap();
    a.del("1");
    // The request that takes the pod from the slot is made late.
    *server.fates.lock().unwrap() = vec![Fate::Late];
    a.service.work();
    let thread = {
        let (service, lan) = (Arc::clone(&a.service), lan.clone());
        thread::spawn(move || {
            let again = Allocation {
                claim: "vm".to_owned(),
                ..allocation("1", &lan)
            };
            service.add(&again).map(|grants| grants[0].address.clone())
        })
    };
    server.land();
    while !thread.is_finished() {
        a.service.work();
    }
    assert_eq!(thread.join().unwrap().unwrap(), addresses[0]);
    server.land();
    assert_eq!(server.slots()[0].1, ["1"]);
}

/// The answer to the request that takes a pod from its slot is lost, and the request is made late.
#[test]
fn use_begins_again_only_when_the_end_of_the_former_one_is_settled() {
    let server = Server::with_nodes(&["a"]);
    let times = Times {
        settled: Duration::from_hours(1),
        patience: Duration::from_millis(500),
        ..TIMES
    };
    let a = Machine::with_times(&server, "a", times);
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    a.work();
    a.del("1");
    *server.fates.lock().unwrap() = vec![Fate::Late];
    a.service.work();
    // Reading shows the pod, so it is taken out once more; the first request may still come.
    a.service.work();
    assert_eq!(server.slots()[0].1, Vec::<String>::new());
    let again = a.add_claimed("1", "vm", &lan).unwrap_err();
    assert!(again.contains("too long"), "{again}");
    assert!(
        a.add_claimed("2", "vm", &lan).is_ok(),
        "another container is another use"
    );
    server.land();
    assert_eq!(server.slots()[0].1, ["2"]);
}

/// As a network that is taken from a running pod and added to it again under the same name.
#[test]
fn late_end_of_a_use_does_not_free_the_slot_of_the_next_one() {
    let server = Server::with_nodes(&["a"]);
    let times = Times {
        settled: Duration::from_hours(1),
        patience: Duration::from_millis(500),
        ..TIMES
    };
    let a = Machine::with_times(&server, "a", times);
    let lan = ipam("10.30.0.0/28");
    a.add_chosen("1", &["10.30.0.5"], &lan).unwrap();
    a.del("1");
    *server.fates.lock().unwrap() = vec![Fate::Late];
    a.service.work();
    // Reading shows the slot, so it is freed once more; the first request may still come.
    a.service.work();
    let again = a.add_chosen("1", &["10.30.0.5"], &lan);
    server.land();
    let own = a.service.own().unwrap();
    a.service.read(&own, "10.30.0.0").unwrap();
    assert_eq!(
        a.service.take_conflicts(),
        0,
        "{again:?} is free for others"
    );
}

#[test]
fn slot_with_a_pod_is_not_freed_with_its_claim() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let uid = server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &ipam("10.30.0.0/28")).unwrap();
    server.remove_claim("vm");
    let own = a.service.own().unwrap();
    let number = server.objects.lock().unwrap()["10.30.0.0"]["spec"]["slots"]
        .as_array()
        .unwrap()
        .iter()
        .position(|slot| slot["owner"] != "")
        .unwrap();
    let reference = Reference {
        uid,
        namespace: "shop".to_owned(),
        name: "vm".to_owned(),
    };
    let abandoned = ("10.30.0.0".to_owned(), number, reference);
    a.service.free_abandoned(&own, &abandoned).unwrap();
    assert_eq!(server.slots()[0].1, ["1"]);
}

#[test]
fn claim_keeps_its_slot_when_the_node_of_its_pod_is_gone() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/29");
    server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    a.add("2", &lan).unwrap();
    server.nodes.lock().unwrap().remove("a");
    // What the pod of the node had is free, and the address of the claim is not.
    for pod in 3..7 {
        b.add(&pod.to_string(), &lan).unwrap();
    }
    assert!(b.add("7", &lan).unwrap_err().contains("no free address"));
    assert!(b.add_claimed("8", "vm", &lan).is_ok());
}

#[test]
fn slot_of_a_deleted_claim_is_free_when_the_node_of_its_pod_is_gone() {
    let server = Server::with_nodes(&["a", "b"]);
    let [a, b] = ["a", "b"].map(|name| Machine::new(&server, name));
    let lan = ipam("10.30.0.0/29");
    server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    server.remove_claim("vm");
    server.nodes.lock().unwrap().remove("a");
    let given = (0..5).map(|pod| b.add(&pod.to_string(), &lan).unwrap());
    assert_eq!(given.collect::<BTreeSet<_>>().len(), 5, "all of the range");
}

#[test]
fn boot_ends_the_uses_of_claims_that_the_disk_does_not_know() {
    let server = Server::with_nodes(&["a"]);
    let mut a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/28");
    let disk = disk();
    copy_dir(a.dir.path(), disk.path());
    let uid = server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    copy_dir(disk.path(), a.dir.path());
    a.boot();
    a.work();
    assert_eq!(server.slots()[0].1, Vec::<String>::new());
    server.remove_claim("vm");
    assert!(a.service.claims_changed(&uid));
    a.work();
    assert_eq!(server.slots(), []);
}

#[test]
fn claim_serves_one_interface_of_a_container() {
    let server = Server::with_nodes(&["a"]);
    let a = Machine::new(&server, "a");
    let lan = ipam("10.30.0.0/28");
    server.claim_for("vm", &[]);
    a.add_claimed("1", "vm", &lan).unwrap();
    let mut second = Allocation {
        claim: "vm".to_owned(),
        ..allocation("1", &lan)
    };
    second.attachment.ifname = "net2".to_owned();
    let failed = a.allocate(&second).unwrap_err();
    assert!(
        failed.contains("its address is used by shop/1 on a"),
        "{failed}"
    );
}

/// What random histories know of claims, by number: each has a network, and pods that use it on a node.
pub(super) struct History<'a> {
    server: &'a Arc<Server>,
    lans: &'a [Value],
    claims: Vec<Known>,
    /// Addresses of claims that were deleted under their pods, with these.
    orphans: Vec<Known>,
}

#[derive(Default)]
struct Known {
    lan: usize,
    address: Option<String>,
    pods: Vec<(usize, String)>,
}

const CLAIMS: usize = 4;

impl<'a> History<'a> {
    pub(super) fn new(server: &'a Arc<Server>, lans: &'a [Value]) -> Self {
        let known = |number: usize| {
            server.claim_for(&format!("claim-{number}"), &[]);
            Known {
                lan: number % 2,
                ..Known::default()
            }
        };
        Self {
            server,
            lans,
            claims: (0..CLAIMS).map(known).collect(),
            orphans: Vec::new(),
        }
    }

    fn name(number: usize) -> String {
        format!("claim-{number}")
    }

    /// A pod with a claim starts. Returns whether it has got its address.
    pub(super) fn add(&mut self, machine: &Machine, at: usize, pod: &str, dice: &mut Dice) -> bool {
        let number = dice.choose(CLAIMS);
        let known = &mut self.claims[number];
        let outcome = machine.add_claimed(pod, &Self::name(number), &self.lans[known.lan]);
        let has_got = outcome.is_ok();
        match outcome {
            Ok(addresses) => {
                let had = known.address.get_or_insert_with(|| addresses[0].clone());
                assert_eq!(*had, addresses[0], "the address of a claim never changes");
                known.pods.push((at, pod.to_owned()));
                assert!(known.pods.len() <= 2, "{:?}", known.pods);
            }
            Err(failed) => {
                let uid = self
                    .server
                    .claim_value(&Self::name(number), "/metadata/uid");
                let owner = format!("claim/{}/", uid.as_str().unwrap());
                let slots = self.server.slots().into_iter();
                let pods = slots
                    .filter(|(of, _)| of.starts_with(&owner))
                    .flat_map(|(_, pods)| pods);
                let is_in_use = failed.contains("its address is used by");
                assert!(!is_in_use || pods.count() >= MOST_PODS, "{failed}");
                machine.del(pod);
            }
        }
        has_got
    }

    /// A pod of a node ends.
    pub(super) fn del(&mut self, machine: &Machine, at: usize, dice: &mut Dice) {
        let all = self.claims.iter_mut().chain(&mut self.orphans);
        let mut with_pods: Vec<_> = all
            .filter(|known| known.pods.iter().any(|(on, _)| *on == at))
            .collect();
        if with_pods.is_empty() {
            return;
        }
        let chosen = dice.choose(with_pods.len());
        let pods = &mut with_pods[chosen].pods;
        let place = pods.iter().position(|(on, _)| *on == at).unwrap();
        machine.del(&pods.remove(place).1);
    }

    /// A machine loses its power.
    pub(super) fn end_all(&mut self, at: usize) {
        for known in self.claims.iter_mut().chain(&mut self.orphans) {
            known.pods.retain(|(on, _)| *on != at);
        }
    }

    /// The API server has claims of before again, and no machine has a pod.
    pub(super) fn restored(&mut self) {
        self.orphans.clear();
        for known in &mut self.claims {
            known.pods.clear();
            known.address = None;
        }
    }

    /// A claim is deleted, which some nodes hear of, and made again.
    pub(super) fn remove(&mut self, machines: &[Machine], dice: &mut Dice) {
        let number = dice.choose(CLAIMS);
        let name = Self::name(number);
        let uid = self.server.claim_value(&name, "/metadata/uid");
        self.server.remove_claim(&name);
        for machine in machines {
            if dice.roll(2) == 0 {
                machine.service.claims_changed(uid.as_str().unwrap());
            }
        }
        self.server.claim_for(&name, &[]);
        let lan = self.claims[number].lan;
        let new = Known {
            lan,
            ..Known::default()
        };
        self.orphans
            .push(std::mem::replace(&mut self.claims[number], new));
    }

    /// Each address that is in use has one claim or one pod.
    pub(super) fn check(&mut self, uses: &BTreeMap<(usize, String), (usize, String)>, step: u32) {
        self.orphans.retain(|known| !known.pods.is_empty());
        let mut seen = BTreeSet::new();
        for (number, known) in self.claims.iter().enumerate() {
            // The answer to the pod that got the address may be lost.
            let ips = self.server.claim_value(&Self::name(number), "/status/ips");
            let address = known.address.as_deref().or(ips[0].as_str());
            if let Some(address) = address {
                assert!(ips[0] == *address, "{ips} is not {address} in step {step}");
                assert!(
                    seen.insert((known.lan, address.to_owned())),
                    "{address} in step {step}"
                );
            }
        }
        for known in &self.orphans {
            let key = (known.lan, known.address.clone().unwrap());
            assert!(seen.insert(key.clone()), "{key:?} in step {step}");
        }
        for key in uses.keys() {
            assert!(!seen.contains(key), "{key:?} in step {step}");
        }
    }

    /// Every claim and pod of one ends.
    pub(super) fn end(self, machines: &[Machine]) {
        for known in self.claims.iter().chain(&self.orphans) {
            for (at, pod) in &known.pods {
                machines[*at].del(pod);
            }
        }
        self.server.claims.lock().unwrap().clear();
        machines.iter().for_each(Machine::work);
    }
}
