//! Events.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "events",
    title: "Events",
    introduction: "The daemon reports to the pod's owner with Kubernetes events of the pod.",
    rules: &[
        should(
            "events.added",
            "`AddedInterface` reports interface, addresses and network.",
            Upstream,
        ),
        should(
            "events.not-found",
            "`NoNetworkFound` reports a definition that does not exist.",
            Upstream,
        ),
        fix(
            "events.add-failed",
            "`FailedAddNetwork` reports why a pod has no networks.",
            Ours,
        ),
        fix(
            "events.del-failed",
            "`FailedDelNetwork` reports why a network stays attached.",
            Ours,
        ),
        fix(
            "events.abandoned",
            "`NetworkAbandoned` reports a network that the daemon no longer tries to detach.",
            Ours,
        ),
        fix(
            "events.counted",
            "A repeated warning is counted in the first.",
            Ours,
        ),
    ],
};
