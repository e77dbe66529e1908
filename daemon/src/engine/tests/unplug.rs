//! Single networks that another controller plugs into a running pod, and takes away.

use cni::types::CniError;
use plan::Attached;
use serde_json::{Map, Value, json};

use super::world::{World, pod, request};
use crate::engine::Request;

const CONFIG: &str = r#"{"cniVersion":"1.1.0","name":"neta","plugins":[{"type":"macvlan","capabilities":{"ips":true}},{"type":"tuning"}]}"#;

fn at(id: &str, ifname: &str) -> Request {
    Request {
        ifname: ifname.parse().unwrap(),
        ..request(id)
    }
}

fn plug(world: &World, id: &str, ifname: &str, wishes: Value) -> Result<Attached, CniError> {
    let (netconf, pod) = (world.netconf(), pod(""));
    let Value::Object(wishes) = wishes else {
        panic!("{wishes}")
    };
    let attachment = world
        .engine
        .given(&netconf, &pod, CONFIG.as_bytes(), &wishes)?;
    let plugged = world
        .engine
        .plug(&at(id, ifname), &netconf, &pod, &attachment);
    plugged.map_err(CniError::from)
}

fn unplug(world: &World, id: &str, ifname: &str) -> Result<(), CniError> {
    let netconf = world.netconf();
    let config = plan::bare(CONFIG.as_bytes(), &netconf)?;
    world
        .engine
        .unplug(&at(id, ifname), &netconf, &pod(""), &config)
}

#[test]
fn it_is_attached_under_the_name_that_is_asked_for_and_detached_again() {
    let world = World::new();
    world.add("c1", "b").unwrap();
    world.calls();
    let wishes =
        json!({"ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:07", "cni-args": {"k": "v"}});
    let attached = plug(&world, "c1", "ext0", wishes).unwrap();
    assert_eq!(
        (attached.name.as_str(), attached.ifname.as_str()),
        ("neta", "ext0")
    );
    let calls = world.calls();
    let texts: Vec<_> = calls.iter().map(super::world::Call::text).collect();
    assert_eq!(texts, ["ADD macvlan ext0", "ADD tuning ext0"]);
    assert!(calls[0].env["CNI_ARGS"].ends_with(";MAC=02:00:00:00:00:07;IP=10.9.0.7/24"));
    assert_eq!(
        calls[0].stdin["runtimeConfig"],
        json!({"ips": ["10.9.0.7/24"]})
    );
    assert_eq!(calls[1].stdin["args"]["cni"], json!({"k": "v"}));
    // An annotation that never asked for it takes nothing away.
    assert!(world.follow("c1", "b").unwrap().now.is_none());
    unplug(&world, "c1", "ext0").unwrap();
    world.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    unplug(&world, "c1", "ext0").unwrap();
    world.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    world.del("c1").unwrap();
    world.check_calls(&["DEL bridge net1", "DEL portmap eth0", "DEL flannel eth0"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn the_containers_end_takes_it_along() {
    let world = World::new();
    world.add("c1", "").unwrap();
    plug(&world, "c1", "ext0", json!({})).unwrap();
    world.calls();
    world.del("c1").unwrap();
    world.check_calls(&[
        "DEL tuning ext0",
        "DEL macvlan ext0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn a_failure_leaves_no_trace_of_it() {
    let world = World::new();
    world.add("c1", "").unwrap();
    world.calls();
    let before = world.left();
    world.fail(&["ADD tuning"]);
    let error = plug(&world, "c1", "ext0", json!({})).unwrap_err();
    assert_eq!(error.code, 123, "{error}");
    world.check_calls(&[
        "ADD macvlan ext0",
        "ADD tuning ext0",
        "DEL tuning ext0",
        "DEL macvlan ext0",
    ]);
    assert_eq!(world.left(), before);
    let error = plug(&world, "c1", "eth0", json!({})).unwrap_err();
    assert!(
        error.msg.contains("interface name eth0 already exists"),
        "{error}"
    );
    let error = plug(&world, "c1", "ext0", json!({"ips": ["x"]})).unwrap_err();
    assert!(
        error.msg.contains("ips") && error.msg.contains("\"x\""),
        "{error}"
    );
    world.check_calls(&[]);
}

#[test]
fn a_deletion_that_fails_is_told_and_can_be_asked_again() {
    let world = World::new();
    world.add("c1", "").unwrap();
    plug(&world, "c1", "ext0", json!({})).unwrap();
    world.fail(&["DEL macvlan"]);
    assert_eq!(unplug(&world, "c1", "ext0").unwrap_err().code, 123);
    world.on_call(|_| Ok(()));
    world.calls();
    unplug(&world, "c1", "ext0").unwrap();
    world.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    let netconf = world.netconf();
    let primary = r#"{"cniVersion":"1.0.0","name":"cbr0","type":"flannel"}"#;
    let primary = plan::bare(primary.as_bytes(), &netconf).unwrap();
    let refused = world
        .engine
        .unplug(&at("c1", "eth0"), &netconf, &pod(""), &primary);
    assert!(refused.unwrap_err().msg.contains("default network"));
}

/// A container that was there before multus, or whose state is lost.
#[test]
fn a_container_without_state_keeps_none() {
    let world = World::new();
    plug(&world, "c9", "ext0", json!({})).unwrap();
    assert_eq!(world.left(), ["results/neta-c9-ext0"]);
    let netconf = world.netconf();
    let config = plan::bare(CONFIG.as_bytes(), &netconf).unwrap();
    world.calls();
    world
        .engine
        .check_plugged(&at("c9", "ext0"), &netconf, &config)
        .unwrap();
    world.check_calls(&["CHECK macvlan ext0", "CHECK tuning ext0"]);
    world.engine.status_of(&[], &netconf, &config).unwrap();
    world.check_calls(&["STATUS macvlan", "STATUS tuning"]);
    unplug(&world, "c9", "ext0").unwrap();
    world.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
    let error = world
        .engine
        .check_plugged(&at("c9", "ext0"), &netconf, &config)
        .unwrap_err();
    assert!(error.msg.contains("neta"), "{error}");
}

#[test]
fn what_may_not_run_is_not_plugged() {
    let mut world = World::new();
    world.add("c1", "").unwrap();
    world.config["allowedPlugins"] = json!(["macvlan"]);
    let error = plug(&world, "c1", "ext0", json!({})).unwrap_err();
    assert!(
        error.msg.contains("tuning") && error.msg.contains("allowedPlugins"),
        "{error}"
    );
    let netconf = world.netconf();
    for (config, part) in [
        (
            r#"{"cniVersion":"1.0.0","name":"x","type":"multus-shim"}"#,
            "its own delegate",
        ),
        (r#"{"cniVersion":"1.0.0","type":"macvlan"}"#, "name"),
        ("[]", "the network to plug"),
    ] {
        let given = world
            .engine
            .given(&netconf, &pod(""), config.as_bytes(), &Map::new());
        let error = given.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
