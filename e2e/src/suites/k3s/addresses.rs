//! Two values of the chart on a real distro: with `ipam.enabled` pods of all nodes share a range, and with `publish: labels` a pod lands on the
//! node that has its network.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use ipam::claim;
use serde_json::{Value, json};

use super::{DistroCluster, charts::config};
use crate::{
    cluster::{
        pods::Pods as _,
        rare::{self, RARE, label},
    },
    control_plane::objects,
    kubectl_plugin::KubectlPlugin,
    report::{Checked, Report},
    sh,
    suites::ipam::kind_of_claims,
    test_env::TestEnv,
};

const VALUES: &str = "ipam: {enabled: true}\npublish: labels\n";
/// The minor version of Kubernetes from which on the API server gives selectors of definitions, and the value for it.
const SELECTORS: (u32, &str) = (36, "definitionSelectors: {enabled: true}\n");
/// Pods of each node.
const PODS: usize = 5;

impl DistroCluster {
    /// Switches the value on; pods of all nodes get different addresses of one range, whose use everybody can see.
    pub(super) fn addresses(&self, env: &TestEnv, report: &mut Report) -> Checked {
        let has_selectors =
            report.check("with ipam.enabled pods of all nodes share a range", || {
                let has_selectors = self.minor_version()? >= SELECTORS.0;
                let selectors = if has_selectors { SELECTORS.1 } else { "" };
                let values = format!("{VALUES}{selectors}");
                self.apply(&[config(self.server().distro.chart, &values)])?;
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
                self.all_free()?;
                Ok(has_selectors)
            })?;
        let kubectl = KubectlPlugin::new(env, &self.server().node, self.server().distro.kubeconfig);
        report.check("the pod of a StatefulSet has its address again", || {
            self.sticky_pod(&kubectl)
        })?;
        report.check("why names a claim that does not exist", || {
            self.missing_claim(&kubectl)
        })?;
        let selected = "a pod gets the selector of its definition, and waits for the node that has the network";
        if has_selectors {
            return report.check(selected, || self.selected_node());
        }
        report.not_run(selected, "this Kubernetes has no MutatingAdmissionPolicy");
        Ok(())
    }

    fn minor_version(&self) -> anyhow::Result<u32> {
        let version = self.get("/version")?;
        let minor = version["minor"]
            .as_str()
            .and_then(|minor| minor.parse().ok());
        minor.with_context(|| format!("the version of the API server is {version}"))
    }

    /// The definition selects Nodes by the label that the daemons publish, and the API server gives the selector to the pod.
    fn selected_node(&self) -> anyhow::Result<()> {
        let mut network = rare::rare_network();
        let selector = format!("{}=serves", label(RARE));
        network["metadata"]["annotations"] = json!({"k8s.v1.cni.cncf.io/nodeSelector": selector});
        self.apply(&[network])?;
        let pod = objects::unbound_pod(RARE, Some(RARE));
        let pods = "/api/v1/namespaces/default/pods";
        let created = |more: &str| -> anyhow::Result<()> {
            let created = self.api.request("POST", &format!("{pods}{more}"), &pod)?;
            let selector = &created.well()?.json()?["spec"]["nodeSelector"];
            let expected = json!({label(RARE): "serves"});
            ensure!(*selector == expected, "its selector is {selector}");
            Ok(())
        };
        sh::until(60, "the policy knows the definition", || {
            created("?dryRun=All")
        })?;
        created("")?;
        let workers = self.workers()?;
        let last = workers.last().context("there are nodes")?;
        rare::follow(self, &last.node, rare::MOST)
    }

    /// Deletes the pod of a `StatefulSet`, which gets its address again, and then the set, whose claim goes with it.
    fn sticky_pod(&self, kubectl: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let kept = json!({
            "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge",
            "ipam": {"type": "multus-ipam", "subnet": "10.88.0.0/24", "sticky": "owner"},
        });
        self.apply(&[kind_of_claims()?, objects::network("kept", &kept)])?;
        let mut template = objects::unbound_pod("web", Some("kept"));
        let labels = json!({"app": "web"});
        template["metadata"]["labels"] = labels.clone();
        let template = json!({"metadata": {
            "labels": labels, "annotations": template["metadata"]["annotations"],
        }, "spec": template["spec"]});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 1, "serviceName": "web", "selector": {"matchLabels": labels}, "template": template},
        });
        self.apply(&[set])?;
        let uid = || {
            let pod = self.get("/api/v1/namespaces/default/pods/web-0")?;
            let uid = pod["metadata"]["uid"]
                .as_str()
                .context("no pod")?
                .to_owned();
            let is_there = pod["metadata"]["deletionTimestamp"].is_null();
            ensure!(is_there, "the former pod has not ended");
            anyhow::Ok(uid)
        };
        let former = sh::until(60, "the set has a pod", uid)?;
        let before = self.ensure_interfaces("web-0", &["eth0", "net1"])?;
        self.kubectl(&["delete", "pod", "web-0", "--wait=false"])?;
        sh::until(60, "the set has another pod", || {
            let uid = uid()?;
            ensure!(uid != former, "it is the former pod");
            Ok(())
        })?;
        let after = self.ensure_interfaces("web-0", &["eth0", "net1"])?;
        ensure!(before["net1"] == after["net1"], "{before:?} and {after:?}");
        let claims = self.get(&claim::list_path("default"))?;
        ensure!(
            claims["items"][0]["metadata"]["name"] == "web-0.kept.net1",
            "{claims}"
        );
        let (_, status) = kubectl.json(&["status", "web-0"], "")?;
        let mut networks = status["networks"].as_array().into_iter().flatten();
        let is_named = networks.any(|one| one["claim"] == "web-0.kept.net1");
        ensure!(is_named, "{status}");
        self.kubectl(&["delete", "statefulset", "web"])?;
        self.all_free()
    }

    fn missing_claim(&self, kubectl: &KubectlPlugin<'_>) -> anyhow::Result<()> {
        let networks = r#"[{"name": "lan", "ipam-claim-reference": "nobody"}]"#;
        self.apply(&[objects::unbound_pod("claimant", Some(networks))])?;
        sh::until(60, "why knows the cause", || {
            let (_, why) = kubectl.json(&["why", "claimant"], "")?;
            let is_known = why["cause"] == "claim-unusable" && why.to_string().contains("nobody");
            ensure!(is_known, "{why}");
            Ok(())
        })?;
        self.delete(&["claimant".to_owned()])
    }

    fn all_free(&self) -> anyhow::Result<()> {
        sh::until(60, "all addresses are free", || {
            let blocks = self.get(ipam::object::PATH)?.to_string();
            let owned = blocks.matches("\"owner\":\"pod/").count();
            let claimed = blocks.matches("\"owner\":\"claim/").count();
            ensure!(
                owned + claimed == 0,
                "{owned} addresses of pods and {claimed} of claims"
            );
            Ok(())
        })
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.api.request("GET", path, &Value::Null)?.well()?.json()
    }
}
