//! The default network and networks for every pod.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "cluster-network",
    title: "The default network and networks for every pod",
    introduction: "`clusterNetwork` names the default network, and `defaultNetworks` names additional networks of every pod: a definition, the name of a configuration in a file, or a path.",
    rules: &[
        must(
            "cluster-network.by-name",
            "A `clusterNetwork` without `/` is the name of a definition in `multusNamespace`.",
            Upstream,
        ),
        must(
            "cluster-network.by-file-name",
            "A `clusterNetwork` without `/` for which no definition exists is the name of a configuration in a file of `confDir`.",
            Upstream,
        ),
        must(
            "cluster-network.by-path",
            "A `clusterNetwork` that is the path of a file means that file, of a list or of a single plugin.",
            Upstream,
        ),
        must(
            "cluster-network.by-path-type",
            "A file that `clusterNetwork` names by path and that is not a `.conflist` must have a `type` at its top level.",
            Upstream,
        ),
        must(
            "cluster-network.directory",
            "A `clusterNetwork` that is the path of a directory means the first configuration in that directory.",
            Upstream,
        ),
        fix(
            "cluster-network.directory-broken-file",
            "A file that cannot be used and is the first in the directory of `clusterNetwork` fails the pod, and the error names the file.",
            Ours,
        ),
        should(
            "cluster-network.not-found",
            "A `clusterNetwork` that is not found fails the pod with `failed to get clusterNetwork`.",
            Upstream,
        ),
        fix(
            "cluster-network.cause",
            "The error about a `clusterNetwork` names the cause.",
            Ours,
        ),
        fix(
            "cluster-network.broken-definition",
            "A definition that `clusterNetwork` names and that cannot be used fails the pod, also where a file has the same name.",
            Ours,
        ),
        should(
            "cluster-network.event",
            "A `NoNetworkFound` event reports a `clusterNetwork` that is not found.",
            Upstream,
        ),
        must(
            "cluster-network.default-networks-not-found",
            "A network of `defaultNetworks` that is not found fails the pod.",
            Upstream,
        ),
    ],
};
