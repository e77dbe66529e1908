//! The shim by itself.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "shim",
    title: "The shim by itself",
    introduction: "`multus-shim` is the CNI plugin that the container runtime starts, once for each verb. These rules say what it checks and answers before it connects to the daemon.",
    rules: &[
        should(
            "shim.version-flag",
            "With `-v` or `--version` the shim prints one line that begins with `multus-shim: version:`, and exits with 0.",
            Upstream,
        ),
        should(
            "shim.no-command",
            "Without `CNI_COMMAND` the shim prints the CNI versions that it supports on stderr and nothing on stdout, and exits with 0.",
            Upstream,
        ),
        must(
            "shim.environment",
            "One error with code 4 names all required variables that are missing.",
            Cni("SPEC 1.1.0, section 5: Error"),
        ),
        must(
            "shim.container-id",
            "A container ID begins with a letter or digit and otherwise holds letters, digits, `_`, `.` and `-`; the shim refuses any other with code 4.",
            Cni("SPEC 1.1.0, section 2: Parameters"),
        ),
        must(
            "shim.interface-name",
            "An interface name has 1 to 15 characters without `/`, `:` and blanks, and is neither `.` nor `..`; the shim refuses any other with code 4.",
            Cni("SPEC 0.4.0, Parameters"),
        ),
        must(
            "shim.netns",
            "`ADD` and `CHECK` require `CNI_NETNS`; `DEL`, `GC` and `STATUS` do not.",
            Cni("SPEC 1.1.0, section 2: CNI operations"),
        ),
        must(
            "shim.invalid-json",
            "The shim refuses a configuration that is not JSON with code 6.",
            Cni("SPEC 1.1.0, section 5: Error"),
        ),
        must(
            "shim.network-name",
            "The shim refuses a configuration without a valid `name` with code 7.",
            Cni("SPEC 1.1.0, section 1: Configuration format"),
        ),
        must(
            "shim.unknown-version",
            "The shim refuses an unknown `cniVersion` with code 1.",
            Cni("SPEC 1.1.0, section 5: Error"),
        ),
        must(
            "shim.verb-version",
            "`CHECK` requires at least `cniVersion` 0.4.0, and `GC` and `STATUS` at least 1.1.0; the shim refuses them below that with code 1.",
            Upstream,
        ),
        must(
            "shim.version-verb",
            "The shim answers `VERSION` without a configuration and without a daemon.",
            Cni("SPEC 1.1.0, section 2: VERSION"),
        ),
        must(
            "shim.error-document",
            "A failed call prints one JSON document with `code` and `msg` on stdout, and the shim exits with 1.",
            Cni("SPEC 1.1.0, section 5: Error"),
        ),
        fix(
            "shim.own-netns",
            "A shim that runs inside the network namespace of `CNI_NETNS` refuses the call with code 8 and prints no other document.",
            Ours,
        ),
    ],
};
