//! Suite `rke2`: real RKE2, a server and an agent, each installed by RKE2's own installer and started by the command line of its unit; its
//! static pods, its helm-controller and klipper-helm. Suite `k3s` says what systemd would need.

mod brought;
mod hardened;
mod versions;
mod wireguard;

use anyhow::ensure;

use super::k3s::{
    DistroCluster,
    charts::config,
    ensure_through_us,
    node::{DistroNode, RKE2, Role},
    releases::released,
};
use crate::{
    cluster::pods::Pods as _,
    distro_table::DistroRelease,
    node::network::{NodeNetwork, address},
    options::Options,
    programs::{
        Module, Needs,
        rke2::{self, Rke2},
    },
    report::{Checked, Report},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    // RKE2's program is linked with SQLite, by gcc; its installer writes units where it finds systemctl.
    debian: "busybox etcd gcc ip iptables runc skopeo sysctl systemctl umoci zstd",
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::Kubernetes,
        Module::Multus,
        Module::Plugins,
    ],
};

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let wanted = options.wanted(&CASES, report)?;
    let rke2 = report.check("RKE2's program, its installer and its images", || {
        Rke2::find(env, options.k3s.as_deref(), options.install)
    })?;
    let release = DistroRelease {
        distro: "RKE2",
        version: rke2::VERSIONS[0].to_owned(),
    };
    release.run(env, options, &wanted, report, |case, report| {
        case(env, &rke2, report)
    })
}

/// The cases, each with nodes of its own.
const CASES: [(&str, Case); 5] = [
    ("life", life),
    ("brought", brought::run),
    ("versions", versions::run),
    ("hardened", hardened::run),
    ("wireguard", wireguard::run),
];

type Case = fn(&TestEnv, &Rke2, &mut Report) -> Checked;

/// From a medium to an agent, pods and the removal, as the pages say.
fn life(env: &TestEnv, rke2: &Rke2, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (server, mut agent, _network) = report.check(
        "RKE2's installer makes the units of a server and an agent, without a network",
        || {
            let network = NodeNetwork::new()?;
            let server = DistroNode::install_rke2(env, &network, rke2, (1, Role::Server))?;
            let agent = DistroNode::install_rke2(env, &network, rke2, (2, Role::Agent))?;
            for (node, other) in [(&server, 2), (&agent, 1)] {
                let (subnet, gateway) = (format!("10.42.{other}.0/24"), address(other));
                let route = ["ip", "route", "add", &subnet, "via", &gateway];
                node.node.run(&route)?;
            }
            Ok((server, agent, network))
        },
    )?;
    report.check(
        "images and program come from a medium, before RKE2's first start",
        || {
            server.take_medium()?;
            server.node.run(&["multus-distro", "install"])?;
            ensure_through_us(&server, "server")
        },
    )?;
    let mut cluster = report.check(
        "the server's unit starts RKE2 with its static pods, and its node is Ready",
        || DistroCluster::of(server),
    )?;
    cluster.installed(report)?;
    report.check("an agent joins, and has its daemon", || {
        agent.take_medium()?;
        agent.node.run(&["multus-distro", "install"])?;
        ensure_through_us(&agent, "agent")?;
        agent.start()?;
        cluster.nodes.push(agent);
        cluster.all_are_ready()?;
        cluster.daemons_are_ready()?;
        cluster.ensure_not_pulled()
    })?;
    cluster.doctor_finds_nothing(report)?;
    report.check(
        "a HelmChartConfig changes the chart, and the daemons follow",
        || {
            let revision = released(&cluster, RKE2.chart, 0)?;
            let values = "podDisruptionBudget: {enabled: true}\n";
            cluster.apply(&[config(RKE2.chart, values)])?;
            released(&cluster, RKE2.chart, revision)?;
            cluster.daemons_are_ready()?;
            let get = ["get", "poddisruptionbudgets", "--namespace=kube-system"];
            let budgets = cluster.kubectl(&[&get[..], &["--output=name"]].concat())?;
            ensure!(budgets.contains(RKE2.chart), "there are {budgets}");
            Ok(())
        },
    )?;
    report.check("networks are defined", || cluster.define_networks())?;
    cluster.pods(report)?;
    report.check(
        "after uninstall on every node and a restart the charts are uninstalled, and definitions stay",
        || {
            let before = cluster.networks()?;
            cluster.each(|member| member.node.run(&["multus-distro", "uninstall"]).map(drop))?;
            cluster.restart()?;
            cluster.wait_until_removed()?;
            cluster.networks_stay(&before)
        },
    )?;
    cluster.without_multus(report)
}
