//! Capabilities.

use super::{
    Source::{Cni, NetworkPlumbing, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "capabilities",
    title: "Capabilities",
    introduction: "A plugin declares capabilities in its configuration, and gets values for them in `runtimeConfig`: from the runtime, or from the pod's annotation.",
    rules: &[
        must(
            "capabilities.of-runtime",
            "The runtime's `runtimeConfig` reaches the default network's plugins that have the capability.",
            Cni("SPEC 1.1.0, section 3: Deriving runtimeConfig"),
        ),
        must(
            "capabilities.of-annotation",
            "Values of the annotation reach the plugins of their network that have the capability.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1"),
        ),
        must(
            "capabilities.filtered",
            "A plugin gets no `runtimeConfig` for capabilities that it does not have.",
            Cni("SPEC 1.1.0, section 3: Deriving runtimeConfig"),
        ),
        must(
            "capabilities.default-network",
            "Values of the annotation never reach the default network.",
            Upstream,
        ),
        fix(
            "capabilities.host-ports",
            "The runtime's host ports do not reach other networks than the default network.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.5"),
        ),
        must(
            "capabilities.host-ports-for-all",
            "With `runtimeConfigForAll` the runtime's host ports reach every network, as with upstream.",
            Ours,
        ),
        must(
            "capabilities.cni-args",
            "`cni-args` of the annotation are `args.cni` in the configuration of each of the network's plugins.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.6.2"),
        ),
        fix(
            "capabilities.del",
            "`DEL` gets the `runtimeConfig` of `ADD`, also when the pod no longer exists.",
            Cni("SPEC 1.1.0, section 3: Lifecycle & Ordering"),
        ),
        fix(
            "capabilities.unsupported",
            "With `unservedRequests` set to `error`, a request for a capability that no plugin of the network has fails the pod before any plugin runs.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1"),
        ),
        fix(
            "capabilities.address-not-assigned",
            "With `unservedRequests` set to `error`, a requested address that the plugin does not assign fails the pod, which is undone.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1"),
        ),
        should(
            "capabilities.address-args",
            "A plugin that takes a requested address from `CNI_ARGS` needs no capability for it.",
            Cni("CONVENTIONS, CNI_ARGS"),
        ),
        fix(
            "capabilities.unsupported-event",
            "By default a pod with an unsupported request starts, and a warning event names what it lacks.",
            Ours,
        ),
        must(
            "capabilities.unsupported-silent",
            "With `unservedRequests` set to `silent` a pod with an unsupported request starts without an event, as with upstream.",
            Ours,
        ),
    ],
};
