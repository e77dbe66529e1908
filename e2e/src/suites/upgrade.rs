//! Suite `upgrade`: a cluster with the published chart is upgraded to ours under running pods, half of the nodes first, is rolled back,
//! and is upgraded again. The daemons of both sides are real: upstream's programs are an argument.

mod preflight;
pub(crate) mod published_release;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use self::published_release::{CRD_NAME, NAME, PUBLISHED, PublishedRelease};
use super::cluster::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::{Cluster, Member},
    control_plane::objects,
    node::{
        inspect::nothing_left,
        layout::{ContainerdVersion, Layout},
    },
    programs::Needs,
    report::{CheckFailed, Report},
    rules::Options,
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = super::cluster::NEEDS;

/// Nodes with the standard directories: the daemon of the published chart works with no other ones.
const NODES: &[(Layout, ContainerdVersion)] = &[
    (Layout::Rke2, ContainerdVersion::V2),
    (Layout::Kubeadm, ContainerdVersion::V1),
];

pub(crate) fn run(
    env: &TestEnv,
    options: &Options,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let peer = report.check("upstream's programs are there", || {
        options
            .peer()
            .context("set the directory of upstream's programs with --peer")
    })?;
    let cluster = report.check("two nodes with the standard directories are Ready", || {
        Cluster::start(env, NODES)
    })?;
    let fixture = ClusterFixture { env, cluster };
    for published in PUBLISHED {
        let old = report.check(
            &format!("the images of {} are on every node", published.name),
            || PublishedRelease::import(&fixture, published, peer),
        )?;
        UpgradeFixture {
            fixture: &fixture,
            old,
        }
        .run(report)?;
    }
    Ok(())
}

/// Returns the image of a daemon's pod.
fn image(pod: &Value) -> &str {
    let image = pod["spec"]["containers"][0]["image"].as_str();
    image.unwrap_or_default()
}

/// Returns our image as in pods, without the registry, which is a value of its own in the chart.
fn our_image(fixture: &ClusterFixture) -> anyhow::Result<String> {
    Ok(fixture.image()?.trim_start_matches("docker.io/").to_owned())
}

/// One published release, which is upgraded.
struct UpgradeFixture<'a> {
    fixture: &'a ClusterFixture<'a>,
    old: PublishedRelease<'a>,
}

