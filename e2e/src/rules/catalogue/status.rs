//! Sections 13 and 14: the status annotation, and chains.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-13-entries",
        "status has one entry per network, in order",
    ),
    must(
        "mux-13-keys",
        "an entry has name, interface, ips without prefix, mac and dns",
    ),
    must(
        "mux-13-default",
        "default is there when true, and only for the default network",
    ),
    must("mux-13-dns", "dns is there when empty, too"),
    must("mux-13-gateway", "gateways of default routes are told"),
    fix(
        "mux-13-no-gateway",
        "a default route without a gateway tells none",
    ),
    should(
        "mux-13-not-default",
        "each entry tells whether it is the default one",
    ),
    should(
        "mux-13-default-route",
        "gateways are told under the standard's key, too",
    ),
    must(
        "mux-13-canonical",
        "addresses are told in their canonical text",
    ),
    must("mux-13-mtu", "mtu is told when known"),
    must(
        "mux-13-interfaces",
        "a result with several interfaces inside gives an entry for each, with its own addresses",
    ),
    must(
        "mux-13-one",
        "a result with one interface gives one entry with all addresses, whatever they say of interfaces",
    ),
    must(
        "mux-13-no-sandbox",
        "of several interfaces, those outside the pod are not told",
    ),
    must(
        "mux-13-default-of-several",
        "one interface of the default network is default: that of the first address with a gateway, else the first",
    ),
    must(
        "mux-13-repeated",
        "each entry of a network has its gateways and dns",
    ),
    must(
        "mux-13-nothing",
        "the default network has an entry, whatever its result tells",
    ),
    must(
        "mux-13-failed",
        "a pod that was not attached gets no status",
    ),
    must("mux-13-del", "DEL leaves the status as it is"),
    should(
        "mux-13-oldest",
        "results before 0.3.0 give an entry with the interface that was asked for",
    ),
    should("mux-13-system", "pods of every namespace get a status"),
    should(
        "mux-13-form",
        "the text is laid out for people, with four spaces",
    ),
    must(
        "mux-13-patched",
        "what others write into the pod meanwhile is kept",
    ),
    fix(
        "mux-13-gone",
        "a pod that is gone when its status is written does not make its ADD fail",
    ),
    must(
        "mux-14.1-chain",
        "plugins from a folder named by the list are appended to the primary",
    ),
    must("mux-14.1-inlined", "unless loadOnlyInlinedPlugins is set"),
    must("mux-14.1-fresh", "the folder is read at every ADD"),
    must(
        "mux-14.1-files",
        "of the folder, files that end in .conf count, by name",
    ),
    must("mux-14.1-type", "each of them has a type"),
    must(
        "mux-14.1-name",
        "the list's name must be one that is fit for a folder",
    ),
    must(
        "mux-14.1-nothing",
        "without any plugin there is no such network",
    ),
    must(
        "mux-14.1-alone",
        "a list without `plugins` has those of the folder alone",
    ),
    must(
        "mux-14.2-auxiliary",
        "auxiliaryCNIChainName adds a chain of that folder after all networks",
    ),
    must(
        "mux-14.2-version",
        "it begins with passthru and has the configuration's cniVersion",
    ),
    fix(
        "mux-14.2-broken",
        "a file of it that cannot be read fails the pod",
    ),
    must("mux-14.2-empty", "without files there is no such network"),
    must("mux-14.2-path", "it wants a clusterNetwork that is a path"),
    must(
        "mux-14.3-add",
        "passthru answers ADD with a result that holds nothing",
    ),
    must("mux-14.3-chained", "passthru may stand in a chain"),
    must("mux-14.3-versions", "passthru speaks 0.3.0 and later"),
    must(
        "mux-14.3-del",
        "passthru answers DEL and CHECK with nothing",
    ),
];
