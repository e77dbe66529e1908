//! DEL.

use super::{
    Source::{Cni, NetworkPlumbing, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "del",
    title: "DEL",
    introduction: "`DEL` detaches all networks of a container. It works from what `ADD` stored on the node.",
    rules: &[
        must(
            "del.reverse-order",
            "`DEL` detaches networks in reverse order, each with the interface of its `ADD`.",
            Upstream,
        ),
        must(
            "del.configuration-of-add",
            "`DEL` uses the configuration of `ADD`, whatever became of the definition.",
            Cni("SPEC 1.1.0, section 3: Lifecycle & Ordering"),
        ),
        must(
            "del.cached-result",
            "`DEL` gives plugins the cached result of `ADD` as `prevResult`.",
            Cni("SPEC 1.1.0, section 3: Deleting an attachment"),
        ),
        must(
            "del.broken-cached-result",
            "`DEL` detaches a list whose cached result cannot be read all the same.",
            Upstream,
        ),
        must(
            "del.without-pod",
            "`DEL` needs neither the pod nor definitions nor the API server.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        must(
            "del.without-netns",
            "`DEL` works with an empty `CNI_NETNS`.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        must(
            "del.continues",
            "`DEL` continues after a failure.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.2"),
        ),
        must(
            "del.all-errors",
            "`DEL` reports the errors of all networks together.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.2"),
        ),
        must("del.state-removed", "`DEL` removes the state.", Upstream),
        fix(
            "del.state-kept",
            "By default `DEL` keeps the state while a network could not be detached, for the runtime's next attempt.",
            Ours,
        ),
        must(
            "del.retry",
            "After a failure `DEL` keeps the state where `retryDeleteOnError` is `true`, and removes it where that is `false`.",
            Upstream,
        ),
        must(
            "del.twice",
            "A second `DEL` succeeds.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        must(
            "del.after-restart",
            "A daemon that was killed and started again detaches with what is on disk, by the configuration of `ADD`.",
            Upstream,
        ),
        must(
            "del.without-daemon-succeeds",
            "`DEL` without a daemon succeeds, so that the pod can end.",
            Upstream,
        ),
        fix(
            "del.without-daemon",
            "`DEL` without a daemon is journaled, and the next daemon replays it.",
            Ours,
        ),
    ],
};
