//! Section 11: ADD.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-11-state-first",
        "state is written before the first plugin runs",
    ),
    must(
        "mux-11-sequential",
        "the plugins of a pod never run side by side",
    ),
    must("mux-11-parallel", "pods do not wait for each other"),
    must(
        "mux-11.1-master",
        "the default network's interface is CNI_IFNAME",
    ),
    must(
        "mux-11.1-index",
        "others are net1, net2, … by their position, also behind one with a name of its own",
    ),
    must("mux-11.1-requested", "a requested interface name is used"),
    must(
        "mux-11.2-taken",
        "an interface that is there already fails the pod, in the words that operators look for",
    ),
    fix(
        "mux-11.2-twice",
        "a name that two networks ask for fails before any plugin runs",
    ),
    must(
        "mux-11.2-args",
        "plugins get IgnoreUnknown and the four variables of the pod in CNI_ARGS",
    ),
    must(
        "mux-11.2-ip-mac",
        "requested addresses are in CNI_ARGS as IP and MAC",
    ),
    fix(
        "mux-11.2-other-args",
        "CNI_ARGS of the runtime that are not ours are handed on",
    ),
    must("mux-11.2-path", "CNI_PATH of plugins begins with binDir"),
    must(
        "mux-11.2-env",
        "plugins get the container's id, network namespace and interface",
    ),
    must(
        "mux-11.2-list",
        "name and cniVersion of a list are in each of its plugins' configurations",
    ),
    must(
        "mux-11.2-cache",
        "results are cached as libcni does, mode 0600",
    ),
    fix(
        "mux-11.2-busy",
        "a plugin that is being replaced is tried again",
    ),
    fix(
        "mux-11.2-missing",
        "a plugin that is missing is told before any plugin runs",
    ),
    must(
        "mux-11.3-master",
        "runtimeConfig of the runtime reaches the default network's plugins that have the capability",
    ),
    must(
        "mux-11.3-annotation",
        "what the annotation asks for reaches plugins that have the capability",
    ),
    must(
        "mux-11.3-filtered",
        "a plugin that has not the capability gets no runtimeConfig",
    ),
    must(
        "mux-11.3-not-master",
        "the default network never gets what the annotation asks for",
    ),
    fix(
        "mux-11.3-host-ports",
        "host ports of the runtime do not reach other networks",
    ),
    must(
        "mux-11.3-cni-args",
        "cni-args are in args.cni of the configuration",
    ),
    must(
        "mux-11.4-result",
        "the runtime gets the default network's result",
    ),
    must(
        "mux-11.4-versions",
        "networks of all versions stand side by side",
    ),
    should(
        "mux-11.4-empty",
        "a plugin may answer with neither interface nor address",
    ),
    must(
        "mux-11.6-reverse",
        "a failure undoes all networks up to the failed one, in reverse",
    ),
    must(
        "mux-11.6-words",
        "the error names pod, network and cause, in the words that operators look for",
    ),
    must(
        "mux-11.6-first",
        "a failure while undoing hides nothing of the first error",
    ),
    fix("mux-11.6-state", "a pod that was undone has no state"),
    fix(
        "mux-11.6-status",
        "a status that cannot be written undoes the pod",
    ),
    should(
        "mux-11.7-added",
        "AddedInterface tells interface, addresses and network",
    ),
    should(
        "mux-11.7-not-found",
        "NoNetworkFound tells what was not found",
    ),
];
