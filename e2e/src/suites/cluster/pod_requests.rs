//! Pods on every node that request a device of a device plugin, one of a claim, routes, and other networks while they run. Hot plug is
//! on, and certificates are the daemons' only identity.

use anyhow::ensure;
use serde_json::{Value, json};

use super::ClusterFixture;
use crate::{
    cluster::Member,
    control_plane::objects,
    drivers::{self, device_plugin, dra},
    node::inspect::nothing_left,
    report::{Checked, Report},
    sh,
};

/// The gateway of the third network, and the destination of the route in its definition.
const GATEWAY: &str = "10.30.0.1";
const BEYOND: &str = "10.99.0.0/16";
/// The interfaces of each pod, and the one that is attached and detached.
const INTERFACES: [&str; 4] = ["eth0", "net1", "net2", "net3"];
const PLUGGED: &str = "plug0";

impl ClusterFixture<'_> {
    pub(super) fn pod_requests(&self, chart: &str, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{chart}: {what}");
        let names = self.names("requesting");
        let each = |act: &dyn Fn(&Member, &str) -> anyhow::Result<()>| {
            self.each(|member| act(member, &format!("requesting-{}", member.node.name)))
        };
        let drivers = report.check(
            &of("a pod on every node has a device of a plugin and one of a claim"),
            || {
                let members = self.cluster.members.iter();
                let drivers = members
                    .map(|member| drivers::start(&member.node))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                self.cluster.apply(&dra::classes())?;
                self.cluster.apply(&definitions())?;
                self.cluster.apply(&self.requesting_pods(&[]))?;
                each(&|member, pod| self.has_devices(member, pod))?;
                Ok(drivers)
            },
        )?;
        report.check(&of("pods have the routes that they request"), || {
            each(&|_, pod| self.is_routed(pod))
        })?;
        report.check(
            &of("a changed annotation attaches and detaches networks of running pods"),
            || {
                let more = json!({"name": "storage", "interface": PLUGGED});
                let with = [&INTERFACES[..], &[PLUGGED]].concat();
                for (more, interfaces) in [(&[more][..], &with[..]), (&[], &INTERFACES)] {
                    self.cluster.apply(&self.requesting_pods(more))?;
                    each(&|_, pod| {
                        sh::until(30, "networks have changed", || {
                            self.cluster.ensure_interfaces(pod, interfaces)
                        })
                        .map(drop)
                    })?;
                }
                // The networks that stayed are unchanged.
                each(&|member, pod| {
                    self.has_devices(member, pod)?;
                    self.is_routed(pod)
                })
            },
        )?;
        report.check(&of("pods with devices leave nothing"), || {
            self.cluster.delete(&names)?;
            for (member, services) in self.cluster.members.iter().zip(&drivers) {
                nothing_left(&member.node)?;
                for service in services {
                    member.node.end(service, "TERM")?;
                }
            }
            Ok(())
        })
    }

    /// Returns a pod for each node and the template of their claims; the pods request the networks `more` after those of all pods.
    fn requesting_pods(&self, more: &[Value]) -> Vec<Value> {
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "requesting"},
            "spec": {"spec": dra::request(dra::CLASS, 1)},
        });
        let networks = [
            json!({"name": "nic"}),
            json!({"name": "claimed"}),
            json!({"name": "routed", "default-route": [GATEWAY]}),
        ];
        let networks = json!([&networks[..], more].concat()).to_string();
        let node_pods = |member: &Member| {
            let node = &member.node.name;
            let mut pod = objects::pod(&format!("requesting-{node}"), node, Some(&networks));
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
            pod["spec"]["containers"][0]["resources"] =
                json!({"limits": {device_plugin::RESOURCE: "1"}});
            drivers::add_claim(&mut pod, json!({"resourceClaimTemplateName": "requesting"}));
            pod
        };
        let pods = self.cluster.members.iter().map(node_pods);
        std::iter::once(template).chain(pods).collect()
    }

    /// Fails unless the first network has the container's device, the second one the claim's, and the network status both.
    fn has_devices(&self, member: &Member, pod: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces(pod, &INTERFACES)?;
        let attached = drivers::attached_devices(&member.node, pod)?;
        let mut expected =
            drivers::devices_in_environment(cluster, (pod, "main"), device_plugin::VARIABLE)?;
        let claimed = drivers::claimed_devices(cluster, pod)?;
        expected.extend(claimed.into_iter().map(str::to_owned));
        ensure!(
            expected.len() == 2 && attached.values().eq(&expected),
            "the pod has {expected:?}, networks {attached:?}"
        );
        drivers::ensure_status(cluster, pod, &attached)
    }

    /// Fails unless the only default route is that of the network which requests it, next to the route of that network's definition.
    fn is_routed(&self, pod: &str) -> anyhow::Result<()> {
        let routes = self.routes(pod)?;
        let via = |to: &str| format!("{to} via {GATEWAY} dev net3");
        let defaults = routes.iter().filter(|line| line.starts_with("default"));
        ensure!(
            defaults.eq([&via("default")]) && routes.contains(&via(BEYOND)),
            "inside {pod} are {routes:?}"
        );
        Ok(())
    }
}

fn definitions() -> [Value; 3] {
    let routed = json!({
        "cniVersion": "1.0.0", "type": "bridge", "bridge": "br-routed",
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.30.0.0/24"}]],
            "routes": [{"dst": BEYOND, "gw": GATEWAY}],
        },
    });
    [
        drivers::network("nic", device_plugin::RESOURCE, "10.28.0.0/24"),
        drivers::network("claimed", dra::RESOURCE, "10.29.0.0/24"),
        objects::network("routed", &routed),
    ]
}
