//! Section 11, what a pod asks for and is told: requests, default routes, events.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    fix(
        "mux-11.3-unknown",
        "with unservedRequests `error` a capability that no plugin of the network has fails the pod before any plugin runs",
    ),
    fix(
        "mux-11.3-not-given",
        "with unservedRequests `error` an address that is asked for and not given fails the pod, which is undone",
    ),
    should(
        "mux-11.3-in-args",
        "an address that a plugin takes from CNI_ARGS needs no capability",
    ),
    fix(
        "mux-11.3-told",
        "by default a pod whose request no plugin serves comes up, and a warning event names what it lacks",
    ),
    must(
        "mux-11.3-silent",
        "with unservedRequests `silent` it comes up as with upstream",
    ),
    must(
        "mux-11.3-all",
        "with runtimeConfigForAll host ports of the runtime reach every network, as with upstream",
    ),
    must(
        "mux-11.5-untouched",
        "where nobody asks, default routes are as the plugins made them",
    ),
    must(
        "mux-11.5-gateway",
        "default-route puts the default route to its gateway on the network's interface",
    ),
    fix(
        "mux-11.5-others",
        "no other interface keeps a default route of that family",
    ),
    fix(
        "mux-11.5-family",
        "a gateway of one family leaves the other family alone",
    ),
    fix(
        "mux-11.5-empty",
        "an empty list gives the network the default route that its own plugins tell, and fails where they tell none",
    ),
    fix(
        "mux-11.5-told",
        "the runtime's result, cached results and status tell the routes that the kernel has",
    ),
    must(
        "mux-11.5-versions",
        "the default route is set and told for results of every version",
    ),
    fix(
        "mux-11.5-kept",
        "routes that are no default routes stay in cached results",
    ),
    must(
        "mux-11.5-shared",
        "one network may ask for IPv4 and another for IPv6, as with upstream, though the standard wants the key on one network",
    ),
    fix(
        "mux-11.5-empty-alone",
        "an empty list beside another default-route is refused",
    ),
    must(
        "mux-11.5-ecmp",
        "two gateways of one family are refused, in the words that operators look for",
    ),
    fix(
        "mux-11.5-undone",
        "a default route that cannot be set fails the pod, which is undone",
    ),
    fix(
        "mux-11.6-short",
        "an error is one line of less than 300 characters that names pod, network, cause and cure, with an id",
    ),
    fix("mux-11.6-log", "the log has all of it under the same id"),
    fix(
        "mux-11.7-failed",
        "FailedAddNetwork tells why a pod has no networks",
    ),
    fix(
        "mux-11.7-counted",
        "an event that comes again is counted in the first",
    ),
    fix(
        "mux-11.7-del",
        "FailedDelNetwork tells why a network stays attached",
    ),
    fix(
        "mux-11.7-given-up",
        "NetworkGivenUp tells of a network that nobody will detach any more",
    ),
];
