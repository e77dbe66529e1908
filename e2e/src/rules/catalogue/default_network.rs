//! The annotation of the default network.

use super::{
    Source::{NetworkPlumbing, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "default-network",
    title: "The annotation of the default network",
    introduction: "The pod annotation `v1.multus-cni.io/default-network` gives a pod another default network. It has the same forms as the annotation of networks.",
    rules: &[
        must(
            "default-network.replaced",
            "The network of the default-network annotation takes the place of the first network of the configuration.",
            Upstream,
        ),
        must(
            "default-network.interface-and-status",
            "The network of the default-network annotation has the interface of the default network and is the default in the status annotation.",
            Upstream,
        ),
        must(
            "default-network.requested-interface",
            "An interface name in the default-network annotation is used.",
            Upstream,
        ),
        must(
            "default-network.namespace",
            "A name without a namespace in the default-network annotation means a definition in `multusNamespace`.",
            Upstream,
        ),
        fix(
            "default-network.isolation",
            "`namespaceIsolation` holds for the default-network annotation as well, except that `multusNamespace` is open to all pods.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.4"),
        ),
        must(
            "default-network.several",
            "More than one network in the default-network annotation is refused with `more than one default network is specified`.",
            Upstream,
        ),
        must(
            "default-network.empty",
            "An empty default-network annotation is refused.",
            Upstream,
        ),
        fix(
            "default-network.empty-list",
            "An empty list in the default-network annotation is refused with `no default network is specified`.",
            Ours,
        ),
    ],
};
