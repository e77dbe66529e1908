//! Sections 10.4 and 13.1: devices of networks, and what is told about them.

use super::{Rule, fix, must};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-10.4-nth",
        "the n-th network that names a resource gets the n-th device of it",
    ),
    must(
        "mux-10.4-pod",
        "the kubelet is asked on its socket, and the pod is known by name and namespace",
    ),
    fix(
        "mux-10.4-order",
        "devices come by container in the pod's order, sorted within one, whatever their NUMA nodes",
    ),
    must(
        "mux-10.4-config",
        "the device is deviceID and pciBusID in the configuration of every plugin of the network",
    ),
    must(
        "mux-10.4-capability",
        "and the capability deviceID where a plugin has that",
    ),
    must(
        "mux-10.4-asked",
        "deviceID of the annotation counts for networks without a resource alone",
    ),
    fix(
        "mux-10.4-few",
        "a pod with fewer devices than networks is refused before any plugin runs, and told which",
    ),
    fix(
        "mux-10.4-default-network",
        "the pod's own default network takes its device from the same list",
    ),
    must(
        "mux-10.4-fails",
        "a kubelet that listens and fails is an error",
    ),
    must(
        "mux-10.4-checkpoint",
        "where the kubelet does not listen its checkpoint counts, and the pod is known by uid",
    ),
    must(
        "mux-10.4-claim",
        "devices of resource claims are known by the attributes that their driver publishes for networks",
    ),
    must(
        "mux-10.4-claim-skipped",
        "devices without these attributes are passed over",
    ),
    must(
        "mux-10.4-claim-unallocated",
        "a claim that was given no device fails the pod that wants one of it",
    ),
    must(
        "mux-10.4-claim-name",
        "a definition may name a claim itself, as up to v4.3.0",
    ),
    must(
        "mux-13.1-file",
        "device information files are handed to plugins and told in the status",
    ),
    must(
        "mux-13.1-brought",
        "what the device plugin wrote about the device is there when the network's plugin runs",
    ),
    must(
        "mux-13.1-place",
        "the file is named by network, container and interface, `/` being `-`",
    ),
    must(
        "mux-13.1-types",
        "what it says is told as it is, of whatever type",
    ),
    must("mux-13.1-removed", "DEL removes it"),
];
