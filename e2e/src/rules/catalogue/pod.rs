//! Pods and the API server.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "pod",
    title: "Pods and the API server",
    introduction: "`CNI_ARGS` names the pod of a call: its namespace, name and UID. The daemon takes pods from a watch of its node's pods.",
    rules: &[
        must(
            "pod.own-node",
            "Only the pods of the node `MULTUS_NODE_NAME` are watched.",
            Upstream,
        ),
        must(
            "pod.late-watch",
            "An `ADD` that is faster than the watch waits for its pod.",
            Upstream,
        ),
        must(
            "pod.not-in-watch",
            "A pod that the watch does not have is read from the API server.",
            Upstream,
        ),
        must(
            "pod.api-server-down",
            "`ADD` without an API server fails and leaves nothing behind.",
            Ours,
        ),
        must(
            "pod.other-uid",
            "`ADD` for another UID than the pod's is refused, and the error names both.",
            Upstream,
        ),
        must("pod.static", "A static pod may have another UID.", Upstream),
        must(
            "pod.other-uid-del",
            "`DEL` for another UID than the pod's works from the state.",
            Upstream,
        ),
        fix(
            "pod.missing",
            "`ADD` of a pod that does not exist fails with code 11.",
            Ours,
        ),
        should(
            "pod.missing-in-time",
            "`ADD` waits only a few seconds for a pod that does not exist.",
            Upstream,
        ),
    ],
};
