//! Section 4.5: single networks for pods that run, on `/delegate`.

use super::{Rule, fix, must};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-4.5-add",
        "/delegate attaches the one network whose configuration the request brings, as CNI_IFNAME, and answers as /cni does",
    ),
    must(
        "mux-4.5-attributes",
        "ips, mac and cni-args of interfaceAttributes reach its plugin as those of an annotation do",
    ),
    must("mux-4.5-list", "a configuration may be a list"),
    fix(
        "mux-4.5-own",
        "the daemon's file is not laid over the configuration of the request",
    ),
    must(
        "mux-4.5-status",
        "the pod's network status is left to whoever asked",
    ),
    must("mux-4.5-event", "AddedInterface tells of the network"),
    must(
        "mux-4.5-pod",
        "ADD and DEL of a pod that is not there, or of another uid, are refused",
    ),
    must(
        "mux-4.5-taken",
        "ADD of an interface that is there already is refused",
    ),
    fix("mux-4.5-undone", "an ADD that failed is undone"),
    must(
        "mux-4.5-del",
        "DEL detaches it by the same configuration, with the cached result",
    ),
    must("mux-4.5-del-fails", "a DEL that failed is an error"),
    must("mux-4.5-check", "CHECK asks its plugin and fails with it"),
    fix("mux-4.5-check-list", "CHECK asks every plugin of a list"),
    must(
        "mux-4.5-plugin-status",
        "STATUS asks its plugin and fails with it",
    ),
    must(
        "mux-4.5-verbs",
        "GC is no verb of /delegate, and GET no method",
    ),
    fix(
        "mux-4.5-with-pod",
        "what is attached when the container goes is detached with it",
    ),
];
