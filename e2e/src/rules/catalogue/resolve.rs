//! Section 10: from networks to configurations.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must(
        "mux-10.1-order",
        "clusterNetwork, defaultNetworks, the annotation's networks, the auxiliary chain: in this order",
    ),
    must(
        "mux-10.1-default-network",
        "the default-network annotation replaces the first of them",
    ),
    must(
        "mux-10.2-name",
        "a name without `/` is a definition in multusNamespace",
    ),
    must(
        "mux-10.2-conf-dir",
        "else it is the file in confDir with that name inside",
    ),
    must(
        "mux-10.2-path",
        "a path to a .conflist or another file is that file",
    ),
    must(
        "mux-10.2-directory",
        "a path to a directory is its first usable file",
    ),
    fix(
        "mux-10.2-directory-broken",
        "a file before it that cannot be used fails the pod and is named",
    ),
    should(
        "mux-10.2-not-found",
        "a clusterNetwork that is not found fails the pod, in the words that operators look for",
    ),
    fix("mux-10.2-cause", "and the error keeps the cause"),
    must(
        "mux-10.2-default-missing",
        "a default network that is not found fails the pod",
    ),
    must(
        "mux-10.2-type",
        "a file by path that is no .conflist has a type at its top",
    ),
    fix(
        "mux-10.2-broken-definition",
        "a definition in multusNamespace that cannot be used fails the pod, whatever files there are",
    ),
    should(
        "mux-10.2-told",
        "NoNetworkFound tells of a clusterNetwork that is nowhere",
    ),
    must(
        "mux-10.3-name",
        "a definition's configuration without a name gets that of the definition",
    ),
    must(
        "mux-10.3-bytes",
        "a configuration reaches its plugin with every key as it was written",
    ),
    fix("mux-10.3-numbers", "numbers keep their digits"),
    must(
        "mux-10.3-empty",
        "an empty definition is the file in confDir with its name inside",
    ),
    must(
        "mux-10.3-empty-missing",
        "an empty definition without such a file fails the pod",
    ),
    must(
        "mux-10.3-disk-order",
        "files are looked through by bytes of their names, those of one plugin and lists alike",
    ),
    must(
        "mux-10.3-disk-broken",
        "a file that cannot be read fails the pod unless the one that is meant comes before it",
    ),
    must(
        "mux-10.3-disk-files",
        "only .conf, .json and .conflist are looked at",
    ),
    must(
        "mux-10.3-no-version",
        "a configuration of one plugin without cniVersion stays without",
    ),
    must(
        "mux-10.3-plugin",
        "with legacyNetworksAnnotation, where a plugin has the name of such a definition, it is asked for its versions and gets a configuration of the highest",
    ),
    must(
        "mux-10.3-fresh",
        "definitions that come or go count at once, without a restart",
    ),
    must(
        "mux-10.3-invalid",
        "a configuration that is no JSON object fails the pod and is named",
    ),
    must(
        "mux-10.3-no-type",
        "a configuration with neither type nor plugins fails the pod",
    ),
    fix(
        "mux-10.3-no-plugins",
        "an empty list of plugins is an error that names the definition",
    ),
    must(
        "mux-10.3-list",
        "a list runs its plugins in order, each with the result of the one before",
    ),
    must(
        "mux-10.3-missing",
        "a definition that does not exist fails the pod, in the words that operators look for",
    ),
    must(
        "mux-10.3-status-name",
        "status and errors call it namespace/name",
    ),
    must(
        "mux-10.5-refused",
        "with namespaceIsolation, definitions of other namespaces are refused",
    ),
    must(
        "mux-10.5-global",
        "those of globalNamespaces are open to all",
    ),
    must(
        "mux-10.5-default",
        "globalNamespaces is `default` unless given",
    ),
    must(
        "mux-10.5-exempt",
        "clusterNetwork and defaultNetworks are exempt",
    ),
    must("mux-10.5-off", "without it, any namespace may be named"),
];
