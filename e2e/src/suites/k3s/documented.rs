//! The HelmChart that K3s' documentation shows installs upstream's chart; `kubectl multus preflight` says how it installs ours in place.

use std::{fs, os::unix::fs::symlink};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    CONF_DIR, DistroCluster,
    charts::NAMESPACE,
    node::{BIN, DATA, KUBECONFIG},
    releases::released,
};
use crate::{
    cluster::pods::Pods as _,
    kubectl_plugin::KubectlPlugin,
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::{k3s::K3s, published_charts},
    report::{Checked, Report},
    sh,
    suites::upgrade::published_release::{PUBLISHED, PUBLISHED_ON_K3S, ReleaseSpec},
    test_env::TestEnv,
};

/// The HelmChart of the documentation, and the one of the CRD for a chart without it.
const NAME: &str = "multus";
const CRD_NAME: &str = "multus-crd";
const MANIFEST: &str = "/var/lib/rancher/k3s/server/manifests/multus.yaml";
/// The charts of each kind: with the CRD in it, and without.
const KINDS: [&ReleaseSpec; 2] = [&PUBLISHED[0], &PUBLISHED_ON_K3S];
/// The plugins of the networks that K3s lacks and upstream's chart installs.
pub(in crate::suites) const PLUGINS: [&str; 2] = ["macvlan", "static"];
/// The values of the documentation.
const VALUES: &str = "\
config:
  fullnameOverride: multus
  cni_conf:
    confDir: /var/lib/rancher/k3s/agent/etc/cni/net.d
    binDir: /var/lib/rancher/k3s/data/cni/
    kubeconfig: /var/lib/rancher/k3s/agent/etc/cni/net.d/multus.d/multus.kubeconfig
    multusAutoconfigDir: /var/lib/rancher/k3s/agent/etc/cni/net.d
";

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (cluster, _network) = report.check(
        "a server runs without Multus, with upstream's images and ours",
        || {
            let network = NodeNetwork::new()?;
            let cluster = DistroCluster::start(env, &network, k3s, |server| {
                for kind in KINDS {
                    let (_, archives) = kind.images(env, &env.upstream, &PLUGINS)?;
                    server.add_images(&archives)?;
                }
                let helm = server.node.path(&format!("{BIN}/helm"));
                symlink(env.bin.join("helm"), helm)?;
                server.take_medium()
            })?;
            Ok((cluster, network))
        },
    )?;
    let mut fixture = Documented {
        env,
        cluster,
        pods: Vec::new(),
        networks: None,
        number: 0,
    };
    for kind in KINDS {
        let of = |what: &str| format!("{}: {what}", kind.name);
        report.check(
            &of("the HelmChart of K3s' documentation installs it, and pods have their networks"),
            || fixture.install_upstream(kind),
        )?;
        report.check(
            &of("as preflight says the HelmChart installs ours in place; pods keep their networks"),
            || fixture.move_over(),
        )?;
    }
    report.check(
        "upstream's programs take over again, and delete pods that started with ours",
        || fixture.install_upstream(KINDS[1]),
    )?;
    // What containerd deletes while no configuration of either side is there, our next daemon cleans up.
    report.check("ours take over once more", || fixture.move_over())?;
    report.check(
        "without the manifest and what it installed, networks stay",
        || fixture.uninstall(),
    )
}

struct Documented<'a> {
    env: &'a TestEnv,
    cluster: DistroCluster,
    /// Pods that the other side has started.
    pods: Vec<String>,
    /// The networks' uids, which never change.
    networks: Option<String>,
    /// The number of take-overs, for the addresses of their pods.
    number: u8,
}

