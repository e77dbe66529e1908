//! Two implementations exchanged while pods run: one makes pods, the other deletes them, with every mix of shim and daemon.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::harness::{DaemonSetup, Harness, Pod, Programs};
use crate::{
    node::inspect::{nothing_left, pod_artifacts},
    report::{Checked, Report},
    single_node::GENERATED,
    test_env::TestEnv,
};

/// One of the two implementations.
struct Side {
    /// A possessive, for reports.
    name: &'static str,
    programs: Programs,
}

const OURS: &str = "our";

/// The networks of every pod: a real bridge with leases, a list, and a network with a requested address.
const NETWORKS: &str = r#"[{"name": "storage"}, {"name": "list", "interface": "ext0"}, {"name": "capable", "mac": "02:00:00:00:00:07"}]"#;

/// The calls of plugins from `ADD` to `DEL` of such a pod.
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

/// Every pair of shim and daemon makes pods, and every pair with the other daemon deletes them.
pub(super) fn run(work: &TestEnv, peer: &Path, harness: &Harness, report: &mut Report) -> Checked {
    let sides = report.check("both implementations are present", || {
        harness.node().write(
            "/etc/cni/rules/real.conflist",
            default_network().to_string(),
        )?;
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
                "{} daemon makes pods, {} deletes them, after {signal}",
                maker.name, remover.name
            );
            let _ = report.check(&name, || {
                generations(harness, &sides, maker, remover, signal)
            });
            let _ = harness.stop_daemon("TERM");
            harness.clean_up();
        }
    }
    Ok(())
}

/// Returns a default network with real addresses and a recording plugin.
fn default_network() -> Value {
    json!({"cniVersion": "1.0.0", "name": "real", "plugins": [
        {"type": "bridge", "bridge": "br-real", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}]]}},
        {"type": "recorder", "zeta": 1},
    ]})
}

/// Keys that select the default network.
fn keys() -> Value {
    json!({"clusterNetwork": "/etc/cni/rules/real.conflist", "cniVersion": "1.0.0"})
}

fn select(harness: &Harness, daemon: &Side, shim: &Side) {
    let mut programs = harness.programs.borrow_mut();
    programs.daemon.clone_from(&daemon.programs.daemon);
    programs.shim.clone_from(&shim.programs.shim);
}

fn generations(
    harness: &Harness,
    sides: &[Side; 2],
    maker: &Side,
    remover: &Side,
    signal: &str,
) -> anyhow::Result<()> {
    let mut settings = DaemonSetup::Plain.file();
    settings["cniVersion"] = json!("1.0.0");
    select(harness, maker, maker);
    harness.start_daemon(&settings)?;
    let mut pods = Vec::new();
    for (made, shim) in sides.iter().enumerate() {
        for removed in 0..sides.len() {
            select(harness, maker, shim);
            let pod = harness.pod(&format!("life-{made}-{removed}"), NETWORKS)?;
            harness
                .add_with(&pod, &keys())
                .with_context(|| format!("with {} shim", shim.name))?;
            pods.push((pod, removed));
        }
    }
    harness.stop_daemon(signal)?;
    select(harness, remover, remover);
    harness.start_daemon(&settings)?;
    let config = harness.config()?;
    ensure!(
        config["type"] == "multus-shim",
        "{GENERATED} holds {config}"
    );
    for (pod, removed) in &pods {
        let shim = &sides[*removed];
        select(harness, remover, shim);
        delete_twice(harness, pod)
            .with_context(|| format!("{} with {} shim", pod.name, shim.name))?;
    }
    if remover.name != OURS {
        // The peer does not know our files next to its state; our daemon removes them when it starts again.
        let ours = |path: &String| path.contains("/.multus-rs/");
        let left = pod_artifacts(harness.node())?;
        ensure!(left.iter().all(ours), "left: {}", left.join(", "));
        select(harness, maker, maker);
        harness.start_daemon(&settings)?;
    }
    nothing_left(harness.node())
}

/// Deletes a pod as a runtime does, with two `DEL`, and checks what is left.
fn delete_twice(harness: &Harness, pod: &Pod) -> anyhow::Result<()> {
    let inside = harness.addresses_in(pod)?;
    ensure!(
        inside.contains_key("eth0") && inside.contains_key("net1"),
        "the pod lost its networks: {inside:?}"
    );
    harness.delete_pod(pod)?;
    harness.verb_with("DEL", pod, &keys())?.success()?;
    harness.expect_calls(pod, &CALLS)?;
    let zeta = harness.call(pod, "DEL", "real")?.stdin["zeta"].clone();
    ensure!(zeta == 1, "the plugin of the default network lost its keys");
    ensure!(!harness.state_file(pod).exists(), "the state is left");
    harness.delete_netns(pod)?;
    harness
        .verb_env("DEL", pod, &keys(), &[("CNI_NETNS", "")])?
        .success()?;
    Ok(())
}
