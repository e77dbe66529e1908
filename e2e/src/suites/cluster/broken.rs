//! Invalid values: the rolling update stops at its first node, all former daemons keep serving, and a valid value rolls out.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{ClusterFixture, NAMESPACE};
use crate::{control_plane::objects, sh};

/// The daemon's configuration in the directory of its pod.
const CONFIG: &str = "volumes/kubernetes.io~configmap/config/daemon-config.json";
/// A directory that no runtime uses.
const WRONG_DIR: &str = "/opt/wrong";

struct InvalidValue {
    value: &'static str,
    /// The argument that removes the value.
    reset: &'static str,
    /// Text of the daemon's configuration with the value.
    in_config: &'static str,
    /// Text of the daemon's log.
    in_log: &'static str,
}

const VALUES: &[InvalidValue] = &[
    // With this one the daemon exits at its start.
    InvalidValue {
        value: "--set-json=config.daemon_conf.defaultNetworks=[1]",
        reset: "--set-json=config.daemon_conf.defaultNetworks=[]",
        in_config: "defaultNetworks",
        in_log: "key \"defaultNetworks\" must be a list of strings",
    },
    // With this one the daemon starts and does not become ready.
    InvalidValue {
        value: "--set=config.cni_conf.shimDir=/opt/wrong",
        reset: "--set=config.cni_conf.shimDir=",
        in_config: WRONG_DIR,
        in_log: "(shimDir in config.daemon_conf) is /opt/wrong, but the runtime itself looks for plugins in",
    },
];

impl ClusterFixture<'_> {
    pub(super) fn invalid_values(&self, chart: &str) -> anyhow::Result<()> {
        VALUES
            .iter()
            .try_for_each(|invalid| self.invalid_value(chart, invalid).context(invalid.value))
    }

    fn invalid_value(&self, chart: &str, invalid: &InvalidValue) -> anyhow::Result<()> {
        let before = self.ready_daemons(chart)?;
        self.upgrade(chart, &[invalid.value])?;
        sh::until(120, "a daemon logs the error", || {
            let logs = self.logs(chart)?;
            ensure!(logs.contains(invalid.in_log), "{logs}");
            Ok(())
        })?;
        // The former daemons see the new file, which their probes must not read. A kubelet renews it within a minute or two, and at once
        // when the pod changes.
        for (name, _) in &before {
            let note = format!("e2e/renewed={}", invalid.in_config.replace('/', "."));
            let annotate = ["annotate", "pod", NAMESPACE, name, "--overwrite", &note];
            self.cluster.kubectl(&annotate)?;
        }
        for (name, uid) in &before {
            sh::until(180, "the kubelet updates the file", || {
                let text = self.config_of(uid)?;
                ensure!(text.contains(invalid.in_config), "{name}: {text}");
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
        let ready = self.ready_daemons(chart)?;
        ensure!(
            ready == before,
            "{before:?} were ready, and {ready:?} are now"
        );
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
        self.upgrade(chart, &[invalid.reset])?;
        self.wait_until_rolled_out(&format!("daemonset/{chart}"))?;
        self.wait_until_deployed(chart)
    }

    /// Returns name and uid of the daemons' pods; fails unless one is ready per node.
    fn ready_daemons(&self, chart: &str) -> anyhow::Result<Vec<(String, String)>> {
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

    /// Returns the logs of the daemons' present and previous containers: the kubelet restarts one that exits at its start.
    fn logs(&self, chart: &str) -> anyhow::Result<String> {
        let selector = format!("--selector=app={chart}");
        let args = ["logs", NAMESPACE, &selector, "--tail=20"];
        let now = self.cluster.kubectl(&args)?;
        let before = self.cluster.kubectl(&[&args[..], &["--previous"]].concat());
        Ok(now + &before.unwrap_or_default())
    }

    /// Returns the daemon's configuration in the pod with this uid.
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
