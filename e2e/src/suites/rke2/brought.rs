//! The Multus that RKE2 brings: `cni` lists it, ours takes its place under running pods as docs/moving.md says, and gives it back.

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    cluster::pods::Pods as _,
    node::{inspect::nothing_left, network::NodeNetwork},
    pages::Reader,
    programs::rke2::Rke2,
    report::{Checked, Report},
    sh,
    suites::{
        k3s::{
            DEADLINE, DistroCluster,
            documented::PLUGINS,
            ensure_through_us,
            node::{DistroNode, RKE2, Role},
            releases::{job_log, released},
        },
        upgrade::published_release::PUBLISHED,
    },
    test_env::TestEnv,
};

pub(super) fn run(env: &TestEnv, rke2: &Rke2, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (mut cluster, _network) = report.check(
        "a server whose `cni` lists multus installs the chart that RKE2 brings",
        || {
            let network = NodeNetwork::new()?;
            let server = DistroNode::install_rke2(env, &network, rke2, (1, Role::Server))?;
            let (_, archives) = PUBLISHED[0].images(env, &env.upstream, &PLUGINS)?;
            server.add_images(&archives)?;
            server.take_medium()?;
            server.set("cni", json!(["multus", "none"]))?;
            let cluster = DistroCluster::of(server)?;
            cluster.runs("rancher/hardened-multus")?;
            Ok((cluster, network))
        },
    )?;
    let old = cluster.old_pods(report)?;
    let networks = report.check("the networks are there", || cluster.networks())?;
    report.check(
        "docs/moving.md: ours takes its place; networks and running pods stay as they are",
        || {
            let before = cluster.inspect(&old)?;
            let server = cluster.server();
            server.set("cni", "none".into())?;
            server.node.run(&["multus-distro", "install"])?;
            ensure_through_us(server, "server")?;
            cluster.restart()?;
            cluster.runs("multusrs/multus")?;
            cluster.daemons_are_ready()?;
            cluster.networks_stay(&networks)?;
            let now = cluster.inspect(&old)?;
            ensure!(now == before, "{before:?} became {now:?}");
            Ok(())
        },
    )?;
    report.check(
        "new pods have networks of ours, and pods of both are deleted without a trace",
        || {
            let new = cluster.create("new", 2)?;
            cluster.inspect(&new)?;
            cluster.delete(&[old.clone(), new].concat())?;
            nothing_left(&cluster.server().node)
        },
    )?;
    report.check(
        "back: RKE2 brings its own again, networks stay, and pods have them",
        || {
            let server = cluster.server();
            server.node.run(&["multus-distro", "uninstall"])?;
            cluster.restart()?;
            // Both charts have one name, and RKE2's would be uninstalled with ours.
            cluster.wait_until_removed()?;
            let server = cluster.server();
            let reader = Reader::new(env, "rke2")?;
            reader.follow("docs/moving.md", "back", || server.shell(env))?;
            reader.ensure_all_followed()?;
            server.set("cni", json!(["multus", "none"]))?;
            cluster.restart()?;
            cluster.runs("rancher/hardened-multus")?;
            cluster.networks_stay(&networks)?;
            let back = cluster.create("back", 3)?;
            cluster.inspect(&back)?;
            cluster.delete(&back)
        },
    )
}

impl DistroCluster {
    /// Waits until a job has installed the chart whose image has this name, and its daemon runs.
    fn runs(&self, image: &str) -> anyhow::Result<()> {
        let name = format!("daemonset/{}", RKE2.chart);
        let namespace = "--namespace=kube-system";
        sh::until(DEADLINE, &format!("the daemon of {image} runs"), || {
            let form = "--output=jsonpath={.spec.template.spec.containers[0].image}";
            let found = self.kubectl(&["get", &name, namespace, form])?;
            ensure!(found.contains(image), "its image is {found}");
            let status = ["rollout", "status", &name, namespace, "--timeout=5s"];
            self.kubectl(&status)
        })
        .with_context(|| job_log(self, RKE2.chart))?;
        released(self, RKE2.chart, 0).map(drop)
    }
}
