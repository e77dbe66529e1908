//! The generated CNI configuration.

use super::{
    Source::{NetworkPlumbing, Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "manager",
    title: "The generated CNI configuration",
    introduction: "In auto mode the daemon's configuration manager takes a file in the CNI configuration directory as the default network, and writes `00-multus.conf` from it and from the daemon's own file.",
    rules: &[
        must(
            "manager.first-file",
            "The default network is the first `.conf` or `.conflist` by the bytes of its name whose name does not begin with `00-multus`.",
            Upstream,
        ),
        must(
            "manager.json-files",
            "Files that end in `.json` are no default network.",
            Upstream,
        ),
        fix(
            "manager.earlier-file",
            "A file that appears later and sorts before the default network's file becomes the default network.",
            Ours,
        ),
        must(
            "manager.wait",
            "The daemon waits for a default network's file that is not there yet.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 6.1.1"),
        ),
        must(
            "manager.named-file",
            "`multusMasterCNI` names the default network's file.",
            Upstream,
        ),
        must(
            "manager.cluster-network",
            "The generated `clusterNetwork` is the full path of the default network's file.",
            Upstream,
        ),
        fix(
            "manager.old-default-network",
            "A default network that is older than the generated `cniVersion` serves pods all the same, and its results are converted.",
            Ours,
        ),
        fix(
            "manager.force-version",
            "`forceCNIVersion` is accepted and leaves the default network's file as its owner wrote it.",
            Ours,
        ),
        must(
            "manager.capabilities",
            "The generated `capabilities` are those that any plugin of the default network has set to `true`.",
            Upstream,
        ),
        fix(
            "manager.capabilities-removed",
            "A capability that the default network's file loses disappears from the generated file.",
            Ours,
        ),
        must(
            "manager.keys",
            "The generated file is a single plugin configuration of type `multus-shim`.",
            Upstream,
        ),
        must(
            "manager.name",
            "The generated `name` is `multus-cni-network`, whatever the daemon's file says.",
            Upstream,
        ),
        must(
            "manager.override-name",
            "With `overrideNetworkName` the generated `name` is the default network's.",
            Upstream,
        ),
        should(
            "manager.override-name-missing",
            "With `overrideNetworkName` and a default network without a name, no CNI configuration is generated.",
            Upstream,
        ),
        must(
            "manager.copied-keys",
            "Keys of the configuration of Multus are copied from the daemon's file into the generated file.",
            Upstream,
        ),
        must(
            "manager.socket-dir",
            "`daemonSocketDir` is copied into the generated file, where the shim reads it.",
            Upstream,
        ),
        should(
            "manager.daemon-keys",
            "Keys that concern only the daemon, such as `multusConfigFile`, are not in the generated file.",
            Upstream,
        ),
        must(
            "manager.config-dir",
            "`cniConfigDir` names the directory of the generated file.",
            Upstream,
        ),
        must(
            "manager.mode",
            "The generated file has mode 0600.",
            Upstream,
        ),
        must(
            "manager.changed-file",
            "A change in the default network's file changes the generated file.",
            Upstream,
        ),
        must(
            "manager.renamed-file",
            "The generated file follows a default network's file that is replaced by a rename.",
            Upstream,
        ),
        fix(
            "manager.last-good",
            "The last good generated file stays while the default network's file is broken or missing.",
            Ours,
        ),
        fix(
            "manager.restored",
            "A generated file that was deleted or renamed is written again.",
            Ours,
        ),
        must(
            "manager.other-files",
            "Other files in the directory change nothing.",
            Upstream,
        ),
        must(
            "manager.readiness-indicator",
            "No CNI configuration is generated before the file that `readinessindicatorfile` names exists.",
            NetworkPlumbing("Multi-Net-Spec v1.3, section 6.1"),
        ),
        must(
            "manager.readiness-indicator-removed",
            "While the file that `readinessindicatorfile` names is missing again, the daemon is not ready and attaches no new pods.",
            Upstream,
        ),
    ],
};
