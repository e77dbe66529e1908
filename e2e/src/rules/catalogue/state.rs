//! State.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "state",
    title: "State",
    introduction: "The daemon keeps the networks of each container in a file, in the format of upstream, so that `DEL` needs nothing else and either implementation can take over the other's pods.",
    rules: &[
        must(
            "state.file",
            "The state is a file with the container's ID as its name and mode 0600, in a directory of mode 0700.",
            Upstream,
        ),
        must(
            "state.format",
            "The state is a list with one object for each network, in order, with the network's whole configuration.",
            Upstream,
        ),
        must(
            "state.requests",
            "The state holds requested interface names and addresses.",
            Upstream,
        ),
        fix(
            "state.lossless",
            "`DEL` of a list from files has every key that its plugins had at `ADD`.",
            Cni("SPEC 1.1.0, section 3: Lifecycle & Ordering"),
        ),
        must(
            "state.upstream",
            "`DEL` works from state that upstream wrote.",
            Upstream,
        ),
        must(
            "state.upstream-list",
            "`DEL` takes lists from `CNINetworkConfigList` of upstream's state, where they are complete.",
            Ours,
        ),
        must(
            "state.no-version",
            "A list in the state without a `cniVersion` gets that of the configuration.",
            Upstream,
        ),
        must(
            "state.missing",
            "Without state, and with the pod, `DEL` works from the annotation.",
            Upstream,
        ),
        must(
            "state.missing-without-pod",
            "Without state and pod `DEL` succeeds.",
            Cni("SPEC 1.1.0, section 2: DEL"),
        ),
        must(
            "state.corrupt",
            "State that cannot be read does not fail `DEL`.",
            Upstream,
        ),
        fix(
            "state.corrupt-with-pod",
            "With state that cannot be read, `DEL` detaches the networks that the pod requests.",
            Ours,
        ),
        fix(
            "state.empty-list",
            "State that is an empty list makes `DEL` succeed.",
            Ours,
        ),
        fix(
            "state.truncated",
            "`DEL` loses no network when the state file was truncated, also when the pod no longer exists.",
            Ours,
        ),
    ],
};
