//! kubelet and kube-proxy on a node.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{
    control::{Control, PODS},
    node::Node,
    runtime::Runtime,
    sh,
};

/// Where control groups are mounted; version 1 has a folder per controller, version 2 none.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The node's share of the machine's control groups; two kubelets under one root would end each other's pods.
pub(crate) struct Cgroup {
    name: String,
}

impl Cgroup {
    fn new(node: &str) -> anyhow::Result<Self> {
        let cgroup = Self {
            name: format!("multus-e2e-{node}"),
        };
        for root in roots()? {
            let own = root.join(&cgroup.name);
            fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
            // An empty set of processors admits no process in version 1.
            for set in ["cpuset.cpus", "cpuset.mems"] {
                if root.join(set).exists() {
                    fs::write(own.join(set), fs::read(root.join(set))?)?;
                }
            }
        }
        Ok(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let folders =
            || Ok::<_, anyhow::Error>(roots()?.into_iter().map(|root| root.join(&self.name)));
        // The node's processes are being ended; a group can go when its last has gone.
        let _ = sh::until(20, "control groups go", || {
            for folder in folders()? {
                remove(&folder)?;
            }
            Ok(())
        });
    }
}

/// Removes a group and those in it.
fn remove(group: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(group) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(fs::remove_dir(group)?)
}

fn roots() -> anyhow::Result<Vec<PathBuf>> {
    let base = Path::new(CGROUPS);
    if base.join("cgroup.controllers").exists() {
        return Ok(vec![base.to_owned()]);
    }
    let mut roots = Vec::new();
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        // Links are second names of a folder.
        if entry.file_type()?.is_dir() && entry.file_name() != "unified" {
            roots.push(entry.path());
        }
    }
    Ok(roots)
}

/// Joins the node to the cluster and waits until it is Ready.
pub(crate) fn join(
    node: &Node,
    server: &Node,
    control: &Control,
    runtime: &Runtime,
) -> anyhow::Result<Cgroup> {
    let cgroup = Cgroup::new(&node.name)?;
    let address = format!("https://{}:6443", server.address());
    let kubelet = kubeconfig(node);
    let [proxy, config] = ["proxy.conf", "kubelet.yaml"].map(|name| node.dir.join(name));
    let token = format!("node{}", node.number);
    control.pki.kubeconfig(&kubelet, &address, &token)?;
    control.pki.kubeconfig(&proxy, &address, "proxy")?;
    fs::write(&config, configuration(control, runtime, &cgroup))?;
    node.serve("kubelet", "kubelet", |command| {
        command
            .arg("--kubeconfig")
            .arg(kubelet)
            .arg("--config")
            .arg(config)
            .arg(format!("--hostname-override={}", node.name))
            .arg(format!("--node-ip={}", node.address()))
    })?;
    node.serve("proxy", "kube-proxy", |command| {
        command
            .arg("--kubeconfig")
            .arg(proxy)
            .arg(format!("--hostname-override={}", node.name))
            .arg(format!("--cluster-cidr={PODS}"))
            .args(["--proxy-mode=iptables", "--conntrack-max-per-core=0"])
            // Zero leaves the machine's settings alone.
            .args([
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ])
    })?;
    Ok(cgroup)
}

/// The kubelet's own kubeconfig: with its rights act the drivers of its node, too.
pub(crate) fn kubeconfig(node: &Node) -> PathBuf {
    node.dir.join("kubelet.conf")
}

fn configuration(control: &Control, runtime: &Runtime, cgroup: &Cgroup) -> String {
    let features = control.extent.features().iter();
    let features: BTreeMap<_, _> = features.map(|name| (*name, true)).collect();
    serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": control.pki.file("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{}", runtime.places.socket),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", cgroup.name),
        "failCgroupV1": false,
        "failSwapOn": false,
        "featureGates": features,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "resolvConf": "/etc/resolv.conf",
    })
    .to_string()
}
