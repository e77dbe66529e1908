//! Reads upstream's file, or the readable part of a damaged one. Each delegate's configuration comes from a complete field: the list with all
//! plugins that v4.3.0 adds, else `Bytes`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cni::config::NetworkConfig;
use cni::env::{ContainerId, IfName};
use plan::Requested;
use serde::Deserialize;
use serde_json::{Deserializer, Map, Value, json};

use crate::state::{Delegate, Progress, State};

/// The content of the file.
#[derive(Debug, Default)]
pub(in crate::state) struct File {
    /// The delegates that can be read, each with its position in the list.
    pub(in crate::state) delegates: Vec<(usize, Saved)>,
    /// The first error of the others.
    pub(in crate::state) damage: Option<String>,
}

/// A delegate of upstream's file.
#[derive(Debug)]
pub(in crate::state) struct Saved {
    pub(in crate::state) name: String,
    pub(in crate::state) config: NetworkConfig,
    pub(in crate::state) requested: Requested,
}

/// One object of the list, with the fields that the daemon needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    #[serde(rename = "CNINetworkConfigList")]
    complete_list: Value,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "ifnameRequest")]
    ifname: String,
    #[serde(rename = "macRequest")]
    mac: String,
    #[serde(rename = "infinibandGUIDRequest")]
    infiniband_guid: String,
    #[serde(rename = "ipRequest")]
    ips: Option<Vec<String>>,
    #[serde(rename = "default-route")]
    default_route: Option<Vec<String>>,
    #[serde(rename = "deviceID")]
    device_id: String,
    #[serde(rename = "resourceName")]
    resource_name: String,
    #[serde(rename = "Bytes")]
    bytes: Option<String>,
}

/// The list that v4.3.0 writes next to `Bytes`, whose `Bytes` is then not complete.
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

/// Reads the file, or the readable part of it.
pub(in crate::state) fn decode(bytes: &[u8]) -> File {
    let (records, damage) = match serde_json::from_slice::<Option<Vec<Value>>>(bytes) {
        Ok(records) => (records.unwrap_or_default(), None),
        Err(error) => (complete_elements(bytes), Some(error.to_string())),
    };
    let mut file = File {
        delegates: Vec::new(),
        damage,
    };
    for (index, record) in records.into_iter().enumerate() {
        match decode_record(record) {
            Ok(saved) => file.delegates.push((index, saved)),
            Err(reason) => {
                file.damage
                    .get_or_insert_with(|| format!("delegate {index}: {reason}"));
            }
        }
    }
    file
}

/// Returns the complete elements of a truncated list.
fn complete_elements(bytes: &[u8]) -> Vec<Value> {
    let mut elements = Vec::new();
    let mut rest = bytes.trim_ascii_start().strip_prefix(b"[");
    while let Some(text) = rest {
        let mut values = Deserializer::from_slice(text).into_iter::<Value>();
        let Some(Ok(element)) = values.next() else {
            break;
        };
        elements.push(element);
        rest = text[values.byte_offset()..]
            .trim_ascii_start()
            .strip_prefix(b",");
    }
    elements
}

fn decode_record(record: Value) -> Result<Saved, String> {
    let record: Record = serde_json::from_value(record).map_err(|error| error.to_string())?;
    let config = complete_config(&record)?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    // Go writes an invalid address for one that is not set; it is left out.
    let default_route = record.default_route.map(|gateways| {
        let parsed = gateways.iter().filter_map(|gateway| gateway.parse().ok());
        parsed.collect()
    });
    Ok(Saved {
        name: record.name,
        config,
        requested: Requested {
            interface: some(record.ifname),
            mac: some(record.mac),
            infiniband_guid: some(record.infiniband_guid),
            ips: record.ips.unwrap_or_default(),
            default_route,
            device_id: some(record.device_id),
            resource_name: some(record.resource_name),
            ..Requested::default()
        },
    })
}

fn complete_config(record: &Record) -> Result<NetworkConfig, String> {
    // Upstream names a definition `<namespace>/<name>`; a configuration without a name of its own has the last part as CNI name.
    let name = record.name.rsplit('/').next().unwrap_or_default();
    let parse =
        |bytes: &[u8]| NetworkConfig::parse_named(bytes, name).map_err(|error| error.to_string());
    let list = complete_list(&record.complete_list).and_then(|list| parse(&list).ok());
    match (list, &record.bytes) {
        (Some(list), _) => Ok(list),
        (None, Some(text)) if !text.is_empty() => parse(&from_base64(text)?),
        (None, _) => Err("has no complete configuration".to_owned()),
    }
}

/// Returns the configuration list that v4.3.0 writes, if it is there and complete.
fn complete_list(value: &Value) -> Option<Vec<u8>> {
    let list = CompleteList::deserialize(value).ok()?;
    let plugins = list
        .plugins?
        .iter()
        .map(|plugin| serde_json::from_slice(&from_base64(plugin.bytes.as_deref()?).ok()?).ok())
        .collect::<Option<Vec<Value>>>()?;
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
    serde_json::to_vec(&map).ok()
}

/// Returns the state by upstream's delegates. Interface names are counted as at ADD, and the progress is unknown. A delegate with an invalid
/// name is left out and reported in the second value.
pub(in crate::state) fn from_upstream(
    id: &ContainerId,
    ifname: &IfName,
    saved: Vec<(usize, Saved)>,
) -> (State, Option<String>) {
    let mut damage = None;
    let mut delegates = Vec::new();
    for (index, saved) in saved {
        let name = match &saved.requested.interface {
            Some(name) => name.parse::<IfName>(),
            None if index == 0 => Ok(ifname.clone()),
            None => format!("net{index}").parse(),
        };
        match name {
            Ok(ifname) => delegates.push(Delegate {
                ifname,
                capability_args: if index == 0 {
                    Map::new()
                } else {
                    capability_args(&saved.requested)
                },
                args: None,
                name: saved.name,
                config: saved.config.into(),
                requested: saved.requested,
                progress: Progress::Unknown,
                displaced: Vec::new(),
            }),
            Err(error) => damage = Some(format!("delegate {index}: {error}")),
        }
    }
    let state = State {
        delegates,
        ..State::unknown(id, ifname)
    };
    (state, damage)
}

/// Returns the capability arguments that upstream's file holds.
fn capability_args(requested: &Requested) -> Map<String, Value> {
    let mut out = Map::new();
    if !requested.ips.is_empty() {
        out.insert("ips".to_owned(), json!(requested.ips));
    }
    for (key, value) in [
        ("mac", &requested.mac),
        ("infinibandGUID", &requested.infiniband_guid),
        ("deviceID", &requested.device_id),
    ] {
        if let Some(value) = value {
            out.insert(key.to_owned(), json!(value));
        }
    }
    out
}

/// Decodes bytes as Go writes them into JSON.
pub(in crate::state) fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| error.to_string())
}
