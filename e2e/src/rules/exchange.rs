//! Programs of two implementations exchanged in the middle of pods' lives, with shim and daemon of either side mixed.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::bench::{Bench, Pod, Programs, Settings};
use crate::{
    node::inspect::{nothing_left, pod_artifacts},
    report::{CheckFailed, Report},
    single_node::GENERATED,
    test_env::TestEnv,
};

/// One of the two implementations.
struct Side {
    name: &'static str,
    programs: Programs,
}

/// What the release's own programs are called here.
const OURS: &str = "our";

/// Networks of every pod here: a real bridge with leases, a list, and one with wishes of the pod.
const NETWORKS: &str = r#"[{"name": "storage"}, {"name": "list", "interface": "ext0"}, {"name": "capable", "mac": "02:00:00:00:00:07"}]"#;

/// What plugins are called with when such a pod is made and taken down.
const CALLS: [&str; 8] = [
    "ADD real",
    "ADD list",
    "ADD list",
    "ADD capable",
    "DEL capable",
    "DEL list",
    "DEL list",
    "DEL real",
];

/// Pods are made by every pair of shim and daemon, and taken down by every pair with the other daemon.
pub(super) fn run(
    work: &TestEnv,
    peer: &Path,
    bench: &Bench,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let sides = report.check("both implementations are there", || {
        bench
            .scene
            .node
            .write("/etc/cni/rules/real.conflist", primary().to_string())?;
        let ours = Side {
            name: OURS,
            programs: Programs::ours(work)?,
        };
        let peer = Side {
            name: "the peer's",
            programs: Programs::peer(peer)?,
        };
        Ok([ours, peer])
    })?;
    for (maker, remover) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        for signal in ["TERM", "KILL"] {
            let name = format!(
                "{} daemon makes, {} takes down, after {signal}",
                maker.name, remover.name
            );
            let _ = report.check(&name, || generations(bench, &sides, maker, remover, signal));
            let _ = bench.stop("TERM");
            bench.clean();
        }
    }
    Ok(())
}

/// A primary with real addresses and a plugin that records.
fn primary() -> Value {
    json!({"cniVersion": "1.0.0", "name": "real", "plugins": [
        {"type": "bridge", "bridge": "br-real", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}]]}},
        {"type": "recorder", "zeta": 1},
    ]})
}

/// The primary, beside what every pair takes for granted.
fn keys() -> Value {
    json!({"clusterNetwork": "/etc/cni/rules/real.conflist", "cniVersion": "1.0.0"})
}

fn select(bench: &Bench, daemon: &Side, shim: &Side) {
    let mut programs = bench.programs.borrow_mut();
    programs.daemon.clone_from(&daemon.programs.daemon);
    programs.shim.clone_from(&shim.programs.shim);
}

fn generations(
    bench: &Bench,
    sides: &[Side; 2],
    maker: &Side,
    remover: &Side,
    signal: &str,
) -> anyhow::Result<()> {
    let mut settings = Settings::Plain.file();
    settings["cniVersion"] = json!("1.0.0");
    select(bench, maker, maker);
    bench.start(&settings)?;
    let mut pods = Vec::new();
    for (made, shim) in sides.iter().enumerate() {
        for removed in 0..sides.len() {
            select(bench, maker, shim);
            let pod = bench.pod(&format!("life-{made}-{removed}"), NETWORKS)?;
            bench
                .add_with(&pod, &keys())
                .with_context(|| format!("with {} shim", shim.name))?;
            pods.push((pod, removed));
        }
    }
    bench.stop(signal)?;
    select(bench, remover, remover);
    bench.start(&settings)?;
    let config = bench.config()?;
    ensure!(config["type"] == "multus-shim", "{GENERATED} is {config}");
    for (pod, removed) in &pods {
        let shim = &sides[*removed];
        select(bench, remover, shim);
        ends(bench, pod).with_context(|| format!("{} with {} shim", pod.name, shim.name))?;
    }
    if remover.name != OURS {
        // It does not know what lies beside its state; that is for us to clear away, once we are back.
        let ours = |path: &String| path.contains("/.multus-rs/");
        let left = pod_artifacts(&bench.scene.node)?;
        ensure!(left.iter().all(ours), "left: {}", left.join(", "));
        select(bench, maker, maker);
        bench.start(&settings)?;
    }
    nothing_left(&bench.scene.node)
}

/// Both deletions of a runtime, and what they have to leave.
fn ends(bench: &Bench, pod: &Pod) -> anyhow::Result<()> {
    let inside = bench.inside(pod)?;
    ensure!(
        inside.contains_key("eth0") && inside.contains_key("net1"),
        "it lost its networks: {inside:?}"
    );
    bench.delete(pod)?;
    bench.verb_with("DEL", pod, &keys())?.well()?;
    bench.called(pod, &CALLS)?;
    let zeta = bench.call(pod, "DEL", "real")?.stdin["zeta"].clone();
    ensure!(zeta == 1, "the plugin of the primary lost its keys");
    ensure!(!bench.state_file(pod).exists(), "its state is left");
    bench.end_netns(pod)?;
    bench
        .verb_env("DEL", pod, &keys(), &[("CNI_NETNS", "")])?
        .well()?;
    Ok(())
}
