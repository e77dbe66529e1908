//! The annotation of a running pod changes: what is attached, what is detached, in which order, and what a failure leaves.

use plan::Attached;
use serde_json::json;

use super::world::{World, pod};
use crate::engine::Followed;

fn names(attached: &[Attached]) -> Vec<String> {
    let name = |one: &Attached| format!("{} {}", one.name, one.ifname);
    attached.iter().map(name).collect()
}

#[track_caller]
fn well(followed: Followed, attached: &[&str], detached: &[&str], now: &[&str]) {
    assert!(
        followed.failure.is_none() && followed.stuck.is_empty(),
        "{followed:?}"
    );
    assert_eq!(names(&followed.attached), attached);
    let gone: Vec<_> = followed
        .detached
        .iter()
        .map(|(n, i)| format!("{n} {i}"))
        .collect();
    assert_eq!(gone, detached);
    assert_eq!(names(&followed.now.unwrap()), now);
}

/// A pod with these networks, whose attaching is forgotten.
fn running(networks: &str) -> World {
    let world = World::new();
    world.add("c1", networks).unwrap();
    world.calls();
    world
}

#[test]
fn networks_come_and_go_with_the_annotation() {
    let world = running("a");
    let followed = world.follow("c1", "a,b").unwrap();
    world.check_calls(&["ADD bridge net2"]);
    well(
        followed,
        &["shop/b net2"],
        &[],
        &["cbr0 eth0", "shop/a net1", "shop/b net2"],
    );
    let followed = world.follow("c1", "b").unwrap();
    world.check_calls(&["DEL macvlan net1"]);
    well(
        followed,
        &[],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
    // The place of its predecessor is free.
    let followed = world.follow("c1", "b,b,a@last").unwrap();
    world.check_calls(&["ADD bridge net1", "ADD macvlan last"]);
    let now = ["cbr0 eth0", "shop/b net2", "shop/b net1", "shop/a last"];
    well(followed, &["shop/b net1", "shop/a last"], &[], &now);
    well(
        world.follow("c1", "").unwrap(),
        &[],
        &["shop/b net2", "shop/b net1", "shop/a last"],
        &["cbr0 eth0"],
    );
    world.check_calls(&["DEL bridge net2", "DEL bridge net1", "DEL macvlan last"]);
    world.del("c1").unwrap();
    world.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn nothing_is_done_where_nothing_has_changed() {
    let world = running("a,b");
    for networks in [
        "a,b",
        "b, a",
        r#"[{"name":"a"},{"name":"b","namespace":"shop"}]"#,
    ] {
        let followed = world.follow("c1", networks).unwrap();
        assert!(followed.now.is_none(), "{networks}: {followed:?}");
    }
    world.forget_nads();
    assert!(world.follow("c1", "a,b").unwrap().now.is_none());
    // What it has can go without its definition.
    well(
        world.follow("c1", "b").unwrap(),
        &[],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
}

#[test]
fn a_network_that_changes_is_detached_first() {
    let world = running("a");
    let wanted =
        json!([{"name": "a", "mac": "02:00:00:00:00:07", "ips": ["10.0.0.5/24"]}]).to_string();
    let followed = world.follow("c1", &wanted).unwrap();
    let calls = world.calls();
    let texts: Vec<_> = calls.iter().map(super::world::Call::text).collect();
    assert_eq!(texts, ["DEL macvlan net1", "ADD macvlan net1"]);
    let args = &calls[1].env["CNI_ARGS"];
    assert!(
        args.ends_with(";VENDOR=x=y;MAC=02:00:00:00:00:07;IP=10.0.0.5/24"),
        "{args}"
    );
    assert!(
        args.contains(";K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=c1;"),
        "{args}"
    );
    assert_eq!(calls[1].stdin["runtimeConfig"]["mac"], "02:00:00:00:00:07");
    well(
        followed,
        &["shop/a net1"],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/a net1"],
    );
}

#[test]
fn a_failure_leaves_the_pod_as_it_was() {
    let world = running("a");
    world.fail(&["ADD bridge"]);
    let followed = world.follow("c1", "a@second,a,b").unwrap();
    world.check_calls(&[
        "ADD macvlan second",
        "ADD bridge net2",
        "DEL bridge net2",
        "DEL macvlan second",
    ]);
    let error = followed.failure.unwrap().error;
    assert_eq!(error.code, 123);
    assert!(
        error.msg.contains("[shop/cart-0/5b0c:b]") && error.msg.contains("no more addresses"),
        "{error}"
    );
    assert_eq!(names(&followed.now.unwrap()), ["cbr0 eth0", "shop/a net1"]);
    assert!(followed.attached.is_empty() && followed.detached.is_empty());
    // Nothing that was there is taken for what cannot be had.
    let followed = world.follow("c1", "b").unwrap();
    assert!(followed.failure.is_some());
    world.check_calls(&["ADD bridge net2", "DEL bridge net2"]);
    world.on_call(|_| Ok(()));
    well(
        world.follow("c1", "b").unwrap(),
        &["shop/b net2"],
        &["shop/a net1"],
        &["cbr0 eth0", "shop/b net2"],
    );
}

#[test]
fn a_successor_that_cannot_be_had_brings_the_old_one_back() {
    let world = running("a");
    world.fail(&["ADD bridge"]);
    let followed = world.follow("c1", "b@net1").unwrap();
    world.check_calls(&[
        "DEL macvlan net1",
        "ADD bridge net1",
        "DEL bridge net1",
        "ADD macvlan net1",
    ]);
    assert!(followed.failure.is_some());
    assert_eq!(names(&followed.now.unwrap()), ["cbr0 eth0", "shop/a net1"]);
    world.on_call(|_| Ok(()));
    assert!(world.follow("c1", "a").unwrap().attached.is_empty());
}

#[test]
fn what_cannot_be_detached_stays_known_and_is_tried_again() {
    let world = running("a,b");
    world.fail(&["DEL macvlan"]);
    let followed = world.follow("c1", "").unwrap();
    world.check_calls(&["DEL macvlan net1", "DEL bridge net2"]);
    assert_eq!(followed.stuck.len(), 1);
    assert_eq!(
        followed.detached,
        [("shop/b".to_owned(), "net2".to_owned())]
    );
    assert_eq!(names(&followed.now.unwrap()), ["cbr0 eth0", "shop/a net1"]);
    world.on_call(|_| Ok(()));
    well(
        world.follow("c1", "").unwrap(),
        &[],
        &["shop/a net1"],
        &["cbr0 eth0"],
    );
}

#[test]
fn what_would_fail_anyway_fails_before_anything_is_touched() {
    let world = running("a");
    let before = world.left();
    for (networks, part) in [
        (
            "b,absent",
            "cannot find a network-attachment-definition (absent)",
        ),
        ("b@eth0", "interface name eth0 already exists"),
        ("a,b@one,b@one", "interface name one already exists"),
        ("a/b/c", "Invalid network object"),
    ] {
        let error = world.follow("c1", networks).unwrap_err();
        assert!(error.msg.contains(part), "{networks}: {error}");
    }
    world.link("mine");
    let error = world.follow("c1", "b,b@mine").unwrap_err();
    assert!(
        error.msg.contains("interface name mine already exists"),
        "{error}"
    );
    world.missing("bridge");
    let error = world.follow("c1", "b").unwrap_err();
    assert!(error.msg.contains("bridge"), "{error}");
    world.check_calls(&[]);
    assert_eq!(world.left(), before);
}

#[test]
fn a_container_that_is_not_there_as_a_whole_is_left_to_the_runtime() {
    let world = World::new();
    assert!(world.follow("c1", "a").unwrap().now.is_none(), "unknown");
    // An ADD that failed and could not be undone.
    world.fail(&["ADD bridge", "DEL macvlan"]);
    world.add("c1", "a,b").unwrap_err();
    world.on_call(|_| Ok(()));
    world.calls();
    assert!(world.follow("c1", "a").unwrap().now.is_none());
    world.check_calls(&[]);
    let gone = running("a");
    std::fs::remove_file(gone.dir.path().join("var/run/netns/x")).unwrap();
    assert!(
        gone.follow("c1", "").unwrap().now.is_none(),
        "its namespace is gone"
    );
    gone.check_calls(&[]);
}

#[test]
fn containers_are_found_by_their_pod() {
    let world = running("a");
    let of = |pod| world.engine.containers_of(&world.netconf(), &pod).unwrap();
    assert_eq!(of(pod("")), ["c1".parse().unwrap()]);
    let mut namesake = pod("");
    namesake.uid = "other".to_owned();
    assert!(of(namesake.clone()).is_empty());
    namesake.is_static = true;
    assert_eq!(of(namesake).len(), 1);
    world.del("c1").unwrap();
    assert!(of(pod("")).is_empty());
}

/// The sidecar is gone, as after a time with upstream's daemon: what it lists is taken over, and nothing is attached twice.
#[test]
fn what_upstreams_file_alone_lists_is_followed_too() {
    let mut world = World::new();
    world.nad_of(
        "kube-system",
        "every",
        r#"{"cniVersion":"1.0.0","name":"every","type":"ptp"}"#,
    );
    world.config["defaultNetworks"] = json!(["every"]);
    world
        .add(
            "c1",
            r#"[{"name":"a","mac":"02:00:00:00:00:07"},{"name":"b"}]"#,
        )
        .unwrap();
    world.calls();
    let sidecar = world
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    std::fs::remove_file(sidecar).unwrap();
    let followed = world.follow("c1", "a,b,b@more").unwrap();
    world.check_calls(&["ADD bridge more"]);
    let now = [
        "cbr0 eth0",
        "kube-system/every net1",
        "shop/a net2",
        "shop/b net3",
        "shop/b more",
    ];
    well(followed, &["shop/b more"], &[], &now);
    world.follow("c1", "a").unwrap();
    world.check_calls(&["DEL bridge net3", "DEL bridge more"]);
}

/// As at ADD: the network is attached, and the event names every request that no plugin serves.
#[test]
fn unserved_requests_of_plugged_networks_are_reported_by_default() {
    let world = running("a");
    let asked = json!([{"name": "a"}, {"name": "b", "ips": ["10.77.0.1/24"], "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}]);
    let followed = world.follow("c1", &asked.to_string()).unwrap();
    assert!(followed.failure.is_none(), "{followed:?}");
    let warning = followed.attached[0].warning().unwrap();
    assert!(warning.contains("for ips, bandwidth on net2"), "{warning}");
}

/// As at ADD with `error`: refused, and before anything is touched where that is known.
#[test]
fn with_error_unserved_requests_of_plugged_networks_are_refused() {
    let mut world = running("a");
    world.config["unservedRequests"] = json!("error");
    let asked =
        json!([{"name": "a"}, {"name": "b", "bandwidth": {"ingressRate": 1, "ingressBurst": 1}}])
            .to_string();
    let error = world.follow("c1", &asked).unwrap_err();
    assert!(error.msg.contains("bandwidth"), "{error}");
    world.check_calls(&[]);
    let asked = json!([{"name": "a"}, {"name": "b", "ips": ["10.77.0.1/24"]}]).to_string();
    let failure = world.follow("c1", &asked).unwrap().failure.unwrap();
    assert!(failure.error.msg.contains("ips"), "{failure}");
    world.check_calls(&["ADD bridge net2", "DEL bridge net2"]);
    world.config["unservedRequests"] = json!("silent");
    assert!(world.follow("c1", &asked).unwrap().failure.is_none());
}

#[test]
fn a_network_that_is_plugged_may_bring_the_default_route() {
    let world = running("a");
    let asked = json!([{"name": "a"}, {"name": "b", "default-route": ["10.0.0.1"]}]).to_string();
    let followed = world.follow("c1", &asked).unwrap();
    assert!(followed.failure.is_none(), "{followed:?}");
    let set: Vec<_> = world
        .set_routes()
        .into_iter()
        .flat_map(|(_, routes)| routes)
        .map(|route| route.ifname)
        .collect();
    assert_eq!(set, ["net2"]);
    let now = followed.now.unwrap();
    assert_eq!(
        now[2].result.routes[0].gw, "10.0.0.1",
        "the status tells so"
    );
    let asked = json!([{"name": "a", "default-route": ["10.0.0.2"]}, {"name": "b", "default-route": ["10.0.0.1"]}]);
    let error = world.follow("c1", &asked.to_string()).unwrap_err();
    assert!(error.msg.contains("ECMP"), "{error}");
}

/// Networks of the original proposal's annotation are not taken for ones that nobody asks for.
#[test]
fn networks_of_the_original_annotation_stay() {
    let mut world = World::new();
    world.config["legacyNetworksAnnotation"] = json!(true);
    let mut legacy = pod("");
    legacy.annotations.insert(
        plan::LEGACY_ANNOTATION.to_owned(),
        r#"[{"name":"a"},{"name":"b"}]"#.to_owned(),
    );
    let netconf = world.netconf();
    world
        .engine
        .add(&super::world::request("c1"), &netconf, &legacy)
        .unwrap();
    world.calls();
    let path = || vec!["/opt/cni/bin".into()];
    let followed = world
        .engine
        .follow(&"c1".parse().unwrap(), &netconf, &legacy, path)
        .unwrap();
    assert!(followed.now.is_none(), "{followed:?}");
    world.check_calls(&[]);
}
