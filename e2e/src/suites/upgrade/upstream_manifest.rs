//! Upstream's manifests for `kubectl apply`, in our own words: the objects, paths, flags and keys that a cluster has which was set up with
//! one. Requests and limits are left out, since they decide about speed alone.

use serde_json::{Value, json};

use crate::suites::cluster::NAMESPACE_NAME;

/// The name of upstream's `DaemonSet`.
pub(super) const DAEMON_SET: &str = "kube-multus-ds";
/// The name of its account, of the role and of the binding.
const ACCOUNT: &str = "multus";

/// One of the two manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamManifest {
    /// `multus-daemonset-thick.yml`: a daemon and a shim.
    Thick,
    /// `multus-daemonset.yml`: a plugin without a daemon.
    Thin,
}

impl UpstreamManifest {
    /// Both manifests.
    pub(super) const ALL: [Self; 2] = [Self::Thick, Self::Thin];

    /// Returns the name by which the suite reports it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Thick => "upstream's thick manifest",
            Self::Thin => "upstream's thin manifest",
        }
    }

    /// Returns the reference of its image.
    pub(super) fn image(self) -> &'static str {
        match self {
            Self::Thick => "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot-thick",
            Self::Thin => "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot",
        }
    }

    /// Returns its objects as one list.
    pub(super) fn objects(self) -> Value {
        let account =
            json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE_NAME});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT});
        json!({"apiVersion": "v1", "kind": "List", "items": [
            definition(),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": ACCOUNT},
                "rules": [
                    {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["*"], "verbs": ["*"]},
                    {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "update", "watch"]},
                    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
                ],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [account],
            },
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE_NAME}},
            self.configuration(),
            self.daemon_set(),
        ]})
    }

    fn configuration(self) -> Value {
        let (name, file, content) = match self {
            Self::Thick => (
                "multus-daemon-config",
                "daemon-config.json",
                json!({
                    "chrootDir": "/hostroot", "cniVersion": "0.3.1", "logLevel": "verbose", "logToStderr": true,
                    "cniConfigDir": "/host/etc/cni/net.d", "multusAutoconfigDir": "/host/etc/cni/net.d",
                    "multusConfigFile": "auto", "socketDir": "/host/run/multus/",
                }),
            ),
            // The entrypoint makes its own, so that this one is mounted and never read.
            Self::Thin => ("multus-cni-config", "cni-conf.json", json!({})),
        };
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE_NAME, "labels": {"tier": "node", "app": "multus"}},
            "data": {file: content.to_string()},
        })
    }

    fn daemon_set(self) -> Value {
        let labels = json!({"tier": "node", "app": "multus", "name": "multus"});
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": DAEMON_SET, "namespace": NAMESPACE_NAME, "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"name": "multus"}},
                "updateStrategy": {"type": "RollingUpdate"},
                "template": {"metadata": {"labels": labels}, "spec": self.pod()},
            },
        })
    }

    fn pod(self) -> Value {
        let privileged = json!({"privileged": true});
        let both_ways = |name: &str, path: &str| json!({"name": name, "mountPath": path, "mountPropagation": "Bidirectional"});
        let below = |name: &str, path: &str| json!({"name": name, "mountPath": path, "mountPropagation": "HostToContainer"});
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let host = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
        let file = |name: &str, of: &str, key: &str, path: &str| json!({"name": name, "configMap": {"name": of, "items": [{"key": key, "path": path}]}});
        let (init, main, volumes) = match self {
            Self::Thick => (
                json!([
                    "/usr/src/multus-cni/bin/install_multus",
                    "-d",
                    "/host/opt/cni/bin",
                    "-t",
                    "thick"
                ]),
                json!({
                    "command": ["/usr/src/multus-cni/bin/multus-daemon"],
                    "volumeMounts": [
                        mount("cni", "/host/etc/cni/net.d"),
                        // The path of the plugins must be the same in the container and on the node.
                        mount("cnibin", "/opt/cni/bin"),
                        mount("host-run", "/host/run"),
                        mount("host-var-lib-cni-multus", "/var/lib/cni/multus"),
                        below("host-var-lib-kubelet", "/var/lib/kubelet"),
                        mount("host-run-k8s-cni-cncf-io", "/run/k8s.cni.cncf.io"),
                        below("host-run-netns", "/run/netns"),
                        mount("multus-daemon-config", "/etc/cni/net.d/multus.d"),
                        below("hostroot", "/hostroot"),
                        mount("multus-conf-dir", "/etc/cni/multus/net.d"),
                    ],
                    "env": [{"name": "MULTUS_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                }),
                json!([
                    host("cni", "/etc/cni/net.d"),
                    host("cnibin", "/opt/cni/bin"),
                    host("hostroot", "/"),
                    file(
                        "multus-daemon-config",
                        "multus-daemon-config",
                        "daemon-config.json",
                        "daemon-config.json"
                    ),
                    host("host-run", "/run"),
                    host("host-var-lib-cni-multus", "/var/lib/cni/multus"),
                    host("host-var-lib-kubelet", "/var/lib/kubelet"),
                    host("host-run-k8s-cni-cncf-io", "/run/k8s.cni.cncf.io"),
                    host("host-run-netns", "/run/netns/"),
                    host("multus-conf-dir", "/etc/cni/multus/net.d"),
                ]),
            ),
            Self::Thin => (
                json!(["/install_multus", "--type", "thin"]),
                json!({
                    "command": ["/thin_entrypoint"],
                    "args": ["--multus-conf-file=auto", "--multus-autoconfig-dir=/host/etc/cni/net.d", "--cni-conf-dir=/host/etc/cni/net.d"],
                    "volumeMounts": [
                        mount("cni", "/host/etc/cni/net.d"),
                        mount("cnibin", "/host/opt/cni/bin"),
                        mount("multus-cfg", "/tmp/multus-conf"),
                    ],
                }),
                json!([
                    host("cni", "/etc/cni/net.d"),
                    host("cnibin", "/opt/cni/bin"),
                    file(
                        "multus-cfg",
                        "multus-cni-config",
                        "cni-conf.json",
                        "70-multus.conf"
                    ),
                ]),
            ),
        };
        let mut main = main;
        main["name"] = "kube-multus".into();
        main["image"] = self.image().into();
        main["securityContext"] = privileged.clone();
        json!({
            "hostNetwork": true,
            "hostPID": self == Self::Thick,
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists", "effect": "NoExecute"}],
            "serviceAccountName": ACCOUNT,
            "containers": [main],
            "initContainers": [{
                "name": "install-multus-binary", "image": self.image(), "command": init,
                "securityContext": privileged,
                "volumeMounts": [both_ways("cnibin", "/host/opt/cni/bin")],
            }],
            "terminationGracePeriodSeconds": 10,
            "volumes": volumes,
        })
    }
}

/// Returns the resource definition, which clusters with upstream's manifest have from it, and not from a chart.
fn definition() -> Value {
    let text = json!({"type": "string"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["nad", "net-attach-def"],
            },
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "description": "A network, as the manifest describes it.", "type": "object",
                "properties": {
                    "apiVersion": text, "kind": text, "metadata": {"type": "object"},
                    "spec": {
                        "description": "The desired state of a network.", "type": "object",
                        "properties": {"config": {"description": "A CNI configuration.", "type": "string"}},
                    },
                },
            }}}],
        },
    })
}
