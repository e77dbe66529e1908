//! The devices of networks, from device plugins and resource claims.

use node::podresources::{
    CdiDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource,
    ListPodResourcesResponse, PodResources,
};
use serde_json::{Value, json};
use testkit::{api_server::Kind, kubelet::Kubelet};

use crate::{
    node::{NODE, NodeFixture, pod},
    wait_for,
};

pub(crate) const RESOURCE: &str = "vendor.example/nic";
pub(crate) const SOCKET: &str = "var/lib/kubelet/pod-resources/kubelet.sock";

pub(crate) fn definition_with_resource(name: &str, resource: &str) -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": name});
    json!({
        "metadata": {"namespace": "shop", "name": name, "annotations": {"k8s.v1.cni.cncf.io/resourceName": resource}},
        "spec": {"config": config.to_string()},
    })
}

/// Adds a claim with this device to a pod.
pub(crate) fn claim(node: &NodeFixture, pod: &mut Value, id: &str) {
    pod["spec"]["resourceClaims"] = json!([{"name": "nic", "resourceClaimTemplateName": "nics"}]);
    pod["status"]["resourceClaimStatuses"] =
        json!([{"name": "nic", "resourceClaimName": "cart-nic"}]);
    node.api.put(
        Kind::Claim,
        json!({"metadata": {"namespace": "shop", "name": "cart-nic"}, "status": {"allocation": {"devices": {"results": [
            {"request": "nic", "driver": "nic.example", "pool": NODE, "device": "one"},
        ]}}}}),
    );
    node.api.put(
        Kind::Slice,
        json!({"metadata": {"name": "slice"}, "spec": {"nodeName": NODE, "driver": "nic.example", "pool": {"name": NODE, "generation": 1},
            "devices": [{"name": "one", "attributes": {
                "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": RESOURCE},
            }}]}}),
    );
}

/// The kubelet's list with these devices in the pod's containers.
pub(crate) fn list(containers: &[&[&str]]) -> ListPodResourcesResponse {
    let container = |ids: &&[&str]| ContainerResources {
        name: format!("with-{}", ids.len()),
        devices: vec![ContainerDevices {
            resource_name: RESOURCE.to_owned(),
            device_ids: ids.iter().map(ToString::to_string).collect(),
        }],
        dynamic_resources: Vec::new(),
    };
    ListPodResourcesResponse {
        pod_resources: vec![PodResources {
            name: "cart".to_owned(),
            namespace: "shop".to_owned(),
            containers: containers.iter().map(container).collect(),
        }],
    }
}

/// A node with two networks of the same resource, and one without a resource.
fn node() -> NodeFixture {
    let node = NodeFixture::new();
    for name in ["zebra", "ape", "plain"] {
        node.define(name);
    }
    for name in ["zebra", "ape"] {
        node.api
            .put(Kind::Definition, definition_with_resource(name, RESOURCE));
    }
    node
}

/// The device in the configuration of each plugin, in the order of ADD.
fn device_ids(node: &NodeFixture) -> Vec<(String, Value)> {
    let calls = node.calls();
    let adds = calls.iter().filter(|call| call.what.starts_with("ADD"));
    adds.map(|call| {
        assert_eq!(call.stdin["deviceID"], call.stdin["pciBusID"]);
        (call.what.clone(), call.stdin["deviceID"].clone())
    })
    .collect()
}

