//! What multus-distro stages, installed by K3s' deploy controller, its helm-controller and their jobs: values, values that the chart refuses,
//! `.skip`, deletions in an order that could lose networks, and the way back.
//!
//! | outcome of a value | value |
//! |---|---|
//! | every object has a further field | `commonLabels` |
//! | the daemon's configuration has a further key | `config.cni_conf.globalNamespaces` |
//! | the release has a further object | `podDisruptionBudget.enabled` |
//! | the release lacks an object | `manifests.clusterRoleBinding` |
//! | the job refuses the value, and the release stays | `thickPlugin.enabled` |

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    ALL, CHART, DEADLINE, DistroCluster, ensure_through_us,
    node::{DATA, KUBECONFIG},
    releases::{job_log, released},
};
use crate::{
    cluster::pods::Pods as _,
    node::{inspect::nothing_left, network::NodeNetwork},
    programs::k3s::K3s,
    report::{Checked, Report},
    sh::{self, words},
    suites::chart::render::parse,
    test_env::TestEnv,
};

pub(super) const CRD_CHART: &str = "k3s-multus-crd";
/// The file of the HelmChartConfig. K3s reads it before `multus.yaml`, so that the first job has the values.
const CONFIG: &str = "k3s-multus-config.yaml";
pub(super) const NAMESPACE: &str = "--namespace=kube-system";
/// Values whose outcome is seen in the objects of the release: each with a text of those, and whether the text is there with the value.
const EFFECTIVE: [(&str, &str, bool); 4] = [
    ("commonLabels: {team: net}\n", r#""team":"net""#, true),
    (
        "config: {cni_conf: {globalNamespaces: 'a,b'}}\n",
        r#"\"globalNamespaces\": \"a,b\""#,
        true,
    ),
    (
        "podDisruptionBudget: {enabled: true}\n",
        r#""kind":"PodDisruptionBudget""#,
        true,
    ),
    (
        "manifests: {clusterRoleBinding: false}\n",
        r#""kind":"ClusterRoleBinding""#,
        false,
    ),
];
/// The value that takes a right away, which pods need.
const WITHOUT_RIGHT: usize = 3;
const REFUSED: &str = "thickPlugin: {enabled: false}\n";
const REFUSAL: &str = "thin mode does not exist";

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (cluster, _network) = report.check(
        "a server starts through multus-distro, with a HelmChartConfig that the chart refuses",
        || {
            let network = NodeNetwork::new()?;
            let cluster = DistroCluster::start(env, &network, k3s, |server| {
                server.take_medium()?;
                server.node.run(&["multus-distro", "install"])?;
                ensure_through_us(server, "server")?;
                let file = manifest(CONFIG);
                server.node.write(&file, config(CHART, REFUSED).to_string())
            })?;
            Ok((cluster, network))
        },
    )?;
    let mut fixture = Charts {
        env,
        cluster,
        networks: String::new(),
    };
    report.check(
        "its job says why, networks can be defined, and pods start",
        || fixture.refused_at_first(),
    )?;
    report.check(
        "with other values in that file the job installs the chart, and they arrive",
        || fixture.corrected(),
    )?;
    report.check("pods have their networks, and helm test passes", || {
        fixture.ensure_pods("first", 1)?;
        fixture.helm_test()
    })?;
    report.check(
        "a value that is refused later changes nothing, and without it the defaults are back",
        || fixture.refused_later(),
    )?;
    report.check("a .skip file stops K3s, with a warning of ours", || {
        fixture.skipped()
    })?;
    report.check(
        "without the HelmChart of the CRD networks stay, and the next start brings it back alone",
        || fixture.crd_is_deleted(),
    )?;
    report.check(
        "unstage: K3s uninstalls both charts, and networks stay",
        || fixture.unstaged(),
    )?;
    super::rke2_charts::run(&mut fixture, report)
}

/// Returns the path of a file among the manifests.
pub(super) fn manifest(name: &str) -> String {
    format!("{DATA}/server/manifests/{name}")
}

/// Returns a HelmChartConfig with these values, the object by which administrators set those of a chart.
pub(in crate::suites) fn config(chart: &str, values: &str) -> Value {
    json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig",
        "metadata": {"name": chart, "namespace": "kube-system"},
        "spec": {"valuesContent": values},
    })
}

pub(super) struct Charts<'a> {
    pub(super) env: &'a TestEnv,
    pub(super) cluster: DistroCluster,
    /// The networks' uids.
    pub(super) networks: String,
}

