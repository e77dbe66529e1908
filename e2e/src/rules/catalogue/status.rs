//! STATUS.

use super::{
    Source::{Cni, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "status",
    title: "STATUS",
    introduction: "`STATUS` reports whether the node can attach pods.",
    rules: &[
        must(
            "status.default-network",
            "`STATUS` runs only the plugins of the default network, and fails when one of them fails.",
            Upstream,
        ),
        must(
            "status.old-version",
            "`STATUS` succeeds without running plugins where the default network has a `cniVersion` before 1.1.0.",
            Upstream,
        ),
        must(
            "status.default-network-missing",
            "`STATUS` fails where the default network is not found.",
            Upstream,
        ),
        fix(
            "status.code",
            "The code of a failed `STATUS`, 50 or 51, reaches the runtime.",
            Cni("SPEC 1.1.0, section 2: STATUS"),
        ),
        fix(
            "status.without-daemon",
            "Without a daemon `STATUS` succeeds for half a minute after the last one served, and then fails with code 50.",
            Cni("SPEC 1.1.0, section 2: STATUS"),
        ),
    ],
};