impl Documented<'_> {
    fn server(&self) -> &super::DistroNode {
        self.cluster.server()
    }

    /// Writes the manifest as the documentation has it, with charts that the server itself serves.
    fn write(&self, kind: &ReleaseSpec, is_again: bool) -> anyhow::Result<()> {
        let mut objects = Vec::new();
        for (name, archive) in [(CRD_NAME, kind.crd_chart), (NAME, Some(kind.chart))] {
            let Some(archive) = archive else {
                continue;
            };
            let file = format!("{DATA}/server/static/charts/{archive}");
            let bytes = fs::read(published_charts::archive(archive)?)?;
            self.server().node.write(&file, bytes)?;
            let mut chart = helm_chart(name);
            chart["spec"]["chart"] =
                format!("https://%{{KUBERNETES_API}}%/static/charts/{archive}").into();
            if name == NAME {
                chart["spec"]["valuesContent"] = VALUES.into();
            }
            if is_again {
                chart["spec"]["takeOwnership"] = true.into();
            }
            objects.push(chart);
        }
        self.write_objects(&objects)
    }

    fn write_objects(&self, objects: &[Value]) -> anyhow::Result<()> {
        let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
        self.server()
            .node
            .write(MANIFEST, documents.join("\n---\n"))
    }

    /// Returns the newest revision of the main chart's release, or zero.
    fn revision(&self) -> anyhow::Result<u64> {
        let charts = self
            .cluster
            .kubectl(&["get", "helmcharts", super::ALL, "--output=name"])?;
        if charts.is_empty() {
            return Ok(0);
        }
        released(&self.cluster, NAME, 0)
    }

    fn install_upstream(&mut self, kind: &ReleaseSpec) -> anyhow::Result<()> {
        let before = self.revision()?;
        self.write(kind, before > 0)?;
        released(&self.cluster, NAME, before)?;
        self.take_over("theirs")
    }

    /// Follows preflight's steps: Helm installs our chart of the CRD, and the HelmChart gets our main chart.
    fn move_over(&mut self) -> anyhow::Result<()> {
        let before = self.revision()?;
        let plugin = KubectlPlugin::new(self.env, &self.server().node, KUBECONFIG);
        let (status, answer) = plugin.json(&["preflight"], "")?;
        ensure!(status == 4 && answer["gaps"] == json!([]), "{answer}");
        let steps = answer["steps"].as_array().context("preflight has steps")?;
        let steps: Vec<_> = steps.iter().filter_map(Value::as_str).collect();
        let [crd, main] = &steps[..] else {
            bail!("the steps are {steps:#?}");
        };
        let place = format!("in HelmChart kube-system/{NAME}, which is in the file multus.yaml ");
        let is_right = main.starts_with(&place) && main.contains(": replace `chart`, `repo` and");
        ensure!(is_right, "{main}");
        let archive = self.env.chart("rke2-multus-crd")?;
        let dir = archive.parent().context("a chart is in a directory")?;
        let step = format!("cd '{}'; {crd}", dir.display());
        let mut shell = self.server().shell(self.env);
        sh::run(shell.args(["-o", "errexit", "-c", &step]))?;
        let mut chart = helm_chart(NAME);
        let content = STANDARD.encode(fs::read(self.env.chart("rke2-multus")?)?);
        chart["spec"]["chartContent"] = content.into();
        chart["spec"]["takeOwnership"] = true.into();
        chart["spec"]["valuesContent"] = VALUES.into();
        self.write_objects(&[chart])?;
        released(&self.cluster, NAME, before)?;
        self.take_over("ours")
    }

    /// Waits until this side serves the node. The pods of the other side keep their networks, and this one deletes them; it starts others.
    fn take_over(&mut self, side: &str) -> anyhow::Result<()> {
        let set = format!("daemonset/{NAME}");
        let wait = ["rollout", "status", &set, NAMESPACE, "--timeout=150s"];
        self.cluster.kubectl(&wait)?;
        let node = &self.server().node;
        sh::until(60, "its configuration is there", || {
            let names = node.list(CONF_DIR)?;
            let is_there = names.iter().any(|name| name.starts_with("00-multus.conf"));
            ensure!(is_there, "in {CONF_DIR} are {names:?}");
            Ok(())
        })?;
        let has_shim = node.path(&format!("{DATA}/data/cni/multus-shim")).exists();
        ensure!(
            has_shim == (side == "ours"),
            "the shim is there: {has_shim}"
        );
        self.cluster.define_networks()?;
        let networks = self.cluster.networks()?;
        let before = self.networks.get_or_insert_with(|| networks.clone());
        ensure!(*before == networks, "{before} became {networks}");
        self.cluster.inspect(&self.pods)?;
        self.number += 1;
        let new = self.cluster.create(side, self.number)?;
        self.cluster.inspect(&new)?;
        if !self.pods.is_empty() {
            self.cluster.delete(&self.pods)?;
        }
        self.pods = new;
        self.cluster.inspect(&self.pods)?;
        self.cluster.ensure_not_pulled()
    }

    /// Removes the manifest, whose objects stay, and then these: the release of the CRD first, which could take the networks with it.
    fn uninstall(&self) -> anyhow::Result<()> {
        let node = &self.server().node;
        fs::remove_file(node.path(MANIFEST))?;
        let mut helm = node.command("helm");
        helm.env("KUBECONFIG", KUBECONFIG);
        sh::run(helm.args(["uninstall", "rke2-multus-crd", NAMESPACE]))?;
        self.cluster.delete(&self.pods)?;
        nothing_left(node)?;
        let delete = ["delete", "helmchart", NAME, NAMESPACE, "--timeout=150s"];
        self.cluster.kubectl(&delete)?;
        let networks = self.cluster.networks()?;
        let is_same = self.networks.as_ref() == Some(&networks);
        ensure!(is_same, "now there are {networks}");
        self.cluster.default_network_alone("after")
    }
}

fn helm_chart(name: &str) -> Value {
    json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChart",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"targetNamespace": "kube-system"},
    })
}
