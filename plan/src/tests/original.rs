//! What the original proposal of networks knew: an annotation of its own, and networks that are no more than a plugin.

use serde_json::json;

use super::world::{World, config, pod, with_default};
use crate::{LEGACY_ANNOTATION, PodView};

fn legacy(networks: &str) -> PodView {
    let mut pod = pod("");
    let annotation = (LEGACY_ANNOTATION.to_owned(), networks.to_owned());
    pod.annotations.extend([annotation]);
    pod
}

fn world() -> World {
    World::new()
        .bridge("shop", "a")
        .bridge("shop", "b")
        .bridge("infra", "c")
}

#[test]
fn the_older_annotation_counts_only_where_the_owner_wants_it() {
    world().check(&legacy("a,b"), "cbr0=eth0");
    let world = world().with("legacyNetworksAnnotation", json!(true));
    world.check(&legacy("a"), "shop/a=eth0");
    world.check(
        &legacy("a,b,infra/c"),
        "shop/a=eth0 shop/b=eth1 infra/c=eth2",
    );
    world.check(
        &legacy(r#"[{"name": "infra/c"}]"#.replace("infra/c", "b").as_str()),
        "shop/b=eth0",
    );
    world.check(&legacy(""), "cbr0=eth0");
    world.check(&legacy("[]"), "cbr0=eth0");
    world.check_error(&legacy("a,absent"), &["(absent)", "(shop)"]);
    world.check_error(&legacy("a/b/c"), &[LEGACY_ANNOTATION]);
}

#[test]
fn the_present_annotations_win_over_the_older_one() {
    let world = world()
        .bridge("kube-system", "d")
        .with("legacyNetworksAnnotation", json!(true));
    let mut both = pod("b");
    both.annotations.extend(legacy("a").annotations);
    world.check(&both, "cbr0=eth0 shop/b=net1");
    let chosen = with_default(legacy("a"), "d");
    world.check(&chosen, "kube-system/d=eth0");
}

#[test]
fn isolation_holds_for_the_older_annotation() {
    let world = world()
        .with("legacyNetworksAnnotation", json!(true))
        .with("namespaceIsolation", json!(true));
    for networks in ["infra/c", "a,infra/c"] {
        world.check_error(
            &legacy(networks),
            &["violates permission", "namespace infra"],
        );
    }
}

#[test]
fn a_network_without_configuration_may_be_a_plugin() {
    let versions = ["0.3.1", "1.0.0", "9.0.0"];
    let world = World::new()
        .nad("shop", "macvlan", "")
        .plugin("macvlan", Ok(&versions));
    world.check_error(
        &pod("macvlan"),
        &["spec.config is empty", "legacyNetworksAnnotation"],
    );
    let world = world.with("legacyNetworksAnnotation", json!(true));
    let plan = world.plan(Some(&pod("macvlan"))).unwrap();
    let expected = json!({"cniVersion": "1.0.0", "name": "macvlan", "type": "macvlan", "capabilities": {"mac": true}});
    assert_eq!(config(&plan[1]), expected);
}

#[test]
fn a_generated_configuration_has_the_capabilities_of_known_plugins_alone() {
    let world = World::new()
        .nad("shop", "zebra", "")
        .plugin("zebra", Ok(&["1.0.0"]))
        .with("legacyNetworksAnnotation", json!(true));
    let plan = world.plan(Some(&pod("zebra"))).unwrap();
    let expected = json!({"cniVersion": "1.0.0", "name": "zebra", "type": "zebra"});
    assert_eq!(config(&plan[1]), expected);
}

#[test]
fn a_configuration_on_disk_is_nearer_than_a_plugin() {
    let world = World::new()
        .nad("shop", "macvlan", "")
        .file(
            "/etc/cni/multus/net.d/1.conf",
            r#"{"cniVersion":"0.4.0","name":"macvlan","type":"bridge"}"#,
        )
        .plugin("macvlan", Ok(&["1.0.0"]));
    let plan = world.plan(Some(&pod("macvlan"))).unwrap();
    assert_eq!(config(&plan[1])["type"], "bridge");
}

#[test]
fn a_plugin_that_cannot_be_used_is_told() {
    let nad = || {
        World::new()
            .nad("shop", "macvlan", "")
            .with("legacyNetworksAnnotation", json!(true))
    };
    nad()
        .plugin("macvlan", Ok(&["9.0.0", "old"]))
        .check_error(&pod("macvlan"), &["shop/macvlan", "9.0.0, old"]);
    nad()
        .plugin("macvlan", Err("it crashed"))
        .check_error(&pod("macvlan"), &["shop/macvlan", "it crashed"]);
    nad().check_error(
        &pod("macvlan"),
        &["spec.config is empty", "nor a plugin of that name"],
    );
}
