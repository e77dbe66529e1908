//! Explicit delegates: single networks that another controller attaches to a running pod and detaches.

use cni::types::CniError;
use plan::Attached;
use serde_json::{Map, Value, json};

use super::fixture::{Fixture, pod, request};
use crate::engine::ContainerRequest;

const CONFIG: &str = r#"{"cniVersion":"1.1.0","name":"neta","plugins":[{"type":"macvlan","capabilities":{"ips":true}},{"type":"tuning"}]}"#;

fn at(id: &str, ifname: &str) -> ContainerRequest {
    ContainerRequest {
        ifname: ifname.parse().unwrap(),
        ..request(id)
    }
}

fn plug(fixture: &Fixture, id: &str, ifname: &str, requests: Value) -> Result<Attached, CniError> {
    let (netconf, pod) = (fixture.netconf(), pod(""));
    let Value::Object(requests) = requests else {
        panic!("{requests}")
    };
    let attachment =
        fixture
            .engine
            .explicit_attachment(&netconf, &pod, CONFIG.as_bytes(), &requests)?;
    let plugged = fixture
        .engine
        .add_explicit(&at(id, ifname), &netconf, &pod, &attachment);
    plugged.map_err(CniError::from)
}

fn unplug(fixture: &Fixture, id: &str, ifname: &str) -> Result<(), CniError> {
    let netconf = fixture.netconf();
    let config = plan::explicit_config(CONFIG.as_bytes(), &netconf)?;
    fixture
        .engine
        .del_explicit(&at(id, ifname), &netconf, &pod(""), &config)
        .map_err(CniError::from)
}

#[test]
fn explicit_delegate_is_attached_under_the_requested_ifname_and_detached() {
    let fixture = Fixture::new();
    fixture.add("c1", "b").unwrap();
    fixture.calls();
    let requests =
        json!({"ips": ["10.9.0.7/24"], "mac": "02:00:00:00:00:07", "cni-args": {"k": "v"}});
    let attached = plug(&fixture, "c1", "ext0", requests).unwrap();
    assert_eq!(
        (attached.name.as_str(), attached.ifname.as_str()),
        ("neta", "ext0")
    );
    let calls = fixture.calls();
    let texts: Vec<_> = calls.iter().map(super::fixture::PluginCall::text).collect();
    assert_eq!(texts, ["ADD macvlan ext0", "ADD tuning ext0"]);
    assert!(calls[0].env["CNI_ARGS"].ends_with(";MAC=02:00:00:00:00:07;IP=10.9.0.7/24"));
    assert_eq!(
        calls[0].stdin["runtimeConfig"],
        json!({"ips": ["10.9.0.7/24"]})
    );
    assert_eq!(calls[1].stdin["args"]["cni"], json!({"k": "v"}));
    // The annotation never requested it, so a reconciliation keeps it.
    assert!(fixture.reconcile("c1", "b").unwrap().networks.is_none());
    unplug(&fixture, "c1", "ext0").unwrap();
    fixture.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    unplug(&fixture, "c1", "ext0").unwrap();
    fixture.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL bridge net1", "DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn del_detaches_explicit_delegates() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    plug(&fixture, "c1", "ext0", json!({})).unwrap();
    fixture.calls();
    fixture.del("c1").unwrap();
    fixture.check_calls(&[
        "DEL tuning ext0",
        "DEL macvlan ext0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn failed_explicit_delegate_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.calls();
    let before = fixture.files();
    fixture.fail(&["ADD tuning"]);
    let error = plug(&fixture, "c1", "ext0", json!({})).unwrap_err();
    assert_eq!(error.code, 123, "{error}");
    fixture.check_calls(&[
        "ADD macvlan ext0",
        "ADD tuning ext0",
        "DEL tuning ext0",
        "DEL macvlan ext0",
    ]);
    assert_eq!(fixture.files(), before);
    let error = plug(&fixture, "c1", "eth0", json!({})).unwrap_err();
    assert!(
        error.msg.contains("interface name eth0 already exists"),
        "{error}"
    );
    let error = plug(&fixture, "c1", "ext0", json!({"ips": ["x"]})).unwrap_err();
    assert!(
        error.msg.contains("ips") && error.msg.contains("\"x\""),
        "{error}"
    );
    fixture.check_calls(&[]);
}

#[test]
fn failed_unplug_is_returned_and_can_be_repeated() {
    let fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    plug(&fixture, "c1", "ext0", json!({})).unwrap();
    fixture.fail(&["DEL macvlan"]);
    assert_eq!(unplug(&fixture, "c1", "ext0").unwrap_err().code, 123);
    fixture.on_call(|_| Ok(()));
    fixture.calls();
    unplug(&fixture, "c1", "ext0").unwrap();
    fixture.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    let netconf = fixture.netconf();
    let default_network = r#"{"cniVersion":"1.0.0","name":"cbr0","type":"flannel"}"#;
    let default_network = plan::explicit_config(default_network.as_bytes(), &netconf).unwrap();
    let refused =
        fixture
            .engine
            .del_explicit(&at("c1", "eth0"), &netconf, &pod(""), &default_network);
    assert!(refused.unwrap_err().to_string().contains("default network"));
}

/// The container is older than multus, or its state is lost.
#[test]
fn explicit_delegate_of_an_unknown_container_writes_no_state() {
    let fixture = Fixture::new();
    plug(&fixture, "c9", "ext0", json!({})).unwrap();
    assert_eq!(fixture.files(), ["results/neta-c9-ext0"]);
    let netconf = fixture.netconf();
    let config = plan::explicit_config(CONFIG.as_bytes(), &netconf).unwrap();
    fixture.calls();
    fixture
        .engine
        .check_explicit(&at("c9", "ext0"), &netconf, &config)
        .unwrap();
    fixture.check_calls(&["CHECK macvlan ext0", "CHECK tuning ext0"]);
    fixture
        .engine
        .status_explicit(&[], &netconf, &config)
        .unwrap();
    fixture.check_calls(&["STATUS macvlan", "STATUS tuning"]);
    unplug(&fixture, "c9", "ext0").unwrap();
    fixture.check_calls(&["DEL tuning ext0", "DEL macvlan ext0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    let error = fixture
        .engine
        .check_explicit(&at("c9", "ext0"), &netconf, &config)
        .unwrap_err();
    assert!(error.to_string().contains("neta"), "{error}");
}

#[test]
fn invalid_or_forbidden_explicit_delegate_is_refused() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.config["allowedPlugins"] = json!(["macvlan"]);
    let error = plug(&fixture, "c1", "ext0", json!({})).unwrap_err();
    assert!(
        error.msg.contains("tuning") && error.msg.contains("allowedPlugins"),
        "{error}"
    );
    let netconf = fixture.netconf();
    for (config, part) in [
        (
            r#"{"cniVersion":"1.0.0","name":"x","type":"multus-shim"}"#,
            "its own delegate",
        ),
        (r#"{"cniVersion":"1.0.0","type":"macvlan"}"#, "name"),
        ("[]", "the network of the request"),
    ] {
        let attachment =
            fixture
                .engine
                .explicit_attachment(&netconf, &pod(""), config.as_bytes(), &Map::new());
        let error = attachment.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
