//! Rollback.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "rollback",
    title: "Rollback",
    introduction: "When a network cannot be attached, `ADD` fails and the daemon undoes what it did for the pod.",
    rules: &[
        must(
            "rollback.reverse-order",
            "A failed `ADD` detaches all networks up to and including the failed one, in reverse order.",
            Upstream,
        ),
        must(
            "rollback.first-error",
            "A failure during the rollback does not hide the first error.",
            Upstream,
        ),
        fix(
            "rollback.state",
            "A pod that was undone has no state.",
            Ours,
        ),
    ],
};
