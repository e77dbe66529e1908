//! Every key of the daemon's file and of the network configuration, with type, default and meaning.
//!
//! The daemon's warnings about unknown keys, the chart's schema and the values reference come from this one table, so they cannot
//! disagree. Configurations of delegates are not in it, since they belong to their plugins.

use serde_json::{Map, Value};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// The key's spelling; keys are matched without regard to case.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The default as JSON text; `None` where absence has a meaning of its own.
    pub default: Option<&'static str>,
    /// Where the key has an effect.
    pub scope: Scope,
    /// The meaning, as a sentence for the schema and the reference.
    pub doc: &'static str,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A text.
    String,
    /// A list of texts or of objects.
    List,
    Object,
    /// Any type that the specification allows.
    Any,
}

impl Kind {
    /// Returns whether a value has this type; `null` stands for the default and is accepted.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Bool => value.is_null() || value.is_boolean(),
            Self::Int => value.is_null() || value.is_i64() || value.is_u64(),
            Self::String => value.is_null() || value.is_string(),
            Self::List => value.is_null() || value.is_array(),
            Self::Object => value.is_null() || value.is_object(),
            Self::Any => true,
        }
    }
}

/// Where a key has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the network configuration; in the daemon's file it overrides each request.
    Netconf,
    /// In the daemon's file only.
    Daemon,
    /// In both, with a meaning of its own in each.
    Both,
}

/// Returns the key of this name, without regard to case.
pub fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS
        .iter()
        .find(|option| option.name.eq_ignore_ascii_case(name))
}

/// Returns the value of a key in a configuration as Go's decoder reads it: without regard to case, and the last one written.
pub fn get<'a>(config: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    config
        .iter()
        .rev()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

const fn opt(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    scope: Scope,
    doc: &'static str,
) -> Opt {
    Opt {
        name,
        kind,
        default,
        scope,
        doc,
    }
}

use Kind::{Any, Bool, Int, List, Object, String as Text};
use Scope::{Both, Daemon, Netconf};

