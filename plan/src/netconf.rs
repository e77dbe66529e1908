//! The effective configuration of one request: the shim's configuration, overlaid key by key with the daemon's own file.
//! Nothing here depends on pods. Unknown keys are left alone, as the CNI specification requires.

use std::path::PathBuf;

use cni::types::CniError;
use serde_json::{Map, Value};

use crate::{
    json::{self, WrongType},
    node_path::node_path,
};

/// The version for detaching networks without a request: the newest, whose results have everything that older ones have.
const DETACH_VERSION: &str = "1.1.0";

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetconfError {
    /// The shim's configuration is not a JSON object.
    #[error("the request's CNI configuration is not a JSON object: {0}")]
    NotJson(String),
    /// A known key has a value of another type.
    #[error("CNI configuration of multus: {0}")]
    Type(#[from] WrongType),
    /// The previous result cannot be parsed.
    #[error("prevResult: {0}")]
    PrevResult(#[from] cni::convert::ConvertError),
    /// Neither a delegate nor a default network is configured.
    #[error(
        "LoadNetConf: at least one delegate/clusterNetwork must be specified (set clusterNetwork to the CNI configuration of the default network)"
    )]
    NothingToDo,
}

impl From<NetconfError> for CniError {
    fn from(error: NetconfError) -> Self {
        let code = match error {
            NetconfError::NotJson(_) | NetconfError::PrevResult(_) => CniError::DECODING_FAILURE,
            NetconfError::Type(_) | NetconfError::NothingToDo => CniError::INVALID_NETWORK_CONFIG,
        };
        CniError::new(code, error.to_string())
    }
}

/// How to handle a pod's request that no plugin of the network supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsupportedRequests {
    /// The pod's ADD fails.
    Error,
    /// The pod comes up without it, and an event reports that.
    Event,
    /// The pod comes up without it, as with upstream.
    Silent,
}

impl UnsupportedRequests {
    /// The values of the key.
    pub const WORDS: [(&str, Self); 3] = [
        ("error", Self::Error),
        ("event", Self::Event),
        ("silent", Self::Silent),
    ];
    /// The configuration key.
    pub const KEY: &str = "unservedRequests";

    /// Reads the key from a configuration. The default is `event`, so that pods from upstream Multus keep running.
    pub(crate) fn read(map: &Map<String, Value>) -> Result<Self, WrongType> {
        let Some(word) = json::non_empty(map, Self::KEY)? else {
            return Ok(Self::Event);
        };
        let known = Self::WORDS
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(&word));
        known
            .map(|(_, value)| value)
            .ok_or_else(|| json::wrong_type(Self::KEY, "error, event or silent"))
    }
}

/// One entry of the list that a runtime sends with GC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValidAttachment {
    /// The container ID of the runtime.
    pub container_id: String,
    /// The interface that the runtime requested, usually `eth0`.
    pub ifname: String,
}

/// The keys of a network configuration that Multus itself reads.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Netconf {
    /// `name` of the configuration.
    pub name: String,
    /// `cniVersion`, which also applies to lists without one.
    pub cni_version: String,
    /// Directory of configurations on disk, for definitions with an empty spec and for names.
    pub conf_dir: PathBuf,
    /// Directory of state files and cached results.
    pub cni_dir: PathBuf,
    /// An explicit plugin directory, which is searched first.
    pub bin_dir: Option<PathBuf>,
    /// Whether the plugins that come with the daemon are searched before all others.
    pub own_plugins_first: bool,
    /// Inline configurations, used only when `cluster_network` is empty.
    pub delegates: Vec<Map<String, Value>>,
    /// Path or name of the default network.
    pub cluster_network: String,
    /// Additional networks of every pod outside `system_namespaces`.
    pub default_networks: Vec<String>,
    /// Namespaces whose pods get none of `default_networks`.
    pub system_namespaces: Vec<String>,
    /// Namespace of the definitions that this configuration names.
    pub multus_namespace: String,
    /// Whether pods may use definitions of their own namespace only.
    pub namespace_isolation: bool,
    /// Namespaces whose definitions are open to all pods.
    pub global_namespaces: Vec<String>,
    /// A file that must exist before any pod is attached.
    pub readiness_indicator_file: Option<PathBuf>,
    /// The runtime's capability arguments, for the default network.
    pub runtime_config: Map<String, Value>,
    /// Name of the chain that runs after all other networks.
    pub auxiliary_cni_chain_name: String,
    /// Whether the annotation of the original proposal counts.
    pub legacy_annotation: bool,
    /// Whether `runtime_config` is also for the pod's other networks.
    pub runtime_config_for_all: bool,
    /// How to handle a pod's request that no plugin supports.
    pub unsupported_requests: UnsupportedRequests,
    /// Whether the state outlives a failed DEL; `None` when the key is missing.
    pub retry_delete_on_error: Option<bool>,
    /// Whether CHECK succeeds without running anything.
    pub disable_check: bool,
    /// Whether GC succeeds without running anything.
    pub disable_gc: bool,
    /// Types of the plugins that may run; empty means all.
    pub allowed_plugins: Vec<String>,
    /// The attachments that still exist, from a GC request; `None` when the key is missing.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// The previous result, `null` without one.
    prev_result: Value,
}

impl Netconf {
    /// Fails on a previous result that cannot be parsed, because the runtime expects its content to be used.
    pub fn check_prev_result(&self) -> Result<(), NetconfError> {
        if self.prev_result.is_null() {
            return Ok(());
        }
        let assumed = self.cni_version.parse().ok();
        cni::convert::parse_value(&self.prev_result, assumed)?;
        Ok(())
    }

