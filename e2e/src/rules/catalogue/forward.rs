//! From the shim to the daemon.

use super::{
    Source::{Cni, NetworkPlumbing, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "forward",
    title: "From the shim to the daemon",
    introduction: "The shim sends its variables `CNI_*` and its configuration to the daemon's unix socket, and hands the daemon's answer to the container runtime. Most cases put a server of the suite in the daemon's place.",
    rules: &[
        must(
            "forward.socket-dir",
            "The shim finds the socket in the directory that `daemonSocketDir` of its configuration names.",
            Upstream,
        ),
        must(
            "forward.request",
            "The shim's variables `CNI_*` and its configuration reach the daemon unchanged.",
            Upstream,
        ),
        must(
            "forward.unknown-keys",
            "Keys that the shim does not know reach the daemon as well.",
            Upstream,
        ),
        should(
            "forward.log-file",
            "`logFile` and `logLevel` of the configuration apply to the shim's own log.",
            Upstream,
        ),
        should(
            "forward.wait",
            "`ADD`, `CHECK` and `GC` wait for a daemon that is not ready yet.",
            Upstream,
        ),
        must(
            "forward.no-readyz",
            "The shim works with a daemon that has `/healthz` and no `/readyz`, as Multus up to v4.3.0.",
            Upstream,
        ),
        must(
            "forward.empty-output",
            "`CHECK`, `DEL`, `GC` and `STATUS` print nothing when they succeed.",
            Cni("SPEC 1.1.0, section 2: CNI operations"),
        ),
        must(
            "forward.result-version",
            "`ADD` prints its result in the `cniVersion` of the configuration.",
            Cni("SPEC 1.1.0, section 5: ADD Success"),
        ),
        fix(
            "forward.result-fields",
            "A result holds no fields that its version does not have, as `mtu` before 1.1.0.",
            Cni("SPEC 1.1.0, section 5: ADD Success"),
        ),
        fix(
            "forward.empty-answer",
            "The shim answers an empty response to `ADD` with an error document.",
            Cni("SPEC 1.1.0, section 2: ADD"),
        ),
        fix(
            "forward.del-error",
            "A `DEL` that failed in the daemon fails for the runtime as well.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 7.2"),
        ),
    ],
};
