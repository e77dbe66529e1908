//! One node with an API server and real plugins, on which the test itself plays the container runtime.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    slice,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{
    control_plane::{Components, ControlPlane, objects},
    node::{
        Kernel, Node,
        inspect::{Addresses, addresses},
        network::NodeNetwork,
    },
    programs::{Module, Needs},
    sandbox::{Answer, Running, Sandbox},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "dhcp dnsmasq etcd ip iptables openssl perl ping sysctl",
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
        self.apply(slice::from_ref(pod))?;
        self.node.run(&["ip", "netns", "add", name])?;
        self.verb("ADD", name)
    }

    /// Runs DEL, deletes the network namespace, runs DEL again without one, and deletes the pod.
    pub(crate) fn remove(&self, pod: &str) -> anyhow::Result<()> {
        let sandbox = self.sandbox(pod)?;
        self.call("DEL", &sandbox)?.success()?;
        self.node
            .run(&["ip", "netns", "delete", &sandbox.netns_name])?;
        self.call("DEL", &sandbox.without_netns())?.success()?;
        self.kubectl(&["delete", "pod", pod, "--force"]).map(drop)
    }

    /// Runs a verb for the pod.
    pub(crate) fn verb(&self, verb: &str, pod: &str) -> anyhow::Result<Value> {
        self.call(verb, &self.sandbox(pod)?)?.success()
    }

    /// Calls the shim with the generated configuration.
    pub(crate) fn call(&self, verb: &str, sandbox: &Sandbox) -> anyhow::Result<Answer> {
        self.shim(&sandbox.env(verb))
    }

    /// Does the same with these CNI variables.
    pub(crate) fn shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
    ) -> anyhow::Result<Answer> {
        let config = fs::read(self.node.path(GENERATED)).context(GENERATED)?;
        Running::start(self.node.command(&self.shim), env, &config)?.answer()
    }

    /// Runs `kubectl get` with these arguments; returns its answer as JSON.
    pub(crate) fn get(&self, args: &[&str]) -> anyhow::Result<Value> {
        self.control.get(&self.node, args)
    }

    /// Runs kubectl as the administrator and returns its stdout.
    pub(crate) fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.control.kubectl(&self.node, args)
    }

    /// Creates or changes objects.
    pub(crate) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.control.apply(&self.node, objects)
    }

    /// Returns the addresses in the pod's network namespace by interface.
    pub(crate) fn addresses_in(&self, pod: &str) -> anyhow::Result<Addresses> {
        let inside = ["ip", "netns", "exec", pod, "ip", "-o", "address"];
        Ok(addresses(&self.node.run(&inside)?))
    }

    /// Returns the sandbox of a pod of the API server.
    pub(crate) fn sandbox(&self, pod: &str) -> anyhow::Result<Sandbox> {
        let uid = self.get(&["pod", pod])?["metadata"]["uid"].clone();
        let uid = uid.as_str().context("a pod has a uid")?.to_owned();
        Ok(Sandbox {
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            id: format!("{pod}-{uid}"),
            uid,
            netns_name: pod.to_owned(),
        })
    }
}
