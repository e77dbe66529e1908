//! RKE2's form: the chart inside its manifest, the cluster's settings written into it, and off again by the distro's own flag.

use anyhow::{Context as _, ensure};

use super::jobs::{RKE2, Servers};
use crate::{
    cluster::k3s_server::{inject_settings, released},
    node::file_hashes::FileHashes,
    report::{CheckFailed, Report},
    sh,
    suites::cluster::{ClusterFixture, NAMESPACE},
};

/// Where RKE2's nodes get images from, here under a second name in their stores.
const REGISTRY: &str = "mirror.e2e.invalid:5000";

impl ClusterFixture<'_> {
    pub(super) fn rke2(
        &self,
        servers: &mut Servers,
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        let server = &self.cluster.members[1];
        report.check(
            "RKE2's form: the chart inside, a cluster's settings written into it",
            || {
                let image = self.image()?;
                let (_, name) = image.split_once('/').context("images have a registry")?;
                for member in &self.cluster.members {
                    // As the agents of K3s and RKE2 name what they import.
                    let second = format!("{REGISTRY}/{name}");
                    let mut ctr = member.runtime.ctr(&member.node);
                    sh::run(ctr.args(["images", "tag", &image, &second]))?;
                }
                self.stage(server, "rke2", RKE2, "")?;
                let count = inject_settings(&server.node, RKE2, &settings())?;
                ensure!(count == 2, "settings were written into {count} charts");
                let expected = ["applied multus-crd.yaml", "applied multus.yaml"];
                ensure!(servers.scan(self, RKE2, &[])? == expected);
                released(&self.cluster, "rke2-multus-crd", 0)?;
                released(&self.cluster, "rke2-multus", 0)?;
                self.is_deployed("rke2-multus")
            },
        )?;
        report.check("the cluster's registry stands before the image", || {
            let set = self.cluster.get(&["daemonset", "rke2-multus", NAMESPACE])?;
            let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
            let image = image.as_str().unwrap_or_default();
            ensure!(image.starts_with(&format!("{REGISTRY}/")), "it is {image}");
            Ok(())
        })?;
        report.check("pods get their networks again", || self.pods("again"))?;
        report.check(
            "staged beside what RKE2 has written, nothing changes",
            || {
                let written = self.stage(server, "rke2", RKE2, "")?;
                ensure!(written.is_empty(), "it wrote {written}");
                ensure!(servers.scan(self, RKE2, &[])?.is_empty());
                Ok(())
            },
        )
    }

    pub(super) fn rke2_goes(
        &self,
        servers: &mut Servers,
        before: &[FileHashes],
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        let server = &self.cluster.members[1];
        report.check(
            "a start without --multus: the distro disables it, all of it goes",
            || {
                let program = format!("{RKE2}/bin/rke2");
                server.node.write(&program, "#!/bin/sh\necho \"$@\"\n")?;
                server.node.run(&["chmod", "755", &program])?;
                let mut command = self.distro(server);
                let said = sh::run(command.args(["server", "--", &program, "server"]))?;
                let disabled: Vec<String> = said
                    .split_whitespace()
                    .filter_map(|word| word.strip_prefix("--disable="))
                    .map(str::to_owned)
                    .collect();
                ensure!(disabled == ["multus-crd", "multus"], "it is told: {said}");
                // A start: every file is looked at.
                servers.restart();
                let removed = ["removed multus-crd.yaml", "removed multus.yaml"];
                ensure!(servers.scan(self, RKE2, &disabled)? == removed);
                self.is_gone("rke2")?;
                let mut command = self.distro(server);
                let said = sh::run(command.args(["server", "--", &program, "server"]))?;
                ensure!(said.trim() == "server", "the next start is told: {said}");
                let record = server
                    .node
                    .path(&format!("{RKE2}/server/.multus-distro.json"));
                ensure!(!record.exists(), "the record is still there");
                std::fs::remove_file(server.node.path(&program))?;
                self.are_as(before)
            },
        )?;
        report.check("definitions of networks stay once more", || {
            self.definitions_stay()
        })?;
        report.check(
            "new pods start on the primary network alone once more",
            || self.primary_alone(),
        )
    }
}

/// What RKE2 writes into charts: all of it, with this cluster's values.
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
