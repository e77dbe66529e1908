//! Devices of networks.

use super::{
    Source::{LaterUpstream, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "devices",
    title: "Devices of networks",
    introduction: "A definition can name a resource in its annotation `k8s.v1.cni.cncf.io/resourceName`. Its network then gets one of the devices of that resource that the kubelet, or a resource claim, gave to the pod.",
    rules: &[
        must(
            "devices.nth-device",
            "The n-th network of a pod that names a resource gets the n-th device of that resource.",
            Upstream,
        ),
        fix(
            "devices.order",
            "Devices of a resource are in the order of the pod's containers and sorted within a container, whatever their NUMA nodes.",
            LaterUpstream,
        ),
        fix(
            "devices.default-network",
            "The default network that a pod requests takes its device from the same list as the pod's other networks.",
            Ours,
        ),
        fix(
            "devices.too-few",
            "A pod with fewer devices than networks is refused before any plugin runs, and the error names network and resource.",
            Ours,
        ),
        must(
            "devices.configuration",
            "A network's device is `deviceID` and `pciBusID` in the configuration of each of its plugins.",
            Upstream,
        ),
        must(
            "devices.capability",
            "A plugin with the capability `deviceID` gets the device in `runtimeConfig`, too.",
            Upstream,
        ),
        must(
            "devices.annotation",
            "`deviceID` of the annotation counts only for networks without a resource.",
            Upstream,
        ),
        must(
            "devices.kubelet",
            "The daemon reads a pod's devices from the kubelet's pod-resources socket, by name and namespace.",
            Upstream,
        ),
        must(
            "devices.kubelet-error",
            "A kubelet that answers with an error fails the pods that want a device, and no others.",
            Upstream,
        ),
        must(
            "devices.checkpoint",
            "Without the pod-resources socket the daemon reads the kubelet's checkpoint, by the pod's UID.",
            Upstream,
        ),
        must(
            "devices.claim",
            "A device of a resource claim is known by the attributes `k8s.cni.cncf.io/deviceID` and `k8s.cni.cncf.io/resourceName` that its driver publishes.",
            LaterUpstream,
        ),
        must(
            "devices.claim-without-attributes",
            "Devices of a claim without the attributes for networks are ignored.",
            LaterUpstream,
        ),
        must(
            "devices.claim-unallocated",
            "A claim without an allocated device fails the pod that wants one of its devices.",
            LaterUpstream,
        ),
        must(
            "devices.claim-by-name",
            "A definition can name a claim in place of a resource, as up to Multus v4.3.0.",
            Upstream,
        ),
    ],
};