impl UpgradeFixture<'_> {
    fn run(&self, report: &mut Report) -> Result<(), CheckFailed> {
        let of = |what: &str| format!("{}: {what}", self.old.published.name);
        report.check(
            &of("pods of the published release have their networks"),
            || {
                self.old.install()?;
                self.old.wait_until_deployed()?;
                self.fixture.cluster.apply(&[objects::storage()])?;
                self.make("theirs")
            },
        )?;
        report.check(
            &of("kubectl multus preflight reports what will fail and change"),
            || self.preflight(),
        )?;
        let (first, second) = report.check(
            &of("the node with our image is upgraded, the other one keeps the published daemon"),
            || {
                self.upgrade()?;
                let (first, second) = self.order()?;
                self.fixture.import_on(first)?;
                self.wait_until_half_way(first, second)?;
                Ok((first, second))
            },
        )?;
        report.check(&of("half way, pods start and end on every node"), || {
            self.make("half")?;
            self.delete("theirs")
        })?;
        report.check(
            &of("with our image on every node, all nodes are upgraded"),
            || {
                self.fixture.import_on(second)?;
                self.wait_until_upgraded()?;
                self.have("half")
            },
        )?;
        report.check(
            &of("recreated pods start or fail as preflight reported"),
            || self.preflight_comes_true(),
        )?;
        report.check(&of("network definitions stay"), || self.ensure_defined())?;
        report.check(&of("pods of half way are deleted, new ones start"), || {
            self.make("ours")?;
            self.delete("half")?;
            self.have("ours")
        })?;
        report.check(&of("after a rollback, pods keep their networks"), || {
            self.old.install()?;
            self.old.wait_until_deployed()?;
            self.have("ours")
        })?;
        report.check(
            &of("the published release deletes our pods and starts its own"),
            || {
                self.make("back")?;
                self.delete("ours")
            },
        )?;
        report.check(&of("a second upgrade works"), || {
            self.upgrade()?;
            self.wait_until_upgraded()?;
            self.have("back")?;
            self.make("again")?;
            self.delete("back")?;
            self.delete("again")?;
            self.nothing_left()
        })?;
        report.check(
            &of("without our release, pods start with the default network alone"),
            || {
                self.fixture.helm_uninstall(NAME)?;
                self.wait_until_removed()?;
                self.ensure_defined()?;
                self.fixture.default_network_alone()
            },
        )?;
        report.check(&of("our image is removed from the nodes"), || {
            self.fixture.helm_uninstall(CRD_NAME)?;
            self.ensure_defined()?;
            self.fixture.remove_image_on(first)?;
            self.fixture.remove_image_on(second)
        })
    }

    /// Upgrades as documented for plain Helm: first the chart of the CRD, then the main chart, with the values of before.
    fn upgrade(&self) -> anyhow::Result<()> {
        for name in [CRD_NAME, NAME] {
            let chart = self.fixture.env.chart(name)?;
            sh::run(
                self.fixture
                    .cluster
                    .helm()
                    .args(["upgrade", "--install", "--take-ownership", NAMESPACE, name])
                    .arg(chart),
            )?;
        }
        Ok(())
    }

    /// Creates a pod on every node, and checks that all have both networks.
    fn make(&self, name: &str) -> anyhow::Result<()> {
        let pods: Vec<_> = self
            .names(name)
            .zip(&self.fixture.cluster.members)
            .map(|(pod, member)| objects::pod(&pod, &member.node.name, Some("storage")))
            .collect();
        self.fixture.cluster.apply(&pods)?;
        self.have(name)
    }

    fn have(&self, name: &str) -> anyhow::Result<()> {
        for pod in self.names(name) {
            self.fixture
                .cluster
                .ensure_interfaces(&pod, &["eth0", "net1"])?;
        }
        Ok(())
    }

    fn delete(&self, name: &str) -> anyhow::Result<()> {
        let pods: Vec<_> = self.names(name).collect();
        self.fixture.cluster.delete(&pods)
    }

    fn names(&self, name: &str) -> impl Iterator<Item = String> {
        let nodes = self.fixture.cluster.members.iter();
        nodes.map(move |member| format!("{name}-{}", member.node.name))
    }

    /// Returns the node that gets our daemon first, and the other one.
    fn order(&self) -> anyhow::Result<(usize, usize)> {
        let ours = our_image(self.fixture)?;
        let has_ours = |member: &Member| -> anyhow::Result<bool> {
            let pods = self.pods_on(member)?;
            Ok(pods.iter().any(|pod| image(pod) == ours))
        };
        sh::until(30, "one node gets our daemon", || {
            for (index, member) in self.fixture.cluster.members.iter().enumerate() {
                if has_ours(member)? {
                    return Ok((index, 1 - index));
                }
            }
            anyhow::bail!("no node has it")
        })
    }

    /// Waits until our daemon is ready on the first node; fails unless the published one is ready on the second.
    fn wait_until_half_way(&self, first: usize, second: usize) -> anyhow::Result<()> {
        let members = &self.fixture.cluster.members;
        let ours = our_image(self.fixture)?;
        sh::until(120, "our daemon is the only one on the first node", || {
            let images = self.ready_images(&members[first])?;
            ensure!(
                images == [ours.as_str()],
                "the daemons' images are {images:?}"
            );
            Ok(())
        })?;
        let images = self.ready_images(&members[second])?;
        ensure!(
            self.old.has_images(&images),
            "the daemons' images on the second node are {images:?}"
        );
        Ok(())
    }

    /// Waits until our daemon is ready on every node, and no other one is left.
    fn wait_until_upgraded(&self) -> anyhow::Result<()> {
        let expected = [our_image(self.fixture)?];
        self.fixture.each(|member| {
            sh::until(120, "our daemon is the only one", || {
                let images = self.ready_images(member)?;
                ensure!(
                    images == expected,
                    "the images of ready daemons are {images:?}"
                );
                let pods = self.pods_on(member)?;
                ensure!(pods.len() == 1, "there are {} daemons", pods.len());
                Ok(())
            })
        })?;
        self.fixture.wait_until_ready(NAME)
    }

    fn ensure_defined(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let found = cluster.get(&["network-attachment-definitions", "storage"])?;
        let leaving = &found["metadata"]["deletionTimestamp"];
        ensure!(leaving.is_null(), "the definition is being deleted");
        Ok(())
    }

    fn nothing_left(&self) -> anyhow::Result<()> {
        self.fixture.each(|member| nothing_left(&member.node))
    }

    fn wait_until_removed(&self) -> anyhow::Result<()> {
        self.fixture.each(|member| {
            let paths = &member.runtime.paths;
            sh::until(60, "our files are removed from the node", || {
                for file in [
                    format!("{}/multus-shim", paths.bin_dir),
                    format!("{}/00-multus.conf", paths.conf_dir),
                ] {
                    ensure!(!member.node.path(&file).exists(), "{file} is still there");
                }
                Ok(())
            })
        })
    }

    /// Returns the images of the ready daemons on a node.
    fn ready_images(&self, member: &Member) -> anyhow::Result<Vec<String>> {
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
            })
        };
        let pods = self.pods_on(member)?;
        let ready = pods.iter().filter(is_ready);
        Ok(ready.map(|pod| image(pod).to_owned()).collect())
    }

    /// Returns the daemons' pods on a node.
    fn pods_on(&self, member: &Member) -> anyhow::Result<Vec<Value>> {
        let mut list = self.fixture.cluster.get(&[
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
