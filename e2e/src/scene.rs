//! One node with an API server and real plugins, where the test itself is the container runtime.

mod calls;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    control::{Control, Extent},
    lan::Lan,
    node::{Kernel, Node},
    objects,
    tools::{Module, Needs},
    workplace::Workplace,
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
        ("sysctl", "procps"),
    ],
    modules: &[Module::Plugins, Module::Kubernetes],
};

pub(crate) const CONF_DIR: &str = "/etc/cni/net.d";
pub(crate) const BIN_DIR: &str = "/opt/cni/bin";
/// The primary's configuration.
pub(crate) const PRIMARY: &str = "/etc/cni/net.d/10-primary.conflist";
pub(crate) const DAEMON_CONFIG: &str = "/etc/cni/daemon-config.json";
pub(crate) const GENERATED: &str = "/etc/cni/net.d/00-multus.conf";

/// The node; a daemon is started by whoever tests.
pub(crate) struct Scene {
    pub(crate) control: Control,
    pub(crate) node: Node,
    /// The shim that is called, as the node reaches it.
    pub(crate) shim: PathBuf,
    _lan: Lan,
}

impl Scene {
    /// Starts the node with this configuration of its own network and these objects.
    pub(crate) fn new(
        work: &Workplace,
        kernel: Kernel,
        shim: PathBuf,
        primary: &str,
        definitions: &[Value],
    ) -> anyhow::Result<Self> {
        let lan = Lan::new()?;
        let node = Node::start(work, &lan, 1, &[&work.bin])?.on(kernel)?;
        let control = Control::start(&node, Extent::Server)?;
        for plugin in fs::read_dir(&work.plugins)? {
            let plugin = plugin?;
            let place = Path::new(BIN_DIR).join(plugin.file_name());
            node.write(&place.to_string_lossy(), b"")?;
            fs::copy(plugin.path(), node.path(&place.to_string_lossy()))?;
        }
        node.write(PRIMARY, primary)?;
        objects::definitions_without_release(&control, &node, definitions)?;
        Ok(Self {
            control,
            node,
            shim,
            _lan: lan,
        })
    }
}
