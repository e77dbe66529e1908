//! Suite `features`: Node Feature Discovery itself makes labels of Nodes out of the files that daemons write, and a pod finds its node by them.

use std::{fs, time::Duration};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{cluster::ClusterFixture, upgrade::published_release::NAME};
use crate::{
    cluster::{
        Cluster,
        pods::Pods as _,
        rare::{self, RARE, label},
    },
    control_plane::objects,
    programs::{self, Module, Needs},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::Kubernetes,
        Module::NodeFeatureDiscovery,
    ],
};

/// The module of its programs and of its resource definitions.
const MODULE: &str = "sigs.k8s.io/node-feature-discovery";
const DEFINITIONS: &str = "deployment/base/nfd-crds/nfd-api-crds.yaml";
/// Labels follow the node within this time; half of it is that of our daemon.
const MOST: Duration = Duration::from_secs(10);
/// The directory of a node in which its worker looks for files.
const DIR: &str = "/etc/kubernetes/node-feature-discovery/features.d";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let fixture = ClusterFixture::installed(env, "publish=features", |_| Ok(()), report)?;
    let cluster = &fixture.cluster;
    report.check("the programs of Node Feature Discovery run", || {
        discover(cluster)
    })?;
    report.check(
        "a pod waits for a node that serves its network, whose label follows a link",
        || {
            let mut pod = objects::unbound_pod(RARE, Some(RARE));
            pod["spec"]["nodeSelector"] = json!({label(RARE): "serves"});
            cluster.apply(&[rare::rare_network(), pod])?;
            let last = cluster.members.last().context("there are nodes")?;
            rare::follow(cluster, &last.node, MOST)
        },
    )?;
    report.check("uninstalled, the nodes have neither file nor label", || {
        let lan = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "lan0"});
        cluster.apply(&[objects::network("lan", &lan)])?;
        until_served(cluster, cluster.members.len())?;
        fixture.helm_uninstall(NAME)?;
        sh::until(60, "no node has a file", || {
            for member in &cluster.members {
                let files = member.node.list(DIR)?;
                ensure!(files.is_empty(), "{files:?} on {}", member.node.name);
            }
            Ok(())
        })?;
        until_served(cluster, 0)
    })
}

/// Starts the program of the control plane, and one on each node.
fn discover(cluster: &Cluster) -> anyhow::Result<()> {
    let module = programs::directory_of(Module::NodeFeatureDiscovery, MODULE)?;
    let definitions = fs::read_to_string(module.join(DEFINITIONS))?;
    cluster.control.apply_text(cluster.server(), &definitions)?;
    let workers = cluster.members.iter();
    let workers = workers.map(|member| (&member.node, "nfd-worker", 8081));
    let server = format!("https://{}:6443", cluster.server().address());
    for (node, program, port) in workers.chain([(cluster.server(), "nfd-master", 8080)]) {
        sh::until(30, "its daemon has made the directory", || node.list(DIR))?;
        let kubeconfig = node.dir.join(format!("{program}.conf"));
        cluster
            .control
            .pki
            .kubeconfig(&kubeconfig, &server, "admin")?;
        node.serve(program, program, |command| {
            command
                .env("NODE_NAME", &node.name)
                .env("KUBERNETES_NAMESPACE", "default")
                .arg(format!("-port={port}"))
                .arg("-kubeconfig")
                .arg(kubeconfig)
        })?;
    }
    Ok(())
}

/// Waits until so many Nodes have the label of the network `lan`.
fn until_served(cluster: &Cluster, count: usize) -> anyhow::Result<()> {
    sh::until(90, "Nodes have the label as the files have it", || {
        let nodes = cluster.nodes()?;
        let labels = nodes.iter().map(|node| &node["metadata"]["labels"]);
        let serving = labels
            .filter(|labels| labels[label("lan")] == "serves")
            .count();
        ensure!(serving == count, "{serving} of {} serve it", nodes.len());
        Ok(())
    })
}
