//! Network definitions.

use super::{
    Source::{Cni, NetworkPlumbing, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "definition",
    title: "Network definitions",
    introduction: "A definition is a NetworkAttachmentDefinition object. Its configuration is the text `spec.config`; without that it is a file on the node.",
    rules: &[
        must(
            "definition.list",
            "A definition with a list runs its plugins in order, each with the result of the plugin before it.",
            Cni("SPEC 1.1.0, section 3: Adding an attachment"),
        ),
        must(
            "definition.unchanged",
            "A definition's configuration reaches the plugin with every key as it was written.",
            Cni("SPEC 1.1.0, section 1: Plugin configuration objects"),
        ),
        fix(
            "definition.numbers",
            "Numbers in a definition's configuration keep all their digits.",
            Cni("SPEC 1.1.0, section 1: Plugin configuration objects"),
        ),
        must(
            "definition.name",
            "A configuration without a name gets the name of its definition.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 3.4.2"),
        ),
        must(
            "definition.no-version",
            "A definition's configuration of a single plugin without a `cniVersion` stays without one.",
            Upstream,
        ),
        must(
            "definition.not-found",
            "A definition that does not exist fails the pod with `cannot find a network-attachment-definition`.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 3.4.1"),
        ),
        must(
            "definition.invalid",
            "A definition whose configuration is not a JSON object fails the pod.",
            Upstream,
        ),
        must(
            "definition.no-type",
            "A definition whose configuration has neither `type` nor `plugins` fails the pod.",
            Cni("SPEC 1.1.0, section 1: Plugin configuration objects"),
        ),
        fix(
            "definition.no-plugins",
            "A definition with an empty list of plugins is refused, and the error names the definition.",
            Ours,
        ),
        must(
            "definition.changes",
            "Definitions that are created or deleted take effect at once, without a restart.",
            Upstream,
        ),
        must(
            "definition.on-disk",
            "A definition without a configuration means the configuration in `confDir` that has its name.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 3.4.1"),
        ),
        must(
            "definition.on-disk-missing",
            "A definition without a configuration fails the pod where `confDir` has no configuration of its name.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 3.4.1"),
        ),
        must(
            "definition.on-disk-order",
            "Files in `confDir` are read in the byte order of their names, single plugins and lists alike.",
            Upstream,
        ),
        must(
            "definition.on-disk-broken",
            "A file in `confDir` that cannot be read fails the pod unless the configuration is found before it.",
            Upstream,
        ),
        must(
            "definition.on-disk-extensions",
            "Only files in `confDir` that end in `.conf`, `.json` or `.conflist` are read.",
            Upstream,
        ),
    ],
};
