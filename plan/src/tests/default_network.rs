//! The sources of the default network, and the configurations that it must not be.

use serde_json::{Map, json};

use super::fixture::{Fixture, pod};
use crate::{Inputs, default_network_config, netconf::Netconf};

#[test]
fn the_default_network_may_be_a_name_or_a_directory() {
    let named = Fixture::new()
        .bridge("kube-system", "main")
        .with("clusterNetwork", json!("main"));
    named.check(&pod(""), "kube-system/main=eth0");

    let on_disk = Fixture::new()
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

    let dir = Fixture::new()
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

/// The owner might have meant a file that comes earlier.
#[test]
fn a_broken_earlier_file_of_the_directory_is_an_error() {
    for broken in ["{", "{}", r#"{"name":"x","plugins":7}"#] {
        let dir = Fixture::new()
            .file("/etc/cni/net.d/05-broken.conf", broken)
            .with("clusterNetwork", json!("/etc/cni/net.d"));
        dir.check_error(
            &pod(""),
            &["clusterNetwork", "/etc/cni/net.d/05-broken.conf"],
        );
        // A later file has no influence.
        let later = Fixture::new()
            .file("/etc/cni/net.d/20-broken.conf", broken)
            .with("clusterNetwork", json!("/etc/cni/net.d"));
        later.check(&pod(""), "cbr0=eth0");
    }
}

#[test]
fn a_missing_default_network_causes_an_event() {
    for name in ["absent", "/etc/cni/absent.conf", "/etc/cni/multus/net.d"] {
        let fixture = Fixture::new()
            .file(
                "/etc/cni/multus/net.d/00-multus.conf",
                r#"{"name":"m","type":"multus-shim"}"#,
            )
            .with("clusterNetwork", json!(name));
        let error = fixture.plan(Some(&pod(""))).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.event(), Some("NoNetworkFound"), "{name}");
        assert!(message.contains(name), "{message}");
    }
    let broken = Fixture::new()
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
        let fixture = Fixture::new().nad("shop", "a", own);
        fixture.check_error(
            &pod("a"),
            &[
                "network shop/a: multus cannot be its own delegate",
                "multus",
            ],
        );
    }
    let own = r#"{"name":"m","type":"multus-shim"}"#;
    let file = "/etc/cni/net.d/00-multus.conf";
    let fixture = Fixture::new()
        .file(file, own)
        .with("clusterNetwork", json!(file));
    fixture.check_error(&pod(""), &["network m: multus cannot be its own delegate"]);
    let netconf = Netconf::effective(fixture.netconf.to_string().as_bytes(), &Map::new(), true);
    let inputs = Inputs {
        netconf: &netconf.unwrap(),
        definitions: &fixture,
        files: &fixture,
        plugins: &fixture,
    };
    default_network_config(inputs).unwrap_err();
    let chained = Fixture::new().file("/etc/cni/net.d/cbr0/1.conf", own);
    chained.check_error(&pod(""), &["multus cannot be its own delegate"]);
}

#[test]
fn the_error_of_a_missing_default_network_has_its_cause() {
    let fixture = Fixture::new().with("clusterNetwork", json!("/etc/cni/net.d/none.conflist"));
    fixture.check_error(
        &pod(""),
        &[
            "failed to get clusterNetwork /etc/cni/net.d/none.conflist: ",
            "/etc/cni/net.d/none.conflist: cannot be read",
        ],
    );
    let fixture = Fixture::new()
        .file(
            "/etc/cni/net.d/1.conf",
            r#"{"name":"n","plugins":[{"type":"x"}]}"#,
        )
        .with("clusterNetwork", json!("/etc/cni/net.d/1.conf"));
    fixture.check_error(&pod(""), &["/etc/cni/net.d/1.conf", "\"type\" at its top"]);
}

#[test]
fn a_broken_definition_is_not_replaced_by_a_file() {
    let fixture = Fixture::new()
        .nad("kube-system", "main", "{")
        .file(
            "/etc/cni/multus/net.d/1.conf",
            r#"{"name":"main","type":"x"}"#,
        )
        .with("clusterNetwork", json!("main"));
    fixture.check_error(
        &pod(""),
        &["network-attachment-definition kube-system/main"],
    );
}
