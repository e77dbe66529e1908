//! The release's daemon as a process of a node, without an image, and its service account.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    control_plane::ControlPlane,
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
    let daemon = node.serve("daemon", &program, |command| {
        command
            .env("MULTUS_NODE_NAME", &node.name)
            .env("KUBECONFIG", kubeconfig)
            .envs(uid)
            .arg("run")
            .args(options)
    })?;
    sh::until(60, "the daemon is ready", || {
        let mut status = node.command(&program);
        status.envs(uid);
        sh::run(status.args(["status", "--ready"]).args(options))
    })?;
    Ok(daemon)
}

/// Returns the service account of daemons with the rights that the chart grants it.
pub(crate) fn service_account() -> Vec<Value> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let read = &["get", "list", "watch"];
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "multus", "namespace": "kube-system"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "multus"}, "rules": [
            rule("k8s.cni.cncf.io", "network-attachment-definitions", read),
            rule("", "pods", read),
            rule("", "pods/status", &["patch"]),
            rule("", "events", &["create", "patch"]),
            rule("apps", "daemonsets", read),
        ]}),
        role_binding(),
    ]
}

/// Returns the binding of the service account to its rights.
pub(crate) fn role_binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "multus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "multus"},
        "subjects": [{"kind": "ServiceAccount", "name": "multus", "namespace": "kube-system"}]})
}

/// Writes the files that a pod with the service account has, with a new token.
pub(crate) fn write_account(node: &Node, control: &ControlPlane) -> anyhow::Result<()> {
    let create = ["create", "token", "multus", "--namespace=kube-system"];
    let token = control.kubectl(node, &create)?;
    node.write(&format!("{ACCOUNT_DIR}/namespace"), "kube-system")?;
    let authority = fs::read(control.pki.file("ca.crt"))?;
    node.write(&format!("{ACCOUNT_DIR}/ca.crt"), authority)?;
    node.write(&format!("{ACCOUNT_DIR}/token"), token.trim())
}