impl Charts<'_> {
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.cluster.server().node.path(path)
    }

    pub(super) fn write(&self, path: &str, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
        self.cluster.server().node.write(path, text)
    }

    pub(super) fn distro(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.server().node.command("multus-distro");
        command.args(args);
        command
    }

    pub(super) fn helm(&self, args: &[&str]) -> Command {
        let mut helm = self
            .cluster
            .server()
            .node
            .command(self.env.bin.join("helm"));
        helm.env("KUBECONFIG", KUBECONFIG).args(args).arg(NAMESPACE);
        helm
    }

    /// Fails when a network is not the one that was defined first.
    pub(super) fn networks_stay(&self) -> anyhow::Result<()> {
        self.cluster.networks_stay(&self.networks)
    }

    /// Creates a pod with all networks, and deletes it.
    pub(super) fn ensure_pods(&self, kind: &str, number: u8) -> anyhow::Result<()> {
        let pods = self.cluster.create(kind, number)?;
        self.cluster.inspect(&pods)?;
        self.cluster.delete(&pods)?;
        nothing_left(&self.cluster.server().node)
    }

    fn is_refused(&self) -> anyhow::Result<()> {
        sh::until(DEADLINE, "the job's log has the reason", || {
            let log = job_log(&self.cluster, CHART);
            ensure!(log.contains(REFUSAL), "its log: {log}");
            Ok(())
        })
    }

    fn refused_at_first(&mut self) -> anyhow::Result<()> {
        self.cluster.charts_are_of_the_release(self.env)?;
        released(&self.cluster, CRD_CHART, 0)?;
        self.is_refused()?;
        let releases = sh::run(&mut self.helm(&["list", "--deployed", "--short"]))?;
        ensure!(releases.trim() == CRD_CHART, "there are {releases}");
        self.cluster.define_networks()?;
        self.networks = self.cluster.networks()?;
        self.cluster.default_network_alone("early")
    }

    fn corrected(&mut self) -> anyhow::Result<()> {
        let values: String = EFFECTIVE.map(|(value, ..)| value).concat();
        let values = config(CHART, &values).to_string();
        self.write(&manifest(CONFIG), values)?;
        let revision = released(&self.cluster, CHART, 0)?;
        let objects = self.objects()?;
        for (value, text, is_there) in EFFECTIVE {
            let found = objects.contains(text);
            ensure!(found == is_there, "{value}: `{text}` is there: {found}");
        }
        let (rest, _) = EFFECTIVE.split_at(WITHOUT_RIGHT);
        let values: String = rest.iter().map(|(value, ..)| *value).collect();
        let values = config(CHART, &values).to_string();
        self.write(&manifest(CONFIG), values)?;
        released(&self.cluster, CHART, revision)?;
        let (value, text, _) = EFFECTIVE[WITHOUT_RIGHT];
        ensure!(self.objects()?.contains(text), "{value} is still there");
        self.cluster.daemons_are_ready()?;
        self.cluster.ensure_not_pulled()?;
        self.networks_stay()
    }

    /// Returns the objects of the release, as JSON.
    fn objects(&self) -> anyhow::Result<String> {
        let text = sh::run(&mut self.helm(&["get", "manifest", CHART]))?;
        Ok(serde_json::to_string(&parse(&text)?)?)
    }

    fn helm_test(&self) -> anyhow::Result<()> {
        let text = sh::run(&mut self.helm(&["test", CHART, "--timeout=120s"]))?;
        let suite = format!("TEST SUITE:     {CHART}-test");
        let passed = text.contains(&suite) && !text.contains("Failed");
        ensure!(passed, "it prints {text}");
        let selector = "--selector=app.kubernetes.io/component=test";
        let kinds = "pods,serviceaccounts,roles,rolebindings";
        let left = ["get", kinds, NAMESPACE, selector, "--output=name"];
        let left = self.cluster.kubectl(&left)?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    }

    fn refused_later(&mut self) -> anyhow::Result<()> {
        let before = released(&self.cluster, CHART, 0)?;
        self.cluster.apply(&[config(CHART, REFUSED)])?;
        self.is_refused()?;
        let now = released(&self.cluster, CHART, 0)?;
        ensure!(now == before, "revision {before} became {now}");
        self.ensure_pods("meanwhile", 2)?;
        fs::remove_file(self.path(&manifest(CONFIG)))?;
        let delete = ["delete", "helmchartconfig", CHART, NAMESPACE];
        self.cluster.kubectl(&delete)?;
        released(&self.cluster, CHART, before)?;
        let (value, text, _) = EFFECTIVE[0];
        ensure!(!self.objects()?.contains(text), "{value} is still there");
        self.cluster.daemons_are_ready()?;
        self.networks_stay()
    }

    fn skipped(&mut self) -> anyhow::Result<()> {
        let staging = |registry: &str| {
            let mut stage = self.distro(&["stage", "--multus", "--distro=k3s", "--data-dir", DATA]);
            let output = sh::output(stage.args(["--system-default-registry", registry]), b"")?;
            let notes = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "stage: {notes}");
            Ok(notes)
        };
        let before = self.cluster.generations()?;
        let skip = manifest("multus.yaml.skip");
        self.write(&skip, "")?;
        let output = sh::output(&mut self.distro(&["doctor"]), b"")?;
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.contains("multus.yaml.skip keeps"),
            "doctor: {output}"
        );
        let notes = staging("other.invalid")?;
        ensure!(notes.contains("multus.yaml.skip keeps"), "stage: {notes}");
        let text = fs::read_to_string(self.path(&manifest("multus.yaml")))?;
        ensure!(text.contains("other.invalid"), "the manifest is {text}");
        self.cluster.manifests_are_read(1)?;
        let now = self.cluster.generations()?;
        ensure!(now == before, "{before} became {now}");
        staging("")?;
        fs::remove_file(self.path(&skip))?;
        self.cluster.manifests_are_read(2)?;
        let now = self.cluster.generations()?;
        ensure!(now == before, "{before} became {now}");
        sh::run(&mut self.distro(&["doctor"])).map(drop)
    }

    fn crd_is_deleted(&mut self) -> anyhow::Result<()> {
        let staged = self.path(&manifest("multus.yaml"));
        let time = || anyhow::Ok(fs::metadata(&staged)?.modified()?);
        let written = time()?;
        let revision = released(&self.cluster, CHART, 0)?;
        self.cluster.kubectl(&words!(
            "delete helmchart {CRD_CHART} {NAMESPACE} --timeout=150s"
        ))?;
        self.networks_stay()?;
        let main = self.cluster.generations()?;
        self.cluster.restart()?;
        self.cluster.manifests_are_read(3)?;
        released(&self.cluster, CRD_CHART, 0)?;
        self.networks_stay()?;
        let now = self.cluster.generations()?;
        ensure!(now.contains(&main), "{main} became {now}");
        ensure!(time()? == written, "the same manifest was written again");
        let now = released(&self.cluster, CHART, 0)?;
        ensure!(now == revision, "revision {revision} became {now}");
        self.cluster.daemons_are_ready()
    }

    fn unstaged(&mut self) -> anyhow::Result<()> {
        let unstage = ["unstage", "--data-dir", DATA];
        let output = sh::output(&mut self.distro(&unstage), b"")?;
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(notes.contains("plan: empty "), "it prints {notes}");
        self.cluster.wait_until_removed()?;
        self.networks_stay()?;
        sh::run(self.distro(&unstage).arg("--purge"))?;
        let left = [
            manifest("multus.yaml"),
            format!("{DATA}/server/.multus-distro.json"),
        ];
        let left = left.iter().find(|path| self.path(path).exists());
        ensure!(left.is_none(), "there is {left:?}");
        self.cluster.default_network_alone("late")
    }
}

