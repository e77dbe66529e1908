//! The annotation of the original proposal.

use super::{
    Source::{Ours, Upstream},
    Subject, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "legacy",
    title: "The annotation of the original proposal",
    introduction: "Before the standard, pods requested networks with the annotation `alpha.network.k8s.io/networks`. The configuration key `legacyNetworksAnnotation` makes the daemon read it.",
    rules: &[
        must(
            "legacy.off",
            "Without `legacyNetworksAnnotation` the annotation `alpha.network.k8s.io/networks` has no effect.",
            Upstream,
        ),
        must(
            "legacy.annotation",
            "With `legacyNetworksAnnotation` the networks of `alpha.network.k8s.io/networks` are attached as `eth0`, `eth1` and so on, the first as the default network.",
            Ours,
        ),
        must(
            "legacy.current-annotation-wins",
            "The annotation `alpha.network.k8s.io/networks` has no effect on a pod that has one of the current annotations.",
            Ours,
        ),
        must(
            "legacy.plugin-definition",
            "With `legacyNetworksAnnotation` a definition without a configuration that has the name of a plugin becomes a configuration of that plugin, in the highest CNI version that the plugin supports.",
            Ours,
        ),
    ],
};
