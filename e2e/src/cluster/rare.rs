//! A network on a link that no node has at first, and how a pod finds the node that gets it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::pods::Pods;
use crate::{control_plane::objects, node::Node, report::say, sh};

/// The name of the network.
pub(crate) const RARE: &str = "rare";
/// The link that the network is on.
pub(crate) const LINK: &str = "rare0";

/// Labels of daemons follow the node within this time.
pub(crate) const MOST: Duration = Duration::from_secs(5);

/// Returns the definition of the network.
pub(crate) fn rare_network() -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": LINK,
        "ipam": {"type": "static", "addresses": [{"address": "10.77.0.2/24"}]}});
    objects::network(RARE, &config)
}

pub(crate) fn add_rare_link(node: &Node) -> anyhow::Result<()> {
    let other_end = format!("{LINK}-end");
    let add = ["ip", "link", "add", LINK, "type", "veth", "peer", "name"];
    node.run(&[&add[..], &[&other_end]].concat()).map(drop)
}

pub(crate) fn delete_rare_link(node: &Node) -> anyhow::Result<()> {
    node.run(&["ip", "link", "delete", LINK]).map(drop)
}

/// Returns the key of a Node's label for a definition in the namespace `default`.
pub(crate) fn label(network: &str) -> String {
    let key = api::node_labels::key(&format!("default/{network}"));
    key.expect("names of tests are short")
}

/// Returns the names of the Nodes whose labels say that they serve the network.
fn serving(cluster: &impl Pods) -> anyhow::Result<Vec<String>> {
    let nodes = cluster.nodes()?;
    let serving = nodes
        .iter()
        .filter(|node| node["metadata"]["labels"][label(RARE)] == "serves");
    let names = serving.filter_map(|node| node["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The pod waits for a node that has the link, runs on the one that gets it, and is deleted again, like the link and the network. Labels
/// are published, and follow the link in less than `most`.
pub(crate) fn follow(cluster: &impl Pods, node: &Node, most: Duration) -> anyhow::Result<()> {
    let pod = cluster.pod(RARE)?;
    ensure!(pod["spec"]["nodeName"].is_null(), "{pod}");
    ensure!(serving(cluster)?.is_empty(), "{:?}", serving(cluster)?);
    let until = |expected: &[String]| -> anyhow::Result<Duration> {
        let start = Instant::now();
        sh::until(60, "the label follows the link", || {
            let serving = serving(cluster)?;
            ensure!(serving == expected, "{serving:?} serve it");
            Ok(())
        })?;
        Ok(start.elapsed())
    };
    add_rare_link(node)?;
    let added = until(std::slice::from_ref(&node.name))?;
    cluster.ensure_interfaces(RARE, &["eth0", "net1"])?;
    let bound = cluster.pod(RARE)?;
    ensure!(bound["spec"]["nodeName"] == *node.name, "{bound}");
    cluster.delete(&[RARE.to_owned()])?;
    delete_rare_link(node)?;
    let removed = until(&[])?;
    let definition = format!("network-attachment-definition/{RARE}");
    cluster.kubectl(&["delete", &definition])?;
    let [added_ms, removed_ms] = [added, removed].map(|took| took.as_millis());
    let took = format!("the label came after {added_ms} ms and went after {removed_ms} ms");
    ensure!(added.max(removed) < most, "{took}");
    say(&format!("        {took}"));
    Ok(())
}
