//! Values that a daemon cannot use: the update stops at its first node, every daemon of before serves on, and a good value rolls out.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{ClusterFixture, NAMESPACE};
use crate::{control_plane::objects, sh};

/// Where the kubelet puts the daemon's file.
const CONFIG: &str = "volumes/kubernetes.io~configmap/config/daemon-config.json";
/// A directory in which no runtime looks.
const WRONG_DIR: &str = "/opt/wrong";

/// A value, and how to say that it is taken back.
struct Broken {
    value: &'static str,
    back: &'static str,
    /// What the daemon's file has of it.
    seen: &'static str,
    /// What the daemon that cannot use it says.
    complaint: &'static str,
}

const VALUES: &[Broken] = &[
    // The daemon ends at its start.
    Broken {
        value: "--set-json=config.daemon_conf.defaultNetworks=[1]",
        back: "--set-json=config.daemon_conf.defaultNetworks=[]",
        seen: "defaultNetworks",
        complaint: "key \"defaultNetworks\" must be a list of strings",
    },
    // It starts and is not ready.
    Broken {
        value: "--set=config.cni_conf.shimDir=/opt/wrong",
        back: "--set=config.cni_conf.shimDir=",
        seen: WRONG_DIR,
        complaint: "(shimDir in config.daemon_conf) is /opt/wrong, but the runtime itself looks for plugins in",
    },
];

impl ClusterFixture<'_> {
    /// Each broken value in turn.
    pub(super) fn broken_values(&self, chart: &str) -> anyhow::Result<()> {
        VALUES
            .iter()
            .try_for_each(|broken| self.broken_value(chart, broken).context(broken.value))
    }

    fn broken_value(&self, chart: &str, broken: &Broken) -> anyhow::Result<()> {
        let before = self.daemons(chart)?;
        self.upgrade(chart, &[broken.value])?;
        sh::until(120, "a daemon complains", || {
            let logs = self.logs(chart)?;
            ensure!(logs.contains(broken.complaint), "{logs}");
            Ok(())
        })?;
        // The daemons of before see the new file, which their probes must not read.
        for (name, uid) in &before {
            sh::until(180, "the kubelet updates the file", || {
                let text = self.config_of(uid)?;
                ensure!(text.contains(broken.seen), "{name}: {text}");
                Ok(())
            })?;
            for probe in [&["status"][..], &["status", "--ready"]] {
                let pod = [
                    "exec",
                    NAMESPACE,
                    name,
                    "--",
                    "/usr/src/multus-cni/bin/multus-daemon",
                ];
                self.cluster
                    .kubectl(&[&pod[..], probe].concat())
                    .with_context(|| format!("{probe:?} of {name}"))?;
            }
        }
        let ready = self.daemons(chart)?;
        ensure!(ready == before, "ready were {before:?} and are {ready:?}");
        self.each(|member| {
            let shim = format!("{}/multus-shim", member.runtime.paths.bin_dir);
            ensure!(member.node.path(&shim).exists(), "there is no {shim}");
            let wrong = format!("{WRONG_DIR}/multus-shim");
            ensure!(!member.node.path(&wrong).exists(), "there is {wrong}");
            Ok(())
        })?;
        let names = self.names("broken");
        let members = self.cluster.members.iter().zip(&names);
        let pods: Vec<_> = members
            .map(|(member, name)| objects::pod(name, &member.node.name, Some("storage")))
            .collect();
        self.cluster.apply(&pods)?;
        for name in &names {
            self.cluster.ensure_interfaces(name, &["eth0", "net1"])?;
        }
        self.cluster.delete(&names)?;
        self.upgrade(chart, &[broken.back])?;
        self.is_rolled_out(&format!("daemonset/{chart}"))?;
        self.is_deployed(chart)
    }

    /// Name and uid of the daemons that are ready.
    fn daemons(&self, chart: &str) -> anyhow::Result<Vec<(String, String)>> {
        let list = self
            .cluster
            .get(&["pods", NAMESPACE, &format!("--selector=app={chart}")])?;
        let pods = list["items"].as_array().context("no list of pods")?;
        let is_ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut ready: Vec<_> = pods
            .iter()
            .filter(is_ready)
            .map(|pod| {
                (
                    word(&pod["metadata"]["name"]),
                    word(&pod["metadata"]["uid"]),
                )
            })
            .collect();
        ready.sort();
        let nodes = self.cluster.members.len();
        ensure!(ready.len() == nodes, "{} of {nodes} are ready", ready.len());
        Ok(ready)
    }

    /// What daemons said in this run and the one before: one that ends at its start is started again and again.
    fn logs(&self, chart: &str) -> anyhow::Result<String> {
        let selector = format!("--selector=app={chart}");
        let words = ["logs", NAMESPACE, &selector, "--tail=20"];
        let now = self.cluster.kubectl(&words)?;
        let before = self
            .cluster
            .kubectl(&[&words[..], &["--previous"]].concat());
        Ok(now + &before.unwrap_or_default())
    }

    /// The daemon's file as the pod with this uid sees it.
    fn config_of(&self, uid: &str) -> anyhow::Result<String> {
        for member in &self.cluster.members {
            let path = format!("/var/lib/kubelet/pods/{uid}/{CONFIG}");
            if let Ok(text) = fs::read_to_string(member.node.path(&path)) {
                return Ok(text);
            }
        }
        bail!("no node has the file of pod {uid}")
    }
}
