//! The features of the original proposal: an annotation of its own, and networks that are only a plugin.

use serde_json::json;

use super::fixture::{Fixture, config, pod, with_default};
use crate::{LEGACY_ANNOTATION, PodView};

fn legacy(networks: &str) -> PodView {
    let mut pod = pod("");
    let annotation = (LEGACY_ANNOTATION.to_owned(), networks.to_owned());
    pod.annotations.extend([annotation]);
    pod
}

fn fixture() -> Fixture {
    Fixture::new()
        .bridge("shop", "a")
        .bridge("shop", "b")
        .bridge("infra", "c")
}

#[test]
fn the_legacy_annotation_counts_only_when_enabled() {
    fixture().check(&legacy("a,b"), "cbr0=eth0");
    let fixture = fixture().with("legacyNetworksAnnotation", json!(true));
    fixture.check(&legacy("a"), "shop/a=eth0");
    fixture.check(
        &legacy("a,b,infra/c"),
        "shop/a=eth0 shop/b=eth1 infra/c=eth2",
    );
    fixture.check(
        &legacy(r#"[{"name": "infra/c"}]"#.replace("infra/c", "b").as_str()),
        "shop/b=eth0",
    );
    fixture.check(&legacy(""), "cbr0=eth0");
    fixture.check(&legacy("[]"), "cbr0=eth0");
    fixture.check_error(&legacy("a,absent"), &["(absent)", "(shop)"]);
    fixture.check_error(&legacy("a/b/c"), &[LEGACY_ANNOTATION]);
}

#[test]
fn the_current_annotations_override_the_legacy_one() {
    let fixture = fixture()
        .bridge("kube-system", "d")
        .with("legacyNetworksAnnotation", json!(true));
    let mut both = pod("b");
    both.annotations.extend(legacy("a").annotations);
    fixture.check(&both, "cbr0=eth0 shop/b=net1");
    let chosen = with_default(legacy("a"), "d");
    fixture.check(&chosen, "kube-system/d=eth0");
}

#[test]
fn isolation_applies_to_the_legacy_annotation() {
    let fixture = fixture()
        .with("legacyNetworksAnnotation", json!(true))
        .with("namespaceIsolation", json!(true));
    for networks in ["infra/c", "a,infra/c"] {
        fixture.check_error(
            &legacy(networks),
            &["violates permission", "namespace infra"],
        );
    }
}

#[test]
fn a_network_without_configuration_may_be_a_plugin_when_enabled() {
    let versions = ["0.3.1", "1.0.0", "9.0.0"];
    let fixture = Fixture::new()
        .nad("shop", "macvlan", "")
        .plugin("macvlan", Ok(&versions));
    fixture.check_error(
        &pod("macvlan"),
        &["spec.config is empty", "legacyNetworksAnnotation"],
    );
    let fixture = fixture.with("legacyNetworksAnnotation", json!(true));
    let plan = fixture.plan(Some(&pod("macvlan"))).unwrap();
    let expected = json!({"cniVersion": "1.0.0", "name": "macvlan", "type": "macvlan", "capabilities": {"mac": true}});
    assert_eq!(config(&plan[1]), expected);
}

#[test]
fn only_known_plugins_get_generated_capabilities() {
    let fixture = Fixture::new()
        .nad("shop", "zebra", "")
        .plugin("zebra", Ok(&["1.0.0"]))
        .with("legacyNetworksAnnotation", json!(true));
    let plan = fixture.plan(Some(&pod("zebra"))).unwrap();
    let expected = json!({"cniVersion": "1.0.0", "name": "zebra", "type": "zebra"});
    assert_eq!(config(&plan[1]), expected);
}

#[test]
fn a_configuration_on_disk_overrides_a_plugin() {
    let fixture = Fixture::new()
        .nad("shop", "macvlan", "")
        .file(
            "/etc/cni/multus/net.d/1.conf",
            r#"{"cniVersion":"0.4.0","name":"macvlan","type":"bridge"}"#,
        )
        .plugin("macvlan", Ok(&["1.0.0"]));
    let plan = fixture.plan(Some(&pod("macvlan"))).unwrap();
    assert_eq!(config(&plan[1])["type"], "bridge");
}

#[test]
fn an_unusable_plugin_is_reported() {
    let nad = || {
        Fixture::new()
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
