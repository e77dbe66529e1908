//! Level `devices`: networks that want a device, on a real kubelet with a device plugin and a DRA driver, and networks of a pod that
//! runs there. The daemon runs on the node itself, without an image.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    drivers::{device_plugin, dra},
    inspect::nothing_left,
    layout::{Generation, Layout},
    objects,
    report::{Ended, Report},
    runtime::IMAGE,
    sh,
    tools::{Module, Needs},
    workplace::Workplace,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[Module::Plugins, Module::Containerd, Module::Kubernetes],
};

const DAEMON_CONFIG: &str = "/var/lib/multus/e2e-daemon-config.json";
const STATE: &str = "/var/lib/cni/multus";

pub(crate) fn run(work: &Workplace, report: &mut Report) -> Result<(), Ended> {
    let scene = report.check("a node with a kubelet is Ready", || {
        let cluster = Cluster::start(work, &[(Layout::Kubeadm, Generation::Two)])?;
        Ok(Scene { work, cluster })
    })?;
    report.check("the daemon becomes ready", || scene.start_daemon())?;
    report.check(
        "the kubelet takes the device plugin and the DRA driver",
        || scene.start_drivers(),
    )?;
    report.check(
        "networks get the devices of containers in their order",
        || scene.gives_devices(),
    )?;
    report.check(
        "a pod with fewer devices than networks does not start, and says why",
        || scene.refuses(),
    )?;
    report.check("networks get the devices of claims", || {
        scene.gives_claimed()
    })?;
    report.check(
        "a running pod gets a network with a device of its own",
        || scene.plugs(),
    )?;
    report.check("deleted pods leave nothing", || {
        scene
            .cluster
            .delete(&["ordered", "claimed"].map(str::to_owned))?;
        nothing_left(scene.cluster.server())
    })
}

struct Scene<'a> {
    work: &'a Workplace,
    cluster: Cluster,
}

