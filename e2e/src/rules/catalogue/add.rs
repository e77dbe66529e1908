//! ADD.

use super::{
    Source::{Cni, NetworkPlumbing, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "add",
    title: "ADD",
    introduction: "`ADD` attaches all networks of a pod. The default network becomes the interface that the runtime names; only its result goes back to the runtime.",
    rules: &[
        must(
            "add.order",
            "Networks are attached in this order: `clusterNetwork`, `defaultNetworks`, the annotation's networks, the auxiliary chain.",
            Upstream,
        ),
        must(
            "add.state-first",
            "The state is written before the first plugin runs.",
            Upstream,
        ),
        must(
            "add.sequential",
            "The plugins of a pod never run at the same time.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.3"),
        ),
        must("add.parallel", "Pods do not wait for each other.", Upstream),
        must(
            "add.default-interface",
            "The interface of the default network is `CNI_IFNAME`.",
            Upstream,
        ),
        must(
            "add.interface-names",
            "The interfaces of other networks are `net1`, `net2` and so on by the network's position, which networks with a requested name take up as well.",
            Upstream,
        ),
        must(
            "add.requested-interface",
            "An interface name that the pod requests is used.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.5.1"),
        ),
        must(
            "add.interface-exists",
            "An interface that exists already in the pod fails the pod with `interface name … already exists`.",
            Cni("SPEC 1.1.0, section 2: ADD"),
        ),
        fix(
            "add.interface-twice",
            "An interface name that two networks request fails the pod before any plugin runs.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 4.1.2.1.5"),
        ),
        must(
            "add.result",
            "The runtime gets the default network's result.",
            Upstream,
        ),
        must(
            "add.mixed-versions",
            "A pod can have networks of all CNI versions.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.1"),
        ),
        should(
            "add.empty-result",
            "A plugin may return a result without interfaces and addresses.",
            Upstream,
        ),
    ],
};
