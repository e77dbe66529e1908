//! RKE2: the chart is inside the manifest, RKE2 writes the cluster's settings into it, and its flag `--disable` uninstalls it.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::jobs::{RKE2, Servers};
use crate::{
    cluster::k3s_server::{inject_settings, job_log, released},
    control_plane::objects,
    node::file_hashes::FileHashes,
    programs::published_charts,
    report::{CheckFailed, Report},
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
};

const CRD: &str = "network-attachment-definitions.k8s.cni.cncf.io";
/// The system default registry; the nodes have the image under this name, too.
const REGISTRY: &str = "mirror.e2e.invalid:5000";

impl ClusterFixture<'_> {
    pub(super) fn rke2(
        &self,
        servers: &mut Servers,
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        let server = &self.cluster.members[1];
        report.check(
            "RKE2: jobs replace an old chart whose CRD Helm would delete, the main chart's first, with the cluster's settings",
            || {
                let image = self.image()?;
                let (_, name) = image.split_once('/').context("images have a registry")?;
                for member in &self.cluster.members {
                    // The agents of K3s and RKE2 tag imported images with the system default registry, too.
                    let second = format!("{REGISTRY}/{name}");
                    let mut ctr = member.runtime.ctr(&member.node);
                    sh::run(ctr.args(["images", "tag", &image, &second]))?;
                }
                let uid = self.deletable_release()?;
                self.stage(server, "rke2", RKE2, "")?;
                let count = inject_settings(&server.node, RKE2, &settings())?;
                ensure!(count == 2, "settings were written into {count} charts");
                // Nothing orders the two jobs, so the main chart's may be the first.
                let skip = format!("{RKE2}/server/manifests/multus-crd.yaml.skip");
                server.node.write(&skip, "")?;
                ensure!(servers.scan(self, RKE2, &[])? == ["applied multus.yaml"]);
                sh::until(90, "the main chart's job waits for the CRD's", || {
                    let log = job_log(&self.cluster, "rke2-multus");
                    let waits = "install the chart rke2-multus-crd first";
                    ensure!(log.contains(waits), "its log is {log}");
                    Ok(())
                })?;
                fs::remove_file(server.node.path(&skip))?;
                ensure!(servers.scan(self, RKE2, &[])? == ["applied multus-crd.yaml"]);
                released(&self.cluster, "rke2-multus-crd", 0)?;
                released(&self.cluster, "rke2-multus", 1)?;
                self.wait_until_deployed("rke2-multus")?;
                ensure!(self.network()? == uid, "the upgrade lost the networks");
                Ok(())
            },
        )?;
        report.check("the image has the cluster's registry", || {
            let set = self.cluster.get(&["daemonset", "rke2-multus", NAMESPACE])?;
            let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
            let image = image.as_str().unwrap_or_default();
            ensure!(image.starts_with(&format!("{REGISTRY}/")), "it is {image}");
            Ok(())
        })?;
        report.check("pods get their networks again", || self.pods("again"))?;
        report.check(
            "staging again keeps what RKE2 has written into the manifests",
            || {
                let written = self.stage(server, "rke2", RKE2, "")?;
                ensure!(written.is_empty(), "it wrote {written}");
                ensure!(servers.scan(self, RKE2, &[])?.is_empty());
                Ok(())
            },
        )
    }

    /// Installs a release as RKE2 did until April 2026, and a network; returns the network's uid.
    fn deletable_release(&self) -> anyhow::Result<Value> {
        self.cluster.kubectl(&["delete", "crd", CRD])?;
        let chart = published_charts::deletable(self.env, "rke2-multus")?;
        // Its pods run nowhere: no node has their image.
        let nowhere = "--set=labels.nodeSelector.e2e=nowhere";
        self.cluster.install(&chart, "rke2-multus", &[nowhere])?;
        self.cluster.apply(&[objects::storage()])?;
        self.network()
    }

    fn network(&self) -> anyhow::Result<Value> {
        let network = self.cluster.get(&[CRD, "storage"])?;
        Ok(network["metadata"]["uid"].clone())
    }

    pub(super) fn rke2_uninstall(
        &self,
        servers: &mut Servers,
        before: &[FileHashes],
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        let server = &self.cluster.members[1];
        report.check(
            "a start without --multus disables and uninstalls it",
            || {
                let program = format!("{RKE2}/bin/rke2");
                server.node.write(&program, "#!/bin/sh\necho \"$@\"\n")?;
                server.node.run(&["chmod", "755", &program])?;
                let mut command = self.distro(server);
                let said = sh::run(command.args(["run", "--", &program, "server"]))?;
                let disabled: Vec<String> = said
                    .split_whitespace()
                    .filter_map(|word| word.strip_prefix("--disable="))
                    .map(str::to_owned)
                    .collect();
                ensure!(
                    disabled == ["multus-crd", "multus"],
                    "RKE2 is started with {said}"
                );
                // After a restart the server scans every file.
                servers.restart();
                let removed = ["removed multus-crd.yaml", "removed multus.yaml"];
                ensure!(servers.scan(self, RKE2, &disabled)? == removed);
                self.wait_until_uninstalled("rke2")?;
                let mut command = self.distro(server);
                let said = sh::run(command.args(["run", "--", &program, "server"]))?;
                ensure!(said.trim() == "server", "the next start has {said}");
                let record = server
                    .node
                    .path(&format!("{RKE2}/server/.multus-distro.json"));
                ensure!(!record.exists(), "the record is still there");
                fs::remove_file(server.node.path(&program))?;
                self.ensure_files_unchanged(before)
            },
        )?;
        report.check("network definitions stay again", || self.definitions_stay())?;
        report.check(
            "new pods start with the default network alone again",
            || self.default_network_alone(),
        )
    }
}

/// Returns all settings that RKE2 writes into charts, with this cluster's values.
fn settings() -> [(&'static str, &'static str); 11] {
    [
        ("global.clusterCIDR", "10.244.0.0/16"),
        ("global.clusterCIDRv4", "10.244.0.0/16"),
        ("global.clusterCIDRv6", ""),
        ("global.clusterDNS", "10.96.0.10"),
        ("global.clusterDomain", "cluster.local"),
        ("global.rke2DataDir", RKE2),
        ("global.serviceCIDR", "10.96.0.0/16"),
        ("global.systemDefaultIngressClass", "ingress-nginx"),
        ("global.prime.enabled", "false"),
        ("global.systemDefaultRegistry", REGISTRY),
        ("global.cattle.systemDefaultRegistry", REGISTRY),
    ]
}
