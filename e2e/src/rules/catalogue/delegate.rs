//! Networks of running pods.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "delegate",
    title: "Networks of running pods",
    introduction: "`POST /delegate` attaches or detaches a single network while the pod runs; upstream's controller of dynamic networks uses it. The request brings the network's configuration.",
    rules: &[
        must(
            "delegate.add",
            "`ADD` on `/delegate` attaches the one network of the request as `CNI_IFNAME`, and answers as `/cni` does.",
            Upstream,
        ),
        must(
            "delegate.interface-attributes",
            "`ips`, `mac` and `cni-args` in the `interfaceAttributes` of `/delegate` reach the plugin as those of an annotation do.",
            Upstream,
        ),
        must(
            "delegate.list",
            "The configuration in a request to `/delegate` may be a list of plugins.",
            Upstream,
        ),
        fix(
            "delegate.configuration",
            "Keys of the daemon's file do not replace keys of the configuration in a request to `/delegate`.",
            Ours,
        ),
        must(
            "delegate.status-annotation",
            "The daemon leaves the pod's status annotation to the client of `/delegate`.",
            Upstream,
        ),
        must(
            "delegate.event",
            "An `AddedInterface` event reports a network that `/delegate` attached.",
            Upstream,
        ),
        must(
            "delegate.unknown-pod",
            "`/delegate` refuses `ADD` and `DEL` for a pod that does not exist, or that has another UID.",
            Upstream,
        ),
        must(
            "delegate.interface-exists",
            "`/delegate` refuses `ADD` of an interface that exists already.",
            Cni("SPEC 1.1.0, section 2: ADD"),
        ),
        fix(
            "delegate.rollback",
            "A failed `ADD` on `/delegate` is undone.",
            Ours,
        ),
        must(
            "delegate.del",
            "`DEL` on `/delegate` runs the plugin with the configuration of the request and the cached result.",
            Cni("SPEC 1.1.0, section 3: Deleting an attachment"),
        ),
        must(
            "delegate.del-error",
            "A `DEL` on `/delegate` that failed is an error.",
            Upstream,
        ),
        must(
            "delegate.check",
            "`CHECK` on `/delegate` runs the plugin's `CHECK` and fails when that fails.",
            Upstream,
        ),
        fix(
            "delegate.check-list",
            "`CHECK` on `/delegate` runs every plugin of a list.",
            Cni("SPEC 1.1.0, section 3: Checking an attachment"),
        ),
        must(
            "delegate.status",
            "`STATUS` on `/delegate` runs the plugin's `STATUS` and fails when that fails.",
            Upstream,
        ),
        must(
            "delegate.other-verbs",
            "`/delegate` refuses `GC`, and answers `GET` with status 405.",
            Upstream,
        ),
        fix(
            "delegate.del-with-pod",
            "A network that `/delegate` attached is detached with its container.",
            Ours,
        ),
    ],
};
