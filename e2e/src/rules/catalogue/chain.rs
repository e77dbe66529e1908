//! Chains of plugins from directories.

use super::{
    Source::{Cni, Ours, Upstream},
    Subject, fix, must,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "chain",
    title: "Chains of plugins from directories",
    introduction: "Other software can add plugins to the default network with files in a directory of the network's name, next to its own file.",
    rules: &[
        must(
            "chain.directory",
            "Plugins in the directory that has the list's name are appended to the default network's list.",
            Cni("SPEC 1.1.0, section 1: Configuration format"),
        ),
        must(
            "chain.inlined-only",
            "With `loadOnlyInlinedPlugins` the directory that has the list's name is ignored.",
            Cni("SPEC 1.1.0, section 1: Configuration format"),
        ),
        must(
            "chain.directory-only",
            "A list without `plugins` has only the plugins in the directory that has its name.",
            Cni("SPEC 1.1.0, section 1: Configuration format"),
        ),
        must(
            "chain.read-at-add",
            "The directory of a chain is read at every `ADD`.",
            Upstream,
        ),
        must(
            "chain.files",
            "Files that end in `.conf` count in the directory of a chain, in the order of their names.",
            Upstream,
        ),
        must(
            "chain.type",
            "A file in the directory of a chain without a `type` fails the pod.",
            Cni("SPEC 1.1.0, section 1: Plugin configuration objects"),
        ),
        must(
            "chain.name",
            "A list whose name is not fit for a directory fails the pod.",
            Cni("SPEC 1.1.0, section 1: Configuration format"),
        ),
        must(
            "chain.no-plugins",
            "A list without any plugin fails the pod.",
            Upstream,
        ),
        must(
            "chain.auxiliary",
            "`auxiliaryCNIChainName` adds the plugins of a directory of that name as a network after all others.",
            Upstream,
        ),
        must(
            "chain.auxiliary-version",
            "The chain of `auxiliaryCNIChainName` begins with `passthru` and has the `cniVersion` of the configuration.",
            Upstream,
        ),
        must(
            "chain.auxiliary-empty",
            "`auxiliaryCNIChainName` adds no network where its directory has no files.",
            Upstream,
        ),
        fix(
            "chain.auxiliary-broken",
            "A file in the directory of `auxiliaryCNIChainName` that cannot be read fails the pod, and the error names it.",
            Ours,
        ),
        must(
            "chain.auxiliary-path",
            "`auxiliaryCNIChainName` requires a `clusterNetwork` that is a path.",
            Upstream,
        ),
    ],
};
