//! A cluster of different kinds of nodes on one machine.

pub(crate) mod kubelet;
pub(crate) mod pods;
pub(crate) mod rare;

use std::{path::Path, process::Command};

use anyhow::ensure;
use serde_json::Value;

use self::pods::Pods;
use crate::{
    control_plane::{Components, ControlPlane, api_client::ApiClient},
    node::{
        Node, Service,
        cgroup::Cgroup,
        inspect::Addresses,
        layout::{ContainerdVersion, Layout},
        network::NodeNetwork,
        runtime::{NodePlugins, Runtime},
    },
    sh::{self, words},
    test_env::TestEnv,
};

/// A node with its runtime.
pub(crate) struct Member {
    pub(crate) runtime: Runtime,
    pub(crate) node: Node,
    pub(crate) kubelet: Service,
    _cgroup: Cgroup,
}

/// The cluster; its control plane is on the first node.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) control: ControlPlane,
    /// For frequent requests: a kubectl process for each would take the machine's CPU from the programs under test.
    pub(crate) api: ApiClient,
    network: NodeNetwork,
}

/// Nodes that differ in layout, runtime and plugins.
pub(crate) const MIXED: &[(Layout, ContainerdVersion)] = &[
    (Layout::K3s, ContainerdVersion::V2),
    (Layout::Rke2, ContainerdVersion::V2),
    (Layout::Kubeadm, ContainerdVersion::V2),
    (Layout::K3sHash, ContainerdVersion::V1),
    (Layout::K3sMoved, ContainerdVersion::V2),
    (Layout::K3sReadOnly, ContainerdVersion::V1),
];

/// A node of each distro, with one of both major versions of containerd.
pub(crate) const RKE2_AND_K3S: &[(Layout, ContainerdVersion)] = &[
    (Layout::Rke2, ContainerdVersion::V2),
    (Layout::K3s, ContainerdVersion::V1),
];

impl Cluster {
    /// Starts a cluster of these nodes and waits until every node is Ready.
    pub(crate) fn start(
        env: &TestEnv,
        kinds: &[(Layout, ContainerdVersion)],
    ) -> anyhow::Result<Self> {
        Self::with(env, kinds, Components::All, NodePlugins::Reference)
    }

    /// Like [`Cluster::start`], with these components of the control plane, and these plugins on the nodes.
    pub(crate) fn with(
        env: &TestEnv,
        kinds: &[(Layout, ContainerdVersion)],
        components: Components,
        plugins: NodePlugins,
    ) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let mut nodes = (1..)
            .take(kinds.len())
            .map(|number| Node::start(env, &network, number, &[&env.bin]))
            .collect::<anyhow::Result<Vec<_>>>()?;
        route(&nodes)?;
        let control = ControlPlane::start(&nodes[0], components)?;
        let mut members = Vec::new();
        for (node, (layout, containerd_version)) in nodes.drain(..).zip(kinds) {
            let runtime = Runtime::start(env, &node, (*layout, *containerd_version), plugins)?;
            if layout.is_read_only() {
                node.make_read_only()?;
            }
            let server = members
                .first()
                .map_or(&node, |member: &Member| &member.node);
            let (cgroup, kubelet) = kubelet::join(&node, server, &control, &runtime)?;
            members.push(Member {
                runtime,
                node,
                kubelet,
                _cgroup: cgroup,
            });
        }
        let api = ApiClient::start(&members[0].node, &control.admin())?;
        let cluster = Self {
            members,
            control,
            api,
            network,
        };
        sh::until(90, "every node is Ready", || {
            cluster.kubectl(&words!(
                "wait --for=condition=Ready node --all --timeout=1s"
            ))?;
            let nodes = cluster.get(&["nodes"])?;
            let count = nodes["items"].as_array().map_or(0, Vec::len);
            ensure!(count == kinds.len(), "there are {count} nodes");
            Ok(())
        })?;
        Ok(cluster)
    }

    /// Starts a machine on the nodes' LAN that is no node of the cluster.
    pub(crate) fn machine(&self, env: &TestEnv, number: u8) -> anyhow::Result<Node> {
        Node::start(env, &self.network, number, &[&env.bin])
    }

    /// Returns the node with the control plane.
    pub(crate) fn server(&self) -> &Node {
        &self.members[0].node
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.control.kubectl(self.server(), args)
    }

    pub(crate) fn get(&self, args: &[&str]) -> anyhow::Result<Value> {
        self.control.get(self.server(), args)
    }

    pub(crate) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.control.apply(self.server(), objects)
    }

    /// Returns a Helm command on the node with the control plane.
    pub(crate) fn helm(&self) -> Command {
        let mut helm = self.server().command("helm");
        helm.env("KUBECONFIG", self.control.admin());
        helm
    }

    /// Installs a packed chart as a release of this name.
    pub(crate) fn install(&self, chart: &Path, name: &str, more: &[&str]) -> anyhow::Result<()> {
        let mut helm = self.helm();
        helm.args(["install", "--namespace", "kube-system", name])
            .arg(chart)
            .args(more);
        sh::run(&mut helm).map(drop)
    }

    /// Waits until a pod runs, and returns its interfaces.
    pub(crate) fn interfaces(&self, pod: &str) -> anyhow::Result<Addresses> {
        Pods::interfaces(self, pod)
    }

    /// Waits until a pod runs; fails unless it has exactly these interfaces, and the addresses of its status.
    pub(crate) fn ensure_interfaces(
        &self,
        pod: &str,
        interfaces: &[&str],
    ) -> anyhow::Result<Addresses> {
        Pods::ensure_interfaces(self, pod, interfaces)
    }

    /// Reads a pod of the default namespace.
    pub(crate) fn pod(&self, name: &str) -> anyhow::Result<Value> {
        Pods::pod(self, name)
    }

    /// Deletes pods and waits until they are deleted.
    pub(crate) fn delete(&self, pods: &[String]) -> anyhow::Result<()> {
        Pods::delete(self, pods)
    }
}

impl Pods for Cluster {
    fn api(&self) -> &ApiClient {
        &self.api
    }

    fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        Self::kubectl(self, args)
    }
}

/// Adds routes so that every node reaches the pods of every other node through that node's address.
fn route(nodes: &[Node]) -> anyhow::Result<()> {
    for node in nodes {
        for other in nodes.iter().filter(|other| other.number != node.number) {
            let pods = format!("10.244.{}.0/24", other.number);
            node.run(&["ip", "route", "add", &pods, "via", &other.address()])?;
        }
    }
    Ok(())
}
