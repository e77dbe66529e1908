//! The file `<cniDir>/<containerID>` as upstream Multus writes and reads it: a list with one object per delegate.
//! Objects are read by what is complete in them: the list with all plugins that v4.3.0 adds, else `Bytes`.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cni::config::NetworkConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Delegate, Requested};

/// One delegate of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    #[serde(rename = "Conf")]
    conf: Option<Map<String, Value>>,
    #[serde(rename = "ConfList")]
    conf_list: Option<Map<String, Value>>,
    #[serde(rename = "CNINetworkConfigList", skip_serializing)]
    complete_list: Option<CompleteList>,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "ifnameRequest", skip_serializing_if = "String::is_empty")]
    ifname: String,
    #[serde(rename = "macRequest", skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(
        rename = "infinibandGUIDRequest",
        skip_serializing_if = "String::is_empty"
    )]
    infiniband_guid: String,
    #[serde(rename = "ipRequest", skip_serializing_if = "Option::is_none")]
    ips: Option<Vec<String>>,
    #[serde(rename = "default-route", skip_serializing_if = "Option::is_none")]
    default_route: Option<Vec<IpAddr>>,
    #[serde(rename = "IsFilterV4Gateway")]
    filter_v4: bool,
    #[serde(rename = "IsFilterV6Gateway")]
    filter_v6: bool,
    #[serde(rename = "deviceID", skip_serializing_if = "String::is_empty")]
    device_id: String,
    #[serde(rename = "Bytes")]
    bytes: Option<String>,
}

/// What v4.3.0 writes beside `Bytes`, and what alone is complete there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompleteList {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "CNIVersion")]
    cni_version: String,
    #[serde(rename = "DisableCheck")]
    disable_check: bool,
    #[serde(rename = "DisableGC")]
    disable_gc: bool,
    #[serde(rename = "Plugins")]
    plugins: Option<Vec<CompletePlugin>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletePlugin {
    #[serde(rename = "Bytes")]
    bytes: Option<String>,
}

/// A delegate as upstream's file knows it.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) name: String,
    pub(super) config: NetworkConfig,
    pub(super) requested: Requested,
}

/// Writes the file.
pub(super) fn encode<'a>(delegates: impl Iterator<Item = &'a Delegate>) -> Vec<u8> {
    let records: Vec<_> = delegates.map(record).collect();
    serde_json::to_vec(&records).expect("plain values always serialise")
}

/// Reads the file; `Err` says what is wrong with it.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Decoded>, String> {
    let records: Option<Vec<Record>> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    records
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .map(|(index, record)| {
            decode_record(record).map_err(|reason| format!("delegate {index}: {reason}"))
        })
        .collect()
}

fn decode_record(record: Record) -> Result<Decoded, String> {
    let config = complete_config(&record)?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(Decoded {
        name: record.name,
        config,
        requested: Requested {
            interface: some(record.ifname),
            mac: some(record.mac),
            infiniband_guid: some(record.infiniband_guid),
            ips: record.ips.unwrap_or_default(),
            default_route: record.default_route,
            device_id: some(record.device_id),
        },
    })
}

fn complete_config(record: &Record) -> Result<NetworkConfig, String> {
    // Upstream names a definition `<namespace>/<name>`; its CNI name is the last part where it has none of its own.
    let name = record.name.rsplit('/').next().unwrap_or_default();
    let parse =
        |bytes: &[u8]| NetworkConfig::parse_named(bytes, name).map_err(|error| error.to_string());
    if let Some(list) = &record.complete_list
        && let Some(plugins) = list.plugins.as_ref().filter(|plugins| !plugins.is_empty())
    {
        return parse(&complete_list(list, plugins)?);
    }
    match &record.bytes {
        Some(text) if !text.is_empty() => parse(&from_base64(text)?),
        _ => Err("has no complete configuration".to_owned()),
    }
}

fn complete_list(list: &CompleteList, plugins: &[CompletePlugin]) -> Result<Vec<u8>, String> {
    let plugins = plugins
        .iter()
        .map(|plugin| {
            let bytes = from_base64(plugin.bytes.as_deref().unwrap_or_default())?;
            serde_json::from_slice(&bytes).map_err(|error| error.to_string())
        })
        .collect::<Result<Vec<Value>, String>>()?;
    let mut map = Map::new();
    if !list.cni_version.is_empty() {
        map.insert("cniVersion".to_owned(), json!(list.cni_version));
    }
    map.insert("name".to_owned(), json!(list.name));
    for (key, on) in [
        ("disableCheck", list.disable_check),
        ("disableGC", list.disable_gc),
    ] {
        if on {
            map.insert(key.to_owned(), json!(true));
        }
    }
    map.insert("plugins".to_owned(), Value::Array(plugins));
    serde_json::to_vec(&map).map_err(|error| error.to_string())
}

fn record(delegate: &Delegate) -> Record {
    let requested = &delegate.requested;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let config = &delegate.config;
    let (conf, conf_list) = if config.is_list {
        (summary(&Map::new()), list_summary(config))
    } else {
        (summary(&config.plugins[0].value), Map::new())
    };
    Record {
        conf: Some(conf),
        conf_list: Some(conf_list),
        complete_list: None,
        name: delegate.name.clone(),
        ifname: text(&requested.interface),
        mac: text(&requested.mac),
        infiniband_guid: text(&requested.infiniband_guid),
        ips: Some(requested.ips.clone()).filter(|ips| !ips.is_empty()),
        default_route: requested.default_route.clone(),
        filter_v4: false,
        filter_v6: false,
        device_id: text(&requested.device_id),
        bytes: Some(STANDARD.encode(config.bytes())),
    }
}

/// The keys of a plugin that upstream keeps in readable form.
fn summary(plugin: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for key in ["cniVersion", "name", "type", "capabilities"] {
        if let Some(value) = plugin.get(key).filter(|value| !value.is_null()) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    let kind = plugin.get("ipam").and_then(|ipam| ipam.get("type"));
    out.insert(
        "ipam".to_owned(),
        kind.map_or_else(|| json!({}), |kind| json!({ "type": kind })),
    );
    if let Some(dns) = plugin.get("dns").filter(|dns| dns.is_object()) {
        out.insert("dns".to_owned(), dns.clone());
    }
    out
}

fn list_summary(config: &NetworkConfig) -> Map<String, Value> {
    let mut out = Map::new();
    if !config.cni_version.is_empty() {
        out.insert("cniVersion".to_owned(), json!(config.cni_version));
    }
    out.insert("name".to_owned(), json!(config.name));
    if config.disable_check {
        out.insert("disableCheck".to_owned(), json!(true));
    }
    let plugins: Vec<_> = config.plugins.iter().map(|p| summary(&p.value)).collect();
    out.insert("plugins".to_owned(), json!(plugins));
    out
}

pub(super) fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| error.to_string())
}
