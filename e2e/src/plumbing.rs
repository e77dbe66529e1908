//! The links that `KubeVirt` builds in the network namespace of a machine's pod to connect the guest with an interface.

use anyhow::Context as _;
use serde_json::Value;

use crate::{node::Node, sh::words};

/// The network namespace of a pod on its node.
pub(crate) struct Plumbing<'a> {
    pub(crate) node: &'a Node,
    pub(crate) namespace: String,
}

/// Returns the network namespace of a running pod on one of these nodes: the one that has the pod's address.
pub(crate) fn of<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    pod: &Value,
) -> anyhow::Result<Plumbing<'a>> {
    let name = pod["spec"]["nodeName"].as_str();
    let mut nodes = nodes.into_iter();
    let node = nodes.find(|node| Some(node.name.as_str()) == name);
    let node = node.context("the pod has no node")?;
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
    pub(crate) fn ip(&self, words: &str) -> anyhow::Result<String> {
        let words = words.split(' ');
        let command: Vec<_> = ["ip", "-n", &self.namespace]
            .into_iter()
            .chain(words)
            .collect();
        self.node.run(&command)
    }

    /// Lists the links: name, and name of the bridge whose port it is.
    pub(crate) fn links(&self) -> anyhow::Result<Vec<(String, String)>> {
        let links: Value = serde_json::from_str(&self.ip("-json link")?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let links = links.as_array().into_iter().flatten();
        Ok(links
            .map(|link| (text(&link["ifname"]), text(&link["master"])))
            .collect())
    }

    /// Returns the addresses of an interface that reach further than its link, with their lengths.
    pub(crate) fn addresses(&self, interface: &str) -> anyhow::Result<Vec<String>> {
        let shown = self.ip(&format!("-json address show dev {interface}"))?;
        let shown: Value = serde_json::from_str(&shown)?;
        let addresses = shown[0]["addr_info"].as_array().into_iter().flatten();
        let global = addresses.filter(|one| one["scope"] == "global");
        let texts = global.map(|one| {
            let local = one["local"].as_str().unwrap_or_default();
            format!("{local}/{}", one["prefixlen"])
        });
        Ok(texts.collect())
    }

    /// Connects a tap device with an interface of the pod by a bridge, as the bridge binding does: the interface gets another name, and a
    /// link without a purpose gets its name and addresses, which the guest shall have alone.
    pub(crate) fn connect(&self, interface: &str) -> anyhow::Result<()> {
        let hash = interface.trim_start_matches("pod");
        let (renamed, bridge, tap) = (format!("{hash}-nic"), format!("k6t-{hash}"), tap(interface));
        if self.links()?.iter().any(|(name, _)| *name == renamed) {
            return Ok(());
        }
        let addresses = self.addresses(interface)?;
        self.ip(&format!("link set {interface} down"))?;
        self.ip(&format!("link set {interface} name {renamed}"))?;
        // KubeVirt's is of kind dummy, which not every kernel has.
        self.ip(&format!("link add {interface} type dummy"))
            .or_else(|_| self.ip(&format!("link add {interface} type bridge")))?;
        for address in addresses {
            self.ip(&format!("address flush dev {renamed}"))?;
            self.ip(&format!("address add {address} dev {interface}"))?;
        }
        self.ip(&format!("link add {bridge} type bridge"))?;
        self.ip(&format!("tuntap add {tap} mode tap"))?;
        for port in [&renamed, &tap] {
            self.ip(&format!("link set {port} master {bridge}"))?;
            self.ip(&format!("link set {port} up"))?;
        }
        // The pod answers for no address of the guest's.
        let silent = format!("net.ipv4.conf.{bridge}.arp_ignore=1");
        let namespace = &self.namespace;
        self.node
            .run(&words!("ip netns exec {namespace} sysctl -w {silent}"))?;
        self.ip(&format!("link set {bridge} up")).map(drop)
    }

    /// Removes the links that [`Plumbing::connect`] has made; the interface keeps its other name.
    pub(crate) fn disconnect(&self, interface: &str) -> anyhow::Result<()> {
        let hash = interface.trim_start_matches("pod");
        let made = [format!("k6t-{hash}"), tap(interface), interface.to_owned()];
        for (name, _) in self.links()? {
            if made.contains(&name) {
                self.ip(&format!("link delete {name}"))?;
            }
        }
        Ok(())
    }
}

/// Returns the name of the tap device that is connected with an interface of the pod.
pub(crate) fn tap(interface: &str) -> String {
    format!("tap{}", interface.trim_start_matches("pod"))
}
