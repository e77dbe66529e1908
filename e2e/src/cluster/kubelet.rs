//! kubelet and kube-proxy on a node.

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::{
    control_plane::ControlPlane,
    node::{Node, Service, cgroup::Cgroup, runtime::Runtime},
};

/// Starts kubelet and kube-proxy of a node whose `eth0` the others reach; returns the node's control group and the kubelet.
pub(crate) fn join(
    node: &Node,
    server: &Node,
    control: &ControlPlane,
    runtime: &Runtime,
) -> anyhow::Result<(Cgroup, Service)> {
    join_at(
        node,
        &server.address(),
        control,
        runtime,
        &node.address(),
        &[],
    )
}

/// Does the same for a node with this address, which reaches the API server at `server`; `more` are further arguments of the kubelet.
pub(crate) fn join_at(
    node: &Node,
    server: &str,
    control: &ControlPlane,
    runtime: &Runtime,
    node_ip: &str,
    more: &[String],
) -> anyhow::Result<(Cgroup, Service)> {
    let cgroup = Cgroup::new(&node.name)?;
    let address = format!("https://{server}:6443");
    let kubelet = kubeconfig(node);
    let proxy = node.dir.join("proxy.conf");
    let token = format!("node{}", node.number);
    control.pki.kubeconfig(&kubelet, &address, &token)?;
    control.pki.kubeconfig(&proxy, &address, "proxy")?;
    fs::write(
        configuration_file(node),
        configuration(control, runtime, &cgroup),
    )?;
    let kubelet = serve(node, node_ip, more)?;
    node.serve("proxy", "kube-proxy", |command| {
        command
            .arg("--kubeconfig")
            .arg(proxy)
            .arg(format!("--hostname-override={}", node.name))
            .arg(format!("--cluster-cidr={}", control.endpoints().pods))
            .args(["--proxy-mode=iptables", "--conntrack-max-per-core=0"])
            // With zero kube-proxy does not change the machine's settings.
            .args([
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ])
    })?;
    Ok((cgroup, kubelet))
}

/// Ends a kubelet that [`join`] has started, and starts it again.
pub(crate) fn restart(node: &Node, kubelet: &mut Service) -> anyhow::Result<()> {
    node.end(kubelet, "TERM")?;
    *kubelet = serve(node, &node.address(), &[])?;
    Ok(())
}

fn serve(node: &Node, node_ip: &str, more: &[String]) -> anyhow::Result<Service> {
    node.serve("kubelet", "kubelet", |command| {
        command
            .arg("--kubeconfig")
            .arg(kubeconfig(node))
            .arg("--config")
            .arg(configuration_file(node))
            .arg(format!("--hostname-override={}", node.name))
            .arg(format!("--node-ip={node_ip}"))
            .args(more)
    })
}

fn configuration_file(node: &Node) -> PathBuf {
    node.dir.join("kubelet.yaml")
}

/// Returns the kubelet's kubeconfig, which the DRA driver of the node uses, too.
pub(crate) fn kubeconfig(node: &Node) -> PathBuf {
    node.dir.join("kubelet.conf")
}

fn configuration(control: &ControlPlane, runtime: &Runtime, cgroup: &Cgroup) -> String {
    let features = control.components.features().iter();
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
        "containerRuntimeEndpoint": format!("unix://{}", runtime.paths.socket),
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
