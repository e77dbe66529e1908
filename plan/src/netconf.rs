//! The effective configuration of one request: what the shim sent, overlaid key by key with the daemon's own file.
//! It decides nothing about pods; keys it does not know are left alone, as CNI asks.

use std::path::PathBuf;

use cni::types::CniError;
use serde_json::{Map, Value};

use crate::{
    json::{self, WrongType},
    node_path::node_path,
};

/// The version that detaches what no request is about: the newest, whose results hold what all others do.
const VERSION_OF_DETACHING: &str = "1.1.0";

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetconfError {
    /// The shim sent something that is not a JSON object.
    #[error("the request's CNI configuration is not a JSON object: {0}")]
    NotJson(String),
    /// A known key has a value of another type.
    #[error("CNI configuration of multus: {0}")]
    Type(#[from] WrongType),
    /// The result that came before cannot be read.
    #[error("prevResult: {0}")]
    PrevResult(#[from] cni::convert::ConvertError),
    /// There is nothing to delegate to.
    #[error(
        "LoadNetConf: at least one delegate/clusterNetwork must be specified (set clusterNetwork to the primary CNI configuration)"
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

/// What comes of a pod's request that no plugin of the network can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// The pod's ADD fails.
    Error,
    /// The pod comes up without, and is told in an event.
    Event,
    /// The pod comes up without, as with upstream.
    Silent,
}

impl Unserved {
    /// The words for it.
    pub const WORDS: [(&str, Self); 3] = [
        ("error", Self::Error),
        ("event", Self::Event),
        ("silent", Self::Silent),
    ];
    /// The key.
    pub const KEY: &str = "unservedRequests";

    /// The word in a configuration; without one it is `event`, so that pods which ran under upstream Multus go on running.
    pub(crate) fn read(map: &Map<String, Value>) -> Result<Self, WrongType> {
        let Some(word) = json::non_empty(map, Self::KEY)? else {
            return Ok(Self::Event);
        };
        let known = Self::WORDS
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(&word));
        known
            .map(|(_, unserved)| unserved)
            .ok_or_else(|| json::wrong(Self::KEY, "error, event or silent"))
    }
}

/// One entry of the list that a runtime sends with GC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValidAttachment {
    /// The container's id as the runtime gave it.
    pub container_id: String,
    /// The interface that the runtime asked for, `eth0` as a rule.
    pub ifname: String,
}

/// What multus itself reads of a network configuration.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Netconf {
    /// `name` of the configuration.
    pub name: String,
    /// `cniVersion`; given to lists that carry none.
    pub cni_version: String,
    /// Directory of configurations on disk, for definitions with an empty spec and for names.
    pub conf_dir: PathBuf,
    /// Directory of state files and cached results.
    pub cni_dir: PathBuf,
    /// A plugin directory that someone set; searched first.
    pub bin_dir: Option<PathBuf>,
    /// Configurations given inline; used only when `cluster_network` is empty.
    pub delegates: Vec<Map<String, Value>>,
    /// Path or name of the default network.
    pub cluster_network: String,
    /// Further networks of every pod outside `system_namespaces`.
    pub default_networks: Vec<String>,
    /// Namespaces whose pods get no default networks.
    pub system_namespaces: Vec<String>,
    /// Namespace of the definitions that the cluster's owner names.
    pub multus_namespace: String,
    /// Whether pods may use definitions of their own namespace only.
    pub namespace_isolation: bool,
    /// Namespaces whose definitions are open to all pods.
    pub global_namespaces: Vec<String>,
    /// A file that must exist before any pod is attached.
    pub readiness_indicator_file: Option<PathBuf>,
    /// Capability arguments of the runtime, meant for the default network.
    pub runtime_config: Map<String, Value>,
    /// Name of the chain that is run after all other networks.
    pub auxiliary_cni_chain_name: String,
    /// Whether the annotation of the original proposal counts.
    pub legacy_annotation: bool,
    /// Whether `runtime_config` is for the pod's other networks, too.
    pub runtime_config_for_all: bool,
    /// What comes of a pod's request that no plugin can serve.
    pub unserved: Unserved,
    /// Whether state outlives a DEL that failed; `None` when nobody decided.
    pub retry_delete_on_error: Option<bool>,
    /// Whether CHECK succeeds without running anything.
    pub disable_check: bool,
    /// Whether GC succeeds without running anything.
    pub disable_gc: bool,
    /// Types of the plugins that may run; empty means all.
    pub allowed_plugins: Vec<String>,
    /// The attachments that still exist, as GC brings them; `None` when the key is missing.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// The result of what ran before, `null` without one.
    prev_result: Value,
}

