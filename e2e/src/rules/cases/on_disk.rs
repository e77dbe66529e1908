//! Configurations in files of the node: which is taken, and what keeps one from being taken.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::{bench::Bench, definitions::recorder};

pub(super) const CASES: &[Case] = &[
    plain("on-disk-order", &["mux-10.3-disk-order"], order),
    plain("on-disk-broken-before", &["mux-10.3-disk-broken"], broken),
    plain("on-disk-other-files", &["mux-10.3-disk-files"], others),
    plain(
        "resolve-without-version",
        &["mux-10.3-no-version"],
        versionless,
    ),
    plain(
        "resolve-cluster-network-by-path-without-type",
        &["mux-10.2-type"],
        no_type,
    ),
    plain(
        "resolve-cluster-network-beside-a-broken-definition",
        &["mux-10.2-broken-definition"],
        broken_definition,
    ),
    plain(
        "resolve-cluster-network-absent-and-told",
        &["mux-10.2-told"],
        told,
    ),
];

const CONF: &str = "/etc/cni/multus/net.d";

/// Files in `confDir`; removed with this.
struct Files<'a>(&'a Bench);

impl<'a> Files<'a> {
    fn new(bench: &'a Bench, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let made = Self(bench);
        for (name, text) in files {
            bench.scene.node.write(&format!("{CONF}/{name}"), text)?;
        }
        Ok(made)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.scene.node.path(CONF));
    }
}

/// A configuration of that name that says where it came from.
fn single(name: &str, from: &str) -> String {
    recorder(name, &json!({"from": from})).to_string()
}

fn list(name: &str, from: &str) -> String {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "recorder", "from": from}]})
        .to_string()
}

/// Where the configuration came from that the pod's network `on-disk` got.
fn taken(bench: &Bench, name: &str) -> anyhow::Result<Value> {
    let pod = bench.pod(name, "on-disk")?;
    bench.add(&pod)?;
    Ok(bench.call(&pod, "ADD", "on-disk")?.stdin["from"].clone())
}

fn order(bench: &Bench) -> anyhow::Result<()> {
    let (conf, conflist) = (single("on-disk", "conf"), list("on-disk", "list"));
    let other = single("another", "another");
    for (name, files, expected) in [
        (
            "disk-0",
            [("10-a.conf", &conf), ("20-b.conflist", &conflist)],
            "conf",
        ),
        (
            "disk-1",
            [("10-a.conflist", &conflist), ("20-b.conf", &conf)],
            "list",
        ),
        (
            "disk-2",
            [("10-a.json", &conf), ("9-b.conflist", &conflist)],
            "conf",
        ),
        (
            "disk-3",
            [("10-a.conf", &other), ("20-b.conflist", &conflist)],
            "list",
        ),
    ] {
        let files = files.map(|(name, text)| (name, text.as_str()));
        let _files = Files::new(bench, &files)?;
        let from = taken(bench, name)?;
        ensure!(from == expected, "{name}: {from}");
    }
    Ok(())
}

fn broken(bench: &Bench) -> anyhow::Result<()> {
    let conf = single("on-disk", "conf");
    {
        let _files = Files::new(bench, &[("10-a.conf", "{"), ("20-b.conf", &conf)])?;
        let pod = bench.pod("disk-broken", "on-disk")?;
        bench.verb("ADD", &pod)?.tells(&["10-a.conf"])?;
        bench.called(&pod, &[])?;
    }
    // One that comes later is not even looked at.
    let _files = Files::new(bench, &[("20-b.conf", &conf), ("30-c.conf", "{")])?;
    taken(bench, "disk-broken-later").map(drop)
}

fn others(bench: &Bench) -> anyhow::Result<()> {
    let (conf, backup) = (single("on-disk", "conf"), single("on-disk", "backup"));
    let files = [
        ("10-a.conf.bak", backup.as_str()),
        ("11-README", "read me"),
        ("20-b.conf", conf.as_str()),
    ];
    let _files = Files::new(bench, &files)?;
    let from = taken(bench, "disk-others")?;
    ensure!(from == "conf", "{from}");
    Ok(())
}

fn versionless(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("versionless", "versionless")?;
    bench.add(&pod)?;
    let call = bench.call(&pod, "ADD", "versionless")?;
    let version = call.stdin["cniVersion"].as_str().unwrap_or_default();
    ensure!(version.is_empty(), "{}", call.stdin);
    Ok(())
}

fn no_type(bench: &Bench) -> anyhow::Result<()> {
    let text = list("by-path", "list");
    let _files = Files::new(bench, &[("path.conf", &text)])?;
    let pod = bench.pod("typeless", "")?;
    let keys = json!({"clusterNetwork": format!("{CONF}/path.conf")});
    let words = ["failed to get clusterNetwork", "path.conf"];
    bench.verb_with("ADD", &pod, &keys)?.tells(&words)?;
    bench.called(&pod, &[])
}

/// A file of that name does not stand in for it: nobody would notice.
fn broken_definition(bench: &Bench) -> anyhow::Result<()> {
    let text = single("central-broken", "file");
    let _files = Files::new(bench, &[("10-a.conf", &text)])?;
    let pod = bench.pod("beside-broken", "")?;
    let keys = json!({"clusterNetwork": "central-broken"});
    let words = ["failed to get clusterNetwork", "central-broken"];
    bench.verb_with("ADD", &pod, &keys)?.tells(&words)?;
    bench.called(&pod, &[])
}

fn told(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("central-absent", "")?;
    let keys = json!({"clusterNetwork": "nobody-knows"});
    bench.verb_with("ADD", &pod, &keys)?.error()?;
    bench.event(&pod, "NoNetworkFound", "nobody-knows")
}
