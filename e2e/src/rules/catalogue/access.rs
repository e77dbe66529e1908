//! Section 8: Kubernetes.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-8-in-cluster",
        "the daemon uses the service account of its pod",
    ),
    must(
        "mux-8-own-pods",
        "only pods of MULTUS_NODE_NAME are watched",
    ),
    must(
        "mux-8.1-late",
        "an ADD that is faster than the watch waits for its pod",
    ),
    must(
        "mux-8.1-foreign",
        "a pod that the watch does not hold is asked for once more",
    ),
    must(
        "mux-8.1-down",
        "ADD without an API server fails, and leaves nothing",
    ),
    must(
        "mux-8.2-uid",
        "ADD for another incarnation of the pod is refused, naming both uids",
    ),
    must("mux-8.2-static", "a static pod may have another uid"),
    must(
        "mux-8.2-uid-del",
        "DEL for another incarnation goes by the state",
    ),
    fix(
        "mux-8.3-no-pod",
        "ADD of a pod that is gone fails with code 11 instead of inventing a result",
    ),
    should(
        "mux-8.3-bounded",
        "a pod that does not exist is waited for a few seconds only",
    ),
];
