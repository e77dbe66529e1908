//! Cases of subject `cluster-network`: The default network and networks for every pod.

use serde_json::json;

use super::cases;
use crate::rules::{
    definitions::recorder,
    harness::{Harness, MULTUS_CONF_DIR},
};

cases! { "cluster-network":
    plain by_name ["cluster-network.by-name"]
    plain by_name_on_disk ["cluster-network.by-file-name", "config.conf-dir"]
    plain by_path ["cluster-network.by-path"]
    plain by_path_without_type ["cluster-network.by-path-type"]
    plain directory ["cluster-network.directory"]
    plain directory_broken_file ["cluster-network.directory-broken-file"]
    plain not_found ["cluster-network.not-found"]
    plain not_found_event ["cluster-network.event"]
    plain cause ["cluster-network.cause"]
    plain broken_definition ["cluster-network.broken-definition"]
    plain default_networks_not_found ["cluster-network.default-networks-not-found"]
}

fn by_name(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach_with("by-name", "", &json!({"clusterNetwork": "central"}))?;
    harness.expect_calls(&pod, &["ADD central"])
}

/// Returns the text of a configuration with a single plugin.
fn single(name: &str) -> String {
    recorder(name, &json!({})).to_string()
}

fn list(name: &str) -> String {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "recorder"}]}).to_string()
}

fn by_name_on_disk(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[("50-any.conf", single("from-disk"))])?;
    let pod = harness.attach_with("on-disk", "", &json!({"clusterNetwork": "from-disk"}))?;
    harness.expect_calls(&pod, &["ADD from-disk"])
}

fn by_path(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[
        ("path.conf", single("by-path")),
        ("path.conflist", list("by-list")),
    ])?;
    for (name, file) in [("by-path", "path.conf"), ("by-list", "path.conflist")] {
        let pod = harness.pod(name, "")?;
        let keys = json!({"clusterNetwork": format!("{MULTUS_CONF_DIR}/{file}")});
        harness.add_with(&pod, &keys)?;
        harness.expect_calls(&pod, &[&format!("ADD {name}")])?;
    }
    Ok(())
}

fn by_path_without_type(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[("path.conf", list("by-path"))])?;
    let pod = harness.pod("typeless", "")?;
    let keys = json!({"clusterNetwork": format!("{MULTUS_CONF_DIR}/path.conf")});
    let words = ["failed to get clusterNetwork", "path.conf"];
    harness.ensure_refused_with(&pod, &keys, &words)
}

fn directory(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[
        ("20-second.conf", single("second")),
        ("10-first.conf", single("first")),
    ])?;
    let keys = json!({"clusterNetwork": MULTUS_CONF_DIR});
    let pod = harness.attach_with("by-directory", "", &keys)?;
    harness.expect_calls(&pod, &["ADD first"])
}

fn directory_broken_file(harness: &Harness) -> anyhow::Result<()> {
    let no_plugin = json!({"cniVersion": "1.0.0", "name": "broken"});
    let _files = harness.conf_files(&[
        ("05-broken.conf", no_plugin.to_string()),
        ("10-first.conf", single("first")),
    ])?;
    let pod = harness.pod("by-broken-directory", "")?;
    let keys = json!({"clusterNetwork": MULTUS_CONF_DIR});
    harness.ensure_refused_with(
        &pod,
        &keys,
        &["failed to get clusterNetwork", "05-broken.conf"],
    )
}

fn not_found(harness: &Harness) -> anyhow::Result<()> {
    for network in ["unknown-network", "/etc/cni/net.d/nothing.conflist"] {
        let pod = harness.pod(&format!("absent-{}", network.len()), "")?;
        let keys = json!({"clusterNetwork": network});
        harness.ensure_refused_with(&pod, &keys, &["failed to get clusterNetwork", network])?;
    }
    Ok(())
}

fn not_found_event(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("central-absent", "")?;
    let keys = json!({"clusterNetwork": "unknown-network"});
    harness.verb_with("ADD", &pod, &keys)?.error()?;
    harness.wait_for_event(&pod, "NoNetworkFound", "unknown-network")
}

fn cause(harness: &Harness) -> anyhow::Result<()> {
    let broken = json!({"cniVersion": "1.0.0", "name": "broken", "plugins": "none"});
    let _files = harness.conf_files(&[("broken.conflist", broken.to_string())])?;
    let pod = harness.pod("cause", "")?;
    let keys = json!({"clusterNetwork": format!("{MULTUS_CONF_DIR}/broken.conflist")});
    harness
        .verb_with("ADD", &pod, &keys)?
        .error_contains(&["failed to get clusterNetwork", "plugins"])
}

/// A file of the same name must not take the definition's place, since the user would not notice.
fn broken_definition(harness: &Harness) -> anyhow::Result<()> {
    let _files = harness.conf_files(&[("10-a.conf", single("central-broken"))])?;
    let pod = harness.pod("broken-definition", "")?;
    let keys = json!({"clusterNetwork": "central-broken"});
    let words = ["failed to get clusterNetwork", "central-broken"];
    harness.ensure_refused_with(&pod, &keys, &words)
}

fn default_networks_not_found(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("default-absent", "")?;
    let keys = json!({"defaultNetworks": ["unknown-network"]});
    harness.ensure_refused_with(&pod, &keys, &["unknown-network"])
}
