//! What a pod can ask for beyond networks by name, on every node at once: a device of a device plugin, one of a claim, routes, and
//! other networks while it runs. Hot plug is on, and certificates are the daemons' only rights.

use anyhow::ensure;
use serde_json::{Value, json};

use super::ClusterFixture;
use crate::{
    cluster::Member,
    control_plane::objects,
    drivers::{self, device_plugin, dra},
    node::inspect::nothing_left,
    report::{CheckFailed, Report},
    sh,
};

/// An address of the third network that may be a gateway, and where a route of its definition leads.
const GATEWAY: &str = "10.30.0.1";
const BEYOND: &str = "10.99.0.0/16";
/// Interfaces of each pod, and the one that comes and goes.
const INTERFACES: [&str; 4] = ["eth0", "net1", "net2", "net3"];
const PLUGGED: &str = "plug0";

impl ClusterFixture<'_> {
    /// Pods that ask, with a chart installed.
    pub(super) fn pods_ask(&self, chart: &str, report: &mut Report) -> Result<(), CheckFailed> {
        let of = |what: &str| format!("{chart}: {what}");
        let names = self.names("asked");
        let each = |act: &dyn Fn(&Member, &str) -> anyhow::Result<()>| {
            self.each(|member| act(member, &format!("asked-{}", member.node.name)))
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
                self.cluster.apply(&self.asking(&[]))?;
                each(&|member, pod| self.has_devices(member, pod))?;
                Ok(drivers)
            },
        )?;
        report.check(&of("inside are the routes that pods ask for"), || {
            each(&|_, pod| self.is_routed(pod))
        })?;
        report.check(
            &of("a changed annotation of running pods attaches and detaches"),
            || {
                let more = json!({"name": "storage", "interface": PLUGGED});
                let with = [&INTERFACES[..], &[PLUGGED]].concat();
                for (more, interfaces) in [(&[more][..], &with[..]), (&[], &INTERFACES)] {
                    self.cluster.apply(&self.asking(more))?;
                    each(&|_, pod| {
                        sh::until(30, "networks have changed", || {
                            self.cluster.ensure_interfaces(pod, interfaces)
                        })
                        .map(drop)
                    })?;
                }
                // What stayed is as it was.
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

    /// A pod on each node, and the template of their claims; `more` follows the networks that all of them have.
    fn asking(&self, more: &[Value]) -> Vec<Value> {
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "asked"},
            "spec": {"spec": dra::request(dra::CLASS, 1)},
        });
        let networks = [
            json!({"name": "nic"}),
            json!({"name": "claimed"}),
            json!({"name": "routed", "default-route": [GATEWAY]}),
        ];
        let networks = json!([&networks[..], more].concat()).to_string();
        let of_node = |member: &Member| {
            let node = &member.node.name;
            let mut pod = objects::pod(&format!("asked-{node}"), node, Some(&networks));
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
            pod["spec"]["containers"][0]["resources"] =
                json!({"limits": {device_plugin::RESOURCE: "1"}});
            drivers::add_claim(&mut pod, json!({"resourceClaimTemplateName": "asked"}));
            pod
        };
        let pods = self.cluster.members.iter().map(of_node);
        std::iter::once(template).chain(pods).collect()
    }

    /// The container's device is the first network's, the claim's the second's, and the status tells of both.
    fn has_devices(&self, member: &Member, pod: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces(pod, &INTERFACES)?;
        let told = drivers::attached_devices(&member.node, pod)?;
        let mut expected =
            drivers::devices_in_environment(cluster, (pod, "main"), device_plugin::VARIABLE)?;
        let claimed = drivers::claimed_devices(cluster, pod)?;
        expected.extend(claimed.into_iter().map(str::to_owned));
        ensure!(
            expected.len() == 2 && told.values().eq(&expected),
            "the pod has {expected:?}, networks {told:?}"
        );
        drivers::ensure_status(cluster, pod, &told)
    }

    /// One default route, on the network that asks for it, and the route of that network's definition.
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
