//! Networks that want a device: which of the pod's they get, and who is asked.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    node::runtime::IMAGE,
    rules::{
        bench::{Bench, DEFAULT_NETWORK, NETWORKS, Pod, PodForm, PodResources},
        definitions::{CLAIMED_NIC, NIC, SLOW_NIC},
    },
};

pub(super) const CASES: &[Case] = &[
    plain("devices-one-each", &["mux-10.4-nth", "mux-10.4-pod"], nth),
    plain(
        "devices-of-containers-in-order",
        &["mux-10.4-order"],
        containers,
    ),
    plain(
        "devices-in-configurations",
        &["mux-10.4-config", "mux-10.4-capability"],
        configured,
    ),
    plain("devices-asked-for-besides", &["mux-10.4-asked"], besides),
    plain("devices-too-few", &["mux-10.4-few"], too_few),
    plain(
        "devices-of-the-default-network",
        &["mux-10.4-default-network"],
        default_network,
    ),
    plain("devices-nobody-tells-of", &["mux-10.4-fails"], fails),
    plain("devices-noted", &["mux-10.4-checkpoint"], noted),
    plain("devices-claimed", &["mux-10.4-claim"], claimed),
    plain(
        "devices-claimed-without-attributes",
        &["mux-10.4-claim-skipped"],
        skipped,
    ),
    plain(
        "devices-claimed-in-vain",
        &["mux-10.4-claim-unallocated"],
        unallocated,
    ),
    plain(
        "devices-of-a-claim-by-name",
        &["mux-10.4-claim-name"],
        by_name,
    ),
];

/// `network device` of every ADD.
fn given(bench: &Bench, pod: &Pod) -> anyhow::Result<Vec<String>> {
    let calls = bench.calls(pod)?.into_iter();
    Ok(calls
        .filter(|call| call.verb == "ADD")
        .map(|call| {
            let id = call.stdin["deviceID"].as_str().unwrap_or("-");
            format!("{} {id}", call.network())
        })
        .collect())
}

fn has(bench: &Bench, pod: &Pod, expected: &[&str]) -> anyhow::Result<()> {
    let found = given(bench, pod)?;
    ensure!(
        found == expected,
        "networks got {found:?}, not {expected:?}"
    );
    Ok(())
}

