//! CHECK.

use super::{Source::Cni, Subject, fix, must};

pub(super) const SUBJECT: Subject = Subject {
    name: "check",
    title: "CHECK",
    introduction: "`CHECK` asks the plugins of a pod whether its networks are still in place.",
    rules: &[
        must(
            "check.success",
            "`CHECK` of an intact pod succeeds.",
            Cni("SPEC 1.1.0, section 3: Checking an attachment"),
        ),
        fix(
            "check.every-network",
            "`CHECK` runs the plugins of every network of the pod, in order.",
            Cni("SPEC 1.1.0, section 3: Checking an attachment"),
        ),
        must(
            "check.cached-result",
            "`CHECK` gives plugins the cached result of `ADD` as `prevResult`.",
            Cni("SPEC 1.1.0, section 3: Checking an attachment"),
        ),
        fix(
            "check.failure",
            "`CHECK` fails when a plugin fails.",
            Cni("SPEC 1.1.0, section 3: Checking an attachment"),
        ),
    ],
};
