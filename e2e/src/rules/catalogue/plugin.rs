//! Calls of plugins.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "plugin",
    title: "Calls of plugins",
    introduction: "What a network's plugin gets from the daemon, and how the daemon runs it.",
    rules: &[
        must(
            "plugin.environment",
            "A plugin gets the container ID, the network namespace and the interface in its environment.",
            Cni("SPEC 1.1.0, section 3: Attachment Parameters"),
        ),
        must(
            "plugin.path",
            "`CNI_PATH` of a plugin begins with `binDir`.",
            Upstream,
        ),
        must(
            "plugin.args",
            "`CNI_ARGS` of a plugin begins with `IgnoreUnknown=true` and the pod's namespace, name, container ID and UID.",
            Upstream,
        ),
        must(
            "plugin.address-args",
            "Requested addresses are in `CNI_ARGS` as `IP` and `MAC`.",
            Upstream,
        ),
        fix(
            "plugin.other-args",
            "`CNI_ARGS` of the runtime that Multus does not use reach the plugin.",
            Cni("SPEC 1.1.0, section 3: Attachment Parameters"),
        ),
        must(
            "plugin.list-keys",
            "`name` and `cniVersion` of a list are in the configuration of each of its plugins.",
            Cni("SPEC 1.1.0, section 3: Deriving request configuration from plugin configuration"),
        ),
        must(
            "plugin.result-cache",
            "Results are cached in libcni's format and with mode 0600 until `DEL`.",
            Upstream,
        ),
        fix(
            "plugin.busy",
            "A plugin whose file is being replaced is started again.",
            Ours,
        ),
        fix(
            "plugin.missing",
            "A missing plugin fails the pod before any plugin runs.",
            Ours,
        ),
    ],
};
