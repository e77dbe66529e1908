//! Suite `published`: a release is signed, published to a registry with a login, and installed from there with Helm by a cluster whose nodes
//! pull from it; then its successor. After that both come from a medium, on a machine that has the medium and busybox alone.
//!
//! The successor is a rehearsal: version, charts, image, archives and signatures are its own, its programs those of the first release.
//! So its `multus-distro` would install the first one's images, and its archive is copied instead.

mod medium;
mod registry;
mod releases;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use self::{medium::MediumInstall, registry::RegistryInstall, releases::Releases};
use super::cluster::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::{Cluster, Member},
    control_plane::{Components, objects},
    node::{
        inspect::{Addresses, nothing_left},
        layout::{ContainerdVersion, Layout},
        runtime::NodePlugins,
    },
    programs::{Module, Needs},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "busybox containerd curl docker-registry etcd git htpasswd ip iptables openssl runc skopeo sysctl umoci",
    modules: &[Module::Containerd, Module::Helm, Module::Kubernetes],
};

/// The release of Helm and its DaemonSet; that of the CRD has `-crd` after it.
const CHART: &str = "rke2-multus";
const NODES: &[(Layout, ContainerdVersion)] = &[
    (Layout::K3s, ContainerdVersion::V2),
    (Layout::Rke2, ContainerdVersion::V1),
];

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let releases = report.check(
        "a release is signed with the publisher's key, and so is its successor, cut in a clone",
        || Releases::make(env),
    )?;
    let cluster = report.check(
        "two nodes without an image of ours are Ready: k3s with containerd 2.x, rke2 with 1.6",
        || Cluster::with(env, NODES, Components::All, NodePlugins::Release),
    )?;
    let fixture = ClusterFixture { env, cluster };
    let from_registry = report.check(
        "both releases are published to a registry with a login, and not with another key",
        || RegistryInstall::publish(&fixture, &releases),
    )?;
    let before = report.check("the files of both nodes are hashed", || fixture.hashes())?;
    from_registry.run(report)?;
    report.check(
        "helm uninstall leaves the files of both nodes as they were",
        || fixture.uninstall_charts(&before),
    )?;
    let medium = report.check(
        "the publisher's registry ends, the nodes lose its images, and a machine gets the medium and busybox alone",
        || {
            from_registry.end()?;
            MediumInstall::prepare(&fixture, &releases)
        },
    )?;
    medium.run(report)?;
    report.check(
        "helm uninstall leaves the files of both nodes as they were, again",
        || {
            medium.clear()?;
            fixture.uninstall_charts(&before)
        },
    )
}

impl ClusterFixture<'_> {
    /// Starts a pod with two networks on each node.
    fn start_pods(&self, kind: &str) -> anyhow::Result<Vec<RunningPod>> {
        let members = self.cluster.members.iter().zip(self.names(kind));
        let mut objects = vec![objects::storage()];
        objects.extend(
            members.map(|(member, name)| objects::pod(&name, &member.node.name, Some("storage"))),
        );
        // The API server serves definitions a moment after the CRD is there.
        sh::until(30, "pods and their network are made", || {
            self.cluster.apply(&objects)
        })?;
        let names = self.names(kind).into_iter();
        names.map(|name| self.running(name)).collect()
    }

    fn running(&self, name: String) -> anyhow::Result<RunningPod> {
        let addresses = self.cluster.ensure_interfaces(&name, &["eth0", "net1"])?;
        let status = &self.cluster.pod(&name)?["status"]["containerStatuses"][0];
        let container = status["containerID"].as_str();
        let container = container.with_context(|| format!("{name} has no container"))?;
        Ok(RunningPod {
            container: container.to_owned(),
            name,
            addresses,
        })
    }

    /// Fails unless pods run as they did, with the same networks.
    fn ensure_run_on(&self, pods: &[RunningPod]) -> anyhow::Result<()> {
        for pod in pods {
            let now = self.running(pod.name.clone())?;
            ensure!(now == *pod, "{pod:?} became {now:?}");
        }
        Ok(())
    }

    /// Deletes all pods; fails unless nothing of them is left.
    fn delete_all(&self, pods: &[&[RunningPod]]) -> anyhow::Result<()> {
        let names: Vec<_> = pods.concat().iter().map(|pod| pod.name.clone()).collect();
        self.cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))
    }

    /// Waits until every daemon is one of this image.
    fn wait_until_updated(&self, image: &str) -> anyhow::Result<()> {
        let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{CHART}");
        let set = self.cluster.api.request("GET", &path, &Value::Null)?;
        let set = set.json()?;
        let found = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(found == image, "the daemon's image is {found}, not {image}");
        self.wait_until_rolled_out(&format!("daemonset/{CHART}"))?;
        self.wait_until_ready(CHART)
    }

    /// Returns whether the kubelet of a node pulled an image by this name.
    fn is_pulled(&self, member: &Member, name: &str) -> anyhow::Result<bool> {
        let events = self.cluster.get(&["events", NAMESPACE])?;
        let mut events = events["items"].as_array().into_iter().flatten();
        Ok(events.any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            let is_here = event["source"]["host"] == *member.node.name;
            // The name alone is also the end of the one in another registry.
            event["reason"] == "Pulling" && is_here && message.contains(&format!("\"{name}\""))
        }))
    }

    fn uninstall_charts(
        &self,
        before: &[crate::node::file_hashes::FileHashes],
    ) -> anyhow::Result<()> {
        self.helm_uninstall(CHART)?;
        self.helm_uninstall(&format!("{CHART}-crd"))?;
        self.ensure_removed()?;
        self.ensure_files_unchanged(before)?;
        self.default_network_alone()
    }
}

/// A pod that runs, with all that an upgrade must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunningPod {
    name: String,
    container: String,
    addresses: Addresses,
}

/// Fails unless a node has an image by this name and digest, with all its content.
fn ensure_image(member: &Member, name: &str, digest: &str) -> anyhow::Result<()> {
    let ctr = |command: &str| {
        let mut ctr = member.runtime.ctr(&member.node);
        sh::run(ctr.args(["images", command, &format!("name=={name}")]))
    };
    let (found, checked) = (ctr("list")?, ctr("check")?);
    ensure!(found.contains(digest), "{name} is not {digest}: {found}");
    let is_complete = checked.contains("complete") && !checked.contains("incomplete");
    ensure!(is_complete, "{checked}");
    Ok(())
}
