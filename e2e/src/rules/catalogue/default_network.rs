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
            "The annotation's network takes the place of the first network of the configuration.",
            Upstream,
        ),
        must(
            "default-network.interface-and-status",
            "It has the interface of the default network and is the default in the status annotation.",
            Upstream,
        ),
        must(
            "default-network.requested-interface",
            "An interface name that the annotation requests is used.",
            Upstream,
        ),
        must(
            "default-network.namespace",
            "A name without a namespace means a definition in `multusNamespace`.",
            Upstream,
        ),
        fix(
            "default-network.isolation",
            "`namespaceIsolation` holds for this annotation as well, except that `multusNamespace` is open to all pods.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.4"),
        ),
        must(
            "default-network.several",
            "More than one network is refused with `more than one default network is specified`.",
            Upstream,
        ),
        must(
            "default-network.empty",
            "An empty annotation is refused.",
            Upstream,
        ),
        fix(
            "default-network.empty-list",
            "An empty list is refused with `no default network is specified`.",
            Ours,
        ),
    ],
};
