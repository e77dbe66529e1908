//! Where the default network comes from, and what it may not be.

use serde_json::{Map, json};

use super::world::{World, pod};
use crate::{Inputs, netconf::Netconf, primary};

#[test]
fn the_default_network_by_name_and_by_directory() {
    let named = World::new()
        .bridge("kube-system", "main")
        .with("clusterNetwork", json!("main"));
    named.check(&pod(""), "kube-system/main=eth0");

    let on_disk = World::new()
        .file(
            "/etc/cni/multus/net.d/1.conf",
            r#"{"name":"other","type":"x"}"#,
        )
        .file(
            "/etc/cni/multus/net.d/2.conflist",
            r#"{"name":"main","plugins":[{"type":"x"}]}"#,
        )
        .with("clusterNetwork", json!("main"));
    on_disk.check(&pod(""), "main=eth0");

    let dir = World::new()
        .file(
            "/etc/cni/net.d/00-multus.conf",
            r#"{"name":"m","type":"multus-shim"}"#,
        )
        .file(
            "/etc/cni/net.d/07-directory.conf/1.conf",
            r#"{"name":"x","type":"x"}"#,
        )
        .with("clusterNetwork", json!("/etc/cni/net.d"));
    dir.check(&pod(""), "cbr0=eth0");
}

/// A file before it might have been the one.
#[test]
fn a_broken_file_of_the_directory_fails_and_is_named() {
    for broken in ["{", "{}", r#"{"name":"x","plugins":7}"#] {
        let dir = World::new()
            .file("/etc/cni/net.d/05-broken.conf", broken)
            .with("clusterNetwork", json!("/etc/cni/net.d"));
        dir.check_error(
            &pod(""),
            &["clusterNetwork", "/etc/cni/net.d/05-broken.conf"],
        );
        // One that comes later is nobody's business.
        let later = World::new()
            .file("/etc/cni/net.d/20-broken.conf", broken)
            .with("clusterNetwork", json!("/etc/cni/net.d"));
        later.check(&pod(""), "cbr0=eth0");
    }
}

#[test]
fn a_default_network_that_is_nowhere_makes_an_event() {
    for name in ["absent", "/etc/cni/absent.conf", "/etc/cni/multus/net.d"] {
        let world = World::new()
            .file(
                "/etc/cni/multus/net.d/00-multus.conf",
                r#"{"name":"m","type":"multus-shim"}"#,
            )
            .with("clusterNetwork", json!(name));
        let error = world.plan(Some(&pod(""))).unwrap_err();
        let (reason, message) = error.event().unwrap_or_else(|| panic!("{name}: {error}"));
        assert_eq!(reason, "NoNetworkFound", "{name}");
        assert!(message.contains(name), "{message}");
    }
    let broken = World::new()
        .file("/etc/cni/broken.conf", "{")
        .with("clusterNetwork", json!("/etc/cni/broken.conf"));
    assert!(broken.plan(Some(&pod(""))).unwrap_err().event().is_none());
}

#[test]
fn multus_is_never_its_own_delegate() {
    for own in [
        r#"{"type":"multus-shim"}"#,
        r#"{"type":"multus"}"#,
        r#"{"plugins":[{"type":"bridge"},{"type":"multus-shim"}]}"#,
    ] {
        let world = World::new().nad("shop", "a", own);
        world.check_error(
            &pod("a"),
            &[
                "network shop/a: multus cannot be its own delegate",
                "multus",
            ],
        );
    }
    let own = r#"{"name":"m","type":"multus-shim"}"#;
    let file = "/etc/cni/net.d/00-multus.conf";
    let world = World::new()
        .file(file, own)
        .with("clusterNetwork", json!(file));
    world.check_error(&pod(""), &["network m: multus cannot be its own delegate"]);
    let netconf = Netconf::effective(world.netconf.to_string().as_bytes(), &Map::new(), true);
    let inputs = Inputs {
        netconf: &netconf.unwrap(),
        definitions: &world,
        files: &world,
        plugins: &world,
    };
    primary(inputs).unwrap_err();
    let chained = World::new().file("/etc/cni/net.d/cbr0/1.conf", own);
    chained.check_error(&pod(""), &["multus cannot be its own delegate"]);
}

#[test]
fn the_cause_of_a_missing_default_network_is_kept() {
    let world = World::new().with("clusterNetwork", json!("/etc/cni/net.d/none.conflist"));
    world.check_error(
        &pod(""),
        &[
            "failed to get clusterNetwork /etc/cni/net.d/none.conflist: ",
            "/etc/cni/net.d/none.conflist: cannot be read",
        ],
    );
    let world = World::new()
        .file(
            "/etc/cni/net.d/1.conf",
            r#"{"name":"n","plugins":[{"type":"x"}]}"#,
        )
        .with("clusterNetwork", json!("/etc/cni/net.d/1.conf"));
    world.check_error(&pod(""), &["/etc/cni/net.d/1.conf", "\"type\" at its top"]);
}

#[test]
fn a_broken_definition_is_not_replaced_by_a_file() {
    let world = World::new()
        .nad("kube-system", "main", "{")
        .file(
            "/etc/cni/multus/net.d/1.conf",
            r#"{"name":"main","type":"x"}"#,
        )
        .with("clusterNetwork", json!("main"));
    world.check_error(
        &pod(""),
        &["network-attachment-definition kube-system/main"],
    );
}
