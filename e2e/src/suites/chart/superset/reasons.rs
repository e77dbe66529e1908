//! The reasons why our chart lacks a field of the published one, by the beginning of the field's line (`path = value`).

/// Names of the published chart with ours.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("kube-multus", "kube-rke2-multus"),
    ("hostroot", "node"),
    ("multus-daemon-config", "config"),
    // A name with the version changes with each release, and a `+` makes it invalid.
    ("rke2-multus-v4.3.017-config", "rke2-multus-config"),
];

const ONE_MOUNT: &str = "the daemon reaches the node's files below one mount, since it discovers their paths at run time";
const THIN: &str = "there is no thin mode";
const NO_PLUGINS: &str =
    "no plugins are copied to nodes, so nothing has to be prepared before the daemon starts";

#[rustfmt::skip]
pub(super) const REASONS: &[(&str, &str)] = &[
    ("ClusterRole/rke2-multus.rules", "only the rights that are used are granted: nothing but the status of pods is written"),
    ("ConfigMap/rke2-multus-config.data.cni-conf.json", THIN),
    ("ConfigMap/rke2-multus-config.data.daemon-config.json", "the daemon discovers directories and version on each node"),
    ("CustomResourceDefinition/network-attachment-definitions.k8s.cni.cncf.io.spec.names.shortNames", "`nad` is a further short name"),
    ("DaemonSet/rke2-multus.spec.template.metadata.annotations.checksum/config", "the checksum is of another file"),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].args", THIN),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].command = [\"/thin_entrypoint\"]", THIN),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].env[KUBERNETES_NODE_NAME]", THIN),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].image = ", "the image is ours"),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].securityContext.privileged", "a list of capabilities is enough"),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[cni]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[cnibin]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[host-run-k8s-cni-cncf-io]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[host-run-netns]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[host-run]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[host-var-lib-cni-multus]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[host-var-lib-kubelet]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[multus-conf-dir]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.containers[kube-rke2-multus].volumeMounts[multus-cfg]", THIN),
    ("DaemonSet/rke2-multus.spec.template.spec.initContainers[cni-plugins]", NO_PLUGINS),
    ("DaemonSet/rke2-multus.spec.template.spec.initContainers[install-multus-binary]", "the daemon installs the shim after it has discovered the directory"),
    ("DaemonSet/rke2-multus.spec.template.spec.terminationGracePeriodSeconds", "requests in progress may take longer than ten seconds"),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[cni]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[cnibin]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[host-run-k8s-cni-cncf-io]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[host-run-netns]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[host-run]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[host-var-lib-cni-multus]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[host-var-lib-kubelet]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[multus-conf-dir]", ONE_MOUNT),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[multus-cfg]", THIN),
    ("DaemonSet/rke2-multus.spec.template.spec.volumes[config].configMap.items", "the map has this one key"),
    ("DaemonSet/rke2-multus.spec.updateStrategy.rollingUpdate.maxUnavailable", "the next daemon starts before the former one ends"),
];
