//! Writes upstream's file. Upstream works from `Bytes`, but decodes the whole file into its own types, and one value of another type makes
//! the file unreadable for it. So the other fields hold only values of the types that it expects.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cni::config::NetworkConfig;
use plan::Family;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::state::Delegate;

/// One object of the list.
#[derive(Debug, Serialize)]
struct Record {
    #[serde(rename = "Conf")]
    conf: Map<String, Value>,
    #[serde(rename = "ConfList")]
    conf_list: Map<String, Value>,
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
    #[serde(rename = "resourceName", skip_serializing_if = "String::is_empty")]
    resource_name: String,
    #[serde(rename = "Bytes")]
    bytes: String,
}

/// Encodes the file.
pub(in crate::state) fn encode<'a>(delegates: impl Iterator<Item = &'a Delegate>) -> Vec<u8> {
    let delegates: Vec<_> = delegates.collect();
    let records: Vec<_> = delegates
        .iter()
        .map(|delegate| record(delegate, &delegates))
        .collect();
    serde_json::to_vec(&records).expect("plain values always serialise")
}

/// Returns whether another network of the pod requests the default route of the family, and this one does not.
fn loses_default_route(family: Family, delegate: &Delegate, all: &[&Delegate]) -> bool {
    let requests = |one: &Delegate| {
        let gateways = one.requested.default_route.as_deref().unwrap_or_default();
        gateways
            .iter()
            .any(|gateway| Family::of(*gateway) == family)
    };
    !requests(delegate) && all.iter().any(|other| requests(other))
}

fn record(delegate: &Delegate, all: &[&Delegate]) -> Record {
    let requested = &delegate.requested;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let config = &delegate.config;
    let (conf, conf_list) = if config.is_list {
        (summary(&Map::new()), list_summary(config))
    } else {
        (summary(&config.plugins[0].value), Map::new())
    };
    Record {
        conf,
        conf_list,
        name: delegate.name.clone(),
        ifname: text(&requested.interface),
        mac: text(&requested.mac),
        infiniband_guid: text(&requested.infiniband_guid),
        ips: Some(requested.ips.clone()).filter(|ips| !ips.is_empty()),
        default_route: requested.default_route.clone(),
        filter_v4: loses_default_route(Family::V4, delegate, all),
        filter_v6: loses_default_route(Family::V6, delegate, all),
        device_id: text(&requested.device_id),
        resource_name: text(&requested.resource_name),
        bytes: STANDARD.encode(config.bytes()),
    }
}

type HasExpectedType = fn(&Value) -> bool;

/// Returns the keys of a plugin that upstream keeps in readable form.
fn summary(plugin: &Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    let keys: [(&str, HasExpectedType); 5] = [
        ("cniVersion", Value::is_string),
        ("name", Value::is_string),
        ("type", Value::is_string),
        ("capabilities", are_capabilities),
        ("dns", is_dns),
    ];
    for (key, has_expected_type) in keys {
        if let Some(value) = plugin.get(key).filter(|value| has_expected_type(value)) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    let kind = plugin.get("ipam").and_then(|ipam| ipam.get("type"));
    let ipam = match kind.filter(|kind| kind.is_string()) {
        Some(kind) => json!({ "type": kind }),
        None => json!({}),
    };
    out.insert("ipam".to_owned(), ipam);
    // Upstream writes the keys sorted.
    out.sort_keys();
    out
}

fn are_capabilities(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_boolean))
}

fn is_dns(value: &Value) -> bool {
    let is_valid = |(key, value): (&String, &Value)| match key.to_ascii_lowercase().as_str() {
        "domain" => value.is_string(),
        "nameservers" | "search" | "options" => value
            .as_array()
            .is_some_and(|all| all.iter().all(Value::is_string)),
        _ => true,
    };
    value
        .as_object()
        .is_some_and(|dns| dns.iter().all(is_valid))
}

fn list_summary(config: &NetworkConfig) -> Map<String, Value> {
    let mut out = Map::new();
    if !config.cni_version.is_empty() {
        out.insert("cniVersion".to_owned(), json!(config.cni_version));
    }
    out.insert("name".to_owned(), json!(config.name));
    for (key, on) in [
        ("disableCheck", config.disable_check),
        ("disableGC", config.disable_gc),
    ] {
        if on {
            out.insert(key.to_owned(), json!(true));
        }
    }
    let plugins: Vec<_> = config.plugins.iter().map(|p| summary(&p.value)).collect();
    out.insert("plugins".to_owned(), json!(plugins));
    out
}
