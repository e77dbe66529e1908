//! Cases of subject `device-info`: Device information files.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::rules::{
    definitions::NIC,
    harness::{Harness, Pod, PodResources},
};

cases! { "device-info":
    plain network_plugin ["device-info.file", "device-info.name", "device-info.removed"]
    plain device_plugin ["device-info.of-device-plugin", "device-info.removed"]
    plain types ["device-info.types"]
}

const DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo";

fn info_file(pod: &Pod, network: &str, ifname: &str) -> String {
    format!("{DIR}/cni/default-{network}-{}_{ifname}", pod.id)
}

/// Returns the path past the link from `/var/run` to `/run`.
fn resolved(file: &str) -> &str {
    file.strip_prefix("/var").unwrap_or(file)
}

fn exists(harness: &Harness, file: &str) -> bool {
    harness.node().run(&["test", "-e", file]).is_ok()
}

fn infos(harness: &Harness, pod: &Pod) -> anyhow::Result<Vec<Value>> {
    let status = harness.network_status(pod)?;
    Ok(status
        .iter()
        .map(|one| one["device-info"].clone())
        .collect())
}

fn pci(address: &str) -> Value {
    json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": address}})
}

fn network_plugin(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "device-info",
        r#"[{"name": "capable", "deviceID": "0000:00:01.0"}, {"name": "a"}]"#,
    )?;
    let info = pci("0000:00:01.0");
    harness.set_answer("capable", "ADD", &json!({"device_info": info}))?;
    harness.add(&pod)?;
    let file = info_file(&pod, "capable", "net1");
    let call = harness.call(&pod, "ADD", "capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["CNIDeviceInfoFile"] == file,
        "{}",
        call.stdin
    );
    let reported = infos(harness, &pod)?;
    ensure!(reported == [Value::Null, info, Value::Null], "{reported:?}");
    ensure!(
        exists(harness, &file),
        "the file was removed before the pod"
    );
    harness.del(&pod)?;
    ensure!(!exists(harness, &file), "the file is left");
    Ok(())
}

fn device_plugin(harness: &Harness) -> anyhow::Result<()> {
    let node = harness.node();
    let source = format!("{DIR}/dp/{}-d7-device.json", NIC.replace('/', "-"));
    node.write(resolved(&source), pci("0000:18:02.7").to_string())?;
    let resources = PodResources::new(
        "default",
        "device-copied",
        &[("main", &[(NIC, &["d7", "d8"])])],
    );
    let _kubelet = harness.fake_kubelet(&[resources])?;
    let pod = harness.pod("device-copied", "nic-capable,nic-capable")?;
    let gate = "/run/device-copied-gate";
    harness.set_answer("nic-capable", "ADD", &json!({"wait_for": gate}))?;
    let running = harness.spawn_verb("ADD", &pod)?;
    let file = info_file(&pod, "nic-capable", "net1");
    crate::sh::until(20, "the plugin runs", || {
        let calls = harness.calls(&pod)?;
        calls
            .iter()
            .find(|call| call.network() == "nic-capable")
            .map(drop)
            .context("not yet")
    })?;
    let mode =
        fs::metadata(node.path(resolved(&file))).map(|file| file.permissions().mode() & 0o777);
    node.write(gate, "")?;
    running.within(20)?.success()?;
    ensure!(mode? == 0o444, "the file has another mode");
    let reported = infos(harness, &pod)?;
    ensure!(
        reported == [Value::Null, pci("0000:18:02.7"), Value::Null],
        "{reported:?}"
    );
    harness.del(&pod)?;
    ensure!(!exists(harness, &file), "the file is left");
    ensure!(
        exists(harness, &source),
        "the device plugin's file was removed"
    );
    fs::remove_file(node.path(resolved(&source)))?;
    Ok(())
}

fn types(harness: &Harness) -> anyhow::Result<()> {
    for (number, info) in [
        json!({"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0",
            "pci-address": "0000:18:02.1", "pf-pci-address": "0000:18:00.0", "representor-device": "eth4"}}),
        json!({"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/run/vhost.sock"}}),
        json!({"type": "memif", "version": "1.1.0", "memif": {"role": "master", "path": "/run/memif.sock", "mode": "ethernet"}}),
        json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:18:02.1", "vhost-net": "/dev/vhost-net", "rdma-device": "mlx5_0",
            "pf-pci-address": "0000:18:00.0", "representor-device": "eth4"}}),
    ]
    .into_iter()
    .enumerate()
    {
        let networks = r#"[{"name": "capable", "deviceID": "0000:00:01.0"}]"#;
        let pod = harness.pod(&format!("device-typed-{number}"), networks)?;
        harness.set_answer("capable", "ADD", &json!({"device_info": info}))?;
        harness.add(&pod)?;
        let reported = infos(harness, &pod)?;
        ensure!(reported == [Value::Null, info], "{reported:?}");
        harness.del(&pod)?;
    }
    Ok(())
}
