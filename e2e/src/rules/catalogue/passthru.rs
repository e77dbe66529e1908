//! The passthru plugin.

use super::{Source::Upstream, Subject, must};

pub(super) const SUBJECT: Subject = Subject {
    name: "passthru",
    title: "The passthru plugin",
    introduction: "`passthru` is a CNI plugin that does nothing, so that a chain can begin with it.",
    rules: &[
        must(
            "passthru.add",
            "`passthru` answers `ADD` with a result without interfaces, addresses and routes.",
            Upstream,
        ),
        must(
            "passthru.other-verbs",
            "`passthru` succeeds on `DEL` and `CHECK` without output.",
            Upstream,
        ),
        must(
            "passthru.chained",
            "`passthru` can stand in a chain.",
            Upstream,
        ),
        must(
            "passthru.versions",
            "`passthru` supports CNI 0.3.0 and later, and refuses earlier versions with code 1.",
            Upstream,
        ),
    ],
};
