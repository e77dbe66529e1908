//! Namespace isolation.

use super::{
    Source::{NetworkPlumbing, Upstream},
    Subject, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "isolation",
    title: "Namespace isolation",
    introduction: "With `namespaceIsolation` a pod can use only definitions of its own namespace and of the namespaces that are open to all.",
    rules: &[
        must(
            "isolation.off",
            "Without `namespaceIsolation` a pod can use definitions of any namespace.",
            Upstream,
        ),
        must(
            "isolation.refused",
            "With `namespaceIsolation` a definition of another namespace fails the pod with `namespace isolation enabled, annotation violates permission`.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.4"),
        ),
        must(
            "isolation.global-namespaces",
            "Definitions in `globalNamespaces` are open to all pods.",
            Upstream,
        ),
        must(
            "isolation.default-namespace",
            "Without `globalNamespaces` the namespace `default` is open to all pods.",
            Upstream,
        ),
        must(
            "isolation.exempt",
            "`clusterNetwork` and `defaultNetworks` are exempt from `namespaceIsolation`.",
            Upstream,
        ),
    ],
};
