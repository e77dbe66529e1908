//! The links that `KubeVirt` builds in the network namespace of a machine's pod to connect the guest with an interface.

use anyhow::Context as _;
use serde_json::Value;

use crate::{cluster::Cluster, node::Node};

/// The network namespace of a pod on its node.
pub(super) struct Plumbing<'a> {
    pub(super) node: &'a Node,
    namespace: String,
}

/// Returns the network namespace of a running pod: the one that has the pod's address.
pub(super) fn of<'a>(cluster: &'a Cluster, pod: &Value) -> anyhow::Result<Plumbing<'a>> {
    let name = pod["spec"]["nodeName"].as_str();
    let member = cluster
        .members
        .iter()
        .find(|member| Some(member.node.name.as_str()) == name);
    let node = &member.context("the pod has no node")?.node;
    let address = pod["status"]["podIP"].as_str();
    let address = format!(" {}/", address.context("the pod has no address")?);
    for namespace in node.list("/run/netns")? {
        let addresses = node.run(&["ip", "-n", &namespace, "-o", "address"]);
        // A namespace may be deleted meanwhile.
        if addresses.is_ok_and(|text| text.contains(&address)) {
            return Ok(Plumbing { node, namespace });
        }
    }
    anyhow::bail!("{} has no network namespace with{address}", node.name)
}

impl Plumbing<'_> {
    pub(super) fn ip(&self, words: &str) -> anyhow::Result<String> {
        let words = words.split(' ');
        let command: Vec<_> = ["ip", "-n", &self.namespace]
            .into_iter()
            .chain(words)
            .collect();
        self.node.run(&command)
    }

    /// Lists the links: name, and name of the bridge whose port it is.
    pub(super) fn links(&self) -> anyhow::Result<Vec<(String, String)>> {
        let links: Value = serde_json::from_str(&self.ip("-json link")?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let links = links.as_array().into_iter().flatten();
        Ok(links
            .map(|link| (text(&link["ifname"]), text(&link["master"])))
            .collect())
    }

    /// Connects a tap device with an interface of the pod by a bridge, as the bridge binding does: the interface gets another name, and a
    /// link without a purpose gets its name and addresses, which the guest shall have alone.
    pub(super) fn connect(&self, interface: &str) -> anyhow::Result<()> {
        let hash = interface.trim_start_matches("pod");
        let (renamed, bridge, tap) = (
            format!("{hash}-nic"),
            format!("k6t-{hash}"),
            format!("tap{hash}"),
        );
        if self.links()?.iter().any(|(name, _)| *name == renamed) {
            return Ok(());
        }
        let address: Value =
            serde_json::from_str(&self.ip(&format!("-json address show dev {interface}"))?)?;
        let addresses = address[0]["addr_info"].as_array().into_iter().flatten();
        let addresses: Vec<_> = addresses.filter(|one| one["scope"] == "global").collect();
        self.ip(&format!("link set {interface} down"))?;
        self.ip(&format!("link set {interface} name {renamed}"))?;
        // KubeVirt's is of kind dummy, which not every kernel has.
        self.ip(&format!("link add {interface} type dummy"))
            .or_else(|_| self.ip(&format!("link add {interface} type bridge")))?;
        for one in addresses {
            let (local, length) = (one["local"].as_str().unwrap_or_default(), &one["prefixlen"]);
            self.ip(&format!("address flush dev {renamed}"))?;
            self.ip(&format!("address add {local}/{length} dev {interface}"))?;
        }
        self.ip(&format!("link add {bridge} type bridge"))?;
        self.ip(&format!("tuntap add {tap} mode tap"))?;
        for port in [&renamed, &tap] {
            self.ip(&format!("link set {port} master {bridge}"))?;
            self.ip(&format!("link set {port} up"))?;
        }
        self.ip(&format!("link set {bridge} up")).map(drop)
    }

    /// Removes the links that [`Plumbing::connect`] has made; the interface keeps its other name.
    pub(super) fn disconnect(&self, interface: &str) -> anyhow::Result<()> {
        let hash = interface.trim_start_matches("pod");
        let made = [
            format!("k6t-{hash}"),
            format!("tap{hash}"),
            interface.to_owned(),
        ];
        for (name, _) in self.links()? {
            if made.contains(&name) {
                self.ip(&format!("link delete {name}"))?;
            }
        }
        Ok(())
    }
}
