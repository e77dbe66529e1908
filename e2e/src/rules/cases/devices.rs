//! Cases of subject `devices`: Devices of networks.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::{
    node::runtime::IMAGE,
    rules::{
        definitions::{CLAIMED_NIC, NIC, SLOW_NIC},
        harness::{DEFAULT_NETWORK, Harness, NETWORKS, Pod, PodResources, PodSpec},
    },
};

cases! { "devices":
    plain one_each ["devices.nth-device", "devices.kubelet"]
    plain container_order ["devices.order"]
    plain default_network ["devices.default-network"]
    plain too_few ["devices.too-few"]
    plain in_configurations ["devices.configuration", "devices.capability"]
    plain in_the_annotation ["devices.annotation"]
    plain kubelet_error ["devices.kubelet-error"]
    plain checkpoint ["devices.checkpoint"]
    plain claim ["devices.claim"]
    plain claim_without_attributes ["devices.claim-without-attributes"]
    plain unallocated_claim ["devices.claim-unallocated"]
    plain claim_by_name ["devices.claim-by-name"]
}

/// Returns `network device` of every `ADD`.
fn devices_of(harness: &Harness, pod: &Pod) -> anyhow::Result<Vec<String>> {
    let calls = harness.calls(pod)?.into_iter();
    Ok(calls
        .filter(|call| call.verb == "ADD")
        .map(|call| {
            let id = call.stdin["deviceID"].as_str().unwrap_or("-");
            format!("{} {id}", call.network())
        })
        .collect())
}

fn expect_devices(harness: &Harness, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
    let found = devices_of(harness, pod)?;
    ensure!(
        found == expected,
        "networks got {found:?}, not {expected:?}"
    );
    Ok(())
}

/// Attaches a pod of one container with these devices of `NIC`.
fn attach(harness: &Harness, name: &str, networks: &str, ids: &[&str]) -> anyhow::Result<Pod> {
    let resources = PodResources::new("default", name, &[("main", &[(NIC, ids)])]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = harness.attach(name, networks)?;
    Ok(pod)
}

fn one_each(harness: &Harness) -> anyhow::Result<()> {
    let container = [("main", &[(NIC, &["d1", "d2"][..]), (SLOW_NIC, &["s1"])][..])];
    let _kubelet = harness.fake_kubelet(&[
        PodResources::new("other", "one-each", &[("main", &[(NIC, &["no"])])]),
        PodResources::new("default", "one-each", &container),
        PodResources::new("default", "another", &[("main", &[(NIC, &["no"])])]),
    ])?;
    let pod = harness.attach("one-each", "nic,a,nic-slow,nic-list")?;
    let expected = [
        "primary -",
        "nic d1",
        "a -",
        "nic-slow s1",
        "nic-list d2",
        "nic-list d2",
    ];
    expect_devices(harness, &pod, &expected)
}

fn container_order(harness: &Harness) -> anyhow::Result<()> {
    let zebra: &[(&str, &[&str])] = &[(NIC, &["d9"]), (NIC, &["d3", "d5"])];
    let resources = PodResources::new(
        "default",
        "ordered",
        &[("zebra", zebra), ("ape", &[(NIC, &["d4", "d1"])])],
    );
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = harness.attach("ordered", "nic,nic,nic,nic,nic")?;
    let expected = [
        "primary -",
        "nic d3",
        "nic d5",
        "nic d9",
        "nic d1",
        "nic d4",
    ];
    expect_devices(harness, &pod, &expected)
}

fn in_configurations(harness: &Harness) -> anyhow::Result<()> {
    let pod = attach(harness, "configured", "nic-list,nic-capable", &["d1", "d2"])?;
    for call in harness.calls(&pod)? {
        let id = match call.network() {
            "nic-list" => json!("d1"),
            "nic-capable" => json!("d2"),
            _ => Value::Null,
        };
        ensure!(
            call.stdin["deviceID"] == id && call.stdin["pciBusID"] == id,
            "{}",
            call.stdin
        );
    }
    let call = harness.call(&pod, "ADD", "nic-capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["deviceID"] == "d2",
        "{}",
        call.stdin
    );
    harness.del(&pod)?;
    let call = harness.call(&pod, "DEL", "nic-capable")?;
    ensure!(call.stdin["deviceID"] == "d2", "{}", call.stdin);
    Ok(())
}

fn in_the_annotation(harness: &Harness) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "nic-capable", "deviceID": "mine"}, {"name": "capable", "deviceID": "mine"}]"#;
    let pod = attach(harness, "in-annotation", networks, &["d1"])?;
    for (network, id) in [("nic-capable", "d1"), ("capable", "mine")] {
        let call = harness.call(&pod, "ADD", network)?;
        ensure!(
            call.stdin["runtimeConfig"]["deviceID"] == id,
            "{}",
            call.stdin
        );
    }
    Ok(())
}

fn too_few(harness: &Harness) -> anyhow::Result<()> {
    for (name, ids) in [("too-few", &["d1"][..]), ("none-at-all", &[])] {
        let resources = PodResources::new("default", name, &[("main", &[(NIC, ids)])]);
        let _kubelet = harness.fake_kubelet(&[resources])?;
        let pod = harness.pod(name, "nic,nic-list")?;
        let words = [&format!("default/{name}"), "default/nic", NIC];
        harness.ensure_refused(&pod, &words)?;
        harness.wait_for_event(&pod, "FailedAddNetwork", NIC)?;
    }
    Ok(())
}