    /// Overlays `request` with `daemon`, the daemon's own file, and reads the result.
    /// With `auto` the readiness indicator of both is dropped: the daemon itself has waited for it.
    pub fn effective(
        request: &[u8],
        daemon: &Map<String, Value>,
        auto: bool,
    ) -> Result<Self, NetconfError> {
        let mut map: Map<String, Value> = serde_json::from_slice(request)
            .map_err(|error| NetconfError::NotJson(error.to_string()))?;
        overlay(&mut map, daemon);
        let netconf = Self::read(map, auto)?;
        if netconf.cluster_network.is_empty() && netconf.delegates.is_empty() {
            return Err(NetconfError::NothingToDo);
        }
        Ok(netconf)
    }

    /// Reads only `daemon`, for networks that were attached earlier and that the state has.
    pub fn without_request(daemon: &Map<String, Value>, auto: bool) -> Result<Self, NetconfError> {
        let mut map = Map::from_iter([("cniVersion".to_owned(), DETACH_VERSION.into())]);
        overlay(&mut map, daemon);
        Self::read(map, auto)
    }

    fn read(mut map: Map<String, Value>, auto: bool) -> Result<Self, NetconfError> {
        if auto {
            map.retain(|key, _| !key.eq_ignore_ascii_case("readinessindicatorfile"));
        }
        let map = &map;
        let delegates = json::list(map, "delegates")?
            .map(|items| objects("delegates", items))
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            name: json::string(map, "name")?,
            cni_version: json::string(map, "cniVersion")?,
            conf_dir: path(map, "confDir")?.unwrap_or_else(|| "/etc/cni/multus/net.d".into()),
            cni_dir: path(map, "cniDir")?.unwrap_or_else(|| "/var/lib/cni/multus".into()),
            bin_dir: path(map, "binDir")?,
            own_plugins_first: false,
            delegates,
            cluster_network: network(json::string(map, "clusterNetwork")?),
            default_networks: json::strings(map, "defaultNetworks")?
                .unwrap_or_default()
                .into_iter()
                .map(network)
                .collect(),
            system_namespaces: json::strings(map, "systemNamespaces")?
                .filter(|names| !names.is_empty())
                .unwrap_or_else(|| vec!["kube-system".to_owned()]),
            multus_namespace: json::non_empty(map, "multusNamespace")?
                .unwrap_or_else(|| "kube-system".to_owned()),
            namespace_isolation: json::boolean(map, "namespaceIsolation")?,
            global_namespaces: global_namespaces(&json::string(map, "globalNamespaces")?),
            readiness_indicator_file: path(map, "readinessindicatorfile")?,
            runtime_config: json::object(map, "runtimeConfig")?
                .cloned()
                .unwrap_or_default(),
            auxiliary_cni_chain_name: json::string(map, "auxiliaryCNIChainName")?,
            legacy_annotation: json::boolean(map, "legacyNetworksAnnotation")?,
            runtime_config_for_all: json::boolean(map, "runtimeConfigForAll")?,
            unsupported_requests: UnsupportedRequests::read(map)?,
            retry_delete_on_error: json::optional_boolean(map, "retryDeleteOnError")?,
            disable_check: json::boolean(map, "disableCheck")?,
            disable_gc: json::boolean(map, "disableGC")?,
            allowed_plugins: json::strings(map, "allowedPlugins")?.unwrap_or_default(),
            valid_attachments: valid_attachments(map)?,
            prev_result: json::get(map, "prevResult").cloned().unwrap_or_default(),
        })
    }
}

/// Replaces whole keys by the daemon's; nothing is merged deeper. The version `auto`, or none, leaves the request's version.
fn overlay(map: &mut Map<String, Value>, daemon: &Map<String, Value>) {
    for (key, value) in daemon {
        let unset_version = key.eq_ignore_ascii_case("cniVersion")
            && value
                .as_str()
                .is_none_or(|v| v.is_empty() || v.eq_ignore_ascii_case("auto"));
        if !unset_version {
            map.retain(|present, _| !present.eq_ignore_ascii_case(key));
            map.insert(key.clone(), value.clone());
        }
    }
}

fn path(map: &Map<String, Value>, key: &str) -> Result<Option<PathBuf>, WrongType> {
    Ok(json::non_empty(map, key)?.as_deref().map(node_path))
}

/// Reads the name of a network, or its path on the node.
fn network(text: String) -> String {
    if !text.contains('/') {
        return text;
    }
    node_path(&text).to_string_lossy().into_owned()
}

fn objects(key: &str, items: &[Value]) -> Result<Vec<Map<String, Value>>, WrongType> {
    items
        .iter()
        .map(|item| item.as_object().cloned())
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| json::wrong_type(key, "a list of objects"))
}

/// Reads the list. It replaces the default one, so it has to repeat `default`.
fn global_namespaces(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["default".to_owned()];
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

/// Reads the list of a GC request. libcni writes it under two keys, since its first release and the specification differed.
fn valid_attachments(
    map: &Map<String, Value>,
) -> Result<Option<Vec<ValidAttachment>>, NetconfError> {
    const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
    let Some(key) = KEYS.into_iter().find(|key| map.contains_key(*key)) else {
        return Ok(None);
    };
    let items = json::list(map, key)?.map_or(&[][..], Vec::as_slice);
    let attachments = objects(key, items)?
        .iter()
        .map(|item| {
            Ok(ValidAttachment {
                container_id: json::string(item, "containerID")?,
                ifname: json::string(item, "ifname")?,
            })
        })
        .collect::<Result<Vec<_>, WrongType>>()?;
    Ok(Some(attachments))
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "cases write json!() in place"
)]
mod tests;
