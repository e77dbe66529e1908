//! Keys of the configuration of Multus.

use super::{
    Source::{Cni, LaterUpstream, NetworkPlumbing, Upstream},
    Subject, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "config",
    title: "Keys of the configuration of Multus",
    introduction: "The container runtime hands the configuration of Multus to the shim, which sends it to the daemon with every call. Each of its keys may also stand in the daemon's own file, which has precedence.",
    rules: &[
        must(
            "config.overlay",
            "A key of the daemon's file replaces the same key of the request as a whole, at the top level.",
            Upstream,
        ),
        must(
            "config.overlay-unknown-keys",
            "The daemon's file may hold keys that Multus does not know; they reach no plugin.",
            Upstream,
        ),
        should(
            "config.any-case",
            "Keys are read whatever their case, as `Delegates`.",
            Upstream,
        ),
        must(
            "config.no-network",
            "A configuration with neither `delegates` nor `clusterNetwork` is refused with `LoadNetConf: at least one delegate/clusterNetwork must be specified`.",
            Upstream,
        ),
        must(
            "config.delegates",
            "Without `clusterNetwork` the networks in `delegates` are attached in order, and the first is the default network.",
            Upstream,
        ),
        must(
            "config.delegates-ignored",
            "With `clusterNetwork` the key `delegates` is ignored.",
            Upstream,
        ),
        must(
            "config.delegate-type",
            "A delegate with neither `type` nor `plugins`, or with a plugin that has no `type`, is refused.",
            Cni("SPEC 1.1.0, section 1: Plugin configuration objects"),
        ),
        must(
            "config.default-networks",
            "The networks in `defaultNetworks` are attached to every pod, next to `clusterNetwork`.",
            Upstream,
        ),
        must(
            "config.system-namespaces",
            "Pods in `systemNamespaces` get no `defaultNetworks`.",
            Upstream,
        ),
        must(
            "config.multus-namespace",
            "`multusNamespace` is the namespace of definitions that the configuration names.",
            Upstream,
        ),
        must(
            "config.conf-dir",
            "`confDir` is the directory of configuration files for networks without a definition and for definitions without a configuration.",
            Upstream,
        ),
        must(
            "config.cni-dir",
            "`cniDir` is the directory of state and cached results.",
            Upstream,
        ),
        must(
            "config.bin-dir",
            "Plugins are looked up in `binDir` before `CNI_PATH`.",
            Upstream,
        ),
        must(
            "config.prev-result",
            "A call whose `prevResult` cannot be read fails.",
            Upstream,
        ),
        must(
            "config.readiness-indicator",
            "With a static CNI configuration, `ADD` waits for the file that `readinessindicatorfile` names.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 6.1.2"),
        ),
        should(
            "config.readiness-indicator-del",
            "`DEL` does not wait for the file that `readinessindicatorfile` names.",
            Upstream,
        ),
        should(
            "config.readiness-indicator-auto",
            "In auto mode calls do not wait for the `readinessindicatorfile` of a request.",
            LaterUpstream,
        ),
    ],
};
