//! The lifecycle of pods on every node: created, checked, disturbed, deleted.

use anyhow::ensure;
use serde_json::json;

use super::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::Member,
    control_plane::objects,
    node::inspect::nothing_left,
    report::{Checked, Report},
    sh::words,
};

/// Pods of a burst on each node.
const BURST: usize = 2;
/// The gateway of the second network.
const GATEWAY: &str = "10.20.0.1";

impl ClusterFixture<'_> {
    /// Checks the lifecycle of pods while the daemons' pods are deleted.
    pub(super) fn pods_while_daemons_restart(&self, chart: &str, report: &mut Report) -> Checked {
        let pods = self.pods_start(chart, report)?;
        report.check(
            "kubectl multus reports the same, from the daemon of each node",
            || self.kubectl_plugin(),
        )?;
        report.check(
            "kubectl multus networks follows a link that comes and goes on one node",
            || self.networks_follow_links(chart),
        )?;
        report.check(
            &format!("{chart}: the daemons' pods are deleted while pods start and end"),
            || self.disturb(chart, &pods),
        )?;
        self.pods_end(chart, &self.late(), report)
    }

    /// Checks the lifecycle of pods.
    pub(super) fn pods_start_and_end(&self, chart: &str, report: &mut Report) -> Checked {
        let pods = self.pods_start(chart, report)?;
        self.pods_end(chart, &pods, report)
    }

    fn pods_end(&self, chart: &str, pods: &[String], report: &mut Report) -> Checked {
        report.check(&format!("{chart}: deleted pods leave nothing"), || {
            self.cluster.delete(pods)?;
            self.each(|member| nothing_left(&member.node))
        })
    }

    /// Starts pods of every kind and checks their interfaces.
    fn pods_start(&self, chart: &str, report: &mut Report) -> Checked<Vec<String>> {
        let cluster = &self.cluster;
        let of = |what: &str| format!("{chart}: {what}");
        let pods = report.check(&of("pods of every kind start on every node"), || {
            self.create()
        })?;
        report.check(
            &of("pods have the addresses of their network status"),
            || self.each(|member| self.inspect(member)),
        )?;
        report.check(&of("pods reach each other over the second network"), || {
            self.each(|member| {
                let name = &member.node.name;
                let other = cluster.interfaces(&format!("named-{name}"))?;
                let address = other["stor0"][0]
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                cluster.kubectl(&words!("exec second-{name} -- ping -c1 -W5 {address}"))?;
                Ok(())
            })
        })?;
        Ok(pods)
    }

    /// Creates one pod of each kind on each node, and waits until all run.
    fn create(&self) -> anyhow::Result<Vec<String>> {
        let mut objects = vec![objects::storage(), objects::wire()];
        let named =
            json!([{"name": "storage", "interface": "stor0"}, {"name": "storage"}]).to_string();
        let routed = json!([{"name": "storage", "default-route": [GATEWAY]}]).to_string();
        let wired = |number: u8| {
            json!([{"name": "wire", "ips": [format!("10.77.1.{number}/24")]}]).to_string()
        };
        for member in &self.cluster.members {
            let node = &member.node.name;
            let mut add = |kind: &str, networks: Option<&str>| {
                objects.push(objects::pod(&format!("{kind}-{node}"), node, networks));
            };
            add("plain", None);
            add("second", Some("storage"));
            add("named", Some(&named));
            add("routed", Some(&routed));
            // K3s has no macvlan of its own: the daemon has installed it.
            add("wired", Some(&wired(member.node.number)));
        }
        self.cluster.apply(&objects)?;
        let pods: Vec<_> = objects
            .iter()
            .filter(|object| object["kind"] == "Pod")
            .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        for pod in &pods {
            self.cluster.interfaces(pod)?;
        }
        Ok(pods)
    }

    fn inspect(&self, member: &Member) -> anyhow::Result<()> {
        let node = &member.node.name;
        self.cluster
            .ensure_interfaces(&format!("plain-{node}"), &["eth0"])?;
        let second = self
            .cluster
            .ensure_interfaces(&format!("second-{node}"), &["eth0", "net1"])?;
        ensure!(second["net1"][0].starts_with("10.20.0."), "{second:?}");
        // The name of an interface follows from its position, so the second entry has net2.
        self.cluster
            .ensure_interfaces(&format!("named-{node}"), &["eth0", "net2", "stor0"])?;
        self.cluster
            .ensure_interfaces(&format!("routed-{node}"), &["eth0", "net1"])?;
        let routes = self.default_routes(&format!("routed-{node}"))?;
        ensure!(
            routes == [format!("default via {GATEWAY} dev net1")],
            "{routes:?}"
        );
        let routes = self.default_routes(&format!("second-{node}"))?;
        ensure!(
            routes.len() == 1 && routes[0].ends_with("dev eth0"),
            "{routes:?}"
        );
        let wired = self
            .cluster
            .ensure_interfaces(&format!("wired-{node}"), &["eth0", "net1"])?;
        ensure!(
            wired["net1"] == [format!("10.77.1.{}/24", member.node.number)],
            "{wired:?}"
        );
        Ok(())
    }

    /// Returns the IPv4 default routes in a pod.
    fn default_routes(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let all = self.routes(pod)?.into_iter();
        Ok(all.filter(|line| line.starts_with("default")).collect())
    }

    /// Returns the IPv4 routes in a pod.
    pub(super) fn routes(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let all = self.cluster.kubectl(&["exec", pod, "--", "ip", "route"])?;
        Ok(all.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// Deletes the daemons while some pods are deleted and others created, and ensures that each new pod has all its networks.
    fn disturb(&self, chart: &str, pods: &[String]) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let late = self.late();
        let objects: Vec<_> = cluster
            .members
            .iter()
            .flat_map(|member| {
                late_names(&member.node.name)
                    .map(move |name| objects::pod(&name, &member.node.name, Some("storage")))
            })
            .collect();
        cluster.kubectl(&words!(
            "delete pod {NAMESPACE} --selector=app={chart} --wait=false"
        ))?;
        let names: Vec<_> = pods.iter().map(String::as_str).collect();
        cluster.kubectl(&[&["delete", "pod", "--wait=false"], &names[..]].concat())?;
        cluster.apply(&objects)?;
        for name in &late {
            cluster.ensure_interfaces(name, &["eth0", "net1"])?;
        }
        let wait = ["wait", "pod", "--for=delete", "--timeout=60s"];
        cluster.kubectl(&[&wait[..], &names[..]].concat())?;
        self.wait_until_deployed(chart)
    }

    fn late(&self) -> Vec<String> {
        let nodes = self.cluster.members.iter();
        nodes
            .flat_map(|member| late_names(&member.node.name))
            .collect()
    }

    /// Returns the names of the pods of this kind, one for each node.
    pub(in crate::suites) fn names(&self, kind: &str) -> Vec<String> {
        let members = self.cluster.members.iter();
        members
            .map(|member| format!("{kind}-{}", member.node.name))
            .collect()
    }

    pub(in crate::suites) fn default_network_alone(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let pods: Vec<_> = cluster
            .members
            .iter()
            .map(|member| {
                let node = &member.node.name;
                objects::pod(&format!("after-{node}"), node, Some("storage"))
            })
            .collect();
        cluster.apply(&pods)?;
        let names = self.names("after");
        for name in &names {
            let inside = cluster.interfaces(name)?;
            ensure!(
                inside.len() == 1 && inside.contains_key("eth0"),
                "inside {name} are {inside:?}"
            );
        }
        cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))
    }
}

fn late_names(node: &str) -> impl Iterator<Item = String> {
    let node = node.to_owned();
    (0..BURST).map(move |number| format!("late-{node}-{number}"))
}