impl DistroCluster {
    /// Waits until K3s has read all manifests once more: it reads them in the order of their names.
    pub(super) fn manifests_are_read(&self, number: u8) -> anyhow::Result<()> {
        let name = format!("probe{number}");
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
        });
        let file = manifest("zz-probe.yaml");
        self.server().node.write(&file, probe.to_string())?;
        sh::until(DEADLINE, "K3s applies the last manifest", || {
            self.server().ensure_runs()?;
            self.kubectl(&["get", "configmap", &name]).map(drop)
        })
    }

    /// Returns uid and generation of each HelmChart.
    pub(super) fn generations(&self) -> anyhow::Result<String> {
        let form = "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.generation};{end}";
        self.kubectl(&["get", "helmcharts", ALL, form])
    }

    /// Fails unless K3s serves the charts of the release, byte by byte.
    pub(super) fn charts_are_of_the_release(&self, env: &TestEnv) -> anyhow::Result<()> {
        for name in [CRD_CHART, CHART] {
            let archive = env.chart(name)?;
            let file = archive.file_name().context("a chart has a name")?;
            let charts = format!("{DATA}/server/static/charts");
            let staged = self.server().node.path(&charts).join(file);
            let is_same = fs::read(&staged)? == fs::read(&archive)?;
            ensure!(is_same, "{} is not that of the release", staged.display());
        }
        Ok(())
    }
}
