//! A pod on every node, and the daemons of every node, while one Multus takes the place of another.

use anyhow::ensure;
use serde_json::Value;

use super::published_release::NAME;
use crate::{
    cluster::Member,
    control_plane::objects,
    node::inspect,
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
};

/// Returns the image of a daemon's pod.
pub(super) fn image(pod: &Value) -> &str {
    let image = pod["spec"]["containers"][0]["image"].as_str();
    image.unwrap_or_default()
}

/// Returns our image as in pods, without the registry, which is a value of its own in the chart.
pub(super) fn our_image(fixture: &ClusterFixture) -> anyhow::Result<String> {
    Ok(fixture.image()?.trim_start_matches("docker.io/").to_owned())
}

/// The nodes of a cluster, with the same pods on each.
pub(super) struct EachNode<'a>(pub(super) &'a ClusterFixture<'a>);

impl EachNode<'_> {
    /// Waits until every node has the daemon of this `DaemonSet`, and its configuration.
    pub(super) fn wait_until_served_by(&self, set: &str) -> anyhow::Result<()> {
        sh::until(120, "the DaemonSet is rolled out", || {
            let set = format!("daemonset/{set}");
            let args = ["rollout", "status", NAMESPACE, "--timeout=1s", &set];
            self.0.cluster.kubectl(&args)
        })?;
        self.0.each(|member| {
            let directory = &member.runtime.paths.conf_dir;
            sh::until(30, "its configuration is installed", || {
                let names = member.node.list(directory)?;
                // Without a daemon the configuration is a list when that of the default network is one.
                let found = names.iter().any(|name| name.starts_with("00-multus.conf"));
                ensure!(found, "in {directory} are {names:?}");
                Ok(())
            })
        })
    }

    /// Creates a pod on every node, and checks that all have both networks.
    pub(super) fn make(&self, name: &str) -> anyhow::Result<()> {
        let cluster = &self.0.cluster;
        let pods: Vec<_> = self
            .names(name)
            .zip(&cluster.members)
            .map(|(pod, member)| objects::pod(&pod, &member.node.name, Some("storage")))
            .collect();
        cluster.apply(&pods)?;
        self.have(name)
    }

    /// Fails unless the pod of this name has both networks on every node.
    pub(super) fn have(&self, name: &str) -> anyhow::Result<()> {
        for pod in self.names(name) {
            self.0.cluster.ensure_interfaces(&pod, &["eth0", "net1"])?;
        }
        Ok(())
    }

    /// Deletes the pod of this name on every node.
    pub(super) fn delete(&self, name: &str) -> anyhow::Result<()> {
        let pods: Vec<_> = self.names(name).collect();
        self.0.cluster.delete(&pods)
    }

    fn names(&self, name: &str) -> impl Iterator<Item = String> {
        let nodes = self.0.cluster.members.iter();
        nodes.map(move |member| format!("{name}-{}", member.node.name))
    }

    /// Waits until our daemon is ready on every node, and no other one of the release is left.
    pub(super) fn wait_until_upgraded(&self) -> anyhow::Result<()> {
        let expected = [our_image(self.0)?];
        self.0.each(|member| {
            sh::until(120, "our daemon is the only one", || {
                let images = self.ready_images(member)?;
                ensure!(
                    images == expected,
                    "the images of ready daemons are {images:?}"
                );
                let pods = self.daemons_on(member)?;
                ensure!(pods.len() == 1, "there are {} daemons", pods.len());
                Ok(())
            })
        })?;
        self.0.wait_until_ready(NAME)
    }

    /// Fails unless the network definition exists and stays.
    pub(super) fn ensure_defined(&self) -> anyhow::Result<()> {
        let cluster = &self.0.cluster;
        let found = cluster.get(&["network-attachment-definitions", "storage"])?;
        let leaving = &found["metadata"]["deletionTimestamp"];
        ensure!(leaving.is_null(), "the definition is being deleted");
        Ok(())
    }

    /// Waits until nothing of pods is left on any node.
    pub(super) fn nothing_left(&self) -> anyhow::Result<()> {
        self.0.each(|member| inspect::nothing_left(&member.node))
    }

    /// Returns the images of the ready daemons on a node.
    pub(super) fn ready_images(&self, member: &Member) -> anyhow::Result<Vec<String>> {
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
            })
        };
        let pods = self.daemons_on(member)?;
        let ready = pods.iter().filter(is_ready);
        Ok(ready.map(|pod| image(pod).to_owned()).collect())
    }

    /// Returns the pods of the release's daemons on a node.
    pub(super) fn daemons_on(&self, member: &Member) -> anyhow::Result<Vec<Value>> {
        let mut list = self.0.cluster.get(&[
            "pods",
            NAMESPACE,
            &format!("--selector=app={NAME}"),
            &format!("--field-selector=spec.nodeName={}", member.node.name),
        ])?;
        match list["items"].take() {
            Value::Array(pods) => Ok(pods),
            other => anyhow::bail!("no list of pods: {other}"),
        }
    }
}
