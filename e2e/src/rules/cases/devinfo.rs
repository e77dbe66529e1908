//! Device information files: what device plugins and network plugins tell about a network's device.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::{
    bench::{Bench, Pod, PodResources},
    definitions::NIC,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "status-annotation-device",
        &["mux-13.1-file", "mux-13.1-place", "mux-13.1-removed"],
        written,
    ),
    plain(
        "status-annotation-device-of-a-device-plugin",
        &["mux-13.1-brought", "mux-13.1-removed"],
        brought,
    ),
    plain("status-annotation-device-types", &["mux-13.1-types"], types),
];

const DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo";

fn place(pod: &Pod, network: &str, ifname: &str) -> String {
    format!("{DIR}/cni/default-{network}-{}_{ifname}", pod.id)
}

/// The folder, past the link that leads there from `/var`.
fn real(file: &str) -> &str {
    file.strip_prefix("/var").unwrap_or(file)
}

fn exists(bench: &Bench, file: &str) -> bool {
    bench.scene.node.run(&["test", "-e", file]).is_ok()
}

fn infos(bench: &Bench, pod: &Pod) -> anyhow::Result<Vec<Value>> {
    let status = bench.status(pod)?;
    Ok(status
        .iter()
        .map(|one| one["device-info"].clone())
        .collect())
}

fn pci(address: &str) -> Value {
    json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": address}})
}

/// By the network's plugin.
fn written(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "device-told",
        r#"[{"name": "capable", "deviceID": "0000:00:01.0"}, {"name": "a"}]"#,
    )?;
    let info = pci("0000:00:01.0");
    bench.answer("capable", "ADD", &json!({"device_info": info}))?;
    bench.add(&pod)?;
    let file = place(&pod, "capable", "net1");
    let call = bench.call(&pod, "ADD", "capable")?;
    ensure!(
        call.stdin["runtimeConfig"]["CNIDeviceInfoFile"] == file,
        "{}",
        call.stdin
    );
    let told = infos(bench, &pod)?;
    ensure!(told == [Value::Null, info, Value::Null], "{told:?}");
    ensure!(exists(bench, &file), "it went before its pod");
    bench.del(&pod)?;
    ensure!(!exists(bench, &file), "it is left");
    Ok(())
}

/// By the device's plugin.
fn brought(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let source = format!("{DIR}/dp/{}-d7-device.json", NIC.replace('/', "-"));
    node.write(real(&source), pci("0000:18:02.7").to_string())?;
    let of_pod = PodResources::new(
        "default",
        "device-brought",
        &[("main", &[(NIC, &["d7", "d8"])])],
    );
    let _kubelet = bench.kubelet(&[of_pod])?;
    let pod = bench.pod("device-brought", "nic-capable,nic-capable")?;
    let gate = "/run/device-brought-gate";
    bench.answer("nic-capable", "ADD", &json!({"wait_for": gate}))?;
    let running = bench.begin("ADD", &pod)?;
    let file = place(&pod, "nic-capable", "net1");
    crate::sh::until(20, "the plugin runs", || {
        let calls = bench.calls(&pod)?;
        calls
            .iter()
            .find(|call| call.network() == "nic-capable")
            .map(drop)
            .context("not yet")
    })?;
    let mode = fs::metadata(node.path(real(&file))).map(|file| file.permissions().mode() & 0o777);
    node.write(gate, "")?;
    running.within(20)?.well()?;
    ensure!(mode? == 0o444, "it has another mode");
    let told = infos(bench, &pod)?;
    ensure!(
        told == [Value::Null, pci("0000:18:02.7"), Value::Null],
        "{told:?}"
    );
    bench.del(&pod)?;
    ensure!(!exists(bench, &file), "it is left");
    ensure!(exists(bench, &source), "it is the device plugin's");
    fs::remove_file(node.path(real(&source)))?;
    Ok(())
}

fn types(bench: &Bench) -> anyhow::Result<()> {
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
        let pod = bench.pod(&format!("device-typed-{number}"), networks)?;
        bench.answer("capable", "ADD", &json!({"device_info": info}))?;
        bench.add(&pod)?;
        let told = infos(bench, &pod)?;
        ensure!(told == [Value::Null, info], "{told:?}");
        bench.del(&pod)?;
    }
    Ok(())
}
