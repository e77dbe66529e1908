//! The release's daemon as a process of a node, without an image, and its service account.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    control_plane::{ControlPlane, pki::Pki},
    node::{Node, Service},
    sh,
    test_env::TestEnv,
};

/// The daemon's state directory.
pub(crate) const STATE_DIR: &str = "/var/lib/cni/multus";
/// The daemon's socket with the default configuration.
pub(crate) const SOCKET: &str = "/run/multus/multus.sock";
/// The directory of the service account in a pod.
pub(crate) const ACCOUNT_DIR: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// Starts a daemon with this kubeconfig and configuration file, and waits until it is ready. With `pod_uid` it has the identity of a pod.
pub(crate) fn start(
    env: &TestEnv,
    node: &Node,
    kubeconfig: &Path,
    config: &str,
    pod_uid: Option<&str>,
) -> anyhow::Result<Service> {
    let program = env.program("multus-daemon");
    let uid = pod_uid.map(|uid| ("POD_UID", uid));
    let options = ["--root", "/", "--config", config];
    let daemon = launch(
        node,
        "daemon",
        &program,
        Access::Kubeconfig(kubeconfig),
        |command| command.envs(uid).arg("run").args(options),
    )?;
    sh::until(60, "the daemon is ready", || {
        let mut status = node.command(&program);
        status.envs(uid);
        sh::run(status.args(["status", "--ready"]).args(options))
    })?;
    Ok(daemon)
}

/// The chart with default values, rendered by Helm; suite `chart` compares it with the packed chart.
const RENDERED: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../chart/rendered/multus.yaml"
));

/// How a daemon reaches the API server.
#[derive(Clone, Copy)]
pub(crate) enum Access<'a> {
    Kubeconfig(&'a Path),
    /// As a pod does, with the service account; the port is one of the node.
    Account(u16),
}

/// Starts a daemon, with a log of this name, and does not wait for it; `set` adds its arguments.
pub(crate) fn launch(
    node: &Node,
    name: &str,
    program: impl AsRef<OsStr>,
    access: Access<'_>,
    set: impl FnOnce(&mut Command) -> &mut Command,
) -> anyhow::Result<Service> {
    node.serve(name, program, |command| {
        command.env("MULTUS_NODE_NAME", &node.name);
        match access {
            Access::Kubeconfig(file) => command.env("KUBECONFIG", file),
            Access::Account(port) => command
                .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                .env("KUBERNETES_SERVICE_PORT", port.to_string())
                .env("HOME", "/run/nowhere")
                .env_remove("KUBECONFIG"),
        };
        set(command)
    })
}

/// Returns the service account of daemons with the rights that the chart grants it.
pub(crate) fn service_account() -> anyhow::Result<Vec<Value>> {
    let text = RENDERED.replace("@VERSION@", "0.0.0");
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    let mut objects = documents.collect::<Result<Vec<_>, _>>()?;
    objects.retain(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind == "ServiceAccount" || kind.contains("Role")
    });
    Ok(objects)
}

/// Returns the rights that the chart grants its daemons with these values, the policies about them, and how their requests wait.
pub(crate) fn rights(env: &TestEnv, values: &[&str]) -> anyhow::Result<Vec<Value>> {
    let mut helm = Command::new(env.bin.join("helm"));
    helm.args(["template", "rke2-multus", "--namespace", "kube-system"])
        .arg("--kube-version=1.36.0")
        .args(values.iter().map(|value| format!("--set={value}")))
        .arg(env.chart("rke2-multus")?);
    let text = sh::run(&mut helm)?;
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    let mut objects = documents.collect::<Result<Vec<_>, _>>()?;
    objects.retain(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let kinds = ["ServiceAccount", "PriorityLevelConfiguration", "FlowSchema"];
        kinds.contains(&kind) || kind.contains("Role") || kind.contains("Policy")
    });
    Ok(objects)
}

/// Writes the files that a pod with the service account has, with a new token.
pub(crate) fn write_account(node: &Node, control: &ControlPlane) -> anyhow::Result<()> {
    let create = ["create", "token", "multus", "--namespace=kube-system"];
    let token = control.kubectl(node, &create)?;
    write_account_with(node, &control.pki, token.trim())
}

/// Writes these files with this token.
pub(crate) fn write_account_with(node: &Node, pki: &Pki, token: &str) -> anyhow::Result<()> {
    node.write(&format!("{ACCOUNT_DIR}/namespace"), "kube-system")?;
    let authority = fs::read(pki.file("ca.crt"))?;
    node.write(&format!("{ACCOUNT_DIR}/ca.crt"), authority)?;
    node.write(&format!("{ACCOUNT_DIR}/token"), token)
}
