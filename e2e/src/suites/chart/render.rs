//! Rendered charts as text and as objects.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{sh, test_env::TestEnv};

/// Without this argument a Helm that is built from its module assumes an older Kubernetes.
const KUBERNETES: &str = "--kube-version=1.34.0";
/// The kind that 1.34 has only on request, as the suite's API server does.
const BETA: &str = "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy";
pub(super) const NAMESPACE: &str = "kube-system";

/// Runs Helm with these arguments and a chart.
pub(super) fn helm(env: &TestEnv, args: &[&str], chart: &Path) -> anyhow::Result<String> {
    sh::run(Command::new(env.bin.join("helm")).args(args).arg(chart))
}

/// Renders the installed objects of a chart as text, for a release of this name.
pub(super) fn text(
    env: &TestEnv,
    release: &str,
    chart: &Path,
    more: &[&str],
) -> anyhow::Result<String> {
    with_tests(env, release, chart, &[&["--skip-tests"], more].concat())
}

/// Like [`text`], with the objects of `helm test`.
pub(super) fn with_tests(
    env: &TestEnv,
    release: &str,
    chart: &Path,
    more: &[&str],
) -> anyhow::Result<String> {
    template(env, release, chart, more, "")
}

/// Renders a chart with this stdin.
fn template(
    env: &TestEnv,
    release: &str,
    chart: &Path,
    more: &[&str],
    stdin: &str,
) -> anyhow::Result<String> {
    let namespace = format!("--namespace={NAMESPACE}");
    let mut command = Command::new(env.bin.join("helm"));
    command.args(["template", release, &namespace, KUBERNETES, BETA]);
    sh::feed(command.args(more).arg(chart), stdin.as_bytes())
}

/// Renders the installed objects of a chart.
pub(super) fn objects(
    env: &TestEnv,
    release: &str,
    chart: &Path,
    more: &[&str],
) -> anyhow::Result<Vec<Value>> {
    parse(&text(env, release, chart, more)?)
}

/// Renders our chart of this name with further arguments.
pub(super) fn ours(env: &TestEnv, name: &str, more: &[&str]) -> anyhow::Result<Vec<Value>> {
    objects(env, name, &env.chart(name)?, more)
}

/// Like [`ours`], with values from a file, as with a HelmChartConfig.
pub(super) fn with_file(
    env: &TestEnv,
    name: &str,
    values: &str,
    more: &[&str],
) -> anyhow::Result<Vec<Value>> {
    let args = [&["--skip-tests", "--values=-"], more].concat();
    parse(&template(env, name, &env.chart(name)?, &args, values)?)
}

/// Parses the documents of rendered text, without empty ones.
pub(in crate::suites) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let documents = documents.collect::<Result<Vec<_>, _>>();
    let documents = documents.context("the rendered text is not YAML")?;
    Ok(documents.into_iter().filter(|one| !one.is_null()).collect())
}

/// Returns kind and name of an object.
pub(super) fn identity(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!(
        "{}/{}",
        word(&object["kind"]),
        word(&object["metadata"]["name"])
    )
}

/// Returns the only object of this kind and name.
pub(super) fn find<'a>(objects: &'a [Value], wanted: &str) -> anyhow::Result<&'a Value> {
    let mut found = objects.iter().filter(|one| identity(one) == wanted);
    let first = found
        .next()
        .with_context(|| format!("there is no {wanted}"))?;
    ensure!(found.next().is_none(), "there are two of {wanted}");
    Ok(first)
}

/// Returns the objects with a pod template.
pub(super) fn workloads(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects
        .iter()
        .filter(|one| one["spec"]["template"]["spec"].is_object())
}

/// Returns the containers of a workload, init containers included.
pub(super) fn containers(workload: &Value) -> impl Iterator<Item = &Value> {
    let spec = &workload["spec"]["template"]["spec"];
    ["initContainers", "containers"]
        .into_iter()
        .filter_map(|key| spec[key].as_array())
        .flatten()
}

/// Returns the daemon's configuration in the ConfigMap.
pub(super) fn daemon_config(objects: &[Value], name: &str) -> anyhow::Result<Value> {
    let map = find(objects, &format!("ConfigMap/{name}-config"))?;
    let text = map["data"]["daemon-config.json"].as_str();
    serde_json::from_str(text.context("the ConfigMap has no daemon-config.json")?)
        .context("daemon-config.json")
}

/// Returns values that contain only this value, at a path of keys.
pub(super) fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |value, key| {
        Value::Object([(key.to_owned(), value)].into_iter().collect())
    })
}
