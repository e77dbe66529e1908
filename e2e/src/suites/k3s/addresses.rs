//! Addresses for the whole cluster on a real distro: the chart's value reaches the daemons, and pods of all nodes share a range.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::json;

use super::{DistroCluster, charts::config};
use crate::{
    cluster::pods::Pods as _,
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

/// Pods of each node.
const PODS: usize = 5;

impl DistroCluster {
    /// Switches the value on; pods of all nodes get different addresses of one range, whose use everybody can see.
    pub(super) fn addresses(&self, env: &TestEnv, report: &mut Report) -> Checked {
        report.check("with ipam.enabled pods of all nodes share a range", || {
            let values = "ipam:\n  enabled: true\n";
            self.apply(&[config(self.server().distro.chart, values)])?;
            let lan = json!({
                "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge",
                "ipam": {"type": "multus-ipam", "subnet": "10.88.0.0/24"},
            });
            self.apply(&[objects::network("lan", &lan)])?;
            let mut names = Vec::new();
            let mut pods = Vec::new();
            for member in self.workers()? {
                for number in 0..PODS {
                    let name = format!("lan-{number}-{}", member.node.name);
                    pods.push(objects::pod(&name, &member.node.name, Some("lan")));
                    names.push(name);
                }
            }
            self.apply(&pods)?;
            let mut given = BTreeSet::new();
            for name in &names {
                let inside = self.ensure_interfaces(name, &["eth0", "net1"])?;
                given.extend(inside["net1"].iter().cloned());
            }
            ensure!(given.len() == names.len(), "{names:?} have {given:?}");
            let kubectl =
                KubectlPlugin::new(env, &self.server().node, self.server().distro.kubeconfig);
            let (status, table) = kubectl.json(&["ipam"], "")?;
            let row = table.to_string();
            ensure!(status == 0 && row.contains("10.88.0.0/24"), "{table}");
            let (status, findings) = kubectl.json(&["ipam", "check"], "")?;
            ensure!(status == 0, "{findings}");
            self.delete(&names)?;
            sh::until(30, "all addresses are free", || {
                let blocks = self
                    .api
                    .request("GET", ipam::object::PATH, &serde_json::Value::Null)?
                    .json()?;
                let owned = blocks.to_string().matches("\"owner\":\"pod/").count();
                ensure!(owned == 0, "{owned} addresses are in use");
                Ok(())
            })
        })
    }
}
