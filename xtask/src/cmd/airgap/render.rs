//! Renders the charts with Helm, with every combination of features and with every other switch toggled, to find the images that they run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use airgap::sets::{self, Sets, render};
use anyhow::{Context as _, bail, ensure};
use chart::values::{Kind, VALUES};
use cmdline::counted;
use xshell::{Shell, cmd};

use crate::{charts, project::Project, tree::Tree, ui};

/// Helm refuses charts for a Kubernetes that is newer than itself, so the version is fixed here.
const KUBERNETES: &str = "1.34.0";

/// Returns the images of the charts, each with the feature that brings it.
pub(super) fn images(
    project: &Project,
    sets: &Sets,
    helm: &Path,
) -> anyhow::Result<BTreeMap<String, String>> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory for the charts")?;
    let charts = unpack(project, dir.path())?;
    let helm = Helm { helm, charts };
    let features = helm.accepted(&sets.features)?;
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
    helm.check_other_switches(sets, &found)?;
    ui::note(&format!(
        "rendered {} of {}, twice",
        counted(runs.len(), "combination"),
        counted(features.len(), "feature")
    ));
    Ok(found)
}

/// Writes the main charts into a directory and returns their paths.
fn unpack(project: &Project, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut tree = Tree::default();
    let mut paths = Vec::new();
    for chart in charts::pack(project.settings())? {
        if !chart.name.ends_with("-crd") {
            let name = format!("{}.tgz", chart.name);
            paths.push(dir.join(&name));
            tree.add(name, chart.bytes);
        }
    }
    tree.update(dir, &[])?;
    Ok(paths)
}

struct Helm<'a> {
    helm: &'a Path,
    charts: Vec<PathBuf>,
}

impl Helm<'_> {
    /// Returns the features that the chart accepts alone; the others bring no image.
    fn accepted(
        &self,
        features: &BTreeMap<String, String>,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let mut accepted = BTreeMap::new();
        for (name, value) in features {
            match self.images(std::slice::from_ref(value))? {
                Ok(_) => drop(accepted.insert(name.clone(), value.clone())),
                Err(reason) => ui::note(&format!("the chart refuses {name}: {reason}")),
            }
        }
        Ok(accepted)
    }

    /// Fails when a switch that is not a feature brings an image that no feature brings.
    fn check_other_switches(
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
            let toggled = row.default != Some("true");
            let Ok(images) = self.images(&[format!("{path}={toggled}")])? else {
                continue;
            };
            let unknown = images.iter().find(|image| !known.contains_key(*image));
            if let Some(image) = unknown {
                bail!("{path}={toggled} brings {image}: make it a feature in airgap/images.toml");
            }
        }
        Ok(())
    }

    /// Returns the images that run with these values; the inner error is the chart's refusal.
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(Ok(String::from_utf8(output.stdout)?));
        }
        let line = stderr
            .lines()
            .find(|line| line.starts_with("Error"))
            .unwrap_or(&stderr);
        Ok(Err(line.trim().to_owned()))
    }
}