impl Netconf {
    /// Fails on a result that cannot be read: whoever wrote it expects it to be understood.
    pub fn check_prev_result(&self) -> Result<(), NetconfError> {
        if self.prev_result.is_null() {
            return Ok(());
        }
        let assumed = self.cni_version.parse().ok();
        cni::convert::parse_value(&self.prev_result, assumed)?;
        Ok(())
    }

    /// Lays `daemon`, the daemon's own file, over `request` and reads the result.
    /// With `auto` the readiness indicator is dropped on both sides: the daemon itself waited for it.
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

    /// What `daemon` alone says: for what was attached earlier, of which the state knows the networks.
    pub fn without_request(daemon: &Map<String, Value>, auto: bool) -> Result<Self, NetconfError> {
        let mut map = Map::from_iter([("cniVersion".to_owned(), VERSION_OF_DETACHING.into())]);
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
            name: json::text(map, "name")?,
            cni_version: json::text(map, "cniVersion")?,
            conf_dir: path(map, "confDir")?.unwrap_or_else(|| "/etc/cni/multus/net.d".into()),
            cni_dir: path(map, "cniDir")?.unwrap_or_else(|| "/var/lib/cni/multus".into()),
            bin_dir: path(map, "binDir")?,
            delegates,
            cluster_network: network(json::text(map, "clusterNetwork")?),
            default_networks: json::texts(map, "defaultNetworks")?
                .unwrap_or_default()
                .into_iter()
                .map(network)
                .collect(),
            system_namespaces: json::texts(map, "systemNamespaces")?
                .filter(|names| !names.is_empty())
                .unwrap_or_else(|| vec!["kube-system".to_owned()]),
            multus_namespace: json::non_empty(map, "multusNamespace")?
                .unwrap_or_else(|| "kube-system".to_owned()),
            namespace_isolation: json::switch(map, "namespaceIsolation")?,
            global_namespaces: global_namespaces(&json::text(map, "globalNamespaces")?),
            readiness_indicator_file: path(map, "readinessindicatorfile")?,
            runtime_config: json::object(map, "runtimeConfig")?
                .cloned()
                .unwrap_or_default(),
            auxiliary_cni_chain_name: json::text(map, "auxiliaryCNIChainName")?,
            legacy_annotation: json::switch(map, "legacyNetworksAnnotation")?,
            runtime_config_for_all: json::switch(map, "runtimeConfigForAll")?,
            unserved: Unserved::read(map)?,
            retry_delete_on_error: json::decided(map, "retryDeleteOnError")?,
            disable_check: json::switch(map, "disableCheck")?,
            disable_gc: json::switch(map, "disableGC")?,
            allowed_plugins: json::texts(map, "allowedPlugins")?.unwrap_or_default(),
            valid_attachments: valid_attachments(map)?,
            prev_result: json::get(map, "prevResult").cloned().unwrap_or_default(),
        })
    }
}

/// The daemon wins, whole keys at a time; nothing is merged deeper. A version of `auto` or none leaves the request's.
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

/// The name of a network, or a path of the node.
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
        .ok_or_else(|| json::wrong(key, "a list of objects"))
}

/// A list given here replaces the default one, so `default` has to be repeated in it.
fn global_namespaces(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["default".to_owned()];
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

/// libcni writes the list twice, since the specification's text and its own first release named it differently.
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
                container_id: json::text(item, "containerID")?,
                ifname: json::text(item, "ifname")?,
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
