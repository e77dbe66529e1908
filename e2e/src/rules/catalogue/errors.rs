//! Errors.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "errors",
    title: "Errors",
    introduction: "What an error tells the container runtime and, through it, the user.",
    rules: &[
        must(
            "errors.add",
            "The error of a failed `ADD` names pod, network and cause, with `error configuring pod […] networking` and `error adding container to network`.",
            Upstream,
        ),
        must(
            "errors.shim",
            "The shim's error begins with the verb, as `CmdAdd (shim):`; an error that is text follows `CNI request failed with status 400`.",
            Upstream,
        ),
        fix(
            "errors.code",
            "The code and details of a plugin's error reach the runtime.",
            Cni("SPEC 1.1.0, section 5: Error"),
        ),
        must(
            "errors.typed",
            "An error with a code is a JSON object with `code`, `msg` and `details` on the socket.",
            Upstream,
        ),
        should(
            "errors.text",
            "An error that is text names container, network namespace and interface before the word `ERRORED`.",
            Upstream,
        ),
        must(
            "errors.pod-and-cause",
            "An error on the socket names the pod and the cause.",
            Upstream,
        ),
        fix(
            "errors.short",
            "An error is one line of less than 300 characters that names pod, network, cause, hint and an id.",
            Ours,
        ),
        fix(
            "errors.log",
            "The daemon's log has the whole error under the same id.",
            Ours,
        ),
    ],
};
