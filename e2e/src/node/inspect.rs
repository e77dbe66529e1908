//! The interfaces of a pod, and everything that exists on a node because of pods.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, dhcp},
    sh,
};

/// The node's own link.
const NODE_LINK: &str = "eth0";

/// Addresses with prefix length, by interface; without `lo`.
pub(crate) type Addresses = BTreeMap<String, Vec<String>>;

/// Parses the output of `ip -o address`, iproute's or busybox's: `2: eth0@if7    inet 10.0.0.9/24 brd …`.
pub(crate) fn addresses(text: &str) -> Addresses {
    let mut found = Addresses::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some(name), Some(kind), Some(address)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let name = name.trim_end_matches(':').split('@').next().unwrap_or(name);
        let is_kernels_own = address.starts_with("fe80:");
        if name != "lo" && kind.starts_with("inet") && !is_kernels_own {
            found
                .entry(name.to_owned())
                .or_default()
                .push(address.to_owned());
        }
    }
    found
}

/// Lists everything that exists on the node because of pods: links, leases, state, results, journal, device information.
pub(crate) fn pod_artifacts(node: &Node) -> anyhow::Result<Vec<String>> {
    let mut left = links(node)?;
    let networks = "/var/lib/cni/networks";
    for network in node.list(networks)? {
        let directory = format!("{networks}/{network}");
        let leases = node.list(&directory)?.into_iter();
        left.extend(
            leases
                .filter(|name| name != "lock" && !name.starts_with("last_reserved_ip"))
                .map(|name| format!("lease {directory}/{name}")),
        );
    }
    for directory in [
        "/var/lib/cni/multus",
        "/var/lib/cni/results",
        "/run/k8s.cni.cncf.io/devinfo/cni",
    ] {
        files(node, directory, &mut left)?;
    }
    Ok(left)
}

/// Lists every file below a directory, also temporary ones that a crash left. The daemon never deletes its file of locks, and what tells its
/// records of addresses from those of another installation.
fn files(node: &Node, directory: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    for name in node.list(directory)? {
        let path = format!("{directory}/{name}");
        if node.path(&path).is_dir() {
            files(node, &path, found)?;
        } else if !["container.locks", "identity.json"].contains(&name.as_str()) {
            found.push(path);
        }
    }
    Ok(())
}

/// Waits until nothing of pods is left; deletions take a moment to reach a node.
pub(crate) fn nothing_left(node: &Node) -> anyhow::Result<()> {
    nothing_left_but(node, |_| false)
}

/// Waits until nothing is left but files about pods whose names begin so. The job that uninstalls Multus has a pod, too: when that one ends
/// after the daemon, only the runtime detaches it, and its state stays for a later installation.
pub(crate) fn nothing_left_but_of(node: &Node, pods: &str) -> anyhow::Result<()> {
    let containers = containers_of(node, pods)?;
    let is_file = |left: &str| left.starts_with('/');
    nothing_left_but(node, |left| {
        is_file(left) && containers.iter().any(|id| left.contains(id))
    })
}

/// Returns the containers of pods whose names begin so, of which a node has state.
pub(crate) fn containers_of(node: &Node, pods: &str) -> anyhow::Result<Vec<String>> {
    let mut state = Vec::new();
    files(node, "/var/lib/cni/multus/.multus-rs", &mut state)?;
    let mut containers = Vec::new();
    for path in state {
        // The daemon of another installation may delete it meanwhile.
        let bytes = std::fs::read(node.path(&path)).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let pod = record["pod"]["name"].as_str();
        let is_named = pod.is_some_and(|name| name.starts_with(pods));
        let container = record["containerID"].as_str().filter(|_| is_named);
        containers.extend(container.map(str::to_owned));
    }
    Ok(containers)
}

/// Waits until nothing is left but what may stay.
pub(crate) fn nothing_left_but(node: &Node, may_stay: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    sh::until(30, "nothing is left", || {
        let mut left = pod_artifacts(node)?;
        left.retain(|one| !may_stay(one));
        ensure!(left.is_empty(), "on {}: {}", node.name, left.join(", "));
        Ok(())
    })
}

/// Lists the veth links in the node's namespace that are not its own.
fn links(node: &Node) -> anyhow::Result<Vec<String>> {
    let text = node.run(&["ip", "-json", "link", "show", "type", "veth"])?;
    let links: Vec<Value> = serde_json::from_str(&text).context("ip printed no list")?;
    let names = links.iter().filter_map(|link| link["ifname"].as_str());
    Ok(names
        .filter(|name| ![NODE_LINK, dhcp::PORT].contains(name))
        .map(|name| format!("link {name}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_iproute_and_busybox_are_parsed() {
        let text = "1: lo    inet 127.0.0.1/8 scope host lo\n\
                    2: eth0@if7    inet 10.0.0.9/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever\n\
                    2: eth0    inet6 fe80::1/64 scope link\n3: net1    inet6 fd00::9/64 scope global\n";
        let expected = Addresses::from([
            ("eth0".to_owned(), vec!["10.0.0.9/24".to_owned()]),
            ("net1".to_owned(), vec!["fd00::9/64".to_owned()]),
        ]);
        assert_eq!(addresses(text), expected);
    }
}
