//! `kubectl multus preflight` on a cluster with the published chart, compared with the pods after the upgrade.

use anyhow::ensure;
use serde_json::{Value, json};

use super::UpgradeFixture;
use crate::{control_plane::objects, kubectl_plugin::KubectlPlugin, sh};

/// A kind of pod: its name, its annotation, and preflight's expected verdict on its next start.
struct Kind {
    name: &'static str,
    networks: Option<&'static str>,
    host_network: bool,
    verdict: Option<&'static str>,
}

const fn kind(
    name: &'static str,
    networks: Option<&'static str>,
    verdict: Option<&'static str>,
) -> Kind {
    Kind {
        name,
        networks,
        host_network: false,
        verdict,
    }
}

const KINDS: [Kind; 6] = [
    kind("preflight-plain", None, None),
    kind("preflight-second", Some("storage"), None),
    kind(
        "preflight-unserved",
        Some(r#"[{"name":"storage","portMappings":[{"hostPort":8080,"containerPort":80}]}]"#),
        Some("changes"),
    ),
    kind("preflight-missing", Some("storag"), Some("fails")),
    kind("preflight-broken", Some("a/b/c"), Some("fails")),
    Kind {
        host_network: true,
        ..kind("preflight-host", Some("storage"), None)
    },
];

/// The daemon's event for a request that no plugin supports.
const NOT_SERVED: &str = "CapabilityNotServed";

impl UpgradeFixture<'_> {
    /// Creates pods of every kind, and checks preflight's verdict on each.
    pub(super) fn preflight(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        self.create_kinds()?;
        let plugin =
            KubectlPlugin::new(self.fixture.env, cluster.server(), cluster.control.admin());
        let (status, answer) = plugin.json(&["preflight"], "")?;
        ensure!(status == 1 && answer["verdict"] == "fails", "{answer}");
        ensure!(answer["gaps"] == json!([]), "{answer}");
        ensure!(answer["chart"] == super::NAME, "{answer}");
        for kind in &KINDS {
            let title = format!("default/{}", kind.name);
            let found = verdict_of(&answer, &title);
            ensure!(
                found.as_deref() == kind.verdict,
                "{title}: the verdict is {found:?}, expected is {:?}: {answer}",
                kind.verdict
            );
        }
        let findings = answer["findings"].as_array().into_iter().flatten();
        let others: Vec<_> = findings
            .filter(|one| one["verdict"] != "note" && one["subject"] != "pod")
            .collect();
        ensure!(others.is_empty(), "unexpected findings: {others:?}");
        Ok(())
    }

    /// Recreates the pods with our daemons; fails unless each starts or fails as preflight reported.
    pub(super) fn preflight_comes_true(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
        cluster.delete(&names)?;
        self.create_kinds()?;
        for kind in &KINDS {
            let has_event = |reason: &str| -> anyhow::Result<bool> {
                let about = format!("--field-selector=involvedObject.name={}", kind.name);
                let events = cluster.get(&["events", &about])?;
                let uid = &cluster.pod(kind.name)?["metadata"]["uid"];
                let mut events = events["items"].as_array().into_iter().flatten();
                Ok(events.any(|event| {
                    event["reason"] == reason && event["involvedObject"]["uid"] == *uid
                }))
            };
            match kind.verdict {
                Some("fails") => sh::until(60, "the pod fails as preflight reported", || {
                    ensure!(has_event("FailedCreatePodSandBox")?, "{}", kind.name);
                    let pod = cluster.pod(kind.name)?;
                    ensure!(pod["status"]["phase"] == "Pending", "{} runs", kind.name);
                    Ok(())
                })?,
                Some(_) => sh::until(60, "an event names the unsupported request", || {
                    ensure!(has_event(NOT_SERVED)?, "{}", kind.name);
                    Ok(())
                })?,
                None => ensure!(
                    !has_event(NOT_SERVED)?,
                    "{}: an event names an unsupported request",
                    kind.name
                ),
            }
        }
        cluster.delete(&names)
    }

    /// Creates pods of every kind, and waits until those run that can start.
    fn create_kinds(&self) -> anyhow::Result<()> {
        let cluster = &self.fixture.cluster;
        let node = &cluster.server().name;
        let pods = KINDS.iter().map(|kind| {
            let mut pod = objects::pod(kind.name, node, kind.networks);
            if kind.host_network {
                pod["spec"]["hostNetwork"] = json!(true);
            }
            pod
        });
        cluster.apply(&pods.collect::<Vec<_>>())?;
        for kind in KINDS.iter().filter(|kind| kind.verdict != Some("fails")) {
            if kind.host_network {
                sh::until(60, "the pod in the host's network runs", || {
                    let pod = cluster.pod(kind.name)?;
                    ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
                    Ok(())
                })?;
                continue;
            }
            let interfaces: &[&str] = match kind.networks {
                None => &["eth0"],
                Some(_) => &["eth0", "net1"],
            };
            cluster.ensure_interfaces(kind.name, interfaces)?;
        }
        Ok(())
    }
}

/// Returns preflight's worst verdict on a pod, except notes.
fn verdict_of(answer: &Value, title: &str) -> Option<String> {
    let findings = answer["findings"].as_array().into_iter().flatten();
    let about = findings.filter(|one| {
        let mut names = one["names"].as_array().into_iter().flatten();
        one["subject"] == "pod" && one["verdict"] != "note" && names.any(|name| name == title)
    });
    // In alphabetical order "fails" comes after "changes".
    let verdicts = about.filter_map(|one| one["verdict"].as_str());
    verdicts.max().map(str::to_owned)
}
