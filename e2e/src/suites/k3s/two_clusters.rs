//! Two clusters in one tailnet, each with K3s' default network of pods: both servers announce the same subnet, and each keeps its own pods.

use anyhow::ensure;

use super::{
    DistroCluster, bare,
    node::{DistroNode, Role},
    question, ready,
    vpn::{KEY, PROGRAMS, Vpn, start},
};
use crate::{
    cluster::pods::Pods as _,
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
    vpn::{
        self,
        tailnet::{self, Tailnet},
    },
};

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (mut clusters, vpn, network) = report.check(
        "two servers with K3s' default cluster-cidr, each a cluster, are in one tailnet",
        || {
            let network = NodeNetwork::new()?;
            let vpn = Vpn::Tailnet(Tailnet::start(env, &network, KEY.to_owned())?);
            let mut clusters = Vec::new();
            for number in [1, 2] {
                let server = DistroNode::install(env, &network, k3s, (number, Role::Server))?;
                server.add_programs(env, &PROGRAMS)?;
                vpn.connect(&server, 0, "")?;
                clusters.push(start(server, &vpn)?);
            }
            Ok((clusters, vpn, network))
        },
    )?;
    let subnet = report.check(
        "their pods have the same subnet, and the tailnet has the route of each at the other",
        || {
            let subnets = clusters.iter();
            let subnets = subnets.map(|cluster| cluster.subnet(&cluster.server().node));
            let subnets = subnets.collect::<anyhow::Result<Vec<_>>>()?;
            ensure!(subnets[0] == subnets[1], "they are {subnets:?}");
            for cluster in &clusters {
                vpn.approve(&cluster.server().node, &[&subnets[0]])?;
            }
            has_twin(&clusters, &subnets[0])?;
            Ok(subnets[0].clone())
        },
    )?;
    let pods = report.check("pods of both have further networks", || {
        let mut pods = Vec::new();
        for cluster in &clusters {
            cluster.daemons_are_ready()?;
            cluster.define_networks()?;
            let own = [cluster.create("one", 1)?, cluster.create("two", 2)?].concat();
            cluster.inspect(&own)?;
            cluster.serve_in(&own)?;
            pods.push(own);
        }
        Ok(pods)
    })?;
    report.check(
        "pods and nodes reach the pods of their own cluster, whose packets stay out of the tunnel",
        || keep_their_own(&clusters, &pods),
    )?;
    report.check(
        "vpn status and doctor name the other device on each node, with the cure",
        || clusters_name_each_other(env, &clusters, &subnet),
    )?;
    report.check("a power cut of both: the same", || {
        for cluster in &mut clusters {
            let server = &mut cluster.nodes[0];
            server.reboot(env, &network)?;
            vpn.connect(server, 0, "")?;
            server.keep()?;
        }
        for (cluster, pods) in clusters.iter_mut().zip(&pods) {
            let server = &mut cluster.nodes[0];
            vpn::address(&server.node)?;
            server.start()?;
            cluster.api = ready(server)?;
            cluster.started_again(pods, 0)?;
            sh::until(120, "the servers of both pods run again", || {
                cluster.serve_in(pods)
            })?;
        }
        has_twin(&clusters, &subnet)?;
        keep_their_own(&clusters, &pods)?;
        clusters_name_each_other(env, &clusters, &subnet)
    })?;
    report.check(
        "one leaves the tailnet, and the other has no finding more",
        || {
            clusters[0].delete(&pods[0])?;
            nothing_left(&clusters[0].server().node)?;
            let leaving = &mut clusters[0].nodes[0];
            leaving.end()?;
            leaving.end_keeper()?;
            leaving.node.run(&["multus-distro", "uninstall"])?;
            let routes = tailnet::advertised(&leaving.node)?;
            ensure!(routes.is_empty(), "it advertises {routes:?}");
            // Other control servers forget what no node advertises.
            vpn.approve(&leaving.node, &[])?;
            let second = &clusters[1].server().node;
            sh::until(60, "nothing is found wrong", || {
                let found = vpn::findings(env, second)?;
                ensure!(found.is_empty(), "{found:#?}");
                Ok(())
            })
        },
    )
}

/// Waits until the tunnel of each server would take the packets of its pods to the other one.
fn has_twin(clusters: &[DistroCluster], subnet: &str) -> anyhow::Result<()> {
    clusters.iter().try_for_each(|cluster| {
        sh::until(60, "the node has accepted the other one's route", || {
            let table = ["ip", "route", "show", "table", "52"];
            let accepted = cluster.server().node.run(&table)?;
            ensure!(accepted.contains(subnet), "{accepted}");
            Ok(())
        })
    })
}

/// Fails unless the first pod of each cluster, and the node, reach the second one and not a pod of the other cluster.
fn keep_their_own(clusters: &[DistroCluster], pods: &[Vec<String>]) -> anyhow::Result<()> {
    for (cluster, pods) in clusters.iter().zip(pods) {
        let node = &cluster.server().node;
        let addresses = cluster.inspect(pods)?;
        let (first, second) = (&pods[0], &pods[1]);
        for interface in ["eth0", "net1"] {
            let name = cluster.ask(first, &addresses[1], interface)?;
            ensure!(name == *second, "not {second} but {name} answers {first}");
        }
        let question = question(&addresses[1], "eth0", 8080)?;
        let answer = node.run(&["sh", "-c", &question])?;
        ensure!(
            answer.lines().last() == Some(second),
            "not {second} answers the node but {answer}"
        );
        let address = bare(&addresses[1], "eth0")?;
        let route = node.run(&["ip", "route", "get", address])?;
        ensure!(
            !route.contains(tailnet::INTERFACE),
            "{}: {route}",
            node.name
        );
    }
    Ok(())
}

/// Waits until each node has the one finding about the other one.
fn clusters_name_each_other(
    env: &TestEnv,
    clusters: &[DistroCluster],
    subnet: &str,
) -> anyhow::Result<()> {
    for (cluster, other) in clusters.iter().zip(clusters.iter().rev()) {
        let (node, other) = (&cluster.server().node, &other.server().node.name);
        let line = format!("{other} of the VPN advertises {subnet}");
        sh::until(60, "the other device is named", || {
            let found = vpn::findings(env, node)?;
            let is_it = |text: &String| text.starts_with(&format!("!{line}"));
            ensure!(found.len() == 1 && found.iter().all(is_it), "{found:#?}");
            Ok(())
        })?;
        let doctor =
            vpn::distro_json(env, node, &["doctor", "--json"])?["node"]["problems"].to_string();
        ensure!(
            doctor.contains(&line) && doctor.contains("cluster-cidr"),
            "{doctor}"
        );
    }
    Ok(())
}
