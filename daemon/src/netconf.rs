//! The effective configuration of one request: what the shim sent, overlaid key by key with the daemon's own file.
//! It decides nothing about pods; keys it does not know are left alone, as CNI asks.

use std::path::PathBuf;

use cni::types::CniError;
use serde_json::{Map, Value};

use crate::{
    json::{self, WrongType},
    node_path::node_path,
};

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
        if auto {
            map.retain(|key, _| !key.eq_ignore_ascii_case("readinessindicatorfile"));
        }
        Self::read(&map)
    }

    fn read(map: &Map<String, Value>) -> Result<Self, NetconfError> {
        let delegates = json::list(map, "delegates")?
            .map(|items| objects("delegates", items))
            .transpose()?
            .unwrap_or_default();
        let netconf = Self {
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
            retry_delete_on_error: json::decided(map, "retryDeleteOnError")?,
            disable_check: json::switch(map, "disableCheck")?,
            disable_gc: json::switch(map, "disableGC")?,
            allowed_plugins: json::texts(map, "allowedPlugins")?.unwrap_or_default(),
            valid_attachments: valid_attachments(map)?,
            prev_result: json::get(map, "prevResult").cloned().unwrap_or_default(),
        };
        if netconf.cluster_network.is_empty() && netconf.delegates.is_empty() {
            return Err(NetconfError::NothingToDo);
        }
        Ok(netconf)
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
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn effective(request: Value, daemon: Value, auto: bool) -> Result<Netconf, NetconfError> {
        Netconf::effective(request.to_string().as_bytes(), &map(daemon), auto)
    }

    #[test]
    fn the_daemon_wins_key_by_key() {
        let netconf = effective(
            json!({"cniVersion":"0.3.1","name":"n","type":"multus-shim","namespaceIsolation":true,"clusterNetwork":"/a","runtimeConfig":{"a":1}}),
            json!({"cniVersion":"0.4.0","namespaceIsolation":false,"chrootDir":"/hostroot"}),
            true,
        )
        .unwrap();
        assert_eq!(netconf.cni_version, "0.4.0");
        assert!(!netconf.namespace_isolation);
        assert_eq!(netconf.cluster_network, "/a");
        assert_eq!(netconf.runtime_config, map(json!({"a":1})));
    }

    #[test]
    fn keys_match_in_any_case_in_both_files() {
        let netconf = effective(
            json!({"ClusterNetwork":"/a","NAMESPACEISOLATION":true,"multusnamespace":"infra"}),
            json!({"clusternetwork":"/b"}),
            true,
        )
        .unwrap();
        assert_eq!(netconf.cluster_network, "/b");
        assert!(netconf.namespace_isolation);
        assert_eq!(netconf.multus_namespace, "infra");
    }

    #[test]
    fn version_auto_leaves_the_request_s() {
        for version in [json!("auto"), json!("Auto"), json!(""), json!(null)] {
            let netconf = effective(
                json!({"cniVersion":"1.0.0","clusterNetwork":"/a"}),
                json!({"cniVersion":version}),
                true,
            )
            .unwrap();
            assert_eq!(netconf.cni_version, "1.0.0");
        }
    }

    #[test]
    fn auto_drops_the_readiness_indicator_of_both_sides() {
        let request = json!({"clusterNetwork":"/a","readinessIndicatorFile":"/r"});
        let daemon = json!({"readinessindicatorfile":"/d"});
        let auto = effective(request.clone(), daemon.clone(), true).unwrap();
        assert_eq!(auto.readiness_indicator_file, None);
        let fixed = effective(request, daemon, false).unwrap();
        assert_eq!(fixed.readiness_indicator_file, Some("/d".into()));
    }

    #[test]
    fn null_is_absent_and_defaults_apply() {
        let netconf = effective(
            json!({"clusterNetwork":"/a","confDir":null,"globalNamespaces":null}),
            json!({}),
            true,
        )
        .unwrap();
        assert_eq!(netconf.conf_dir, PathBuf::from("/etc/cni/multus/net.d"));
        assert_eq!(netconf.cni_dir, PathBuf::from("/var/lib/cni/multus"));
        assert_eq!(netconf.bin_dir, None);
        assert_eq!(netconf.global_namespaces, ["default"]);
        assert_eq!(netconf.system_namespaces, ["kube-system"]);
        assert_eq!(netconf.valid_attachments, None);
    }

    #[test]
    fn global_namespaces_replace_the_default_list() {
        let netconf = effective(
            json!({"clusterNetwork":"/a","globalNamespaces":"infra , nets"}),
            json!({}),
            true,
        )
        .unwrap();
        assert_eq!(netconf.global_namespaces, ["infra", "nets"]);
    }

    #[test]
    fn paths_are_those_of_the_node_in_both_files() {
        let netconf = effective(
            json!({
                "clusterNetwork": "/host/etc/cni/net.d/10-calico.conflist", "cniDir": "/host/state",
                "defaultNetworks": ["mgmt", "/host/etc/cni/net.d/20-a.conf"], "readinessindicatorfile": "/host/run/ready",
            }),
            json!({"cniDir": "/hostroot/var/lib/cni/multus", "confDir": "/host/etc/cni/multus/net.d", "binDir": "/host/opt/cni/bin"}),
            false,
        )
        .unwrap();
        assert_eq!(netconf.cluster_network, "/etc/cni/net.d/10-calico.conflist");
        assert_eq!(
            netconf.default_networks,
            ["mgmt", "/etc/cni/net.d/20-a.conf"]
        );
        assert_eq!(netconf.cni_dir, PathBuf::from("/var/lib/cni/multus"));
        assert_eq!(netconf.conf_dir, PathBuf::from("/etc/cni/multus/net.d"));
        assert_eq!(netconf.bin_dir, Some("/opt/cni/bin".into()));
        assert_eq!(netconf.readiness_indicator_file, Some("/run/ready".into()));
    }

    #[test]
    fn switches_of_deleting_and_checking() {
        let read = |request: Value| effective(request, json!({"clusterNetwork": "/a"}), true);
        let netconf = read(json!({})).unwrap();
        assert_eq!(
            (
                netconf.retry_delete_on_error,
                netconf.disable_check,
                netconf.disable_gc
            ),
            (None, false, false)
        );
        let netconf =
            read(json!({"retryDeleteOnError": false, "disableCheck": true, "disableGC": true}));
        let netconf = netconf.unwrap();
        assert_eq!(
            (
                netconf.retry_delete_on_error,
                netconf.disable_check,
                netconf.disable_gc
            ),
            (Some(false), true, true)
        );
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let text = |request: Value| effective(request, json!({}), true).unwrap_err().to_string();
        assert!(text(json!({"name":"n"})).contains("at least one delegate/clusterNetwork"));
        assert!(text(json!({"clusterNetwork":3})).contains("\"clusterNetwork\" must be a string"));
        assert!(text(json!({"delegates":[1]})).contains("\"delegates\" must be a list of objects"));
        assert!(text(json!([])).contains("not a JSON object"));
    }

    #[test]
    fn attachments_of_gc_are_read_from_either_key() {
        let entry = json!([{"containerID":"c1","ifname":"eth0"}]);
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            let netconf =
                effective(json!({"clusterNetwork":"/a", key: entry}), json!({}), true).unwrap();
            assert_eq!(
                netconf.valid_attachments,
                Some(vec![ValidAttachment {
                    container_id: "c1".into(),
                    ifname: "eth0".into()
                }])
            );
        }
        let none = effective(
            json!({"clusterNetwork":"/a","cni.dev/valid-attachments":null}),
            json!({}),
            true,
        );
        assert_eq!(none.unwrap().valid_attachments, Some(vec![]));
    }

    #[test]
    fn a_previous_result_must_be_one() {
        let check = |previous: Value| {
            let request =
                json!({"clusterNetwork": "x", "cniVersion": "1.0.0", "prevResult": previous});
            let netconf = Netconf::effective(request.to_string().as_bytes(), &Map::new(), true);
            netconf.unwrap().check_prev_result()
        };
        check(Value::Null).unwrap();
        check(json!({"ips": [{"address": "10.0.0.2/24"}]})).unwrap();
        check(json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}})).unwrap();
        check(json!({"ips": "none"})).unwrap_err();
        check(json!("none")).unwrap_err();
    }
}
