//! A published release of the chart, with images that are built from upstream's programs.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use super::each_node::EachNode;
use crate::{
    programs::{image::Image, published_charts},
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
    test_env::TestEnv,
};

/// The names of the Helm release and of its charts: the published ones and ours have the same.
pub(crate) const NAME: &str = "rke2-multus";
pub(crate) const CRD_NAME: &str = "rke2-multus-crd";

/// A release of the published chart.
pub(crate) struct ReleaseSpec {
    pub(crate) name: &'static str,
    pub(crate) chart: &'static str,
    /// The chart of the CRD; v4.3.008 has none.
    pub(crate) crd_chart: Option<&'static str>,
    values: &'static [&'static str],
}

/// The value that takes the daemon.
const THICK: &str = "--set=thickPlugin.enabled=true";

/// One release of each kind: with the CRD in the main chart and without a daemon; with the CRD in its own chart and with a daemon.
pub(crate) const PUBLISHED: &[ReleaseSpec] = &[
    ReleaseSpec {
        name: "v4.3.008, thin",
        chart: published_charts::OLD,
        crd_chart: None,
        values: &[],
    },
    ReleaseSpec {
        name: "v4.3.017, thick",
        chart: published_charts::NEW,
        crd_chart: Some(published_charts::NEW_CRD),
        values: &[THICK],
    },
];

/// The release that K3s' documentation installs, with the values that it shows.
pub(crate) const PUBLISHED_ON_K3S: ReleaseSpec = ReleaseSpec {
    name: "v4.3.017, thin on K3s",
    chart: published_charts::NEW,
    crd_chart: Some(published_charts::NEW_CRD),
    values: &[
        "--set=config.fullnameOverride=multus",
        "--set=config.cni_conf.confDir=/var/lib/rancher/k3s/agent/etc/cni/net.d",
        "--set=config.cni_conf.binDir=/var/lib/rancher/k3s/data/cni/",
        "--set=config.cni_conf.kubeconfig=/var/lib/rancher/k3s/agent/etc/cni/net.d/multus.d/multus.kubeconfig",
        "--set=config.cni_conf.multusAutoconfigDir=/var/lib/rancher/k3s/agent/etc/cni/net.d",
    ],
};

/// Paths of the programs in upstream's images.
pub(super) const PROGRAMS: [(&str, &str); 6] = [
    ("multus", "/usr/src/multus-cni/bin/multus"),
    ("multus-daemon", "/usr/src/multus-cni/bin/multus-daemon"),
    ("multus-shim", "/usr/src/multus-cni/bin/multus-shim"),
    ("passthru-cni", "/usr/src/multus-cni/bin/passthru"),
    ("thin_entrypoint", "/thin_entrypoint"),
    ("install_multus", "/install_multus"),
];

impl ReleaseSpec {
    /// Builds the images that the chart names, of upstream's programs in a directory, and of these reference plugins; returns the names
    /// and the archives.
    pub(crate) fn images(
        &self,
        env: &TestEnv,
        peer: &Path,
        plugins: &[&str],
    ) -> anyhow::Result<(BTreeSet<String>, Vec<PathBuf>)> {
        let rendered = sh::run(
            Command::new(env.bin.join("helm"))
                .args(["template", NAME])
                .arg(published_charts::archive(self.chart)?)
                .args(self.values),
        )?;
        let images: BTreeSet<_> = rendered
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "))
            .map(|image| image.trim_matches('"').to_owned())
            .collect();
        ensure!(!images.is_empty(), "{} names no image", self.chart);
        // One image copies reference plugins to the node; all others are Multus.
        let (plugin_images, multus): (Vec<_>, Vec<_>) = images
            .iter()
            .map(|image| format!("docker.io/{image}"))
            .partition(|image| image.contains("cni-plugins"));
        let is_thick = self.values.contains(&THICK);
        let thick_programs = ["multus-daemon", "multus-shim"];
        let programs: Vec<_> = PROGRAMS
            .iter()
            .filter(|(program, _)| is_thick || !thick_programs.contains(program))
            .map(|(program, path)| (peer.join(program), *path))
            .collect();
        let paths: Vec<_> = plugins
            .iter()
            .map(|name| format!("/plugins/{name}"))
            .collect();
        let plugins: Vec<_> = plugins
            .iter()
            .zip(&paths)
            .map(|(name, path)| (env.plugins.join(name), path.as_str()))
            .collect();
        let copy: &[&str] = match plugins[..] {
            [] => &["/bin/true"],
            _ => &["/bin/sh", "-c", "busybox cp /plugins/* /host/opt/cni/bin"],
        };
        // One chart names other images with other values.
        let name =
            |what: &str| format!("{what}-{}", self.name.replace(", ", "-").replace(' ', "-"));
        let archives = [
            Image {
                name: &name("plugins"),
                references: &plugin_images,
                programs: &plugins,
                entrypoint: copy,
                user: "",
            },
            Image {
                name: &name("multus"),
                references: &multus,
                programs: &programs,
                entrypoint: &["/thin_entrypoint"],
                user: "",
            },
        ]
        .map(|image| image.archive(env));
        let archives = archives.into_iter().collect::<anyhow::Result<_>>()?;
        Ok((images, archives))
    }
}

/// A published release on this cluster.
pub(crate) struct PublishedRelease<'a> {
    fixture: &'a ClusterFixture<'a>,
    pub(super) published: &'static ReleaseSpec,
    chart: PathBuf,
    crd_chart: Option<PathBuf>,
    images: BTreeSet<String>,
}

impl<'a> PublishedRelease<'a> {
    /// Builds the images that the chart names, and imports them on every node.
    pub(crate) fn import(
        fixture: &'a ClusterFixture<'a>,
        kind: &'static ReleaseSpec,
        peer: &Path,
    ) -> anyhow::Result<Self> {
        let (images, archives) = kind.images(fixture.env, peer, &[])?;
        for archive in archives {
            fixture.each(|member| member.runtime.import(&member.node, &archive))?;
        }
        Ok(Self {
            fixture,
            published: kind,
            chart: published_charts::archive(kind.chart)?,
            crd_chart: kind.crd_chart.map(published_charts::archive).transpose()?,
            images,
        })
    }

    /// Installs the release, or rolls back to it.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        let crd = self.crd_chart.as_ref().map(|chart| (CRD_NAME, chart));
        for (name, chart) in crd.into_iter().chain([(NAME, &self.chart)]) {
            sh::run(
                self.fixture
                    .cluster
                    .helm()
                    .args(["upgrade", "--install", "--take-ownership", NAMESPACE, name])
                    .arg(chart)
                    .args(self.published.values),
            )?;
        }
        Ok(())
    }

    /// Waits until every node has its daemon, and its configuration.
    pub(crate) fn wait_until_deployed(&self) -> anyhow::Result<()> {
        EachNode(self.fixture).wait_until_served_by(NAME)
    }

    /// Returns whether these are images of this release, and at least one.
    pub(super) fn has_images(&self, images: &[String]) -> bool {
        !images.is_empty() && images.iter().all(|image| self.images.contains(image))
    }
}
