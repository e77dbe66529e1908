//! The objects of `helm test`: only hooks, selected by no selector of the release, with the release's only image.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::render;
use crate::{sh, test_env::TestEnv};

const NAME: &str = "rke2-multus";
const HOOK: &str = "/metadata/annotations/helm.sh~1hook";

pub(super) fn objects(env: &TestEnv) -> anyhow::Result<()> {
    let chart = env.chart(NAME)?;
    let all = |more: &[&str]| render::parse(&render::with_tests(env, NAME, &chart, more)?);
    let is_test = |object: &Value| object.pointer(HOOK).is_some_and(|hook| hook == "test");
    let (tests, installed): (Vec<_>, Vec<_>) = all(&[])?.into_iter().partition(is_test);
    ensure!(
        installed == render::ours(env, NAME, &[])?,
        "--skip-tests omits more than hooks"
    );
    let kinds: BTreeSet<_> = tests
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    let expected = ["Pod", "Role", "RoleBinding", "ServiceAccount"];
    ensure!(kinds == expected.into(), "{kinds:?}");

    let daemon = render::find(&installed, &format!("DaemonSet/{NAME}"))?;
    let pod = render::find(&tests, &format!("Pod/{NAME}-test"))?;
    let container = &pod["spec"]["containers"][0];
    let image = &daemon["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(container["image"] == *image, "{}", container["image"]);
    let selector = daemon["spec"]["selector"]["matchLabels"].as_object();
    let selector = selector.context("the DaemonSet has a selector")?;
    let labels = &pod["metadata"]["labels"];
    ensure!(
        selector.iter().any(|(key, value)| labels[key] != *value),
        "the DaemonSet would adopt the pod: {labels}"
    );
    ensure!(
        pod["spec"]["hostNetwork"].is_null(),
        "a pod in the host's network starts without Multus"
    );
    for key in ["nodeSelector", "affinity", "tolerations"] {
        ensure!(
            pod["spec"][key] == daemon["spec"]["template"]["spec"][key],
            "{key}: the pod may start on a node without a daemon"
        );
    }
    let args = [&container["command"], &container["args"]];
    let args = args.into_iter().filter_map(Value::as_array).flatten();
    let args: Vec<_> = args.filter_map(Value::as_str).collect();
    sh::run(
        Command::new(env.program("multus-daemon"))
            .args(&args[1..])
            .arg("--help"),
    )?;

    let without = all(&["--set=manifests.daemonSet=false"])?;
    ensure!(
        !without.iter().any(is_test),
        "there is a test without a DaemonSet"
    );
    Ok(())
}
