//! Keys of the configuration, sent by the shim, and those of the daemon's file over them.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, overlaid, plain};
use crate::{
    rules::{
        bench::{Bench, PodForm},
        definitions::recorder,
    },
    single_node::BIN_DIR,
};

pub(super) const CASES: &[Case] = &[
    plain("config-delegates", &["mux-6-delegates"], delegates),
    plain(
        "config-delegates-beside-cluster-network",
        &["mux-6-delegates-ignored"],
        delegates_ignored,
    ),
    plain(
        "config-default-networks",
        &[
            "mux-6-default-networks",
            "mux-6-multus-namespace",
            "mux-10.1-order",
        ],
        default_networks,
    ),
    plain(
        "config-system-namespaces",
        &["mux-6-system-namespaces"],
        system_namespaces,
    ),
    plain("config-nothing-to-delegate-to", &["mux-6-nothing"], nothing),
    plain(
        "config-delegate-without-type",
        &["mux-6-delegate-type"],
        no_type,
    ),
    plain("config-cni-dir", &["mux-6-cni-dir"], cni_dir),
    plain(
        "config-bin-dir-before-path",
        &["mux-6-bin-dir", "mux-11.2-path"],
        bin_dir,
    ),
    plain("config-keys-of-any-case", &["mux-6-case"], any_case),
    plain(
        "config-prev-result-unreadable",
        &["mux-6-prev-result"],
        prev_result,
    ),
    plain(
        "config-readiness-file-in-auto-mode",
        &["mux-4.4-readiness"],
        readiness,
    ),
    overlaid(
        "overlay-wins-over-the-request",
        &["mux-4.4-overlay"],
        overlay,
    ),
    overlaid("overlay-unknown-keys", &["mux-4.4-unknown"], unknown),
    overlaid(
        "overlay-default-networks",
        &[
            "mux-4.4-overlay",
            "mux-6-default-networks",
            "mux-6-multus-namespace",
        ],
        overlay_networks,
    ),
    overlaid(
        "overlay-system-namespaces",
        &["mux-6-system-namespaces"],
        overlay_system,
    ),
];

fn delegates(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("delegated", "a")?;
    let keys = json!({"clusterNetwork": null, "delegates": [recorder("first", &json!({})), recorder("second", &json!({}))]});
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD first", "ADD second", "ADD a"])?;
    let names: Vec<_> = bench
        .calls(&pod)?
        .iter()
        .map(|call| call.variable("CNI_IFNAME").to_owned())
        .collect();
    ensure!(names == ["eth0", "net1", "net2"], "{names:?}");
    bench.verb_with("DEL", &pod, &keys)?.well()?;
    bench.called(
        &pod,
        &[
            "ADD first",
            "ADD second",
            "ADD a",
            "DEL a",
            "DEL second",
            "DEL first",
        ],
    )
}

fn delegates_ignored(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("undelegated", "")?;
    bench.add_with(&pod, &json!({"delegates": [recorder("first", &json!({}))]}))?;
    bench.called(&pod, &["ADD primary"])
}

fn default_networks(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("defaulted", "a")?;
    bench.add_with(
        &pod,
        &json!({"defaultNetworks": ["central", "also-central"]}),
    )?;
    bench.called(
        &pod,
        &["ADD primary", "ADD central", "ADD also-central", "ADD a"],
    )?;
    let pod = bench.pod("defaulted-elsewhere", "a")?;
    bench.add_with(
        &pod,
        &json!({"defaultNetworks": ["common"], "multusNamespace": "shared"}),
    )?;
    bench.called(&pod, &["ADD primary", "ADD common", "ADD a"])
}

fn system_namespaces(bench: &Bench) -> anyhow::Result<()> {
    let quiet = |name| {
        bench.pod_of(
            name,
            &PodForm {
                namespace: "quiet",
                ..PodForm::default()
            },
        )
    };
    let keys = json!({"defaultNetworks": ["central"], "systemNamespaces": ["quiet", "other"]});
    let pod = quiet("of-the-system")?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD primary"])?;
    let pod = quiet("of-no-system")?;
    bench.add_with(&pod, &json!({"defaultNetworks": ["central"]}))?;
    bench.called(&pod, &["ADD primary", "ADD central"])?;
    let pod = bench.pod_of(
        "in-kube-system",
        &PodForm {
            namespace: "kube-system",
            ..PodForm::default()
        },
    )?;
    bench.add_with(&pod, &json!({"defaultNetworks": ["central"]}))?;
    bench.called(&pod, &["ADD primary"])
}