fn default_network(harness: &Harness) -> anyhow::Result<()> {
    let resources = PodResources::new("default", "own-nic", &[("main", &[(NIC, &["d1", "d2"])])]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let form = PodSpec::annotated(&[(DEFAULT_NETWORK, "nic-central"), (NETWORKS, "nic")]);
    let pod = harness.pod_with("own-nic", &form)?;
    harness.add(&pod)?;
    expect_devices(harness, &pod, &["nic-central d1", "nic d2"])
}

fn kubelet_error(harness: &Harness) -> anyhow::Result<()> {
    let _kubelet = harness.failing_kubelet()?;
    let pod = harness.pod("kubelet-error", "nic")?;
    harness.ensure_refused(&pod, &["default/kubelet-error"])?;
    // A pod that wants no device needs no kubelet.
    let pod = harness.pod("without-device", "a")?;
    harness.add(&pod).map(drop)
}

fn checkpoint(harness: &Harness) -> anyhow::Result<()> {
    let (pod, other) = (
        harness.pod("checkpoint", "nic,nic")?,
        harness.pod("checkpoint-other", "")?,
    );
    let _kubelet = harness.kubelet_checkpoint(&[
        (&other, "main", NIC, json!({"0": ["no"]})),
        (&pod, "main", SLOW_NIC, json!({"0": ["no"]})),
        (&pod, "main", NIC, json!({"0": ["d1"], "1": ["d2"]})),
    ])?;
    harness.add(&pod)?;
    expect_devices(harness, &pod, &["primary -", "nic d1", "nic d2"])
}

/// A device that a driver published and a claim for it, both removed on drop.
struct Claim<'a>(&'a Harness, &'static str);

const API: &str = "/apis/resource.k8s.io/v1";

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

impl<'a> Claim<'a> {
    fn new(
        harness: &'a Harness,
        name: &'static str,
        attributes: &Value,
        is_allocated: bool,
    ) -> anyhow::Result<Self> {
        let made = Self(harness, name);
        let (node, driver) = (&harness.node().name, "dra.e2e.example");
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "devices": [{"name": "nic-one", "attributes": attributes}],
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
        });
        harness.api("POST", &format!("{API}/resourceslices"), &slice)?;
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic"}}]}},
        });
        harness.api("POST", CLAIMS, &claim)?;
        if is_allocated {
            let results =
                json!([{"request": "nic", "driver": driver, "pool": node, "device": "nic-one"}]);
            let status = json!({"status": {"allocation": {"devices": {"results": results}}}});
            harness.api("PATCH", &format!("{CLAIMS}/{name}/status"), &status)?;
        }
        Ok(made)
    }

    /// Creates a pod that has the claim.
    fn pod(&self, name: &str, networks: &str) -> anyhow::Result<Pod> {
        let Self(harness, claim) = self;
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {NETWORKS: networks}},
            "spec": {
                "nodeName": harness.node().name, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "nic"}]}}],
                "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}],
            },
        });
        let path = "/api/v1/namespaces/default/pods";
        let made = harness.api("POST", path, &object)?.json()?;
        // A controller writes this once it has created the claim.
        let status = json!({"status": {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": claim}]}});
        harness.api("PATCH", &format!("{path}/{name}/status"), &status)?;
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        harness.sandbox("default", name, uid)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Self(harness, name) = self;
        for path in [
            format!("{API}/resourceslices/{name}"),
            format!("{CLAIMS}/{name}"),
        ] {
            let _ = harness.api("DELETE", &path, &Value::Null);
        }
    }
}

fn attributes(id: &str) -> Value {
    json!({
        "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": CLAIMED_NIC},
        "e2e.example/speed": {"int": 25},
    })
}

fn claim(harness: &Harness) -> anyhow::Result<()> {
    let claim = Claim::new(
        harness,
        "claim-allocated",
        &attributes("0000:5e:00.1"),
        true,
    )?;
    let resources = PodResources::new("default", "claiming", &[("main", &[])]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = claim.pod("claiming", "a,nic-claimed")?;
    harness.add(&pod)?;
    expect_devices(
        harness,
        &pod,
        &["primary -", "a -", "nic-claimed 0000:5e:00.1"],
    )
}

fn claim_without_attributes(harness: &Harness) -> anyhow::Result<()> {
    let nothing = json!({"e2e.example/speed": {"int": 25}});
    let claim = Claim::new(harness, "claim-of-others", &nothing, true)?;
    let resources = PodResources::new("default", "claiming-both", &[("main", &[(NIC, &["d1"])])]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    // The device plugin's device is found, and the claim adds none.
    let pod = claim.pod("claiming-both", "nic")?;
    harness.add(&pod)?;
    expect_devices(harness, &pod, &["primary -", "nic d1"])?;
    let pod = claim.pod("claiming-others", "nic-claimed")?;
    let outcome = harness.verb("ADD", &pod)?;
    match outcome.code {
        // Another rule says that too few devices are an error.
        Some(0) => expect_devices(harness, &pod, &["primary -", "nic-claimed -"]),
        _ => outcome.error_contains(&[CLAIMED_NIC]),
    }
}

fn unallocated_claim(harness: &Harness) -> anyhow::Result<()> {
    let claim = Claim::new(
        harness,
        "claim-unallocated",
        &attributes("0000:5e:00.1"),
        false,
    )?;
    let resources = PodResources::new("default", "claiming-unallocated", &[("main", &[])]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = claim.pod("claiming-unallocated", "nic-claimed")?;
    let words = ["default/claiming-unallocated", "claim-unallocated"];
    harness.ensure_refused(&pod, &words)
}

fn claim_by_name(harness: &Harness) -> anyhow::Result<()> {
    let resources = PodResources::new("default", "claim-named", &[("main", &[])])
        .with_claim("claim-by-name", &["e2e.example/nic=0000:5e:00.2"]);
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = harness.attach("claim-named", "nic-of-claim")?;
    expect_devices(harness, &pod, &["primary -", "nic-of-claim 0000:5e:00.2"])
}