#[test]
fn networks_get_devices_in_the_order_of_containers() {
    let node = node();
    let _kubelet = Kubelet::start(&node.path(SOCKET), Some(&list(&[&["9", "8"], &["1"]])));
    node.run_pod(Some("zebra,plain,ape,zebra"));
    let dp = "var/run/k8s.cni.cncf.io/devinfo/dp";
    std::fs::create_dir_all(node.path(dp)).unwrap();
    let info = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "9"}});
    node.write(
        &format!("{dp}/vendor.example-nic-9-device.json"),
        &info.to_string(),
    );
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let expected = [
        ("ADD primary pod0", Value::Null),
        ("ADD zebra net1", json!("8")),
        ("ADD plain net2", Value::Null),
        ("ADD ape net3", json!("9")),
        ("ADD zebra net4", json!("1")),
    ];
    assert_eq!(
        device_ids(&node),
        expected.map(|(what, id)| (what.to_owned(), id))
    );
    let (_, patch) = node.api.wait_for_patches(1).pop().unwrap();
    let text = &patch["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"];
    let status: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(
        status[3]["device-info"], info,
        "the file of its device plugin"
    );
    assert_eq!(status[1]["device-info"], Value::Null);
    daemon.cni(&node.request("DEL", "c1")).done();
    assert_eq!(node.calls().last().unwrap().what, "DEL primary pod0");
    assert_eq!(node.calls()[5].stdin["deviceID"], "1", "DEL gets it, too");
    let left = std::fs::read_dir(node.path("var/run/k8s.cni.cncf.io/devinfo/cni")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn too_few_devices_and_a_failing_kubelet_are_errors() {
    let node = node();
    let kubelet = Kubelet::start(&node.path(SOCKET), Some(&list(&[&["9"]])));
    node.run_pod(Some("zebra,ape"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    for part in ["shop/cart", "shop/ape", RESOURCE, "has 1"] {
        assert!(error.msg.contains(part), "{part}: {error}");
    }
    drop(kubelet);
    node.remove(SOCKET);
    let _kubelet = Kubelet::start(&node.path(SOCKET), None);
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert_eq!(error.code, 11, "{error}");
    assert!(error.msg.contains("too busy"), "{error}");
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, [""; 0]);
}

#[test]
fn checkpoint_is_read_where_the_kubelet_does_not_listen() {
    let node = node();
    let dir = "var/lib/kubelet/device-plugins";
    std::fs::create_dir_all(node.path(dir)).unwrap();
    let text = json!({"Data": {"PodDeviceEntries": [
        {"PodUID": "uid-cart", "ContainerName": "main", "ResourceName": RESOURCE, "DeviceIDs": {"0": ["7"]}},
    ]}});
    node.write(
        &format!("{dir}/kubelet_internal_checkpoint"),
        &text.to_string(),
    );
    node.run_pod(Some("ape"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(
        device_ids(&node)[1],
        ("ADD ape net1".to_owned(), json!("7"))
    );
}

#[test]
fn devices_of_claims_come_after_those_of_device_plugins() {
    let node = node();
    let _kubelet = Kubelet::start(&node.path(SOCKET), Some(&list(&[&["9"]])));
    let mut pod = pod(NODE, Some("zebra,ape"));
    claim(&node, &mut pod, "0000:18:02.5");
    node.api.put(Kind::Pod, pod);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let ids: Vec<_> = device_ids(&node).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [Value::Null, json!("9"), json!("0000:18:02.5")]);
}

#[test]
fn unallocated_claim_is_an_error() {
    let node = node();
    let mut pod = pod(NODE, Some("zebra"));
    claim(&node, &mut pod, "0000:18:02.5");
    node.api.put(Kind::Pod, pod);
    node.api.put(
        Kind::Claim,
        json!({"metadata": {"namespace": "shop", "name": "cart-nic"}}),
    );
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.msg.contains("shop/cart-nic"), "{error}");
}

/// Definitions for upstream up to 4.3.0 name the claim.
#[test]
fn definition_may_name_the_claim() {
    let node = node();
    let ape = definition_with_resource("ape", "cart-nic");
    node.api.put(Kind::Definition, ape);
    let mut all = list(&[&[]]);
    all.pod_resources[0].containers[0].dynamic_resources = vec![DynamicResource {
        claim_name: "cart-nic".to_owned(),
        claim_resources: vec![ClaimResource {
            cdi_devices: vec![CdiDevice {
                name: "vendor.example/nic=one".to_owned(),
            }],
        }],
    }];
    let _kubelet = Kubelet::start(&node.path(SOCKET), Some(&all));
    node.run_pod(Some("ape"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(device_ids(&node)[1].1, "one");
}

#[test]
fn plugged_network_gets_a_free_device() {
    let node = node();
    node.configure(&json!({"dynamicNetworks": true}));
    let _kubelet = Kubelet::start(&node.path(SOCKET), Some(&list(&[&["1", "2"]])));
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.put(Kind::Pod, pod(NODE, Some("ape,zebra")));
    node.wait_for_call("ADD ape net2");
    let ids: Vec<_> = device_ids(&node).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [Value::Null, json!("1"), json!("2")]);
    node.api.put(Kind::Pod, pod(NODE, Some("ape,zebra,zebra")));
    wait_for("a third device", || {
        let events = node.api.wait_for_events(1);
        let names_it = |event: &String| event.contains(RESOURCE) && event.contains("has 2");
        events.iter().any(names_it).then_some(())
    });
}
