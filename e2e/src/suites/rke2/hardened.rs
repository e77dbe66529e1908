//! A server with RKE2's profile `cis`: pods of namespaces without a label have to be restricted ones, and have their networks all the same.

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    cluster::pods::Pods as _,
    control_plane::objects,
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::rke2::Rke2,
    report::{Checked, Report},
    suites::k3s::{
        DistroCluster,
        node::{DistroNode, Role},
    },
    test_env::TestEnv,
};

/// What RKE2's guide has administrators do before.
const USER: &str = "getent passwd etcd || useradd --system --comment 'etcd user' --shell /sbin/nologin --no-create-home --user-group etcd";

pub(super) fn run(env: &TestEnv, rke2: &Rke2, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (cluster, _network) = report.check(
        "a server with the profile cis starts through multus-distro",
        || {
            let network = NodeNetwork::new()?;
            let server = DistroNode::install_rke2(env, &network, rke2, (1, Role::Server))?;
            server.node.run(&["sh", "-c", USER])?;
            server.set("profile", "cis".into())?;
            server.take_medium()?;
            server.node.run(&["multus-distro", "install"])?;
            Ok((DistroCluster::of(server)?, network))
        },
    )?;
    cluster.installed(report)?;
    cluster.doctor_finds_nothing(report)?;
    report.check("a pod of root is refused, so the profile holds", || {
        cluster.define_networks()?;
        let refused = cluster.create("root", 1).err();
        let refused = refused.context("it is created")?.to_string();
        ensure!(refused.contains("violates PodSecurity"), "{refused}");
        Ok(())
    })?;
    report.check(
        "a restricted pod has a bridge and a macvlan interface, and is deleted without a trace",
        || {
            let node = &cluster.server().node;
            let networks = json!([{"name": "first"}, {"name": "wire", "ips": ["10.77.1.1/16"]}]);
            let mut pod = objects::pod("restricted", &node.name, Some(&networks.to_string()));
            pod["spec"]["containers"][0]["securityContext"] = json!({
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"},
            });
            cluster.apply(&[pod])?;
            let pods = ["restricted".to_owned()];
            cluster.inspect(&pods)?;
            cluster.delete(&pods)?;
            nothing_left(node)
        },
    )
}
