//! Checks every value of the chart: the change of objects, that nothing changes, or the error. A value without a row in the table fails.
//!
//! Values come from a file, as with a HelmChartConfig, and override those of the HelmChart.

#[cfg(test)]
mod page;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use self::rows::{ROWS, Row};
use super::render;
use crate::{pool, programs::published_charts, sh, test_env::TestEnv};

/// Returns the leaves of the packed schema by path.
pub(super) fn leaves(env: &TestEnv) -> anyhow::Result<Vec<(String, Value)>> {
    let text = file_of(&env.chart("rke2-multus")?, "rke2-multus/values.schema.json")?;
    let mut found = Vec::new();
    collect("", &serde_json::from_str(&text)?, &mut found);
    Ok(found)
}

/// Reads a file of a packed chart.
fn file_of(chart: &Path, path: &str) -> anyhow::Result<String> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--to-stdout", "--file"]);
    sh::run(tar.arg(chart).arg(path))
}

fn collect(prefix: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, schema) in properties {
        let path = format!("{prefix}{name}");
        // The daemon's configuration is one value; its keys have rows of their own.
        let is_group = schema["properties"].is_object() && path != "config.daemon_conf";
        if is_group {
            collect(&format!("{path}."), schema, found);
        } else {
            found.push((path, schema.clone()));
        }
    }
}

/// Checks each row; fails when a value has no row.
pub(super) fn each(env: &TestEnv) -> anyhow::Result<()> {
    let leaves = leaves(env)?;
    for (path, _) in &leaves {
        ensure!(
            ROWS.iter().any(|row| row.path == *path),
            "{path} has no row: add one to the table"
        );
    }
    // Many rows need the same further values.
    let with: BTreeSet<_> = ROWS.iter().map(|row| &row.with).collect();
    let with: Vec<_> = with.into_iter().collect();
    let without = pool::all(&with, |with| {
        let with = arguments(with);
        let with: Vec<_> = with.iter().map(String::as_str).collect();
        let objects = render::ours(env, "rke2-multus", &with)?;
        Ok(serde_json::to_string(&objects)?)
    })?;
    let without: BTreeMap<_, _> = with.into_iter().zip(without).collect();
    let rows: Vec<_> = ROWS.iter().enumerate().collect();
    pool::all(&rows, |&(number, row)| {
        ensure!(
            leaves.iter().any(|(path, _)| *path == row.path),
            "{} has a row, but is no longer a value",
            row.path
        );
        let dir = env.dir.join(format!("values-{number}"));
        std::fs::create_dir_all(&dir)?;
        check(env, &dir, row, &without[&row.with])
            .with_context(|| format!("{}: {}", row.path, row.value))
    })
    .map(drop)
}

/// Returns Helm's arguments for further values.
fn arguments(with: &[String]) -> Vec<String> {
    with.iter().map(|value| format!("--set={value}")).collect()
}

/// Checks a row in a directory of its own; `before` are the objects without its value.
fn check(env: &TestEnv, dir: &Path, row: &Row, before: &str) -> anyhow::Result<()> {
    let value = serde_yaml::from_str(&row.value)?;
    let values = render::nested(&row.path, value).to_string();
    let with = arguments(&row.with);
    let with: Vec<_> = with.iter().map(String::as_str).collect();
    let after = render::with_file(env, "rke2-multus", &values, &with);
    preflight_agrees(env, dir, row, &values, after.as_deref().ok())?;
    let after = after.and_then(|objects| Ok(serde_json::to_string(&objects)?));
    let after = match (after, &row.refused) {
        (Ok(_), Some(_)) => bail!("the value is accepted"),
        (Err(error), Some(hint)) => {
            ensure!(error.to_string().contains(hint), "no `{hint}` in {error:#}");
            return Ok(());
        }
        (after, None) => after?,
    };
    let is_unchanged = row.shows.is_none() && row.hides.is_none();
    ensure!(!is_unchanged || after == before, "it changes something");
    if let Some(text) = &row.shows {
        ensure!(
            !before.contains(text),
            "`{text}` is there without the value"
        );
        ensure!(after.contains(text), "no `{text}` in {after}");
    }
    if let Some(text) = &row.hides {
        ensure!(
            before.contains(text),
            "`{text}` is not there without the value"
        );
        ensure!(!after.contains(text), "`{text}` is still there");
    }
    Ok(())
}

/// Fails unless `kubectl multus preflight` refuses the same values as Helm, and gives the same daemon configuration for others.
fn preflight_agrees(
    env: &TestEnv,
    dir: &Path,
    row: &Row,
    values: &str,
    objects: Option<&[Value]>,
) -> anyhow::Result<()> {
    let mut command = Command::new(env.program("kubectl-multus"));
    command.env("PATH", &env.bin);
    command.args(["preflight", "--filename=/dev/null", "--output=json"]);
    let with = row.with.iter().map(|word| {
        let (path, value) = word.split_once('=').context("path=value")?;
        Ok(render::nested(path, serde_yaml::from_str(value)?).to_string())
    });
    let with = with.collect::<anyhow::Result<Vec<_>>>()?;
    for (index, text) in with.iter().map(String::as_str).chain([values]).enumerate() {
        let path = dir.join(format!("preflight-{index}.yaml"));
        std::fs::write(&path, text)?;
        command.arg("--values").arg(path);
    }
    let output = sh::output(&mut command, &[])?;
    let answer: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("preflight gave no answer: {stderr}")
    })?;
    let mut findings = answer["findings"].as_array().into_iter().flatten();
    let is_refused = findings.any(|one| one["verdict"] == "fails" && one["subject"] == "value");
    ensure!(
        is_refused == objects.is_none(),
        "Helm accepts the value: {}, preflight prints {answer}",
        objects.is_some()
    );
    // Some values remove the ConfigMap, and then there is nothing to compare.
    if let Some(config) =
        objects.and_then(|objects| render::daemon_config(objects, "rke2-multus").ok())
    {
        ensure!(
            config == answer["daemonConfig"],
            "the chart has {config}, preflight {}",
            answer["daemonConfig"]
        );
    }
    Ok(())
}

