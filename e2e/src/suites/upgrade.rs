//! Suite `upgrade`: a cluster that runs the published chart gets ours under its running pods, half of the nodes first, goes
//! back, and comes again. The daemons of both sides are real: upstream's programs are an argument.

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

/// Where the published chart can work at all: its daemon knows the standard directories only.
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
            .context("name the folder of upstream's programs with --peer")
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
        .tell(report)?;
    }
    Ok(())
}

/// The image of a pod of daemons.
fn image(pod: &Value) -> &str {
    let image = pod["spec"]["containers"][0]["image"].as_str();
    image.unwrap_or_default()
}

/// Our image as pods name it: the registry stands apart in the chart.
fn our_image(fixture: &ClusterFixture) -> anyhow::Result<String> {
    Ok(fixture.image()?.trim_start_matches("docker.io/").to_owned())
}

/// One published release, and what becomes of it.
struct UpgradeFixture<'a> {
    fixture: &'a ClusterFixture<'a>,
    old: PublishedRelease<'a>,
}

impl UpgradeFixture<'_> {
    fn tell(&self, report: &mut Report) -> Result<(), CheckFailed> {
        let of = |what: &str| format!("{}: {what}", self.old.published.name);
        report.check(&of("installed, it gives pods their networks"), || {
            self.old.install()?;
            self.old.is_deployed()?;
            self.fixture.cluster.apply(&[objects::storage()])?;
            self.make("theirs")
        })?;
        report.check(
            &of("kubectl multus preflight says what will fail and change"),
            || self.preflight(),
        )?;
        let (first, second) = report.check(
            &of("ours comes where its image is, the other node keeps theirs"),
            || {
                self.upgrade()?;
                let (first, second) = self.order()?;
                self.fixture.import_on(first)?;
                self.is_half_way(first, second)?;
                Ok((first, second))
            },
        )?;
        report.check(&of("half way, pods come and go on every node"), || {
            self.make("half")?;
            self.delete("theirs")
        })?;
        report.check(&of("with the image on every node, ours serves all"), || {
            self.fixture.import_on(second)?;
            self.is_ours()?;
            self.have("half")
        })?;
        report.check(&of("pods start anew as preflight said"), || {
            self.preflight_comes_true()
        })?;
        report.check(&of("its definitions are still there"), || self.is_defined())?;
        report.check(&of("pods of half the way go, others come"), || {
            self.make("ours")?;
            self.delete("half")?;
            self.have("ours")
        })?;
        report.check(&of("back again, pods keep their networks"), || {
            self.old.install()?;
            self.old.is_deployed()?;
            self.have("ours")
        })?;
        report.check(&of("it takes down our pods, and makes its own"), || {
            self.make("back")?;
            self.delete("ours")
        })?;
        report.check(&of("ours comes a second time"), || {
            self.upgrade()?;
            self.is_ours()?;
            self.have("back")?;
            self.make("again")?;
            self.delete("back")?;
            self.delete("again")?;
            self.is_clean()
        })?;
        report.check(
            &of("ours removed, pods start on the primary network"),
            || {
                self.fixture.helm_uninstall(NAME)?;
                self.is_gone()?;
                self.is_defined()?;
                self.fixture.primary_alone()
            },
        )?;
        report.check(&of("the node forgets ours"), || {
            self.fixture.helm_uninstall(CRD_NAME)?;
            self.is_defined()?;
            self.fixture.forget_on(first)?;
            self.fixture.forget_on(second)
        })
    }

    /// As the documents say for plain Helm: the definition first, then the main chart, with the values that were given before.
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

    /// A pod on every node, with both networks.
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

    /// Which node gets its pod of ours first, and which will be the second.
    fn order(&self) -> anyhow::Result<(usize, usize)> {
        let ours = our_image(self.fixture)?;
        let has_ours = |member: &Member| -> anyhow::Result<bool> {
            let pods = self.pods_on(member)?;
            Ok(pods.iter().any(|pod| image(pod) == ours))
        };
        sh::until(30, "one node gets a pod of ours", || {
            for (index, member) in self.fixture.cluster.members.iter().enumerate() {
                if has_ours(member)? {
                    return Ok((index, 1 - index));
                }
            }
            anyhow::bail!("none has")
        })
    }

    /// Ready on the first node in our image, on the second still in theirs.
    fn is_half_way(&self, first: usize, second: usize) -> anyhow::Result<()> {
        let members = &self.fixture.cluster.members;
        let ours = our_image(self.fixture)?;
        sh::until(120, "ours is the only one on the first node", || {
            let images = self.ready_on(&members[first])?;
            ensure!(images == [ours.as_str()], "there run {images:?}");
            Ok(())
        })?;
        let images = self.ready_on(&members[second])?;
        ensure!(
            self.old.are(&images),
            "the second node runs {images:?} instead"
        );
        Ok(())
    }

    /// Ready everywhere, in our image alone.
    fn is_ours(&self) -> anyhow::Result<()> {
        let expected = [our_image(self.fixture)?];
        self.fixture.each(|member| {
            sh::until(120, "ours is the only one", || {
                let images = self.ready_on(member)?;
                ensure!(images == expected, "ready are {images:?}");
                let pods = self.pods_on(member)?;
                ensure!(pods.len() == 1, "{} pods of daemons are there", pods.len());
                Ok(())
            })
        })?;
        self.fixture.is_ready(NAME)
    }

    fn is_defined(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let found = cluster.get(&["network-attachment-definitions", "storage"])?;
        let leaving = &found["metadata"]["deletionTimestamp"];
        ensure!(leaving.is_null(), "the definition is being deleted");
        Ok(())
    }

    fn is_clean(&self) -> anyhow::Result<()> {
        self.fixture.each(|member| nothing_left(&member.node))
    }

    fn is_gone(&self) -> anyhow::Result<()> {
        self.fixture.each(|member| {
            let paths = &member.runtime.paths;
            sh::until(60, "ours is gone from the node", || {
                for file in [
                    format!("{}/multus-shim", paths.bin_dir),
                    format!("{}/00-multus.conf", paths.conf_dir),
                ] {
                    ensure!(!member.node.path(&file).exists(), "there still is {file}");
                }
                Ok(())
            })
        })
    }

    /// Images of the daemons that are ready on a node.
    fn ready_on(&self, member: &Member) -> anyhow::Result<Vec<String>> {
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

    /// The daemons' pods on a node.
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
