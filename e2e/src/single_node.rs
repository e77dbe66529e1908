//! One node with an API server and real plugins, on which the test itself plays the container runtime.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    slice,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    control_plane::{Components, ControlPlane, objects},
    node::{Kernel, Node, network::NodeNetwork},
    programs::{Module, Needs},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: &[
        ("dhcp", "containernetworking-plugins"),
        ("dnsmasq", "dnsmasq-base"),
        ("etcd", "etcd-server"),
        ("ip", "iproute2"),
        ("iptables", "iptables"),
        ("openssl", "openssl"),
        ("perl", "perl-base"),
        ("ping", "iputils-ping"),
        ("sysctl", "procps"),
    ],
    modules: &[Module::Plugins, Module::Kubernetes],
};

/// The CNI error code "try again later".
pub(crate) const TRY_AGAIN_LATER: u64 = 11;
pub(crate) const CONF_DIR: &str = "/etc/cni/net.d";
pub(crate) const BIN_DIR: &str = "/opt/cni/bin";
/// The configuration of the default network.
pub(crate) const PRIMARY: &str = "/etc/cni/net.d/10-primary.conflist";
pub(crate) const DAEMON_CONFIG: &str = "/etc/cni/daemon-config.json";
pub(crate) const GENERATED: &str = "/etc/cni/net.d/00-multus.conf";

/// The node; each suite starts a daemon its own way.
pub(crate) struct SingleNode {
    pub(crate) control: ControlPlane,
    pub(crate) node: Node,
    /// The path of the shim on the node.
    pub(crate) shim: PathBuf,
    _network: NodeNetwork,
}

impl SingleNode {
    /// Starts the node with this configuration of the default network and these network definitions.
    pub(crate) fn new(
        env: &TestEnv,
        kernel: Kernel,
        shim: PathBuf,
        default_network: &str,
        definitions: &[Value],
    ) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?.on(kernel)?;
        let control = ControlPlane::start(&node, Components::ApiServer)?;
        for plugin in fs::read_dir(&env.plugins)? {
            let plugin = plugin?;
            let path = Path::new(BIN_DIR).join(plugin.file_name());
            node.write(&path.to_string_lossy(), b"")?;
            fs::copy(plugin.path(), node.path(&path.to_string_lossy()))?;
        }
        node.write(PRIMARY, default_network)?;
        objects::definitions_without_release(&control, &node, definitions)?;
        Ok(Self {
            control,
            node,
            shim,
            _network: network,
        })
    }
}

/// The calls of a container runtime.
impl SingleNode {
    /// Creates the pod and its network namespace, and runs ADD.
    pub(crate) fn add(&self, pod: &str, networks: Option<&str>) -> anyhow::Result<Value> {
        self.add_pod(&objects::pod(pod, &self.node.name, networks))
    }

    /// The same for an object, which names this node.
    pub(crate) fn add_pod(&self, pod: &Value) -> anyhow::Result<Value> {
        let name = objects::name(pod)?;
        self.control.apply(&self.node, slice::from_ref(pod))?;
        self.node.run(&["ip", "netns", "add", name])?;
        self.verb("ADD", name)
    }

    /// Runs both DELs of a runtime and deletes the pod.
    pub(crate) fn remove(&self, pod: &str) -> anyhow::Result<()> {
        let id = self.container(pod)?;
        self.del(&id, pod)?;
        self.control
            .kubectl(&self.node, &["delete", "pod", pod, "--force"])
            .map(drop)
    }

    /// Runs DEL, deletes the network namespace, and runs DEL again without one.
    fn del(&self, id: &str, pod: &str) -> anyhow::Result<()> {
        let config = self.config()?;
        let netns = format!("/run/netns/{pod}");
        let args = cni_args(pod, id);
        let call = |netns: &str| {
            let mut env = vec![
                ("CNI_COMMAND", "DEL"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_PATH", BIN_DIR),
            ];
            env.extend([
                ("CNI_CONTAINERID", id),
                ("CNI_NETNS", netns),
                ("CNI_ARGS", &args),
            ]);
            self.shim(&env, &config)
        };
        call(&netns)?;
        self.node.run(&["ip", "netns", "delete", pod])?;
        call("").map(drop)
    }

    /// Runs a verb with the pod's network namespace.
    pub(crate) fn verb(&self, verb: &str, pod: &str) -> anyhow::Result<Value> {
        let config = self.config()?;
        let id = self.container(pod)?;
        let (netns, args) = (format!("/run/netns/{pod}"), cni_args(pod, &id));
        let mut env = vec![
            ("CNI_COMMAND", verb),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", BIN_DIR),
        ];
        env.extend([
            ("CNI_CONTAINERID", id.as_str()),
            ("CNI_NETNS", &netns),
            ("CNI_ARGS", &args),
        ]);
        self.shim(&env, &config)
    }

    /// Calls the shim; an error has the document that the shim printed.
    pub(crate) fn shim(&self, env: &[(&str, &str)], config: &Value) -> anyhow::Result<Value> {
        let output = self.call(env, config.to_string().as_bytes())?;
        let document = match output.stdout.as_slice() {
            b"" => Value::Null,
            text => serde_json::from_slice(text)
                .with_context(|| format!("no JSON on stdout: {}", String::from_utf8_lossy(text)))?,
        };
        ensure!(output.status.success(), "{document}");
        Ok(document)
    }

    /// Calls the shim and returns its complete output.
    pub(crate) fn call(&self, env: &[(&str, &str)], stdin: &[u8]) -> anyhow::Result<Output> {
        let mut command = self.node.command(&self.shim);
        sh::output(command.envs(env.iter().copied()), stdin)
    }

    /// Reads the configuration that a runtime hands to the shim.
    pub(crate) fn config(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&fs::read(
            self.node.path(GENERATED),
        )?)?)
    }

    /// Returns the container ID of the pod, which ends with the pod's uid.
    pub(crate) fn container(&self, pod: &str) -> anyhow::Result<String> {
        let uid = self.control.get(&self.node, &["pod", pod])?["metadata"]["uid"].clone();
        Ok(format!(
            "{pod}-{}",
            uid.as_str().context("a pod has a uid")?
        ))
    }
}

/// Returns the `CNI_ARGS` that a runtime passes for a pod.
pub(crate) fn cni_args(pod: &str, id: &str) -> String {
    let uid = id.strip_prefix(&format!("{pod}-")).unwrap_or(id);
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
    )
}