/// Attaches a pod of one container with these devices of the usual resource.
fn attach(bench: &Bench, name: &str, networks: &str, ids: &[&str]) -> anyhow::Result<Pod> {
    let of_pod = PodResources::new("default", name, &[("main", &[(NIC, ids)])]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = bench.pod(name, networks)?;
    bench.add(&pod)?;
    Ok(pod)
}

fn nth(bench: &Bench) -> anyhow::Result<()> {
    let container = [("main", &[(NIC, &["d1", "d2"][..]), (SLOW_NIC, &["s1"])][..])];
    let _kubelet = bench.kubelet(&[
        PodResources::new("other", "one-each", &[("main", &[(NIC, &["no"])])]),
        PodResources::new("default", "one-each", &container),
        PodResources::new("default", "another", &[("main", &[(NIC, &["no"])])]),
    ])?;
    let pod = bench.pod("one-each", "nic,a,nic-slow,nic-list")?;
    bench.add(&pod)?;
    let expected = [
        "primary -",
        "nic d1",
        "a -",
        "nic-slow s1",
        "nic-list d2",
        "nic-list d2",
    ];
    has(bench, &pod, &expected)
}

fn containers(bench: &Bench) -> anyhow::Result<()> {
    let zebra: &[(&str, &[&str])] = &[(NIC, &["d9"]), (NIC, &["d3", "d5"])];
    let of_pod = PodResources::new(
        "default",
        "ordered",
        &[("zebra", zebra), ("ape", &[(NIC, &["d4", "d1"])])],
    );
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = bench.pod("ordered", "nic,nic,nic,nic,nic")?;
    bench.add(&pod)?;
    let expected = [
        "primary -",
        "nic d3",
        "nic d5",
        "nic d9",
        "nic d1",
        "nic d4",
    ];
    has(bench, &pod, &expected)
}

fn configured(bench: &Bench) -> anyhow::Result<()> {
    let pod = attach(bench, "configured", "nic-list,nic-capable", &["d1", "d2"])?;
    for call in bench.calls(&pod)? {
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
    let call = bench.call(&pod, "ADD", "nic-capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["deviceID"] == "d2",
        "{}",
        call.stdin
    );
    bench.del(&pod)?;
    let call = bench.call(&pod, "DEL", "nic-capable")?;
    ensure!(call.stdin["deviceID"] == "d2", "{}", call.stdin);
    Ok(())
}

fn besides(bench: &Bench) -> anyhow::Result<()> {
    let networks =
        r#"[{"name": "nic-capable", "deviceID": "mine"}, {"name": "capable", "deviceID": "mine"}]"#;
    let pod = attach(bench, "besides", networks, &["d1"])?;
    for (network, id) in [("nic-capable", "d1"), ("capable", "mine")] {
        let call = bench.call(&pod, "ADD", network)?;
        ensure!(
            call.stdin["runtimeConfig"]["deviceID"] == id,
            "{}",
            call.stdin
        );
    }
    Ok(())
}

fn too_few(bench: &Bench) -> anyhow::Result<()> {
    for (name, ids) in [("too-few", &["d1"][..]), ("none-at-all", &[])] {
        let of_pod = PodResources::new("default", name, &[("main", &[(NIC, ids)])]);
        let _kubelet = bench.kubelet(&[of_pod])?;
        let pod = bench.pod(name, "nic,nic-list")?;
        let words = [&format!("default/{name}"), "default/nic", NIC];
        bench.verb("ADD", &pod)?.tells(&words)?;
        bench.called(&pod, &[])?;
        bench.event(&pod, "FailedAddNetwork", NIC)?;
    }
    Ok(())
}

fn default_network(bench: &Bench) -> anyhow::Result<()> {
    let of_pod = PodResources::new("default", "own-nic", &[("main", &[(NIC, &["d1", "d2"])])]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    let annotations = vec![
        (DEFAULT_NETWORK, "nic-central".to_owned()),
        (NETWORKS, "nic".to_owned()),
    ];
    let form = PodForm {
        annotations,
        ..PodForm::default()
    };
    let pod = bench.pod_of("own-nic", &form)?;
    bench.add(&pod)?;
    has(bench, &pod, &["nic-central d1", "nic d2"])
}

fn fails(bench: &Bench) -> anyhow::Result<()> {
    let _kubelet = bench.kubelet_that_fails()?;
    let pod = bench.pod("untold", "nic")?;
    bench.verb("ADD", &pod)?.tells(&["default/untold"])?;
    bench.called(&pod, &[])?;
    // Who wants no device does not ask.
    let pod = bench.pod("unasked", "a")?;
    bench.add(&pod).map(drop)
}

fn noted(bench: &Bench) -> anyhow::Result<()> {
    let (pod, other) = (
        bench.pod("noted", "nic,nic")?,
        bench.pod("noted-other", "")?,
    );
    let _kubelet = bench.kubelet_with_notes(&[
        (&other, "main", NIC, json!({"0": ["no"]})),
        (&pod, "main", SLOW_NIC, json!({"0": ["no"]})),
        (&pod, "main", NIC, json!({"0": ["d1"], "1": ["d2"]})),
    ])?;
    bench.add(&pod)?;
    has(bench, &pod, &["primary -", "nic d1", "nic d2"])
}

/// What a driver published, and a claim that was given one of its devices; taken back with this.
struct Claim<'a>(&'a Bench, &'static str);

const API: &str = "/apis/resource.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

impl<'a> Claim<'a> {
    fn new(
        bench: &'a Bench,
        name: &'static str,
        attributes: &Value,
        is_allocated: bool,
    ) -> anyhow::Result<Self> {
        let made = Self(bench, name);
        let (node, driver) = (&bench.scene.node.name, "dra.e2e.example");
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "devices": [{"name": "nic-one", "attributes": attributes}],
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
        });
        bench.api("POST", &format!("{API}/resourceslices"), &slice)?;
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic"}}]}},
        });
        bench.api("POST", CLAIMS, &claim)?;
        if is_allocated {
            let results =
                json!([{"request": "nic", "driver": driver, "pool": node, "device": "nic-one"}]);
            let status = json!({"status": {"allocation": {"devices": {"results": results}}}});
            bench.api("PATCH", &format!("{CLAIMS}/{name}/status"), &status)?;
        }
        Ok(made)
    }

    /// A pod that has the claim.
    fn pod(&self, name: &str, networks: &str) -> anyhow::Result<Pod> {
        let Self(bench, claim) = self;
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {NETWORKS: networks}},
            "spec": {
                "nodeName": bench.scene.node.name, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "nic"}]}}],
                "resourceClaims": [{"name": "nic", "resourceClaimTemplateName": "nic"}],
            },
        });
        let path = "/api/v1/namespaces/default/pods";
        let made = bench.api("POST", path, &object)?.json()?;
        // What a controller does once it has made the claim.
        let status = json!({"status": {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": claim}]}});
        bench.api("PATCH", &format!("{path}/{name}/status"), &status)?;
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        bench.sandbox("default", name, uid)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Self(bench, name) = self;
        for path in [
            format!("{API}/resourceslices/{name}"),
            format!("{CLAIMS}/{name}"),
        ] {
            let _ = bench.api("DELETE", &path, &Value::Null);
        }
    }
}

fn attributes(id: &str) -> Value {
    json!({
        "k8s.cni.cncf.io/deviceID": {"string": id}, "k8s.cni.cncf.io/resourceName": {"string": CLAIMED_NIC},
        "e2e.example/speed": {"int": 25},
    })
}

fn claimed(bench: &Bench) -> anyhow::Result<()> {
    let claim = Claim::new(bench, "claim-given", &attributes("0000:5e:00.1"), true)?;
    let of_pod = PodResources::new("default", "claiming", &[("main", &[])]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = claim.pod("claiming", "a,nic-claimed")?;
    bench.add(&pod)?;
    has(
        bench,
        &pod,
        &["primary -", "a -", "nic-claimed 0000:5e:00.1"],
    )
}

fn skipped(bench: &Bench) -> anyhow::Result<()> {
    let nothing = json!({"e2e.example/speed": {"int": 25}});
    let claim = Claim::new(bench, "claim-of-others", &nothing, true)?;
    let of_pod = PodResources::new("default", "claiming-both", &[("main", &[(NIC, &["d1"])])]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    // The device plugin's is there all the same, and there is none that stands for the claim's.
    let pod = claim.pod("claiming-both", "nic")?;
    bench.add(&pod)?;
    has(bench, &pod, &["primary -", "nic d1"])?;
    let pod = claim.pod("claiming-others", "nic-claimed")?;
    let outcome = bench.verb("ADD", &pod)?;
    match outcome.code {
        // Whether too few devices are an error is another rule's matter.
        Some(0) => has(bench, &pod, &["primary -", "nic-claimed -"]),
        _ => outcome.tells(&[CLAIMED_NIC]),
    }
}

fn unallocated(bench: &Bench) -> anyhow::Result<()> {
    let claim = Claim::new(bench, "claim-in-vain", &attributes("0000:5e:00.1"), false)?;
    let of_pod = PodResources::new("default", "claiming-in-vain", &[("main", &[])]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = claim.pod("claiming-in-vain", "nic-claimed")?;
    let words = ["default/claiming-in-vain", "claim-in-vain"];
    bench.verb("ADD", &pod)?.tells(&words)?;
    bench.called(&pod, &[])
}

fn by_name(bench: &Bench) -> anyhow::Result<()> {
    let of_pod = PodResources::new("default", "claim-named", &[("main", &[])])
        .with_claim("claim-by-name", &["e2e.example/nic=0000:5e:00.2"]);
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = bench.pod("claim-named", "nic-of-claim")?;
    bench.add(&pod)?;
    has(bench, &pod, &["primary -", "nic-of-claim 0000:5e:00.2"])
}
