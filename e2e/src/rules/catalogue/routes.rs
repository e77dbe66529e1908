//! Default routes.

use super::{
    Source::{NetworkPlumbing, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "routes",
    title: "Default routes",
    introduction: "`default-route` of the annotation names the gateways of a network, which then has the pod's default route. The cases read the routes of real bridges in the pod's network namespace.",
    rules: &[
        must(
            "routes.unchanged",
            "Without `default-route` the default routes are as the plugins made them.",
            Upstream,
        ),
        must(
            "routes.gateway",
            "`default-route` sets the default route to its gateway on the network's interface.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.9"),
        ),
        fix(
            "routes.other-interfaces",
            "With `default-route` no other interface keeps a default route of that address family.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.9"),
        ),
        fix(
            "routes.other-family",
            "A gateway of one address family in `default-route` leaves default routes of the other family unchanged.",
            Ours,
        ),
        must(
            "routes.network-per-family",
            "One network may request the default route of IPv4 and another that of IPv6, although the standard allows the key on one network only.",
            Upstream,
        ),
        must(
            "routes.two-gateways",
            "Two gateways of one address family in `default-route` are refused with `multus does not support ECMP for default-route`.",
            Upstream,
        ),
        fix(
            "routes.empty-list",
            "An empty `default-route` gives the network the default route that its own plugins return, and fails the pod where they return none.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.9"),
        ),
        fix(
            "routes.empty-list-and-another",
            "An empty `default-route` on one network and another `default-route` on a second one are refused.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.9"),
        ),
        fix(
            "routes.reported",
            "The runtime's result, the cached results and the status annotation have the default routes that the kernel has.",
            Ours,
        ),
        must(
            "routes.result-versions",
            "A requested default route is set, and is in the cached result, for results of every version.",
            Upstream,
        ),
        fix(
            "routes.other-routes",
            "Routes that are not default routes stay in cached results.",
            Ours,
        ),
        fix(
            "routes.rollback",
            "A requested default route that cannot be set fails the pod, which is undone.",
            Ours,
        ),
    ],
};
