//! Namespaces whose definitions a pod may use.

use anyhow::ensure;
use serde_json::json;

use super::{Case, plain};
use crate::rules::bench::{Bench, NETWORKS, PodForm};

pub(super) const CASES: &[Case] = &[
    plain(
        "isolation-refuses",
        &["mux-10.5-refused", "mux-10.5-default"],
        isolated,
    ),
    plain("isolation-global-namespaces", &["mux-10.5-global"], global),
    plain(
        "isolation-exempts-the-clusters-own",
        &["mux-10.5-exempt"],
        exempt,
    ),
    plain("isolation-off", &["mux-10.5-off"], off),
];

fn isolated(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("isolated", "other/far")?;
    let keys = json!({"namespaceIsolation": true});
    let words = [
        "namespace isolation enabled, annotation violates permission",
        "pod is in namespace default but refers to target namespace other",
    ];
    bench.verb_with("ADD", &pod, &keys)?.tells(&words)?;
    bench.called(&pod, &[])?;
    // `default` is the one that is open to all, and the own is open anyway.
    let form = PodForm {
        namespace: "other",
        annotations: vec![(NETWORKS, "far,default/a".to_owned())],
        ..PodForm::default()
    };
    let pod = bench.pod_of("isolated-not", &form)?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD primary", "ADD far", "ADD a"])
}

fn global(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"namespaceIsolation": true, "globalNamespaces": "other , shared"});
    let pod = bench.pod("global", "other/far,shared/common")?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD primary", "ADD far", "ADD common"])?;
    let form = PodForm {
        namespace: "other",
        annotations: vec![(NETWORKS, "default/a".to_owned())],
        ..PodForm::default()
    };
    let pod = bench.pod_of("global-not", &form)?;
    bench
        .verb_with("ADD", &pod, &keys)?
        .tells(&["annotation violates permission"])
}

fn exempt(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("exempt", "a")?;
    bench.add_with(&pod, &json!({"namespaceIsolation": true, "clusterNetwork": "central", "defaultNetworks": ["also-central"]}))?;
    bench.called(&pod, &["ADD central", "ADD also-central", "ADD a"])
}

fn off(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("open", "other/far,shared/common")?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary", "ADD far", "ADD common"])?;
    let status = bench.status(&pod)?;
    ensure!(status[1]["name"] == "other/far", "{status:?}");
    Ok(())
}
