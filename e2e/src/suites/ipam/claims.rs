//! Addresses that outlive their pod: claims, which machines take from node to node, and those that daemons make for stateful pods.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use ipam::claim;
use serde_json::{Value, json};

use super::{
    add, del_until_done, fails,
    fleet::{Fleet, Member, allocation},
    give,
    history::History,
    large, small,
};
use crate::{control_plane::objects, sh, suites::faults::random::Random};

const NAMESPACE: &str = "default";
/// So often a machine moves while nothing fails.
const MIGRATIONS: usize = 100;
/// The machines that move while everything fails.
pub(super) const MACHINES: usize = 4;

/// Makes a claim of network `lan`.
fn create(fleet: &Fleet, name: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": {"name": name},
        "spec": {"network": "lan", "interface": "net1"},
    });
    let made = fleet
        .api()
        .request("POST", &claim::list_path(NAMESPACE), &object)?;
    // The answer to a former try was lost.
    if made.status == 409 {
        return Ok(());
    }
    made.well().map(drop)
}

fn read(fleet: &Fleet, name: &str) -> anyhow::Result<Value> {
    let path = claim::path(NAMESPACE, name);
    fleet
        .api()
        .request("GET", &path, &Value::Null)?
        .well()?
        .json()
}

fn delete(fleet: &Fleet, name: &str) -> anyhow::Result<()> {
    let path = claim::path(NAMESPACE, name);
    fleet
        .api()
        .request("DELETE", &path, &Value::Null)?
        .well()
        .map(drop)
}

/// Gives a pod the address of a claim, or fails with the service's reason.
fn add_claimed(member: &Member, pod: &str, claim: &str, ipam: &Value) -> anyhow::Result<String> {
    let mut allocation = allocation(pod, ipam)?;
    claim.clone_into(&mut allocation.claim);
    give(member, allocation)
}

/// Returns the slots of claims.
fn slots(fleet: &Fleet) -> anyhow::Result<Vec<Value>> {
    let blocks = fleet.blocks()?;
    let slots = blocks
        .iter()
        .filter_map(|block| block["spec"]["slots"].as_array());
    let is_claimed = |slot: &&Value| {
        let owner = slot["owner"].as_str();
        owner.is_some_and(|owner| owner.starts_with("claim/"))
    };
    Ok(slots.flatten().filter(is_claimed).cloned().collect())
}

/// A pod gets the address that it chooses, and no other pod gets it.
pub(super) fn chosen(fleet: &Fleet) -> anyhow::Result<()> {
    let [one, other, ..] = &fleet.members[..] else {
        anyhow::bail!("the fleet has nodes")
    };
    // What was given in the other space may not be free yet.
    let mut ipam = large();
    ipam["space"] = "chosen".into();
    let config = json!({"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "ipam": ipam,
        "runtimeConfig": {"ips": ["10.20.2.9/22"]}});
    let result = one.plugin("ADD", "chosen", &config)?;
    ensure!(result["ips"][0]["address"] == "10.20.2.9/22", "{result}");
    fails(
        other.plugin("ADD", "second", &config),
        "10.20.2.9 is in use by pod default/chosen on node n1",
    )?;
    one.plugin("DEL", "chosen", &config)?;
    sh::until(30, "the address is free for the other node", || {
        other.plugin("ADD", "second", &config)
    })?;
    other.plugin("DEL", "second", &config).map(drop)
}

/// A claim keeps its address while its machine moves from node to node, and its slot is free when it is deleted.
pub(super) fn life(fleet: &Fleet) -> anyhow::Result<()> {
    let [one, other, third, ..] = &fleet.members[..] else {
        anyhow::bail!("the fleet has nodes")
    };
    create(fleet, "vm")?;
    let config = json!({"cniVersion": "1.1.0", "name": "lan", "type": "macvlan", "ipam": large(),
        "args": {"cni": {"ipam-claim-reference": "vm"}}});
    let result = one.plugin("ADD", "source", &config)?;
    let address = result["ips"][0]["address"].as_str().context("an address")?;
    let status = read(fleet, "vm")?["status"].clone();
    ensure!(status["ips"] == json!([address]), "{status}");
    ensure!(
        status["conditions"][0]["reason"] == "SuccessfulAllocation",
        "{status}"
    );
    ensure!(
        add_claimed(other, "target", "vm", &large())? == address,
        "the machine moves"
    );
    ensure!(
        read(fleet, "vm")?["status"]["ownerPod"]["name"] == "target",
        "the target owns it"
    );
    fails(
        add_claimed(third, "third", "vm", &large()),
        "its address is used by default/source on n1 and default/target on n2",
    )?;
    one.plugin("DEL", "source", &config)?;
    let (mut source, mut pod) = (other, "target".to_owned());
    for (number, target) in (1..MIGRATIONS).zip([third, one, other].into_iter().cycle()) {
        let next = format!("target-{number}");
        let found = sh::until(30, "the former source is gone", || {
            add_claimed(target, &next, "vm", &large())
        })?;
        ensure!(
            found == address,
            "move {number}: {found} instead of {address}"
        );
        source.del(&pod)?;
        (source, pod) = (target, next);
    }
    source.del(&pod)?;
    sh::until(30, "no pod has the address of the claim", || {
        let slots = slots(fleet)?;
        let [slot] = &slots[..] else {
            anyhow::bail!("{slots:?}")
        };
        ensure!(slot["pods"] == json!([]), "{slot}");
        Ok(())
    })?;
    // The daemon that looks after the slot may end meanwhile.
    other.crash()?;
    delete(fleet, "vm")?;
    sh::until(60, "the slot of a deleted claim is free", || {
        let slots = slots(fleet)?;
        ensure!(slots.is_empty(), "{slots:?}");
        Ok(())
    })
}

