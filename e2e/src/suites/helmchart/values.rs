//! Values of the chart through a HelmChartConfig, the helm-controller and the Helm of its job: one value for each kind of outcome.
//!
//! Suite `chart` renders every value of the chart with real Helm; this one shows that values arrive at the release of a cluster.
//!
//! | outcome | value |
//! |---|---|
//! | every object has a further field | `commonLabels` |
//! | the daemon's configuration has a further key | `config.cni_conf.globalNamespaces` |
//! | the release has a further object | `podDisruptionBudget.enabled` |
//! | the release lacks an object | `manifests.clusterRoleBinding` |
//! | nothing changes | `config.cni_conf.kubeconfig` |
//! | the job refuses the value, and the release stays | `thickPlugin.enabled` |

use anyhow::ensure;

use super::config;
use crate::{
    cluster::k3s_server::{job_log, released},
    report::{CheckFailed, Report},
    sh,
    suites::{
        chart::render::parse,
        cluster::{ClusterFixture, NAMESPACE},
    },
};

const CHART: &str = "rke2-multus";
/// A node selector that no node matches. Without a daemon no configuration of ours is on a node, so that the job's pod starts whatever
/// the values do to the daemon.
const WITHOUT_DAEMON: &str = "labels: {nodeSelector: {nowhere: here}}\n";
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
const WITHOUT_EFFECT: &str = "config: {cni_conf: {kubeconfig: /x/kubeconfig}}\n";
const REFUSED: &str = "thickPlugin: {enabled: false}\n";

impl ClusterFixture<'_> {
    pub(super) fn values(&self, report: &mut Report) -> Result<(), CheckFailed> {
        report.check("a HelmChartConfig changes objects of the release", || {
            self.effective_values()
        })?;
        report.check(
            "the job refuses an invalid value with the hint, and the release stays",
            || {
                let before = released(&self.cluster, CHART, 0)?;
                self.cluster.apply(&[config(CHART, REFUSED)])?;
                sh::until(60, "the job's log has the reason", || {
                    let log = job_log(&self.cluster, CHART);
                    ensure!(log.contains("thin mode does not exist"), "its log: {log}");
                    Ok(())
                })?;
                let now = released(&self.cluster, CHART, 0)?;
                ensure!(now == before, "revision {before} became {now}");
                Ok(())
            },
        )?;
        report.check("without the HelmChartConfig the defaults are back", || {
            let before = released(&self.cluster, CHART, 0)?;
            self.cluster
                .kubectl(&["delete", "helmchartconfig", CHART, NAMESPACE])?;
            released(&self.cluster, CHART, before)?;
            self.wait_until_ready(CHART)?;
            self.pods("after")
        })
    }

    fn effective_values(&self) -> anyhow::Result<()> {
        let base = self.objects("")?;
        let values = EFFECTIVE.map(|(value, ..)| value).concat();
        let objects = self.objects(&values)?;
        for (value, text, is_there) in EFFECTIVE {
            ensure!(
                base.contains(text) != is_there,
                "{value}: `{text}` is there without the value: {is_there}"
            );
            ensure!(
                objects.contains(text) == is_there,
                "{value}: `{text}` is there: {}",
                !is_there
            );
        }
        let objects = self.objects(WITHOUT_EFFECT)?;
        ensure!(
            objects == base,
            "{WITHOUT_EFFECT}: the value changes objects"
        );
        Ok(())
    }

    /// Returns the objects of the release, as JSON, after a HelmChartConfig has set these values.
    fn objects(&self, values: &str) -> anyhow::Result<String> {
        let before = released(&self.cluster, CHART, 0)?;
        let values = format!("{WITHOUT_DAEMON}{values}");
        self.cluster.apply(&[config(CHART, &values)])?;
        released(&self.cluster, CHART, before)?;
        let mut helm = self.cluster.helm();
        let text = sh::run(helm.args(["get", "manifest", CHART, NAMESPACE]))?;
        Ok(serde_json::to_string(&parse(&text)?)?)
    }
}
