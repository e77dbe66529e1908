//! What the original proposal of networks knew, and networks that come and go while pods live.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, alone, plain};
use crate::{
    control_plane::objects,
    rules::{
        bench::{Bench, NETWORKS, Pod, PodForm, Settings, WITH_A},
        definitions::recorder,
    },
    sh,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "original-annotation-unless-wanted",
        &["mux-9-legacy-off"],
        off,
    ),
    plain("original-annotation", &["mux-9-legacy"], on),
    plain(
        "original-annotation-beside-the-present",
        &["mux-9-legacy-less"],
        less,
    ),
    plain(
        "original-network-that-is-a-plugin",
        &["mux-10.3-plugin"],
        plugin,
    ),
    plain(
        "networks-come-and-go",
        &["mux-10.3-fresh", "mux-12.2-alone"],
        come_and_go,
    ),
    alone(
        "networks-go-while-the-daemon-is-away",
        &["mux-12.2-restart"],
        restart,
    ),
];

const LEGACY: &str = "alpha.network.k8s.io/networks";

fn pod(bench: &Bench, name: &str, annotations: &[(&'static str, &str)]) -> anyhow::Result<Pod> {
    let annotations = annotations.iter();
    let form = PodForm {
        annotations: annotations
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect(),
        ..PodForm::default()
    };
    bench.pod_of(name, &form)
}

fn off(bench: &Bench) -> anyhow::Result<()> {
    let pod = pod(bench, "old-fashioned-not", &[(LEGACY, "a,b")])?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary"])
}

fn on(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"legacyNetworksAnnotation": true});
    let pod = pod(bench, "old-fashioned", &[(LEGACY, "a,b")])?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD a", "ADD b"])?;
    let call = bench.call(&pod, "ADD", "a")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    let call = bench.call(&pod, "ADD", "b")?;
    ensure!(call.variable("CNI_IFNAME") == "eth1", "{call:?}");
    let status = bench.status(&pod)?;
    ensure!(
        status[0]["name"] == "default/a" && status[0]["default"] == true,
        "{status:?}"
    );
    bench.del(&pod)?;
    bench.called(&pod, &["ADD a", "ADD b", "DEL b", "DEL a"])
}

fn less(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"legacyNetworksAnnotation": true});
    let pod = pod(bench, "both-fashions", &[(LEGACY, "b"), (NETWORKS, "a")])?;
    bench.add_with(&pod, &keys)?;
    bench.called(&pod, &["ADD primary", "ADD a"])
}

fn plugin(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("bare-plugin", "recorder-plain")?;
    bench
        .verb("ADD", &pod)?
        .tells(&["recorder-plain", "spec.config is empty"])?;
    bench.add_with(&pod, &json!({"legacyNetworksAnnotation": true}))?;
    let call = bench.call(&pod, "ADD", "recorder-plain")?;
    let expected =
        json!({"cniVersion": "1.1.0", "name": "recorder-plain", "type": "recorder-plain"});
    ensure!(call.stdin == expected, "{}", call.stdin);
    bench.del(&pod)?;
    bench.call(&pod, "DEL", "recorder-plain").map(drop)
}

const DEFINITIONS: &str =
    "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";

/// A network that was not there when the daemon started.
fn define(bench: &Bench, name: &str) -> anyhow::Result<()> {
    let network = objects::network(name, &recorder(name, &json!({})));
    bench.api("POST", DEFINITIONS, &network)?.json().map(drop)
}

fn undefine(bench: &Bench, name: &str) -> anyhow::Result<()> {
    let path = format!("{DEFINITIONS}/{name}");
    bench.api("DELETE", &path, &Value::Null).map(drop)
}

/// Attaches as soon as the network is heard of.
fn attach(bench: &Bench, pod: &Pod) -> anyhow::Result<()> {
    sh::until(10, "the network is known", || bench.add(pod).map(drop))
}

fn come_and_go(bench: &Bench) -> anyhow::Result<()> {
    define(bench, "short-lived")?;
    let pod = bench.pod("guest", "short-lived")?;
    attach(bench, &pod)?;
    undefine(bench, "short-lived")?;
    let late = bench.pod("too-late", "short-lived")?;
    sh::until(10, "the network is forgotten", || {
        let outcome = bench.verb("ADD", &late)?;
        if outcome.code == Some(0) {
            bench.del(&late)?;
        }
        outcome.tells(&["cannot find a network-attachment-definition (short-lived)"])
    })?;
    bench.del(&pod)?;
    let order = bench.order(&pod)?;
    ensure!(
        order.ends_with(&["DEL short-lived".into(), "DEL primary".into()]),
        "{order:?}"
    );
    Ok(())
}

fn restart(bench: &Bench) -> anyhow::Result<()> {
    let file = Settings::Plain.file();
    bench.start(&file)?;
    define(bench, "left-alone")?;
    let asked = r#"[{"name": "left-alone", "cni-args": {"tier": "gold"}}]"#;
    let pod = bench.pod("survivor", asked)?;
    attach(bench, &pod)?;
    bench.stop("KILL")?;
    undefine(bench, "left-alone")?;
    bench.delete(&pod)?;
    bench.start(&file)?;
    bench.del(&pod)?;
    let calls = bench.calls(&pod)?;
    let of = |verb: &str| {
        let mut calls = calls.iter().rev();
        calls
            .find(|call| call.verb == verb && call.network() == "left-alone")
            .cloned()
    };
    let (Some(add), Some(del)) = (of("ADD"), of("DEL")) else {
        anyhow::bail!("not attached and detached: {calls:?}");
    };
    ensure!(
        add.stdin["args"] == del.stdin["args"],
        "{} and {}",
        add.stdin,
        del.stdin
    );
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    ensure!(
        bench.order(&pod)?.len() == WITH_A.len(),
        "{:?}",
        bench.order(&pod)?
    );
    Ok(())
}
