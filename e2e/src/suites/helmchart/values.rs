//! Every value of the chart through a HelmChartConfig, the controller, and a job's Helm: what its row in level `chart` says comes of it.
//!
//! Values that do not disturb each other go together; no pod of ours runs meanwhile, so that no other pod could start, which jobs have to bear.

use std::iter;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::config;
use crate::{
    cluster::k3s_server::{released, words},
    report::{CheckFailed, Report},
    sh,
    suites::{
        chart::{
            render::{nested, parse},
            values::{Wanted, wanted},
        },
        cluster::{ClusterFixture, NAMESPACE},
    },
};

const CHART: &str = "rke2-multus";
/// No node has this.
const NOWHERE: &str = "{labels: {nodeSelector: {nowhere: here}}}";

impl ClusterFixture<'_> {
    pub(super) fn every_value(&self, report: &mut Report) -> Result<(), CheckFailed> {
        let count = report.check("a HelmChartConfig brings every value of the chart", || {
            self.values()
        })?;
        crate::report::say(&format!("        {count}"));
        report.check(
            "a value that is refused: the job tells the cure, the release stays",
            || {
                let before = released(&self.cluster, CHART, 0)?;
                let values = "thickPlugin: {enabled: false}\n";
                self.cluster.apply(&[config(CHART, values)])?;
                sh::until(60, "the job tells why", || {
                    let said = words(&self.cluster, CHART);
                    ensure!(said.contains("thin mode does not exist"), "it said {said}");
                    Ok(())
                })?;
                let now = released(&self.cluster, CHART, 0)?;
                ensure!(now == before, "revision {before} became {now}");
                Ok(())
            },
        )?;
        report.check("without the HelmChartConfig all is as before", || {
            let before = released(&self.cluster, CHART, 0)?;
            self.cluster
                .kubectl(&["delete", "helmchartconfig", CHART, NAMESPACE])?;
            released(&self.cluster, CHART, before)?;
            self.is_ready(CHART)?;
            self.pods("after")
        })
    }

    fn values(&self) -> anyhow::Result<String> {
        let base = self.objects(&serde_yaml::from_str(NOWHERE)?)?;
        let all = wanted()?;
        let (told, idle): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|one| !one.refused && !of_distro(one))
            .partition(|one| one.text.is_some());
        let groups = groups(&told);
        for group in &groups {
            let objects = self.objects(&together(group)?)?;
            for one in group {
                let (text, is_there) = one.text.context("these have a text")?;
                ensure!(
                    objects.contains(text) == is_there,
                    "{}: `{text}` is there: {}",
                    one.path,
                    !is_there
                );
            }
        }
        let objects = self.objects(&together(&idle)?)?;
        ensure!(objects == base, "values that do nothing change something");
        let count: usize = groups.iter().map(Vec::len).sum();
        ensure!(
            count > 30 && idle.len() > 10,
            "only {count} and {}",
            idle.len()
        );
        Ok(format!(
            "{count} values in {} upgrades, {} that do nothing in one",
            groups.len(),
            idle.len()
        ))
    }

    /// The objects of the release that a HelmChartConfig with these values leads to.
    fn objects(&self, values: &Value) -> anyhow::Result<String> {
        let before = released(&self.cluster, CHART, 0)?;
        self.cluster.apply(&[config(CHART, &values.to_string())])?;
        released(&self.cluster, CHART, before)?;
        let mut helm = self.cluster.helm();
        let text = sh::run(helm.args(["get", "manifest", CHART, NAMESPACE]))?;
        Ok(serde_json::to_string(&parse(&text)?)?)
    }
}

/// What the distro sets in the HelmChart itself, over which no HelmChartConfig comes.
fn of_distro(one: &Wanted) -> bool {
    one.path.starts_with("global.")
}

/// As few groups as can be seen at once.
fn groups<'a>(told: &[&'a Wanted]) -> Vec<Vec<&'a Wanted>> {
    let mut groups: Vec<Vec<&Wanted>> = Vec::new();
    for one in told {
        let group = groups
            .iter_mut()
            .find(|group| group.iter().all(|other| go_together(one, other)));
        match group {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Whether two values can be seen beside each other.
fn go_together(one: &Wanted, other: &Wanted) -> bool {
    !(disturbs(one, other) || disturbs(other, one))
}

/// Whether what comes of the other is not to be seen beside this one.
fn disturbs(one: &Wanted, other: &Wanted) -> bool {
    let is_above = format!("{}.", other.path).starts_with(&format!("{}.", one.path));
    // A repository is told with the usual tag, and a tag with the usual repository.
    let of_image = |one: &Wanted| {
        let part = one.path.split_once("mage.").map(|(_, part)| part);
        part == Some("repository") || part == Some("tag")
    };
    // One image lies over the other.
    let is_over = one.path.starts_with("thickPlugin.image.") && other.path.starts_with("image.");
    // The daemon's file has one level of logging.
    let is_file = one.path == "config.daemon_conf" && other.path.starts_with("config.");
    // A DaemonSet has one update strategy, whose parts follow from each other.
    let is_strategy =
        one.path.starts_with("updateStrategy.") && other.path.starts_with("updateStrategy.");
    let is_same = one.text == other.text || (of_image(one) && of_image(other));
    is_above
        || is_over
        || is_file
        || is_strategy
        || is_same
        || (takes_away(one) && hides(one, other))
}

/// Whether something is no longer there with this value.
fn takes_away(one: &Wanted) -> bool {
    one.text.is_some_and(|(_, is_there)| !is_there)
}

/// Whether a value that takes something away takes what the other is told by, or the other brings it back.
fn hides(one: &Wanted, other: &Wanted) -> bool {
    // The approver has objects of every kind.
    let of_certificates = |one: &Wanted| {
        let mut paths = iter::once(one.path).chain(one.with.iter().copied());
        paths.any(|path| path.starts_with("perNodeCertificate."))
    };
    let subject = |one: &Wanted| one.path.split_once('.').map(|(subject, _)| subject);
    one.path == "manifests.daemonSet"
        || of_certificates(other)
        || (subject(one) == subject(other) && !takes_away(other))
}

/// One file with all of them, and what they need to be seen.
fn together(group: &[&Wanted]) -> anyhow::Result<Value> {
    let mut all: Value = json!({});
    merge(&mut all, serde_yaml::from_str(NOWHERE)?);
    for one in group {
        for word in one.with {
            let (path, value) = word.split_once('=').context("path and value")?;
            merge(&mut all, nested(path, serde_yaml::from_str(value)?));
        }
        merge(&mut all, nested(one.path, one.value.clone()));
    }
    Ok(all)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_together_in_few_groups() {
        let all = wanted().unwrap();
        let told: Vec<_> = all
            .iter()
            .filter(|one| !one.refused && !of_distro(one) && one.text.is_some())
            .collect();
        let groups = groups(&told);
        let count: usize = groups.iter().map(Vec::len).sum();
        assert_eq!(count, told.len());
        assert!(groups.len() < 6, "{} groups", groups.len());
    }
}