/// The published values files are refused only for thin mode and images; all their other keys are values of ours.
pub(super) fn published(env: &TestEnv) -> anyhow::Result<()> {
    for (name, words) in [
        (
            published_charts::NEW,
            &["thickPlugin.enabled is false", "thin mode"],
        ),
        (
            published_charts::OLD,
            &["thickPlugin.enabled is false", "thin mode"],
        ),
    ] {
        let chart = published_charts::archive(name)?;
        let text = file_of(&chart, "rke2-multus/values.yaml")?;
        let values: Value = serde_yaml::from_str(&text)?;
        let Err(error) = render::with_file(env, "rke2-multus", &text, &[]) else {
            bail!("{name}: its values are accepted, thin mode included");
        };
        let error = error.to_string();
        for word in words {
            ensure!(error.contains(word), "{name}: no `{word}` in {error}");
        }
        // A user has to change these values; the rest of the file is accepted.
        let mut values = values;
        values["thickPlugin"]["enabled"] = true.into();
        for image in ["/image", "/thickPlugin/image"] {
            let text = render::with_file(env, "rke2-multus", &values.to_string(), &[]);
            let error = text
                .err()
                .context("an image of the Go implementation is accepted")?
                .to_string();
            ensure!(
                error.contains("an image of the Go implementation"),
                "{name}: {error}"
            );
            let group = image.trim_end_matches("/image");
            let group = values.pointer_mut(group).and_then(Value::as_object_mut);
            group.context("it names images")?.remove("image");
        }
        render::with_file(env, "rke2-multus", &values.to_string(), &[])
            .with_context(|| format!("{name}: the rest of its values"))?;
    }
    Ok(())
}

/// A HelmChartConfig overrides the HelmChart's values; `set` in the HelmChart, which has only the cluster's registry, overrides both.
pub(super) fn layers(env: &TestEnv) -> anyhow::Result<()> {
    for (distro, name) in [("k3s", "k3s-multus"), ("rke2", "rke2-multus")] {
        let text = String::from_utf8(env.read(&format!("manifests/{distro}/multus.yaml"))?)?;
        let documents = render::parse(&text)?;
        let chart = render::find(&documents, &format!("HelmChart/{name}"))?;
        let set = chart["spec"]["set"].as_object();
        let keys: Vec<_> = set
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        ensure!(
            keys.iter().all(|key| key.starts_with("global.")),
            "{distro}: users cannot override {keys:?}"
        );
        // The job passes both to Helm as files, in this order.
        let first = env.dir.join("values-1-HelmChart.yaml");
        let own = chart["spec"]["valuesContent"].as_str().unwrap_or_default();
        std::fs::write(
            &first,
            format!("{own}\nserviceAccount: {{name: of-chart}}\n"),
        )?;
        let first = format!("--values={}", first.display());
        let second =
            "config: {daemon_conf: {logLevel: debug}}\nserviceAccount: {name: of-config}\n";
        let path = env.dir.join("values-2-HelmChartConfig.yaml");
        std::fs::write(&path, second)?;
        let second = format!("--values={}", path.display());
        let set = "--set=global.systemDefaultRegistry=mirror.example";
        let objects = render::ours(env, name, &[&first, &second, set])?;
        let config = render::daemon_config(&objects, name)?;
        ensure!(config["logLevel"] == "debug", "{config}");
        let pod =
            &render::find(&objects, &format!("DaemonSet/{name}"))?["spec"]["template"]["spec"];
        ensure!(pod["serviceAccountName"] == "of-config", "{pod}");
        let image = pod["containers"][0]["image"].as_str().unwrap_or_default();
        ensure!(
            image.starts_with("mirror.example/multusrs/multus:"),
            "{image}"
        );
    }
    Ok(())
}

/// Returns Helm arguments that set every accepted value of a group.
pub(super) fn accepted_of(group: &str) -> impl Iterator<Item = String> {
    let rows = ROWS.iter().filter(move |row| row.path.starts_with(group));
    let accepted = rows.filter(|row| row.is_accepted());
    accepted.map(|row| format!("--set={}={}", row.path, row.value.replace(',', "\\,")))
}

/// Returns Helm arguments for each accepted switch, with the further values that it needs.
pub(super) fn switches() -> impl Iterator<Item = Vec<String>> {
    let rows = ROWS.iter().filter(|row| row.is_accepted());
    let rows = rows.filter(|row| row.value.parse::<bool>().is_ok());
    rows.map(|row| {
        let mut all = arguments(&row.with);
        all.push(format!("--set={}={}", row.path, row.value));
        all
    })
}