impl Scene<'_> {
    fn start_daemon(&self) -> anyhow::Result<()> {
        let (node, cluster) = (self.cluster.server(), &self.cluster);
        let mut definitions = Vec::new();
        for (name, resource) in [("nic", device_plugin::RESOURCE), ("claimed", dra::RESOURCE)] {
            let config = json!({
                "cniVersion": "1.0.0", "type": "bridge", "bridge": format!("br-{name}"),
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}]]},
            });
            let mut definition = objects::network(name, &config);
            definition["metadata"]["annotations"] =
                json!({"k8s.v1.cni.cncf.io/resourceName": resource});
            definitions.push(definition);
        }
        objects::definitions(self.work, &cluster.control, node, &definitions)?;
        let places = &cluster.members[0].runtime.places;
        let config = json!({
            "cniConfigDir": places.conf_dir, "binDir": places.bin_dir, "logLevel": "debug", "dynamicNetworks": true,
        });
        node.write(DAEMON_CONFIG, config.to_string())?;
        let (program, admin) = (self.work.program("multus-daemon"), cluster.control.admin());
        let words = ["--root", "/", "--config", DAEMON_CONFIG];
        node.serve("daemon", &program, |command| {
            command
                .env("MULTUS_NODE_NAME", &node.name)
                .env("KUBECONFIG", &admin)
                .arg("run")
                .args(words)
        })?;
        sh::until(60, "the daemon is ready", || {
            let mut status = node.command(&program);
            sh::run(status.args(["status", "--ready"]).args(words))
        })
        .map(drop)
    }

    fn start_drivers(&self) -> anyhow::Result<()> {
        let (node, own) = (self.cluster.server(), std::env::current_exe()?);
        for name in [device_plugin::NAME, dra::NAME] {
            node.serve(name, &own, |command| command.arg(name))?;
        }
        self.cluster.apply(&dra::objects(&node.name))?;
        let expected = device_plugin::DEVICES.len().to_string();
        sh::until(60, "the node has devices", || {
            let object = self.cluster.get(&["node", &node.name])?;
            let count = &object["status"]["allocatable"][device_plugin::RESOURCE];
            ensure!(count.as_str() == Some(&expected), "allocatable are {count}");
            Ok(())
        })
    }

    /// A pod whose containers want so many devices each.
    fn pod(&self, name: &str, networks: &str, devices: &[u8]) -> Value {
        let mut pod = objects::pod(name, &self.cluster.server().name, Some(networks));
        let containers = devices.iter().enumerate().map(|(index, count)| {
            // The names are not in the order of the containers.
            let name = format!("c{}", 9 - index);
            let limits = json!({device_plugin::RESOURCE: count.to_string()});
            json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "resources": {"limits": limits}})
        });
        pod["spec"]["containers"] = containers.collect();
        pod
    }

    fn gives_devices(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.apply(&[self.pod("ordered", "nic,nic,nic", &[1, 2])])?;
        cluster.has("ordered", &["eth0", "net1", "net2", "net3"])?;
        let mut expected = Vec::new();
        for container in ["c9", "c8"] {
            let words = [
                "exec",
                "ordered",
                "-c",
                container,
                "--",
                "/bin/busybox",
                "env",
            ];
            let text = cluster.kubectl(&words)?;
            let start = format!("{}=", device_plugin::VARIABLE);
            let given = text.lines().find_map(|line| line.strip_prefix(&start));
            let given = given.with_context(|| format!("{container} sees no {start}: {text}"))?;
            let mut ids: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
            ids.sort();
            expected.append(&mut ids);
        }
        let told = self.told("ordered")?;
        let ids: Vec<_> = told.values().cloned().collect();
        ensure!(
            ids == expected,
            "containers have {expected:?}, networks {told:?}"
        );
        self.status_tells_of("ordered", &told)
    }

    /// What plugins were told of their device, by interface: in what is kept of their ADD.
    fn told(&self, pod: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let node = self.cluster.server();
        let folder = format!("{STATE}/.multus-rs");
        let mut told = BTreeMap::new();
        for name in node.list(&folder)? {
            let path = node.path(&format!("{folder}/{name}"));
            if !path.is_file() {
                continue;
            }
            let state: Value = serde_json::from_slice(&std::fs::read(path)?)?;
            for delegate in state["delegates"].as_array().into_iter().flatten() {
                let id = delegate["requested"]["device_id"].as_str();
                if let (true, Some(id)) = (state["pod"]["name"] == pod, id) {
                    let interface = delegate["ifname"].as_str().unwrap_or_default();
                    told.insert(interface.to_owned(), id.to_owned());
                }
            }
        }
        let results = format!("{STATE}/results");
        for (interface, id) in &told {
            let kept = node.list(&results)?.into_iter().find(|name| {
                name.ends_with(&format!("-{interface}"))
                    && std::fs::read_to_string(node.path(&format!("{results}/{name}")))
                        .is_ok_and(|text| text.contains(&format!("\"deviceID\":\"{id}\"")))
            });
            ensure!(kept.is_some(), "no plugin of {interface} was told of {id}");
        }
        Ok(told)
    }

    fn status_tells_of(&self, pod: &str, told: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let object = self.cluster.get(&["pod", pod])?;
        let text = object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"]
            .as_str()
            .context("no status")?;
        let status: Vec<Value> = serde_json::from_str(text)?;
        for one in &status {
            let interface = one["interface"].as_str().unwrap_or_default();
            let address = one["device-info"]["pci"]["pci-address"].as_str();
            let expected = told.get(interface).map(String::as_str);
            ensure!(
                address == expected,
                "{interface}: {expected:?}, the status tells {one}"
            );
        }
        Ok(())
    }

    fn refuses(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.apply(&[self.pod("short", "nic,nic", &[1])])?;
        sh::until(60, "an event says why", || {
            let events = cluster.get(&["events", "--field-selector=involvedObject.name=short"])?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let says = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["source"]["component"] == "multus"
                    && message.contains(device_plugin::RESOURCE)
                    && message.contains("the pod has 1")
            };
            ensure!(events.any(says), "no event does");
            Ok(())
        })?;
        cluster.delete(&["short".to_owned()])
    }

    fn gives_claimed(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "nics"},
            "spec": {"spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic", "count": 2}}]}}},
        });
        let mut pod = objects::pod("claimed", "", Some("claimed,claimed"));
        // The scheduler is who gives claims their devices.
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.remove("nodeName");
        }
        pod["spec"]["resourceClaims"] =
            json!([{"name": "nics", "resourceClaimTemplateName": "nics"}]);
        pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "nics"}]});
        cluster.apply(&[template, pod])?;
        cluster.has("claimed", &["eth0", "net1", "net2"])?;
        let told = self.told("claimed")?;
        let mut ids: Vec<_> = told.values().map(String::as_str).collect();
        ids.sort_unstable();
        let expected = dra::DEVICES.map(|(_, id)| id);
        ensure!(
            ids == expected,
            "the claim has {expected:?}, networks {told:?}"
        );
        Ok(())
    }

    /// The kubelet has given the pod three devices; its second network goes, and its device is free for another.
    fn plugs(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let before = self.told("ordered")?;
        let ask = |networks: &str| {
            let annotation = format!("k8s.v1.cni.cncf.io/networks={networks}");
            cluster.kubectl(&["annotate", "--overwrite", "pod", "ordered", &annotation])
        };
        ask("nic,nic")?;
        sh::until(60, "a network goes", || {
            cluster.has("ordered", &["eth0", "net1", "net2"])
        })?;
        ask("nic,nic,nic@late")?;
        sh::until(60, "a network comes", || {
            cluster.has("ordered", &["eth0", "late", "net1", "net2"])
        })?;
        let after = self.told("ordered")?;
        ensure!(
            after["late"] == before["net3"],
            "before: {before:?}, after: {after:?}"
        );
        self.status_tells_of("ordered", &after)
    }
}
