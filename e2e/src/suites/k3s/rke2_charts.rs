//! The manifests that multus-distro stages for RKE2, on K3s: RKE2's server is K3s' own, with the same deploy controller, helm-controller and
//! jobs. What RKE2 alone does, the test plays: it writes the cluster's settings into every HelmChart before its server starts.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    charts::{Charts, NAMESPACE, manifest},
    node::{BIN, DATA},
    releases::{job_log, released},
};
use crate::{
    cluster::pods::Pods as _,
    programs::published_charts,
    report::{Checked, Report},
    sh,
    suites::chart::render::parse,
};

const CHART: &str = "rke2-multus";
const CRD_CHART: &str = "rke2-multus-crd";
/// The system default registry; the node has the image under this name, too.
const REGISTRY: &str = "mirror.e2e.invalid:5000";
/// The staged manifests, which are also the words of `--disable`.
const NAMES: [&str; 2] = ["multus-crd", "multus"];

pub(super) fn run(fixture: &mut Charts<'_>, report: &mut Report) -> Checked {
    report.check(
        "RKE2's manifests: jobs replace an old chart whose CRD Helm would delete, the main chart's first, with the cluster's settings",
        || fixture.replaces_deletable_chart(),
    )?;
    report.check(
        "the image has the cluster's registry, and pods start",
        || {
            let image = "--output=jsonpath={.spec.template.spec.containers[0].image}";
            let get = ["get", "daemonset", CHART, NAMESPACE, image];
            let image = fixture.cluster.kubectl(&get)?;
            ensure!(image.starts_with(&format!("{REGISTRY}/")), "it is {image}");
            fixture.ensure_pods("again", 5)
        },
    )?;
    report.check(
        "staging again keeps what RKE2 has written into the manifests",
        || {
            let before = fixture.cluster.generations()?;
            let written = fixture.stage_rke2()?;
            ensure!(written.is_empty(), "it wrote {written}");
            fixture.cluster.manifests_are_read(4)?;
            let now = fixture.cluster.generations()?;
            ensure!(now == before, "{before} became {now}");
            Ok(())
        },
    )?;
    report.check(
        "a start without --multus disables and uninstalls it, and networks stay",
        || fixture.disabled(),
    )
}

impl Charts<'_> {
    fn stage_rke2(&self) -> anyhow::Result<String> {
        let stage = ["stage", "--multus", "--distro=rke2", "--data-dir", DATA];
        sh::run(&mut self.distro(&stage))
    }

    fn replaces_deletable_chart(&mut self) -> anyhow::Result<()> {
        let node = &self.cluster.server().node;
        node.run(&["multus-distro", "uninstall"])?;
        // K3s' agent tags images with the system default registry, too, where one is set.
        let release: Value = serde_json::from_slice(&self.env.read("release.json")?)?;
        let image = release["images"][0]["reference"].as_str();
        let image = image.context("release.json names no image")?;
        let (_, name) = image.split_once('/').context("images have a registry")?;
        let second = format!("{REGISTRY}/{name}");
        node.run(&["k3s", "ctr", "images", "tag", "--force", image, &second])?;
        let crd = "network-attachment-definitions.k8s.cni.cncf.io";
        self.cluster.kubectl(&["delete", "crd", crd])?;
        let chart = published_charts::deletable(self.env, CHART)?;
        // Its pods run nowhere: the node does not have their image.
        let nowhere = "--set=labels.nodeSelector.e2e=nowhere";
        sh::run(self.helm(&["install", CHART, nowhere]).arg(chart))?;
        self.cluster.define_networks()?;
        self.networks = self.cluster.networks()?;

        self.cluster.end()?;
        self.stage_rke2()?;
        let count = self.inject_settings()?;
        ensure!(count == 2, "settings were written into {count} charts");
        // Nothing orders the two jobs, so the main chart's may be the first.
        let skip = manifest("multus-crd.yaml.skip");
        self.write(&skip, "")?;
        self.cluster.restart()?;
        sh::until(180, "the main chart's job waits for the CRD's", || {
            let log = job_log(&self.cluster, CHART);
            let waits = "install the chart rke2-multus-crd first";
            ensure!(log.contains(waits), "its log is {log}");
            Ok(())
        })?;
        fs::remove_file(self.path(&skip))?;
        released(&self.cluster, CRD_CHART, 0)?;
        released(&self.cluster, CHART, 1)?;
        self.cluster.are_ready(CHART)?;
        self.cluster.ensure_not_pulled()?;
        self.networks_stay()
    }

    /// Writes the cluster's settings into every HelmChart with the annotation for it; returns the number of charts.
    fn inject_settings(&self) -> anyhow::Result<usize> {
        let mut count = 0;
        for name in NAMES {
            let path = self.path(&manifest(&format!("{name}.yaml")));
            let mut objects = parse(&fs::read_to_string(&path)?)?;
            for object in &mut objects {
                let annotation =
                    &object["metadata"]["annotations"]["rke2.cattle.io/inject-cluster-config"];
                if annotation == "true" {
                    for (key, value) in SETTINGS {
                        object["spec"]["set"][key] = value.into();
                    }
                    count += 1;
                }
            }
            let texts = objects.iter().map(serde_yaml::to_string);
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            fs::write(path, texts.join("---\n"))?;
        }
        Ok(count)
    }

    /// Starts the server with the words that multus-distro gives RKE2.
    fn disabled(&mut self) -> anyhow::Result<()> {
        // The program's name is what tells RKE2 from K3s.
        let program = format!("{BIN}/rke2");
        self.write(&program, "#!/bin/sh\necho \"$@\"\n")?;
        self.cluster
            .server()
            .node
            .run(&["chmod", "755", &program])?;
        let data_dir = format!("--data-dir={DATA}");
        let arguments = ["run", "--", &program, "server", &data_dir];
        let said = sh::run(&mut self.distro(&arguments))?;
        let disabled: Vec<_> = said
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--disable="))
            .collect();
        ensure!(disabled == NAMES, "RKE2 is started with {said}");
        let words = serde_json::json!({"disable+": disabled});
        self.write(
            "/etc/rancher/k3s/config.yaml.d/disable.yaml",
            words.to_string(),
        )?;
        self.cluster.restart()?;
        self.cluster.wait_until_removed()?;
        self.networks_stay()?;
        let said = sh::run(&mut self.distro(&arguments))?;
        let is_plain = said.trim() == format!("server {data_dir}");
        ensure!(is_plain, "the next start has {said}");
        let record = self.path(&format!("{DATA}/server/.multus-distro.json"));
        ensure!(!record.exists(), "the record is still there");
        let left = self.cluster.server().node.list(&manifest(""))?;
        let ours = left.iter().find(|name| name.contains("multus"));
        ensure!(ours.is_none(), "among the manifests is {ours:?}");
        self.cluster.default_network_alone("last")
    }
}

/// All settings that RKE2 writes into charts.
const SETTINGS: [(&str, &str); 11] = [
    ("global.clusterCIDR", "10.42.0.0/16"),
    ("global.clusterCIDRv4", "10.42.0.0/16"),
    ("global.clusterCIDRv6", ""),
    ("global.clusterDNS", "10.43.0.10"),
    ("global.clusterDomain", "cluster.local"),
    ("global.rke2DataDir", DATA),
    ("global.serviceCIDR", "10.43.0.0/16"),
    ("global.systemDefaultIngressClass", "ingress-nginx"),
    ("global.prime.enabled", "false"),
    ("global.systemDefaultRegistry", REGISTRY),
    ("global.cattle.systemDefaultRegistry", REGISTRY),
];
