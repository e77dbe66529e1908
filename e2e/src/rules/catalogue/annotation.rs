//! Section 9: the annotations of a pod.

use super::{Rule, fix, must};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-9-legacy-off",
        "the annotation of the original proposal counts for nothing unless it is switched on",
    ),
    must(
        "mux-9-legacy",
        "with legacyNetworksAnnotation its networks are attached, the first as the default one, as eth0, eth1 and so on",
    ),
    must(
        "mux-9-legacy-less",
        "but not where one of the present annotations is",
    ),
    must(
        "mux-9.1-nothing",
        "an annotation that is empty or an empty list asks for no networks",
    ),
    must(
        "mux-9.1-short",
        "the short form is [namespace/]name[@interface], separated by commas, blanks around parts do not count",
    ),
    must(
        "mux-9.1-separators",
        "more than one `/` or `@` in an item is refused, in the words that operators look for",
    ),
    must(
        "mux-9.1-names",
        "names of the short form hold lower case letters, digits and inner hyphens",
    ),
    must(
        "mux-9.1-interface",
        "an interface name has at most 15 characters and no blanks",
    ),
    must("mux-9.1-empty-item", "an item without a name fails the pod"),
    must(
        "mux-9.1-json",
        "the JSON form is a list of objects with name, namespace and interface",
    ),
    must("mux-9.1-no-list", "any other JSON fails the pod"),
    must(
        "mux-9.1-dotted",
        "a name with dots may be named in the JSON form",
    ),
    must(
        "mux-9.1-old-name",
        "interfaceRequest counts where interface is not given",
    ),
    must(
        "mux-9.1-values",
        "ips, mac, infiniband-guid and default-route that are no addresses fail the pod before any plugin runs",
    ),
    must(
        "mux-9.1-bandwidth",
        "all four numbers of a bandwidth are handed on, those not given as 0",
    ),
    fix(
        "mux-9.1-limits",
        "ports, limits, addresses and hardware addresses that mean nothing fail the pod: what the standard and the reference plugins refuse",
    ),
    fix(
        "mux-9.1-protocol",
        "a port mapping without a protocol is one of tcp",
    ),
    must("mux-9.1-others", "other keys are passed over"),
    must(
        "mux-9.1-twice",
        "one definition may be named several times, each time for an attachment of its own",
    ),
    must(
        "mux-9.1-claim",
        "ipam-claim-reference is left to the plugin",
    ),
    fix(
        "mux-9.1-claim-and-ips",
        "ipam-claim-reference beside ips is refused",
    ),
    fix("mux-9.1-null", "an entry null is refused, not crashed on"),
    fix("mux-9.1-guid", "an infiniband-guid has 8 bytes"),
    must(
        "mux-9.1-mac",
        "a mac has 6, 8 or 20 bytes, with colons, hyphens or dots, and reaches the plugin as it was written",
    ),
    must(
        "mux-9.1-guid-given",
        "an infiniband-guid reaches plugins as the capability infinibandGUID",
    ),
    fix(
        "mux-9.1-told",
        "an annotation that is refused is told in an event",
    ),
    must(
        "mux-9.2-namespace",
        "the default-network annotation means multusNamespace unless it names another",
    ),
    must("mux-9.2-master", "its network is the default one"),
    must("mux-9.2-interface", "an interface that it asks for is used"),
    must("mux-9.2-one", "it names one network, more are refused"),
    must("mux-9.2-empty", "it must not be empty"),
    fix(
        "mux-9.2-empty-list",
        "an empty list is refused, not crashed on",
    ),
    fix(
        "mux-9.2-isolation",
        "namespaceIsolation holds for it, but that multusNamespace is open",
    ),
];
