//! GC.

use super::{Source::Cni, Subject, fix, must, should};

pub(super) const SUBJECT: Subject = Subject {
    name: "gc",
    title: "GC",
    introduction: "`GC` gives the daemon the runtime's list of containers; what belongs to no container of that list is stale.",
    rules: &[
        fix(
            "gc.stale",
            "`GC` detaches containers that the runtime does not list.",
            Cni("SPEC 1.1.0, section 2: GC"),
        ),
        must(
            "gc.listed",
            "`GC` leaves containers that the runtime lists.",
            Cni("SPEC 1.1.0, section 2: GC"),
        ),
        must(
            "gc.no-results",
            "`GC` succeeds on a node without cached results.",
            Cni("SPEC 1.1.0, section 2: GC"),
        ),
        should(
            "gc.default-network",
            "`GC` runs the plugins of the default network.",
            Cni("SPEC 1.1.0, section 3: Garbage-collecting a network"),
        ),
        fix(
            "gc.valid-attachments",
            "`GC` gives the default network's plugins exactly the attachments that the runtime lists.",
            Cni("SPEC 1.1.0, section 2: GC"),
        ),
        fix(
            "gc.other-networks",
            "`GC` runs the plugins of other networks, with the attachments of those networks in listed containers.",
            Cni("SPEC 1.1.0, section 3: Garbage-collecting a network"),
        ),
    ],
};
