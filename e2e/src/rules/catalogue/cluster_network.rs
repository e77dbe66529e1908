//! The default network and networks for every pod.

use super::{
    Source::{Ours, Upstream},
    Subject, fix, must, should,
};

pub(super) const SUBJECT: Subject = Subject {
    name: "cluster-network",
    title: "The default network and networks for every pod",
    introduction: "`clusterNetwork` names the default network, and `defaultNetworks` names further networks of every pod: a definition, the name of a configuration in a file, or a path.",
    rules: &[
        must(
            "cluster-network.by-name",
            "A name without `/` is a definition in `multusNamespace`.",
            Upstream,
        ),
        must(
            "cluster-network.by-file-name",
            "Where no such definition exists, the name is that of a configuration in a file of `confDir`.",
            Upstream,
        ),
        must(
            "cluster-network.by-path",
            "The path of a file means that file, of a list or of a single plugin.",
            Upstream,
        ),
        must(
            "cluster-network.by-path-type",
            "A file by path that is not a `.conflist` must have a `type` at its top level.",
            Upstream,
        ),
        must(
            "cluster-network.directory",
            "The path of a directory means the first configuration in it.",
            Upstream,
        ),
        fix(
            "cluster-network.directory-broken-file",
            "A file in that directory that cannot be used and comes before it fails the pod, and the error names the file.",
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
            "A definition in `multusNamespace` that cannot be used fails the pod, also where a file has the same name.",
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
