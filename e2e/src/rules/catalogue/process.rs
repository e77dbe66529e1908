//! Sections 5 to 7: the daemon's process, the configuration of Multus, and the configuration manager.

use super::{Rule, fix, must, should};

pub(super) const RULES: &[Rule] = &[
    must("mux-5.1-config-flag", "-config names the daemon's file"),
    should(
        "mux-5.1-version-flag",
        "-version prints one line that begins with the program's name",
    ),
    must(
        "mux-5.2-no-file",
        "a daemon without its file, or with one that is no JSON, ends with a failure",
    ),
    must(
        "mux-5.2-readiness",
        "nothing is written before the readiness indicator is there",
    ),
    must(
        "mux-5.2-order",
        "the configuration appears only after the socket answers",
    ),
    fix(
        "mux-5.2-user-file",
        "with a ready-made multusConfigFile the daemon copies it and stays up",
    ),
    must("mux-5.3-term", "SIGTERM and SIGINT end the daemon in time"),
    fix(
        "mux-5.3-keep",
        "the configuration stays when the daemon stops",
    ),
    fix(
        "mux-5.3-drain",
        "calls in flight are finished after SIGTERM",
    ),
    must(
        "mux-5.3-restart",
        "a daemon serves again after its restart, also after kill -9",
    ),
    must("mux-5.4-socket-dir", "socketDir says where the socket is"),
    should("mux-5.4-metrics", "metricsPort serves /metrics"),
    should("mux-5.4-pprof", "enablePprof adds profiles to that port").unshown(
        "they are profiles of the Go runtime; ours has none, and says at its start that the key has no effect",
    ),
    should(
        "mux-5.4-connection-limit",
        "connectionLimit bounds connections",
    ),
    must("mux-5.4-master", "multusMasterCNI names the primary's file"),
    must(
        "mux-5.4-config-dir",
        "cniConfigDir says where the configuration goes",
    ),
    fix(
        "mux-5.4-force-version",
        "forceCNIVersion is accepted, and leaves the primary's file as its owner wrote it",
    ),
    must(
        "mux-5.4-socket-dir-shim",
        "daemonSocketDir goes into the generated configuration",
    ),
    must(
        "mux-5.4-copied",
        "keys of the configuration of Multus are copied into the generated file",
    ),
    must(
        "mux-5.4-name",
        "the generated name is multus-cni-network, whatever the file says",
    ),
    should(
        "mux-5.5-requests",
        "requests are counted by handler, code and method",
    ),
    must(
        "mux-6-prev-result",
        "a prevResult that cannot be read is an error",
    ),
    must(
        "mux-6-conf-dir",
        "confDir holds configurations for names and empty definitions",
    ),
    must("mux-6-cni-dir", "cniDir holds state and cached results"),
    must("mux-6-bin-dir", "binDir is searched before CNI_PATH"),
    must(
        "mux-6-delegates",
        "without clusterNetwork, delegates are attached in order and the first is the default network",
    ),
    must(
        "mux-6-delegates-ignored",
        "with clusterNetwork, delegates are passed over",
    ),
    must(
        "mux-6-default-networks",
        "defaultNetworks are attached to every pod besides clusterNetwork",
    ),
    must(
        "mux-6-system-namespaces",
        "pods of systemNamespaces get no defaultNetworks",
    ),
    must(
        "mux-6-multus-namespace",
        "multusNamespace is where the cluster's own definitions are",
    ),
    must(
        "mux-6-readiness",
        "without auto mode ADD waits for the readiness indicator",
    ),
    should(
        "mux-6-readiness-del",
        "DEL does not wait for the readiness indicator",
    ),
    must(
        "mux-6-nothing",
        "a configuration with neither delegates nor clusterNetwork is refused, in the words that operators look for",
    ),
    must(
        "mux-6-delegate-type",
        "a delegate without type and plugins is refused",
    ),
    should("mux-6-case", "keys are read whatever their case"),
    must(
        "mux-7.1-first",
        "the primary is the first .conf or .conflist by bytes that is not our own",
    ),
    must("mux-7.1-json", "files that end in .json are no primary"),
    must(
        "mux-7.1-wait",
        "a primary that is not there yet is waited for",
    ),
    fix(
        "mux-7.1-again",
        "a file that sorts before the primary and comes later takes its place",
    ),
    fix(
        "mux-7.2-cni-version",
        "a primary older than the generated version serves pods all the same, its results converted",
    ),
    must(
        "mux-7.2-capabilities",
        "capabilities are what any plugin of the primary has switched on",
    ),
    fix(
        "mux-7.2-capabilities-go",
        "a capability that the primary loses is lost in ours",
    ),
    must(
        "mux-7.2-cluster-network",
        "clusterNetwork is the primary's whole path",
    ),
    must(
        "mux-7.3-keys",
        "the generated file is a single plugin multus-shim with the known keys",
    ),
    should(
        "mux-7.3-blanked",
        "keys of the daemon alone are not in the generated file",
    ),
    must("mux-7.3-mode", "the generated file has mode 0600"),
    must(
        "mux-7.4-follow",
        "a changed primary changes the generated file",
    ),
    must(
        "mux-7.4-replaced",
        "a primary that is written anew beside and renamed is followed",
    ),
    fix(
        "mux-7.4-last-good",
        "a primary that is broken or gone leaves the last good file in place",
    ),
    fix(
        "mux-7.4-restore",
        "a generated file that somebody deletes or renames comes back",
    ),
    must(
        "mux-7.4-others",
        "other files in the directory change nothing",
    ),
    must(
        "mux-7.4-readiness",
        "a readiness indicator that goes stops new pods until it is back",
    ),
    must(
        "mux-7.5-name",
        "overrideNetworkName takes over the primary's name",
    ),
    should(
        "mux-7.5-no-name",
        "overrideNetworkName with a primary that has no name gives no configuration",
    ),
];
