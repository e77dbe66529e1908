//! The charts as real Helm renders them: under every combination of features, and with every other switch turned.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use airgap::sets::{self, Sets, render};
use anyhow::{Context as _, bail, ensure};
use chart::values::{Kind, VALUES};
use xshell::{Shell, cmd};

use crate::{charts, project::Project, talk, tree::Tree};

/// Helm knows of no Kubernetes that is newer than itself.
const KUBERNETES: &str = "1.34.0";

/// The images of the charts by the feature that brings them.
pub(super) fn images(
    project: &Project,
    sets: &Sets,
    helm: &Path,
) -> anyhow::Result<BTreeMap<String, String>> {
    let dir = tempfile::tempdir().context("cannot make a folder for the charts")?;
    let charts = unpack(project, dir.path())?;
    let helm = Helm { helm, charts };
    let features = helm.open(&sets.features)?;
    let mut runs = Vec::new();
    for combination in render::combinations(&features) {
        let values: Vec<_> = combination
            .iter()
            .map(|name| features[name].clone())
            .collect();
        let images = helm
            .images(&values)?
            .map_err(|reason| anyhow::anyhow!("{} together: {reason}", values.join(", ")))?;
        runs.push((combination, images));
    }
    let found = sets::attribute(&runs);
    helm.others_bring_nothing(sets, &found)?;
    talk::say(&format!(
        "rendered {} combinations of {} features, twice",
        runs.len(),
        features.len()
    ));
    Ok(found)
}

/// The main charts in a folder.
fn unpack(project: &Project, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut tree = Tree::default();
    let mut places = Vec::new();
    for chart in charts::pack(project.version)? {
        if !chart.name.ends_with("-crd") {
            let name = format!("{}.tgz", chart.name);
            places.push(dir.join(&name));
            tree.add(name, chart.bytes);
        }
    }
    tree.update(dir, &[])?;
    Ok(places)
}

struct Helm<'a> {
    helm: &'a Path,
    charts: Vec<PathBuf>,
}

impl Helm<'_> {
    /// The features that this chart has: one that it refuses alone brings nothing.
    fn open(
        &self,
        features: &BTreeMap<String, String>,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let mut open = BTreeMap::new();
        for (name, value) in features {
            match self.images(std::slice::from_ref(value))? {
                Ok(_) => drop(open.insert(name.clone(), value.clone())),
                Err(reason) => talk::say(&format!("{name} is refused by the chart: {reason}")),
            }
        }
        Ok(open)
    }

    /// A switch that is no feature must not bring an image that no feature brings.
    fn others_bring_nothing(
        &self,
        sets: &Sets,
        known: &BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        for row in VALUES.iter().filter(|row| matches!(row.kind, Kind::Switch)) {
            let path = row.path;
            let is_feature = |value: &String| value.split('=').next() == Some(path);
            if sets.features.values().any(is_feature) {
                continue;
            }
            let turned = row.default != Some("true");
            let Ok(images) = self.images(&[format!("{path}={turned}")])? else {
                continue;
            };
            let unknown = images.iter().find(|image| !known.contains_key(*image));
            if let Some(image) = unknown {
                bail!("{path}={turned} brings {image}: make it a feature in airgap/images.toml");
            }
        }
        Ok(())
    }

    /// What runs with these values; the inner error is the chart's refusal.
    fn images(&self, values: &[String]) -> anyhow::Result<Result<BTreeSet<String>, String>> {
        let mut of_both: Option<BTreeSet<String>> = None;
        for chart in &self.charts {
            let text = match self.template(chart, values)? {
                Ok(text) => text,
                Err(reason) => return Ok(Err(reason)),
            };
            let found = render::images(&text)
                .with_context(|| format!("{} with {}", chart.display(), values.join(", ")))?;
            if let Some(other) = &of_both {
                ensure!(
                    *other == found,
                    "both names of the chart run different images with {}",
                    values.join(", ")
                );
            }
            of_both = Some(found);
        }
        of_both.map(Ok).context("there is no chart")
    }

    fn template(&self, chart: &Path, values: &[String]) -> anyhow::Result<Result<String, String>> {
        let (shell, helm) = (Shell::new()?, self.helm);
        let sets = values.iter().flat_map(|value| ["--set", value]);
        let output = cmd!(
            shell,
            "{helm} template multus {chart} --namespace kube-system --kube-version {KUBERNETES} {sets...}"
        )
        .quiet()
        .ignore_status()
        .output()
        .with_context(|| format!("cannot start {}: install Helm, or name it with --helm", helm.display()))?;
        let words = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(Ok(String::from_utf8(output.stdout)?));
        }
        let line = words
            .lines()
            .find(|line| line.starts_with("Error"))
            .unwrap_or(&words);
        Ok(Err(line.trim().to_owned()))
    }
}
