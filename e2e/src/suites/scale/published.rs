//! Nodes get labels for the networks that they can serve: one request each, and then only for what changes. The real scheduler finds a
//! node for each pod by them. The nodes are of six kinds, which differ by their plugins.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    WITHIN,
    audit::{Audit, Requests},
    fleet::{Fleet, node_name},
};
use crate::{
    cluster::rare::label,
    control_plane::objects,
    daemon, pool,
    report::{Checked, Report, say},
    sh,
};

const KINDS: usize = 6;
const PODS: usize = 1000;
/// A label follows its node within this time.
const MOST: Duration = Duration::from_secs(5);

/// The networks: their plugins, and further keys of the first one.
fn networks() -> [(&'static [&'static str], Value); 10] {
    let lan = || json!({"master": "eth0"});
    [
        (&["bridge"], json!({"bridge": "br-a"})),
        (&["tap"], json!({})),
        (&["bridge", "portmap"], json!({"bridge": "br-d"})),
        (&["macvlan"], lan()),
        (&["ipvlan"], lan()),
        (&["vlan"], json!({"master": "eth0", "vlanId": 5})),
        (&["host-device"], json!({"device": "eth0"})),
        (&["bridge", "tuning"], json!({"bridge": "br-b"})),
        (&["bridge", "firewall"], json!({"bridge": "br-c"})),
        (&["tap", "bandwidth"], json!({})),
    ]
}

/// All plugins of the networks.
fn plugins() -> Vec<&'static str> {
    let mut all: Vec<_> = networks()
        .iter()
        .flat_map(|(plugins, _)| *plugins)
        .copied()
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns whether a node has a plugin. Each kind of node lacks a third of them.
fn has(node: usize, plugin: &str) -> bool {
    let at = plugins().iter().position(|one| *one == plugin);
    at.is_some_and(|at| !(at + node % KINDS).is_multiple_of(3))
}

/// Returns whether a node can serve a network.
fn serves(node: usize, network: usize) -> bool {
    networks()[network].0.iter().all(|plugin| has(node, plugin))
}

fn name(network: usize) -> String {
    format!("network-{network}")
}

pub(super) fn run(fleet: &Fleet<'_>, audit: &mut Audit, report: &mut Report) -> Checked {
    report.check(
        "the networks of ten kinds and the Nodes of six kinds are made",
        || make(fleet),
    )?;
    report.check("every Node gets its labels by one request", || {
        labels_come(fleet, audit)
    })?;
    report.check(
        &format!("{PODS} pods get a node that serves their network, and none waits"),
        || pods_are_bound(fleet),
    )?;
    report.check(
        "a plugin that goes changes the Node of its node, by one request",
        || plugin_goes(fleet, audit),
    )?;
    report.check("the daemons end", || fleet.stop())
}

fn make(fleet: &Fleet<'_>) -> anyhow::Result<()> {
    let mut rights = daemon::rights(fleet.env, &["publish=labels"])?;
    // The daemons here are in no pods, so the API server does not know their nodes.
    rights.retain(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        !kind.contains("Policy")
    });
    fleet.control.apply(&fleet.node, &rights)?;
    let kind = "network-attachment-definitions";
    fleet
        .control
        .kubectl(&fleet.node, &["delete", kind, "--all"])?;
    let networks = networks()
        .into_iter()
        .enumerate()
        .map(|(number, (plugins, keys))| {
            let mut all: Vec<_> = plugins
                .iter()
                .map(|plugin| json!({"type": plugin}))
                .collect();
            for (key, value) in keys.as_object().into_iter().flatten() {
                all[0][key] = value.clone();
            }
            objects::network(
                &name(number),
                &json!({"cniVersion": "1.0.0", "name": "n", "plugins": all}),
            )
        });
    fleet
        .control
        .apply(&fleet.node, &networks.collect::<Vec<_>>())?;
    pool::all(0..fleet.nodes, |number| {
        for plugin in plugins() {
            let path = fleet.plugin(number, plugin);
            if has(number, plugin) {
                fs::write(&path, "")?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
        }
        let name = node_name(number);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        fleet.api.request("POST", "/api/v1/nodes", &node)?;
        let path = format!("/api/v1/nodes/{name}");
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status =
            json!({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}});
        fleet
            .api
            .request("PATCH", &format!("{path}/status"), &status)?;
        // Without controllers nobody takes the taint of a new Node away.
        fleet
            .api
            .request("PATCH", &path, &json!({"spec": {"taints": null}}))
    })
    .map(drop)
}