fn nothing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("nothing", "")?;
    let outcome = bench.verb_with("ADD", &pod, &json!({"clusterNetwork": null}))?;
    outcome.tells(&["LoadNetConf: at least one delegate/clusterNetwork must be specified"])
}

fn no_type(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("typeless", "")?;
    let broken = [
        json!({"name": "x"}),
        json!({"name": "x", "plugins": [{"other": 1}]}),
    ];
    for delegate in broken {
        bench
            .verb_with(
                "ADD",
                &pod,
                &json!({"clusterNetwork": null, "delegates": [delegate]}),
            )?
            .error()?;
    }
    bench.called(&pod, &[])
}

fn cni_dir(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("elsewhere-kept", "")?;
    let dir = "/var/lib/cni/elsewhere";
    let keys = json!({"cniDir": dir});
    bench.add_with(&pod, &keys)?;
    let (state, results) = (
        bench.scene.node.path(&format!("{dir}/{}", pod.id)),
        bench.scene.node.list(&format!("{dir}/results"))?,
    );
    let is_there = state.exists();
    bench.verb_with("DEL", &pod, &keys)?.well()?;
    let is_gone = !state.exists();
    fs::remove_dir_all(bench.scene.node.path(dir))?;
    ensure!(
        is_there && is_gone && results.len() == 1,
        "there {is_there}, gone {is_gone}, {results:?}"
    );
    bench.called(&pod, &["ADD primary", "DEL primary"])
}

fn bin_dir(bench: &Bench) -> anyhow::Result<()> {
    let node = &bench.scene.node;
    let other = "/opt/cni/other";
    node.write(&format!("{other}/recorder"), b"")?;
    fs::copy(
        node.path(&format!("{BIN_DIR}/recorder")),
        node.path(&format!("{other}/recorder")),
    )?;
    let pod = bench.pod("pathed", "")?;
    let outcome = bench.verb_env("ADD", &pod, &json!({}), &[("CNI_PATH", other)]);
    fs::remove_dir_all(node.path(other))?;
    outcome?.well()?;
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(
        call.program == format!("{BIN_DIR}/recorder"),
        "{}",
        call.program
    );
    ensure!(
        call.variable("CNI_PATH").split(':').next() == Some(BIN_DIR),
        "{}",
        call.variable("CNI_PATH")
    );
    Ok(())
}

fn any_case(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("cased", "")?;
    bench.add_with(
        &pod,
        &json!({"clusterNetwork": null, "Delegates": [recorder("cased", &json!({}))]}),
    )?;
    bench.called(&pod, &["ADD cased"])
}

fn prev_result(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("preceded", "")?;
    bench
        .verb_with(
            "ADD",
            &pod,
            &json!({"prevResult": {"cniVersion": "1.1.0", "ips": "none"}}),
        )?
        .error()?;
    bench.called(&pod, &[])
}

fn readiness(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("impatient", "")?;
    let keys = json!({"readinessindicatorfile": "/run/never"});
    bench
        .begin_with("ADD", &pod, &keys)?
        .within(10)?
        .well()
        .map(drop)
}

fn overlay(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("overlaid", "other/far")?;
    let keys = json!({"namespaceIsolation": false, "globalNamespaces": "other"});
    bench
        .verb_with("ADD", &pod, &keys)?
        .tells(&["namespace isolation enabled, annotation violates permission"])?;
    bench.called(&pod, &[])
}

fn unknown(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("overlaid-unknown", "a")?;
    bench.add(&pod)?;
    // Nobody's key is not the delegates' either.
    let strays: Vec<Value> = bench
        .calls(&pod)?
        .into_iter()
        .map(|call| call.stdin)
        .filter(|stdin| !stdin["keyOfNobody"].is_null())
        .collect();
    ensure!(strays.is_empty(), "{strays:?}");
    Ok(())
}

fn overlay_networks(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("overlaid-networks", "shared/common")?;
    bench.add_with(
        &pod,
        &json!({"defaultNetworks": ["central"], "multusNamespace": "kube-system"}),
    )?;
    bench.called(&pod, &["ADD primary", "ADD everyone", "ADD common"])
}

fn overlay_system(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod_of(
        "overlaid-quiet",
        &PodForm {
            namespace: "quiet",
            ..PodForm::default()
        },
    )?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary"])?;
    // The list is replaced, not added to.
    let pod = bench.pod_of(
        "overlaid-loud",
        &PodForm {
            namespace: "kube-system",
            ..PodForm::default()
        },
    )?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary", "ADD everyone"])
}
