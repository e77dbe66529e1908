//! What plugins tell of devices.

use serde_json::{Value, json};

use super::world::World;

const PLACE: &str = "var/run/k8s.cni.cncf.io/devinfo/cni/shop-a-c1_net1";
const NETWORK: &str = r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":{"deviceID":true,"CNIDeviceInfoFile":true}}"#;

/// A pod with a device in its first network, and what its status gets to know after this was told.
fn added(told: &str) -> (World, Vec<Option<Value>>) {
    let world = World::new();
    world.nad("a", NETWORK);
    world.put(PLACE, told);
    let networks = r#"[{"name":"a","deviceID":"0000:18:02.5"},{"name":"a","interface":"ext0"}]"#;
    let attached = world.add("c1", networks).unwrap().attached;
    let told = attached
        .into_iter()
        .map(|one| one.device_info.map(Value::Object));
    (world, told.collect())
}

#[test]
fn device_info_is_reported_and_removed_with_its_network() {
    let info = json!({"type": "pci", "pci": {"pci-address": "0000:18:02.5"}});
    let (world, told) = added(&info.to_string());
    assert_eq!(told, [None, Some(info), None]);
    world.del("c1").unwrap();
    assert!(!world.dir.path().join(PLACE).exists());
    let given: Vec<_> = world
        .calls()
        .iter()
        .filter(|call| call.plugin == "macvlan")
        .map(|call| call.stdin["runtimeConfig"]["CNIDeviceInfoFile"].clone())
        .collect();
    let place = json!(format!("/{PLACE}"));
    assert_eq!(given, [place.clone(), json!(null), json!(null), place]);
}

#[test]
fn unreadable_device_info_does_not_fail_add_or_del() {
    for text in ["", "{\"type\":", "[1]"] {
        let (world, told) = added(text);
        assert_eq!(told, [None, None, None]);
        world.del("c1").unwrap();
        assert!(!world.dir.path().join(PLACE).exists());
    }
}

#[test]
fn device_info_path_outside_our_directory_is_ignored() {
    let mut world = World::new();
    let foreign = "etc/foreign.json";
    world.put(foreign, "{}");
    world.config["runtimeConfig"] = json!({"CNIDeviceInfoFile": format!("/{foreign}")});
    let added = world.add("c1", "").unwrap();
    assert_eq!(added.attached[0].device_info, None);
    world.del("c1").unwrap();
    assert!(world.dir.path().join(foreign).exists());
}
