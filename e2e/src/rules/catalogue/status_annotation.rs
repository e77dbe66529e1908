//! The status annotation.

use super::{
    Source::{NetworkPlumbing, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "status-annotation",
    title: "The status annotation",
    introduction: "After `ADD` the pod's annotation `k8s.v1.cni.cncf.io/network-status` describes its networks as JSON.",
    rules: &[
        must(
            "status-annotation.entries",
            "The status annotation has one entry for each network, in order.",
            Upstream,
        ),
        must(
            "status-annotation.keys",
            "An entry of the status annotation has `name`, `interface`, `ips` without prefix lengths, `mac` and `dns`.",
            Upstream,
        ),
        must(
            "status-annotation.definition-name",
            "A definition is called `namespace/name` in the status annotation.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.1"),
        ),
        must(
            "status-annotation.canonical-addresses",
            "Addresses in the status annotation are in their canonical form.",
            Upstream,
        ),
        must(
            "status-annotation.dns",
            "An entry of the status annotation has `dns` also when it is empty.",
            Upstream,
        ),
        must(
            "status-annotation.mtu",
            "An entry of the status annotation has `mtu` when it is known.",
            Upstream,
        ),
        must(
            "status-annotation.default",
            "`default` is `true` for the default network, and for no other network.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.2"),
        ),
        should(
            "status-annotation.not-default",
            "Every entry of the status annotation has `default`, which is `false` for networks other than the default network.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.5"),
        ),
        must(
            "status-annotation.gateway",
            "`gateway` in the status annotation has the gateways of default routes.",
            Upstream,
        ),
        should(
            "status-annotation.default-route",
            "The status annotation has the gateways of default routes under the standard's key `default-route` as well.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.6.4"),
        ),
        fix(
            "status-annotation.no-gateway",
            "A default route without a gateway adds no gateway to the status annotation.",
            Ours,
        ),
        must(
            "status-annotation.one-interface",
            "A result with one interface gives one entry with all addresses, whatever interface they name.",
            Upstream,
        ),
        must(
            "status-annotation.several-interfaces",
            "A result with several interfaces in the pod gives an entry for each, with its own addresses.",
            Upstream,
        ),
        must(
            "status-annotation.repeated-keys",
            "Each of several entries of a network has the network's gateways and `dns`.",
            Upstream,
        ),
        must(
            "status-annotation.host-interfaces",
            "Of several interfaces those outside the pod have no entry.",
            Upstream,
        ),
        must(
            "status-annotation.default-of-several",
            "Of several interfaces of the default network one is the default: that of the first address with a gateway, else the first.",
            Upstream,
        ),
        must(
            "status-annotation.empty-result",
            "The default network has an entry in the status annotation, whatever its result holds.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.2"),
        ),
        should(
            "status-annotation.old-results",
            "Results before 0.3.0 give an entry with the interface of the call.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 5.3.2.1"),
        ),
        should(
            "status-annotation.form",
            "The JSON of the status annotation is indented by four spaces.",
            Upstream,
        ),
        should(
            "status-annotation.system-pods",
            "Pods of every namespace and name get the status annotation.",
            Ours,
        ),
        must(
            "status-annotation.patched",
            "What other writers change in the pod during `ADD` stays.",
            Upstream,
        ),
        fix(
            "status-annotation.pod-deleted",
            "A pod that is deleted before its status annotation is written does not fail its `ADD`.",
            Ours,
        ),
        must(
            "status-annotation.failed-pod",
            "A pod that was not attached gets no status annotation.",
            Upstream,
        ),
        fix(
            "status-annotation.retried",
            "A status annotation that cannot be written does not fail the pod: it is written later.",
            Ours,
        ),
        must(
            "status-annotation.at-del",
            "`DEL` leaves the status annotation as it is.",
            Upstream,
        ),
    ],
};