/// The table of all keys.
#[rustfmt::skip]
pub static OPTIONS: &[Opt] = &[
    opt("cniVersion", Text, Some("\"auto\""), Both, "Version of the generated configuration and of results; `auto` follows the node's runtime."),
    opt("name", Text, Some("\"multus-cni-network\""), Both, "Name of the network; the generated configuration has its own."),
    opt("type", Text, Some("\"multus-shim\""), Netconf, "The plugin that the runtime starts."),
    opt("capabilities", Object, None, Both, "Capabilities to declare to the runtime, in addition to those of the default network."),
    opt("ipam", Bool, Some("false"), Both, "In the daemon's file, whether the daemon gives addresses that are unique in the cluster, for networks with the IPAM plugin multus-ipam; in the network configuration an object that is passed on for the runtime and not used."),
    opt("dns", Object, None, Netconf, "Passed on for the runtime; not used."),
    opt("prevResult", Object, None, Netconf, "Result of an earlier plugin of the chain."),
    opt("runtimeConfig", Object, None, Netconf, "Capability arguments from the runtime."),
    opt("args", Object, None, Netconf, "Arguments from the runtime."),
    opt("confDir", Text, Some("\"/etc/cni/multus/net.d\""), Both, "Directory of configurations for definitions without one, and for names."),
    opt("cniDir", Text, Some("\"/var/lib/cni/multus\""), Both, "Directory of the state and of cached results."),
    opt("binDir", Text, None, Both, "An additional directory in which plugins are searched, before those of the runtime; the shim is never installed there."),
    opt("shimDir", Text, None, Daemon, "Directory that the shim is installed in: one of those in which the runtime looks for plugins, any other is refused. Without it the node's runtime decides."),
    opt("kubeconfig", Text, Some("\"\""), Netconf, "Accepted and ignored: the daemon has its own access."),
    opt("delegates", List, None, Netconf, "Networks to run when there is no clusterNetwork; the first is the default one."),
    opt("clusterNetwork", Text, Some("\"\""), Both, "The default network: a definition's name, a file or a directory."),
    opt("defaultNetworks", List, Some("[]"), Netconf, "Networks for every pod outside systemNamespaces."),
    opt("systemNamespaces", List, Some("[\"kube-system\"]"), Netconf, "Namespaces whose pods get no defaultNetworks."),
    opt("multusNamespace", Text, Some("\"kube-system\""), Netconf, "Namespace of definitions that clusterNetwork and defaultNetworks name."),
    opt("namespaceIsolation", Bool, Some("false"), Both, "Whether pods may use only definitions of their own and of global namespaces."),
    opt("globalNamespaces", Text, Some("\"\""), Both, "Comma-separated namespaces whose definitions all pods may use under isolation; empty means `default`."),
    opt("readinessindicatorfile", Text, Some("\"\""), Both, "A file that must exist before anything is served."),
    opt("auxiliaryCNIChainName", Text, Some("\"\""), Both, "Name of an additional chain of plugins to run last."),
    opt("unservedRequests", Text, Some("\"event\""), Both, "What happens to a pod's request that no plugin of the network supports: with `event` the pod starts without it and a warning event names it, with `error` the pod fails, with `silent` nothing is reported, as in upstream."),
    opt("runtimeConfigForAll", Bool, Some("false"), Both, "Whether capability arguments of the runtime, such as host ports, also reach a pod's additional networks, as in upstream."),
    opt("legacyNetworksAnnotation", Bool, Some("false"), Both, "Whether the annotation alpha.network.k8s.io/networks of the original proposal counts, its first network as the default one, for pods without the current annotations."),
    opt("retryDeleteOnError", Bool, None, Netconf, "Whether state outlives a failed DEL, so that the DEL is retried: true always, false never; without it, for delegates that were attached, for 10 minutes where the plugin or the network namespace no longer exists and for an hour otherwise."),
    opt("logFile", Text, None, Both, "The file on the node for the log of shim and daemon; the daemon rotates it."),
    opt("logLevel", Text, None, Both, "One of panic, error, verbose and debug; without it the daemon's is verbose, the shim's panic; at panic nothing is logged."),
    opt("logToStderr", Bool, None, Both, "Whether the log goes to stderr: the daemon's by default, the shim's not."),
    opt("logOptions", Object, None, Both, "When logFile is rotated: maxSize in megabytes (100), maxAge in days (5), maxBackups (5), compress (true); 0 means unlimited age or number."),
    opt("daemonSocketDir", Text, Some("\"/run/multus/\""), Netconf, "Directory of the socket as the shim sees it; the generated configuration names socketDir."),
    opt("allowedPlugins", List, Some("[]"), Daemon, "Types of the plugins that may run, including those named in ipam and delegate; empty means all."),
    opt("chrootDir", Text, Some("\"\""), Daemon, "Root that delegates run in, instead of the runtime's mount namespace."),
    opt("socketDir", Text, Some("\"/run/multus/\""), Daemon, "Directory of the socket on the node."),
    opt("metricsPort", Int, None, Daemon, "Port on which every address of the node serves /metrics for Prometheus; without it no metrics are served."),
    opt("enablePprof", Bool, Some("false"), Daemon, "Accepted and ignored: the daemon writes no profiles of that form."),
    opt("kubeletDir", Text, Some("\"/var/lib/kubelet\""), Daemon, "Directory of the kubelet on the node, in which it reports the devices of pods."),
    opt("dhcp", Bool, Some("false"), Daemon, "Whether the daemon holds DHCP leases, for networks with the IPAM plugin dhcp. If a dhcp plugin of the node is found first, the daemon also keeps the service of that plugin running."),
    opt("whereabouts", Text, None, Daemon, "Namespace of the IPPools of whereabouts; with it and ipam the daemon gives their addresses, too, and installs its plugin of that name."),
    opt("publish", Text, Some("\"none\""), Daemon, "How the daemon publishes which definitions its node can serve: none, labels (of its Node), features (a file for Node Feature Discovery) or resources (of the kubelet, which pods request)."),
    opt("ownPlugins", Object, None, Daemon, "The CNI plugins that come with the daemon, in /var/lib/multus/bin: install (true), only and skip (lists of names), first (false: they are searched after those of the node)."),
    opt("detachOnUninstall", Bool, Some("false"), Daemon, "Whether an uninstall first detaches deleted pods, and leaves the runtime the default networks' results of pods that run."),
    opt("dynamicNetworks", Bool, Some("false"), Daemon, "Whether a changed networks annotation of a running pod attaches and detaches."),
    opt("connectionLimit", Int, None, Daemon, "The maximum number of connections to the socket at once, including probes; unlimited by default."),
    opt("verbsAtOnce", Int, None, Daemon, "The maximum number of ADDs and DELs at once, up to 1000, at most half of them for pods of one namespace; others wait, and namespaces take turns. A request that has run for three seconds no longer counts, up to four times the maximum. The default is four per processor, at least 8. CHECK, GC and STATUS have slots of their own."),
    opt("perNodeCertificate", Object, None, Daemon, "A client certificate for each node: enabled, bootstrapKubeconfig, certDir, certDuration; without it the daemon uses its pod's service account."),
    opt("multusConfigFile", Text, Some("\"auto\""), Daemon, "`auto`, or the path of a configuration to install as it is."),
    opt("multusMasterCNI", Text, Some("\"\""), Daemon, "File name of the default network's configuration; empty takes the first."),
    opt("multusAutoconfigDir", Text, Some("\"\""), Daemon, "Directory of the default network's configuration; empty means the directory of the node's runtime."),
    opt("cniConfigDir", Text, Some("\"\""), Daemon, "Directory for the generated configuration; empty means the directory of the node's runtime."),
    opt("criSocket", Text, None, Daemon, "The container runtime's socket; without it the daemon takes the runtime that runs its own pod."),
    opt("forceCNIVersion", Bool, Some("false"), Daemon, "Accepted and ignored: foreign files are never rewritten."),
    opt("overrideNetworkName", Bool, Some("false"), Daemon, "Whether the generated configuration takes the default network's name."),
    // Standard keys of a list of plugins, for a configuration that an operator supplies.
    opt("disableCheck", Bool, Some("false"), Netconf, "Whether CHECK succeeds without running a plugin."),
    opt("disableGC", Bool, Some("false"), Netconf, "Whether GC succeeds without running a plugin."),
    opt("cni.dev/valid-attachments", Any, None, Netconf, "Attachments of the runtime that GC must keep."),
    opt("cni.dev/attachments", Any, None, Netconf, "The same under an older name."),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_unique_and_defaults_have_their_type() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert!(
                OPTIONS[..index]
                    .iter()
                    .all(|other| !other.name.eq_ignore_ascii_case(option.name)),
                "{} twice",
                option.name
            );
            assert!(option.doc.ends_with('.'), "{}", option.name);
            if let Some(default) = option.default {
                let value: Value = serde_json::from_str(default).unwrap();
                assert!(
                    !value.is_null() && option.kind.accepts(&value),
                    "{}",
                    option.name
                );
            }
        }
    }

    #[test]
    fn keys_match_without_regard_to_case() {
        assert_eq!(
            find("readinessIndicatorFile").unwrap().name,
            "readinessindicatorfile"
        );
        assert_eq!(find("nothing"), None);
        let config = json!({"multusNamespace": "a", "multusnamespace": "b", "logFile": null});
        let config = config.as_object().unwrap();
        assert_eq!(get(config, "multusNamespace"), Some(&json!("b")));
        assert_eq!(get(config, "logFile"), None);
        assert_eq!(get(config, "name"), None);
    }
}
