//! Uninstalling with `--detach`: stale containers are detached, the runtime gets the default networks' results, and the other networks are
//! listed.

use std::path::PathBuf;

use super::world::World;
use crate::engine::{HandedOver, Namespace};

const HANDED_OFF: &str = "var/lib/cni/results/cbr0-c2-eth0";

/// Hands off a node on which container c1 is stale and c2 runs.
fn hand_over(world: &World) -> HandedOver {
    let path = [PathBuf::from("/opt/cni/bin")];
    let stale = |id: &cni::env::ContainerId, _: Namespace<'_>| id.as_str() == "c1";
    world.engine.hand_over(&path, &world.netconf(), &stale)
}

#[test]
fn hand_off_detaches_stale_containers_and_keeps_running_ones() {
    let world = World::new();
    world.add("c1", "a").unwrap();
    world.add("c2", "a,b").unwrap();
    world.calls();
    let before: Vec<_> = world
        .left()
        .into_iter()
        .filter(|name| name.contains("c2"))
        .collect();
    let left = hand_over(&world);
    assert!(left.errors.is_empty(), "{left:?}");
    world.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
    let kept: Vec<_> = left
        .kept
        .iter()
        .map(|one| {
            format!(
                "{}/{} {} {}",
                one.pod.namespace, one.pod.name, one.network, one.ifname
            )
        })
        .collect();
    assert_eq!(kept, ["shop/cart-0 shop/a net1", "shop/cart-0 shop/b net2"]);
    let now: Vec<_> = world.left().into_iter().collect();
    assert_eq!(now, before, "the state of running pods stays");
    let own = world
        .dir
        .path()
        .join("var/lib/cni/multus/results/cbr0-c2-eth0");
    let handed_off = world.dir.path().join(HANDED_OFF);
    assert_eq!(
        std::fs::read(own).unwrap(),
        std::fs::read(handed_off).unwrap()
    );
}

#[test]
fn next_daemon_removes_handed_off_results() {
    let world = World::new();
    world.add("c2", "a").unwrap();
    world.add("c3", "").unwrap();
    hand_over(&world);
    // Another result under the same name is the runtime's.
    let other = world.dir.path().join("var/lib/cni/results/cbr0-c3-eth0");
    let text = std::fs::read_to_string(&other).unwrap();
    std::fs::write(&other, text.replace("10.0.0.9", "10.0.0.8")).unwrap();
    let foreign = world.dir.path().join("var/lib/cni/results/cbr0-c9-eth0");
    std::fs::copy(world.dir.path().join(HANDED_OFF), &foreign).unwrap();
    world.engine.take_back(&world.netconf());
    assert!(!world.dir.path().join(HANDED_OFF).exists());
    assert!(foreign.exists() && other.exists(), "the runtime's own");
    world.del("c2").unwrap();
    world.del("c3").unwrap();
    assert!(world.left().is_empty(), "{:?}", world.left());
}