/// A pod of a `StatefulSet` has its address again on another node, by a claim that the daemon makes.
pub(super) fn sticky(fleet: &Fleet) -> anyhow::Result<()> {
    let [one, other, ..] = &fleet.members[..] else {
        anyhow::bail!("the fleet has nodes")
    };
    let mut ipam = small();
    ipam["sticky"] = "owner".into();
    let mut pod = objects::pod("web-0", "n1", None);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "0b5f9e3c-0000-4000-8000-000000000001",
        "controller": true,
    }]);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let made = fleet.api().request("POST", &path, &pod)?.well()?.json()?;
    let uid = made["metadata"]["uid"].as_str().context("a uid")?;
    let add_sticky = |member: &Member| {
        let mut allocation = allocation("web-0", &ipam)?;
        uid.clone_into(&mut allocation.pod.uid);
        give(member, allocation)
    };
    let address = add_sticky(one)?;
    one.del("web-0")?;
    ensure!(
        add_sticky(other)? == address,
        "it is another address than {address}"
    );
    other.del("web-0")?;
    let claim = read(fleet, "web-0.lan.net1")?;
    ensure!(
        claim["metadata"]["ownerReferences"][0]["name"] == "web",
        "{claim}"
    );
    ensure!(claim["status"]["ips"] == json!([address]), "{claim}");
    delete(fleet, "web-0.lan.net1")?;
    // A pod without such an owner gets any address.
    let other = add(other, "plain", &small())?;
    ensure!(!other.is_empty(), "a pod without an owner has no address");
    fleet.members[1].del("plain")
}

/// Moves a machine from node to node until it is over: it always has the address of its claim. Returns how often it has moved.
pub(super) fn migrate(
    fleet: &Fleet,
    number: usize,
    history: &History,
    is_over: &AtomicBool,
    random: &mut Random,
) -> anyhow::Result<usize> {
    let name = format!("machine-{number}");
    let (network, ipam) = if number.is_multiple_of(2) {
        ("small", small())
    } else {
        ("large", large())
    };
    sh::until(60, "a claim is made", || create(fleet, &name))?;
    let next = AtomicUsize::new(0);
    let (mut at, mut address): (Option<(usize, String)>, Option<String>) = (None, None);
    let mut moves = 0;
    while !is_over.load(Ordering::Relaxed) {
        let others: Vec<usize> = (0..fleet.members.len())
            .filter(|member| at.as_ref().is_none_or(|(source, _)| source != member))
            .collect();
        let target = random.one_of(&others);
        let pod = format!("{name}-{}", next.fetch_add(1, Ordering::Relaxed));
        let member = &fleet.members[target];
        match add_claimed(member, &pod, &name, &ipam) {
            Ok(found) => {
                if let Some(address) = &address {
                    ensure!(
                        *address == found,
                        "{name} had {address}, and has {found} now"
                    );
                } else {
                    // The address is the machine's from now on, whatever pods it has.
                    history.begin(network, &found, "machines", 0, &name);
                    address = Some(found);
                }
                if let Some((source, pod)) = at.replace((target, pod)) {
                    del_until_done(&fleet.members[source], &pod, &ipam)?;
                }
                moves += 1;
            }
            Err(failed) => {
                history.failed(&format!("{failed:#}"));
                del_until_done(member, &pod, &ipam)?;
            }
        }
    }
    if let Some((source, pod)) = at {
        del_until_done(&fleet.members[source], &pod, &ipam)?;
    }
    history.end("machines", &name);
    sh::until(60, "a claim is deleted", || delete(fleet, &name))?;
    Ok(moves)
}
