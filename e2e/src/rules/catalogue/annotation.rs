//! The annotation of networks.

use super::{
    Source::{NetworkPlumbing, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "annotation",
    title: "The annotation of networks",
    introduction: "The pod annotation `k8s.v1.cni.cncf.io/networks` requests networks next to the default network, in a short form or as JSON. An annotation that is refused fails the pod: the standard would ignore it, which upstream does not do either.",
    rules: &[
        must(
            "annotation.nothing",
            "An annotation that is empty or an empty list requests no networks.",
            Upstream,
        ),
        must(
            "annotation.short-form",
            "The short form is `[namespace/]name[@interface]`, separated by commas; blanks around the parts are ignored.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.1"),
        ),
        must(
            "annotation.separators",
            "An item of the short form with more than one `/` or `@` is refused with `Invalid network object (failed at …)`.",
            Upstream,
        ),
        must(
            "annotation.names",
            "Names in the short form hold lower-case letters, digits and inner hyphens.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 3.3"),
        ),
        must(
            "annotation.empty-item",
            "An item of the short form without a name fails the pod.",
            Upstream,
        ),
        must(
            "annotation.interface-name",
            "An interface name in the annotation has at most 15 characters and no blanks.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.5"),
        ),
        must(
            "annotation.json-form",
            "The JSON form is a list of objects with `name`, `namespace` and `interface`.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2"),
        ),
        must(
            "annotation.dotted-names",
            "The JSON form accepts names with dots.",
            Upstream,
        ),
        must(
            "annotation.no-list",
            "JSON that is not a list of objects fails the pod.",
            Upstream,
        ),
        fix(
            "annotation.null-entry",
            "An entry `null` in the JSON form is refused with an error that names the pod.",
            Ours,
        ),
        must(
            "annotation.unknown-keys",
            "Unknown keys of an entry in the JSON form are ignored.",
            Upstream,
        ),
        must(
            "annotation.interface-request",
            "`interfaceRequest` counts where `interface` is missing.",
            Upstream,
        ),
        must(
            "annotation.same-network-twice",
            "A pod may request the same definition several times, each time as an attachment of its own.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.2"),
        ),
        must(
            "annotation.invalid-values",
            "`ips`, `mac`, `infiniband-guid` and `default-route` that are no addresses fail the pod before any plugin runs.",
            Upstream,
        ),
        fix(
            "annotation.limits",
            "Values that the standard or the reference plugins refuse fail the pod before any plugin runs: empty `ips`, a `mac` of other than 6 bytes, ports above 65535 or of other protocols, a bandwidth rate without its burst.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1"),
        ),
        must(
            "annotation.mac",
            "A `mac` is written with colons, hyphens or dots, and reaches the plugin as it was written.",
            Upstream,
        ),
        must(
            "annotation.guid",
            "`infiniband-guid` reaches plugins as the capability `infinibandGUID`.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.10.2"),
        ),
        fix(
            "annotation.guid-length",
            "An `infiniband-guid` has 8 bytes.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.10"),
        ),
        must(
            "annotation.bandwidth",
            "All four numbers of `bandwidth` reach the plugin, missing ones as 0.",
            Upstream,
        ),
        fix(
            "annotation.port-protocol",
            "A port mapping without a protocol is one of `tcp`.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.7"),
        ),
        must(
            "annotation.ipam-claim",
            "`ipam-claim-reference` is accepted and not handed on: a plugin that serves claims reads the pod itself.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.11"),
        ),
        fix(
            "annotation.ipam-claim-and-ips",
            "`ipam-claim-reference` together with `ips` is refused.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.11.1"),
        ),
        fix(
            "annotation.refused-event",
            "An event reports an annotation that is refused.",
            Ours,
        ),
    ],
};
