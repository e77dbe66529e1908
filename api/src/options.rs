//! Every key of the daemon's file and of the network configuration, with type, default and meaning.
//!
//! One table, so that the daemon's warnings about unknown keys, the chart's schema and the documentation cannot disagree. Delegate
//! configurations are not described here: they belong to their plugins.

use serde_json::{Map, Value};

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// The key as written; it is matched without regard to case.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Its default as JSON text; `None` where absence means something of its own.
    pub default: Option<&'static str>,
    /// Where it may stand.
    pub scope: Scope,
    /// What it does, as a sentence.
    pub doc: &'static str,
}

/// Type of a value.
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
    /// An object.
    Object,
    /// Whatever the specification allows there.
    Any,
}

impl Kind {
    /// Whether a value is of this type; `null` is, as it means the default.
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
    /// In the network configuration; in the daemon's file it is laid over each request.
    Netconf,
    /// In the daemon's file only.
    Daemon,
    /// In both, with a meaning in each.
    Both,
}

/// The key of that name, whatever its case.
pub fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS
        .iter()
        .find(|option| option.name.eq_ignore_ascii_case(name))
}

/// The value of a key in a configuration, as Go's decoder reads it: whatever its case, the last one written.
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

/// All keys.
#[rustfmt::skip]
pub static OPTIONS: &[Opt] = &[
    opt("cniVersion", Text, Some("\"auto\""), Both, "Version of the generated configuration and of results; `auto` asks the node's runtime."),
    opt("name", Text, Some("\"multus-cni-network\""), Both, "Name of the network; the generated configuration has its own."),
    opt("type", Text, Some("\"multus-shim\""), Netconf, "The plugin that the runtime starts."),
    opt("capabilities", Object, None, Both, "Capabilities to declare to the runtime, beside those of the default network."),
    opt("ipam", Object, None, Netconf, "Carried along for the runtime; not used."),
    opt("dns", Object, None, Netconf, "Carried along for the runtime; not used."),
    opt("prevResult", Object, None, Netconf, "Result of an earlier plugin of the chain."),
    opt("runtimeConfig", Object, None, Netconf, "Capability arguments from the runtime."),
    opt("args", Object, None, Netconf, "Arguments from the runtime."),
    opt("confDir", Text, Some("\"/etc/cni/multus/net.d\""), Both, "Directory of configurations for definitions without one, and for names."),
    opt("cniDir", Text, Some("\"/var/lib/cni/multus\""), Both, "Directory of the state and of cached results."),
    opt("binDir", Text, None, Both, "One more directory in which plugins are searched, before those of the runtime; the shim never goes there."),
    opt("shimDir", Text, None, Daemon, "Directory that the shim is installed in: one of those in which the runtime looks for plugins. Without it the node is asked, and a directory in which the runtime does not look is refused."),
    opt("kubeconfig", Text, Some("\"\""), Netconf, "Accepted and ignored: the daemon has its own access."),
    opt("delegates", List, None, Netconf, "Networks to run when there is no clusterNetwork; the first is the default one."),
    opt("clusterNetwork", Text, Some("\"\""), Both, "The default network: a definition's name, a file or a directory."),
    opt("defaultNetworks", List, Some("[]"), Netconf, "Networks for every pod outside systemNamespaces."),
    opt("systemNamespaces", List, Some("[\"kube-system\"]"), Netconf, "Namespaces whose pods get no defaultNetworks."),
    opt("multusNamespace", Text, Some("\"kube-system\""), Netconf, "Namespace of definitions that clusterNetwork and defaultNetworks name."),
    opt("namespaceIsolation", Bool, Some("false"), Both, "Whether pods may use only definitions of their own and of global namespaces."),
    opt("globalNamespaces", Text, Some("\"\""), Both, "Comma list of namespaces open to all under isolation; empty means `default`."),
    opt("readinessindicatorfile", Text, Some("\"\""), Both, "A file that must exist before anything is served."),
    opt("auxiliaryCNIChainName", Text, Some("\"\""), Both, "Name of an additional chain of plugins to run last."),
    opt("unservedRequests", Text, Some("\"event\""), Both, "What a pod's request that no plugin of the network can serve leads to: with `event` the pod starts without it and a warning event names it, `error` fails the pod, `silent` is as upstream."),
    opt("runtimeConfigForAll", Bool, Some("false"), Both, "Whether capability arguments of the runtime, as host ports, reach a pod's other networks, too, as with upstream."),
    opt("legacyNetworksAnnotation", Bool, Some("false"), Both, "Whether the annotation alpha.network.k8s.io/networks of the original proposal counts, its first network as the default one, for pods without present annotations."),
    opt("retryDeleteOnError", Bool, None, Netconf, "Whether state outlives a DEL that failed, so that it is tried again: true always, false never; without it, for what was attached, 10 minutes where the plugin or the network namespace is gone and an hour otherwise."),
    opt("logFile", Text, None, Both, "A file of the node that gets the log of shim and daemon; the daemon rotates it."),
    opt("logLevel", Text, None, Both, "One of panic, error, verbose and debug; without it the daemon's is verbose, the shim's panic; at panic nothing is logged."),
    opt("logToStderr", Bool, None, Both, "Whether the log goes to stderr: the daemon's by default, the shim's not."),
    opt("logOptions", Object, None, Both, "When logFile is rotated: maxSize in megabytes (100), maxAge in days (5), maxBackups (5), compress (true); 0 is no limit of age or number."),
    opt("daemonSocketDir", Text, Some("\"/run/multus/\""), Netconf, "Directory of the socket as the shim sees it; the generated configuration has that of socketDir."),
    opt("allowedPlugins", List, Some("[]"), Daemon, "Types of the plugins that may run, those named in ipam and delegate included; empty means all."),
    opt("chrootDir", Text, Some("\"\""), Daemon, "Root that delegates run in, instead of the runtime's mount namespace."),
    opt("socketDir", Text, Some("\"/run/multus/\""), Daemon, "Directory of the socket on the node."),
    opt("metricsPort", Int, None, Daemon, "Port on every address of the node where Prometheus reads /metrics; without it there are none."),
    opt("enablePprof", Bool, Some("false"), Daemon, "Accepted; there is nothing to profile in that form here."),
    opt("kubeletDir", Text, Some("\"/var/lib/kubelet\""), Daemon, "Directory of the kubelet on the node, where it tells which devices pods have."),
    opt("dhcp", Bool, Some("false"), Daemon, "Whether the node's plugin dhcp is kept serving, for networks that take their addresses by DHCP."),
    opt("detachOnUninstall", Bool, Some("false"), Daemon, "Whether an uninstall detaches pods that are gone first, and leaves the runtime the results of the default networks of those that run."),
    opt("dynamicNetworks", Bool, Some("false"), Daemon, "Whether a changed networks annotation of a running pod attaches and detaches."),
    opt("connectionLimit", Int, None, Daemon, "At most so many connections of the socket at once, probes included; without it there is no limit."),
    opt("verbsAtOnce", Int, None, Daemon, "At most so many ADDs and DELs at work at once, up to 1000; others wait, and the pods' namespaces take turns. Without it four for each processor, at least 8. CHECK, GC and STATUS have places of their own."),
    opt("perNodeCertificate", Object, None, Daemon, "A client certificate for each node: enabled, bootstrapKubeconfig, certDir, certDuration; without it the daemon uses its pod's service account."),
    opt("multusConfigFile", Text, Some("\"auto\""), Daemon, "`auto`, or the path of a configuration to install as it is."),
    opt("multusMasterCNI", Text, Some("\"\""), Daemon, "File name of the default network's configuration; empty takes the first."),
    opt("multusAutoconfigDir", Text, Some("\"\""), Daemon, "Directory of the default network's configuration; empty asks the node."),
    opt("cniConfigDir", Text, Some("\"\""), Daemon, "Directory that the generated configuration goes to; empty asks the node."),
    opt("criSocket", Text, None, Daemon, "The container runtime's socket; without it the candidates are asked for the one that runs our pod."),
    opt("forceCNIVersion", Bool, Some("false"), Daemon, "Accepted and ignored: foreign files are never rewritten."),
    opt("overrideNetworkName", Bool, Some("false"), Daemon, "Whether the generated configuration takes the default network's name."),
    // Standard keys of a list of plugins, which a configuration given by hand may be.
    opt("disableCheck", Bool, Some("false"), Netconf, "Whether CHECK succeeds without running anything."),
    opt("disableGC", Bool, Some("false"), Netconf, "Whether GC succeeds without running anything."),
    opt("cni.dev/valid-attachments", Any, None, Netconf, "Attachments that GC must keep, from the runtime."),
    opt("cni.dev/attachments", Any, None, Netconf, "The same under an older name."),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_is_sound() {
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
    fn keys_match_whatever_their_case() {
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
