//! Uninstalling with `--detach`: stale containers are detached, the runtime gets the default networks' results, and the other networks are
//! listed.

use std::path::PathBuf;

use super::fixture::Fixture;
use crate::engine::{HandOff, NetnsState};

const HANDED_OFF: &str = "var/lib/cni/results/cbr0-c2-eth0";

/// Hands off a node on which container c1 is stale and c2 runs.
fn hand_off(fixture: &Fixture) -> HandOff {
    let path = [PathBuf::from("/opt/cni/bin")];
    let stale = |id: &cni::env::ContainerId, _: NetnsState<'_>| id.as_str() == "c1";
    fixture.engine.hand_off(&path, &fixture.netconf(), &stale)
}

#[test]
fn hand_off_detaches_stale_containers_and_keeps_running_ones() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.add("c2", "a,b").unwrap();
    fixture.calls();
    let before: Vec<_> = fixture
        .files()
        .into_iter()
        .filter(|name| name.contains("c2"))
        .collect();
    let outcome = hand_off(&fixture);
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    fixture.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
    let kept: Vec<_> = outcome
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
    let now: Vec<_> = fixture.files().into_iter().collect();
    assert_eq!(now, before, "the state of running pods stays");
    let own = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/results/cbr0-c2-eth0");
    let handed_off = fixture.dir.path().join(HANDED_OFF);
    assert_eq!(
        std::fs::read(own).unwrap(),
        std::fs::read(handed_off).unwrap()
    );
}

#[test]
fn next_daemon_removes_handed_off_results() {
    let fixture = Fixture::new();
    fixture.add("c2", "a").unwrap();
    fixture.add("c3", "").unwrap();
    hand_off(&fixture);
    // Another result under the same name is the runtime's.
    let other = fixture.dir.path().join("var/lib/cni/results/cbr0-c3-eth0");
    let text = std::fs::read_to_string(&other).unwrap();
    std::fs::write(&other, text.replace("10.0.0.9", "10.0.0.8")).unwrap();
    let foreign = fixture.dir.path().join("var/lib/cni/results/cbr0-c9-eth0");
    std::fs::copy(fixture.dir.path().join(HANDED_OFF), &foreign).unwrap();
    fixture.engine.revert_hand_off(&fixture.netconf());
    assert!(!fixture.dir.path().join(HANDED_OFF).exists());
    assert!(foreign.exists() && other.exists(), "the runtime's own");
    fixture.del("c2").unwrap();
    fixture.del("c3").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}
