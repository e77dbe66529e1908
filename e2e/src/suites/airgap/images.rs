//! Charts and lists name the same images; that archives hold those of the lists is checked when stores import them.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::ensure;
use serde_json::Value;

use crate::{
    report::{Checked, Report},
    sh,
    suites::chart::render::parse,
    test_env::{TestEnv, arch},
};

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    report.check(
        "lists name the images that real Helm renders, with every switch",
        || {
            let list = env.read("airgap/multus-images.txt")?;
            for other in [
                "airgap/k3s/image-list-multus.txt".to_owned(),
                format!("airgap/rke2/rke2-images-multus.linux-{}.txt", arch()),
            ] {
                ensure!(env.read(&other)? == list, "{other} has other images");
            }
            let list = String::from_utf8(list)?;
            // The chart leaves out the registry that runtimes add themselves.
            let names = list.lines();
            let names = names.map(|name| name.strip_prefix("docker.io/").unwrap_or(name));
            let expected: BTreeSet<_> = names.map(str::to_owned).collect();
            for name in ["rke2-multus", "k3s-multus", "multus"] {
                charts_run(env, &env.chart(name)?, &expected)?;
            }
            Ok(())
        },
    )
}

/// Fails unless a chart runs these images by default and with each of its switches toggled.
fn charts_run(env: &TestEnv, chart: &Path, expected: &BTreeSet<String>) -> anyhow::Result<()> {
    let helm = |args: &[&str]| sh::run(Command::new(env.bin.join("helm")).args(args).arg(chart));
    let values: Value = serde_yaml::from_str(&helm(&["show", "values"])?)?;
    let toggles: Vec<_> = toggled("", &values);
    let mut refused = 0;
    for set in [String::new()].iter().chain(&toggles) {
        let version = "--kube-version=1.34.0";
        let text = match helm(&["template", "multus", version, "--set", set]) {
            Err(_) if !set.is_empty() => {
                refused += 1;
                continue;
            }
            rendered => rendered?,
        };
        let mut found = BTreeSet::new();
        for object in parse(&text)? {
            collect(&object, &mut found);
        }
        // A switch may turn containers off.
        ensure!(
            found.is_subset(expected) && (found == *expected || !set.is_empty()),
            "{} with `{set}` runs {found:?}, the lists have {expected:?}",
            chart.display()
        );
    }
    let count = toggles.len();
    ensure!(
        refused * 2 < count,
        "{refused} of {count} switches are refused"
    );
    Ok(())
}

/// Returns the argument of `--set` that toggles each switch.
fn toggled(path: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Bool(is_on) => vec![format!("{path}={}", !is_on)],
        Value::Object(keys) => {
            let dot = if path.is_empty() { "" } else { "." };
            let children = keys.iter();
            let children =
                children.map(|(key, value)| toggled(&format!("{path}{dot}{key}"), value));
            children.flatten().collect()
        }
        _ => Vec::new(),
    }
}

/// Collects the names of images at any depth, since containers are at different depths in different kinds of objects.
fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        Value::Object(keys) => {
            names.extend(keys.get("image").and_then(Value::as_str).map(str::to_owned));
            keys.values().for_each(|value| collect(value, names));
        }
        _ => {}
    }
}
