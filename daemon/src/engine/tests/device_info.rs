//! Device information of plugins in the pod's status.

use serde_json::{Value, json};

use super::fixture::Fixture;

const INFO_FILE: &str = "var/run/k8s.cni.cncf.io/devinfo/cni/shop-a-c1_net1";
const NETWORK: &str = r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":{"deviceID":true,"CNIDeviceInfoFile":true}}"#;

/// Returns a node with a pod whose first network has a device with this information file, and the device information of its
/// networks.
fn added(content: &str) -> (Fixture, Vec<Option<Value>>) {
    let fixture = Fixture::new();
    fixture.nad("a", NETWORK);
    fixture.put(INFO_FILE, content);
    let networks = r#"[{"name":"a","deviceID":"0000:18:02.5"},{"name":"a","interface":"ext0"}]"#;
    let attached = fixture.add("c1", networks).unwrap().attached;
    let infos = attached
        .into_iter()
        .map(|one| one.device_info.map(Value::Object));
    (fixture, infos.collect())
}

#[test]
fn device_info_is_reported_and_removed_with_its_network() {
    let info = json!({"type": "pci", "pci": {"pci-address": "0000:18:02.5"}});
    let (fixture, infos) = added(&info.to_string());
    assert_eq!(infos, [None, Some(info), None]);
    fixture.del("c1").unwrap();
    assert!(!fixture.dir.path().join(INFO_FILE).exists());
    let passed: Vec<_> = fixture
        .calls()
        .iter()
        .filter(|call| call.plugin == "macvlan")
        .map(|call| call.stdin["runtimeConfig"]["CNIDeviceInfoFile"].clone())
        .collect();
    let path = json!(format!("/{INFO_FILE}"));
    assert_eq!(passed, [path.clone(), json!(null), json!(null), path]);
}

#[test]
fn unreadable_device_info_does_not_fail_add_or_del() {
    for text in ["", "{\"type\":", "[1]"] {
        let (fixture, infos) = added(text);
        assert_eq!(infos, [None, None, None]);
        fixture.del("c1").unwrap();
        assert!(!fixture.dir.path().join(INFO_FILE).exists());
    }
}

#[test]
fn device_info_path_outside_our_directory_is_ignored() {
    let mut fixture = Fixture::new();
    let foreign = "etc/foreign.json";
    fixture.put(foreign, "{}");
    fixture.config["runtimeConfig"] = json!({"CNIDeviceInfoFile": format!("/{foreign}")});
    let added = fixture.add("c1", "").unwrap();
    assert_eq!(added.attached[0].device_info, None);
    fixture.del("c1").unwrap();
    assert!(fixture.dir.path().join(foreign).exists());
}
