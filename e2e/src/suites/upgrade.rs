//! Suite `upgrade`: a cluster with the published chart is upgraded to ours under running pods, half of the nodes first, is rolled back,
//! and is upgraded again; then the same cluster moves over from upstream's manifests, and back, as docs/moving.md says.
//! A cluster with K3s' directories and the values of K3s' documentation goes the same way. The programs of both sides are real.

mod each_node;
mod manifests;
mod preflight;
pub(crate) mod published_release;
mod upstream_manifest;

use anyhow::ensure;

use self::{
    each_node::{EachNode, image, our_image},
    published_release::{
        CRD_NAME, NAME, PUBLISHED, PUBLISHED_ON_K3S, PublishedRelease, ReleaseSpec,
    },
    upstream_manifest::UpstreamManifest,
};
use super::cluster::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::{Cluster, Member},
    control_plane::objects,
    node::layout::{ContainerdVersion, Layout},
    options::Options,
    programs::{Module, Needs},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cluster::NEEDS.debian,
    modules: &[
        Module::Plugins,
        Module::Containerd,
        Module::Helm,
        Module::Kubernetes,
        Module::Multus,
    ],
};

/// Nodes with the standard directories, which the published chart takes by default.
const STANDARD: &[(Layout, ContainerdVersion)] = &[
    (Layout::Rke2, ContainerdVersion::V2),
    (Layout::Kubeadm, ContainerdVersion::V1),
];
/// Nodes for which the published chart has to be given the directories.
const K3S: &[(Layout, ContainerdVersion)] = &[
    (Layout::K3s, ContainerdVersion::V2),
    (Layout::K3s, ContainerdVersion::V2),
];

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let published = PUBLISHED.iter().chain([&PUBLISHED_ON_K3S]);
    let published = published.map(|one| one.name);
    let names = published.chain(UpstreamManifest::ALL.map(UpstreamManifest::name));
    options.ensure_selected(&names.collect::<Vec<_>>(), report)?;
    if options.selects(PUBLISHED_ON_K3S.name) {
        let cluster = report.check("two nodes with K3s' directories are Ready", || {
            Cluster::start(env, K3S)
        })?;
        upgrade(&ClusterFixture { env, cluster }, &PUBLISHED_ON_K3S, report)?;
    }
    let published: Vec<_> = PUBLISHED
        .iter()
        .filter(|one| options.selects(one.name))
        .collect();
    let upstream: Vec<_> = UpstreamManifest::ALL
        .into_iter()
        .filter(|one| options.selects(one.name()))
        .collect();
    if published.is_empty() && upstream.is_empty() {
        return Ok(());
    }
    let cluster = report.check("two nodes with the standard directories are Ready", || {
        Cluster::start(env, STANDARD)
    })?;
    let fixture = ClusterFixture { env, cluster };
    for one in published {
        upgrade(&fixture, one, report)?;
    }
    if upstream.is_empty() {
        return Ok(());
    }
    manifests::run(&fixture, &upstream, report)
}

/// Upgrades a published release to ours, and back.
fn upgrade(
    fixture: &ClusterFixture,
    published: &'static ReleaseSpec,
    report: &mut Report,
) -> Checked {
    let old = report.check(
        &format!("the images of {} are on every node", published.name),
        || PublishedRelease::import(fixture, published, &fixture.env.upstream),
    )?;
    let nodes = EachNode(fixture);
    UpgradeFixture {
        fixture,
        nodes,
        old,
    }
    .run(report)
}

/// One published release, which is upgraded.
struct UpgradeFixture<'a> {
    fixture: &'a ClusterFixture<'a>,
    nodes: EachNode<'a>,
    old: PublishedRelease<'a>,
}

impl UpgradeFixture<'_> {
    fn run(&self, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{}: {what}", self.old.published.name);
        report.check(
            &of("pods of the published release have their networks"),
            || {
                self.old.install()?;
                self.old.wait_until_deployed()?;
                self.fixture.cluster.apply(&[objects::storage()])?;
                self.nodes.make("theirs")
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
            self.nodes.make("half")?;
            self.nodes.delete("theirs")
        })?;
        report.check(
            &of("with our image on every node, all nodes are upgraded"),
            || {
                self.fixture.import_on(second)?;
                self.nodes.wait_until_upgraded()?;
                self.nodes.have("half")
            },
        )?;
        report.check(
            &of("recreated pods start or fail as preflight reported"),
            || self.preflight_comes_true(),
        )?;
        report.check(&of("network definitions stay"), || {
            self.nodes.ensure_defined()
        })?;
        report.check(&of("pods of half way are deleted, new ones start"), || {
            self.nodes.make("ours")?;
            self.nodes.delete("half")?;
            self.nodes.have("ours")
        })?;
        report.check(&of("after a rollback, pods keep their networks"), || {
            self.old.install()?;
            self.old.wait_until_deployed()?;
            self.nodes.have("ours")
        })?;
        report.check(
            &of("the published release deletes our pods and starts its own"),
            || {
                self.nodes.make("back")?;
                self.nodes.delete("ours")
            },
        )?;
        report.check(&of("a second upgrade works"), || {
            self.upgrade()?;
            self.nodes.wait_until_upgraded()?;
            self.nodes.have("back")?;
            self.nodes.make("again")?;
            self.nodes.delete("back")?;
            self.nodes.delete("again")?;
            self.nodes.nothing_left()
        })?;
        report.check(
            &of("without our release, pods start with the default network alone"),
            || {
                self.fixture.helm_uninstall(NAME)?;
                self.nodes.0.wait_until_removed()?;
                self.nodes.ensure_defined()?;
                self.fixture.default_network_alone()
            },
        )?;
        report.check(&of("our image is removed from the nodes"), || {
            self.fixture.helm_uninstall(CRD_NAME)?;
            self.nodes.ensure_defined()?;
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

    /// Returns the node that gets our daemon first, and the other one.
    fn order(&self) -> anyhow::Result<(usize, usize)> {
        let ours = our_image(self.fixture)?;
        let has_ours = |member: &Member| -> anyhow::Result<bool> {
            let pods = self.nodes.daemons_on(member)?;
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
            let images = self.nodes.ready_images(&members[first])?;
            ensure!(
                images == [ours.as_str()],
                "the daemons' images are {images:?}"
            );
            Ok(())
        })?;
        let images = self.nodes.ready_images(&members[second])?;
        ensure!(
            self.old.has_images(&images),
            "the daemons' images on the second node are {images:?}"
        );
        Ok(())
    }
}