fn labels_come(fleet: &Fleet<'_>, audit: &mut Audit) -> anyhow::Result<()> {
    fleet.stop()?;
    audit.read(&mut Requests::default())?;
    fleet.configure(json!({"publish": "labels", "ownPlugins": {"install": false}}))?;
    fleet.start()?;
    sh::until(WITHIN, "every Node has its labels", || {
        let nodes = nodes(fleet)?;
        for number in 0..fleet.nodes {
            let labels = nodes.get(&node_name(number)).context("a Node is gone")?;
            for network in 0..networks().len() {
                let found = labels.get(&label(&name(network)));
                let expected = serves(number, network).then_some("serves");
                ensure!(
                    found.and_then(Value::as_str) == expected,
                    "network {network} on node {number}: {found:?}"
                );
            }
        }
        Ok(())
    })?;
    let patches = patches(audit)?;
    ensure!(
        patches == fleet.nodes,
        "{patches} requests for {} Nodes",
        fleet.nodes
    );
    Ok(())
}

/// Returns the labels of each Node.
fn nodes(fleet: &Fleet<'_>) -> anyhow::Result<BTreeMap<String, serde_json::Map<String, Value>>> {
    let list = fleet
        .api
        .request("GET", "/api/v1/nodes?resourceVersion=0", &Value::Null)?;
    let list = list.json()?;
    let nodes = list["items"]
        .as_array()
        .context("there is no list of Nodes")?;
    let labels = nodes.iter().map(|node| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let labels = node["metadata"]["labels"].as_object().cloned();
        (name.to_owned(), labels.unwrap_or_default())
    });
    Ok(labels.collect())
}

/// Returns the number of changes of Nodes since the last look.
fn patches(audit: &mut Audit) -> anyhow::Result<usize> {
    let mut requests = Requests::default();
    audit.read(&mut requests)?;
    Ok(requests.node_changes)
}

fn pods_are_bound(fleet: &Fleet<'_>) -> anyhow::Result<()> {
    fleet.control.start_scheduler(&fleet.node)?;
    let path = "/api/v1/namespaces/default/pods";
    let network_of = |number: usize| number % networks().len();
    pool::all(0..PODS, |number| {
        let network = name(network_of(number));
        let mut pod = objects::unbound_pod(&format!("selecting-{number}"), Some(&network));
        pod["spec"]["nodeSelector"] = json!({label(&network): "serves"});
        pod["metadata"]["labels"] = json!({"of": "selecting"});
        fleet.api.request("POST", path, &pod)
    })?;
    let start = Instant::now();
    let numbers: BTreeMap<_, _> = (0..fleet.nodes)
        .map(|number| (node_name(number), number))
        .collect();
    let used = sh::until(WITHIN, "every pod has a node", || {
        let list = format!("{path}?labelSelector=of%3Dselecting&resourceVersion=0");
        let list = fleet.api.request("GET", &list, &Value::Null)?.json()?;
        let pods = list["items"]
            .as_array()
            .context("there is no list of pods")?;
        let bound = pods.iter().filter_map(|pod| {
            let number = pod["metadata"]["name"]
                .as_str()?
                .strip_prefix("selecting-")?;
            let node = numbers.get(pod["spec"]["nodeName"].as_str()?)?;
            Some((number.parse::<usize>().ok()?, *node))
        });
        let bound: BTreeMap<_, _> = bound.collect();
        for (pod, node) in &bound {
            let network = network_of(*pod);
            ensure!(
                serves(*node, network),
                "pod {pod} of network {network} is on node {node}"
            );
        }
        ensure!(
            bound.len() == PODS,
            "{} of {PODS} pods have a node",
            bound.len()
        );
        let mut used: Vec<_> = bound.into_values().collect();
        used.sort_unstable();
        used.dedup();
        Ok(used.len())
    })?;
    say(&format!(
        "        {PODS} pods on {used} nodes after {} ms",
        start.elapsed().as_millis()
    ));
    Ok(())
}

fn plugin_goes(fleet: &Fleet<'_>, audit: &mut Audit) -> anyhow::Result<()> {
    audit.read(&mut Requests::default())?;
    let number = (0..fleet.nodes).find(|node| serves(*node, 0));
    let number = number.context("no node serves the first network")?;
    fs::remove_file(fleet.plugin(number, networks()[0].0[0]))?;
    let start = Instant::now();
    let label = label(&name(0));
    sh::until(60, "the label is gone", || {
        let nodes = nodes(fleet)?;
        let labels = nodes.get(&node_name(number)).context("the Node is gone")?;
        ensure!(!labels.contains_key(&label), "{labels:?}");
        Ok(())
    })?;
    let took = start.elapsed();
    say(&format!("        it is gone after {} ms", took.as_millis()));
    ensure!(took < MOST, "the label went after {took:?}");
    let patches = patches(audit)?;
    ensure!(patches == 1, "{patches} requests for one Node");
    Ok(())
}
