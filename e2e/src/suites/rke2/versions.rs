//! RKE2 is upgraded and rolled back by its own installer under running pods.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::{
    cluster::pods::Pods as _,
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::rke2::Rke2,
    report::{Checked, Report},
    sh,
    suites::k3s::{
        DEADLINE, DistroCluster, ensure_through_us,
        node::{DistroNode, Role},
    },
    test_env::TestEnv,
};

pub(super) fn run(env: &TestEnv, rke2: &Rke2, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (mut cluster, _network) = report.check(
        "a server runs with Multus, installed before its first start",
        || {
            let network = NodeNetwork::new()?;
            let server = DistroNode::install_rke2(env, &network, rke2, (1, Role::Server))?;
            server.take_medium()?;
            server.node.run(&["multus-distro", "install"])?;
            Ok((DistroCluster::of(server)?, network))
        },
    )?;
    cluster.installed(report)?;
    let old = cluster.old_pods(report)?;
    for (title, artifacts, new) in [
        (
            "another version of RKE2 starts through Multus' drop-in: pods keep their networks, new ones start",
            &rke2.next,
            ("next", 2),
        ),
        (
            "the former version starts again: the same",
            &rke2.artifacts,
            ("former", 3),
        ),
    ] {
        report.check(title, || {
            cluster.upgrade(&old, new, |cluster| {
                let server = cluster.server();
                server.run_rke2_installer(&rke2.installer, artifacts)?;
                ensure_through_us(server, "server")?;
                cluster.restart()?;
                cluster.runs_version(artifacts)
            })
        })?;
    }
    report.check("pods are deleted without a trace", || {
        cluster.delete(&old)?;
        nothing_left(&cluster.server().node)
    })
}

impl DistroCluster {
    /// Waits until the static pod of the API server has the image of a version, whose files these are.
    fn runs_version(&self, artifacts: &Path) -> anyhow::Result<()> {
        let version = artifacts.file_name().and_then(|name| name.to_str());
        let tag = version.context("a version is text")?.replace('+', "-");
        let pod = format!("pod/kube-apiserver-{}", self.server().node.name);
        let form = "--output=jsonpath={.spec.containers[0].image}";
        sh::until(DEADLINE, "the API server has another image", || {
            let image = self.kubectl(&["get", &pod, "--namespace=kube-system", form])?;
            ensure!(image.ends_with(&tag), "its image is {image}");
            Ok(())
        })
    }
}
