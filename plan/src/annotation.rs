//! Parses the text of a network annotation, in its short or its JSON form, into selections.
//! It knows the grammar only: whether a network exists and whether the pod may use it is decided elsewhere.

use std::net::IpAddr;

use cni::env::IfName;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::address;
use super::quoted::quoted;
use crate::json::{self as keys, WrongType};

/// The most networks that one annotation can request: far more than pods need, and few enough for a node's memory and time.
const MAX_NETWORKS: usize = 64;
/// The most bytes of an annotation.
pub(crate) const MAX_BYTES: usize = 64 << 10;
/// Stands for an annotation with more bytes, of which nothing else is kept.
pub(crate) const TOO_LONG: &str = "\0too long";
/// The known keys of an entry in the annotation's JSON form. Other keys are ignored, as upstream ignores them.
pub const KEYS: &[&str] = &[
    "name",
    "namespace",
    "interface",
    "interfaceRequest",
    "ips",
    "mac",
    "infiniband-guid",
    "bandwidth",
    "portMappings",
    "cni-args",
    "default-route",
    "deviceID",
    CLAIM,
];

/// The key of a claim, in the annotation and in `args.cni`.
pub(crate) const CLAIM: &str = "ipam-claim-reference";

/// One network that a pod requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Selection {
    /// Namespace of the definition.
    pub namespace: String,
    /// Name of the definition.
    pub name: String,
    /// Requested interface name.
    pub interface: Option<String>,
    /// Requested addresses, with or without a prefix length.
    pub ips: Vec<String>,
    /// Requested hardware address.
    pub mac: Option<String>,
    /// Requested InfiniBand GUID.
    pub infiniband_guid: Option<String>,
    /// Bandwidth limits in the form of the capability argument.
    pub bandwidth: Option<Value>,
    /// Port mappings in the form of the capability argument.
    pub port_mappings: Option<Value>,
    /// Values for `args.cni` of the plugins.
    pub cni_args: Option<Map<String, Value>>,
    /// The `IPAMClaim` of the pod's namespace whose address the interface is to have. It may be added to a pod that runs, and re-attaches
    /// nothing.
    pub claim: Option<String>,
    /// Requested gateways of default routes. An empty list differs from an absent one: it keeps the network's own default routes.
    pub default_route: Option<Vec<IpAddr>>,
    /// Explicit device ID.
    pub device_id: Option<String>,
}

/// Why an annotation cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// More than one separator of a kind.
    #[error(
        "Invalid network object (failed at '{at}') in \"{}\": write [namespace/]name[@interface]",
        quoted(item)
    )]
    Separator {
        /// The separator.
        at: char,
        /// The item as written.
        item: String,
    },
    /// A name that Kubernetes would not accept.
    #[error(
        "\"{}\" in \"{}\" is not a valid name: use lower case letters, digits and '-'",
        quoted(name),
        quoted(item)
    )]
    Name {
        /// The invalid part.
        name: String,
        /// The item as written.
        item: String,
    },
    /// A longer text than any pod needs.
    #[error("it is longer than {} KiB: shorten it", MAX_BYTES >> 10)]
    TooLong,
    /// More networks than a pod can have.
    #[error("it requests {count} networks, but a pod may request {MAX_NETWORKS}: remove some")]
    TooMany {
        /// The number of entries.
        count: usize,
    },
    /// No name at all.
    #[error("{entry} names no network: add a name, or remove the entry")]
    NoName {
        /// The entry of the list.
        entry: Entry,
    },
    /// An interface name that the kernel would refuse.
    #[error(
        "Failed to parse interface name \"{}\" (must be 1 to 15 characters without blanks, '/' and ':')",
        quoted(name)
    )]
    Interface {
        /// The name as written.
        name: String,
    },
    /// The JSON does not parse.
    #[error("not valid JSON: {0}; correct it, or write [namespace/]name[@interface]")]
    Json(String),
    /// The JSON is not a list of objects.
    #[error("{0}")]
    Shape(String),
    /// A key has a value of another type.
    #[error("{entry}: {error}")]
    Type {
        /// The entry of the list.
        entry: Entry,
        /// The key and the expected type.
        error: WrongType,
    },
    /// A value of the right type that is invalid.
    #[error("{entry}: {key}: \"{}\" is not a valid {expected}", quoted(value))]
    Value {
        /// The entry of the list.
        entry: Entry,
        key: &'static str,
        /// The value as written.
        value: String,
        /// The expected kind of value, with an example.
        expected: &'static str,
    },
    /// An invalid hardware address. The error begins as upstream's.
    #[error(
        "parsePodNetworkAnnotation: failed to mac: {entry}: mac: \"{}\" is not a valid hardware address: write it as in 02:00:00:00:00:01",
        quoted(value)
    )]
    Mac {
        /// The entry of the list.
        entry: Entry,
        /// The value as written.
        value: String,
    },
    /// A key without another key or value that belongs to it.
    #[error("{entry}: {what}")]
    Incomplete {
        /// The entry of the list.
        entry: Entry,
        /// The missing key or value, and what to do.
        what: String,
    },
    /// Two keys that exclude each other.
    #[error("{entry}: \"ips\" and \"ipam-claim-reference\" exclude each other: drop one")]
    ClaimAndIps {
        /// The entry of the list.
        entry: Entry,
    },
}

/// Position and name of an entry, by which users find it in the annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Position, from 0; texts count from 1.
    index: usize,
    /// The name of the network; empty where the entry has none.
    name: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {}", self.index + 1)?;
        if !self.name.is_empty() {
            write!(f, " (network {})", quoted(&self.name))?;
        }
        Ok(())
    }
}

/// Parses an annotation. Networks without a namespace are taken from `default_namespace`.
pub fn parse(text: &str, default_namespace: &str) -> Result<Vec<Selection>, AnnotationError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let is_json = text.contains(['[', '{', '"']);
    // Nothing is built before the number of entries is known, since a text of some kilobytes can have very many.
    let count = if is_json {
        serde_json::from_str(text).map_or(0, |entries: Vec<IgnoredAny>| entries.len())
    } else {
        text.split(',').count()
    };
    if count > MAX_NETWORKS {
        return Err(AnnotationError::TooMany { count });
    }
    if text.len() > MAX_BYTES || text == TOO_LONG {
        return Err(AnnotationError::TooLong);
    }
    let mut selections = if is_json {
        parse_json(text)?
    } else {
        text.split(',').map(parse_item).collect::<Result<_, _>>()?
    };
    for (index, selection) in selections.iter_mut().enumerate() {
        if selection.name.is_empty() {
            let name = String::new();
            let entry = Entry { index, name };
            return Err(AnnotationError::NoName { entry });
        }
        if selection.namespace.is_empty() {
            default_namespace.clone_into(&mut selection.namespace);
        }
    }
    Ok(selections)
}

/// Parses one item of the short form: `[namespace/]name[@interface]`.
fn parse_item(item: &str) -> Result<Selection, AnnotationError> {
    let separator = |at| AnnotationError::Separator {
        at,
        item: item.trim().to_owned(),
    };
    let (namespace, rest) = match item.split_once('/') {
        Some((_, rest)) if rest.contains('/') => return Err(separator('/')),
        Some((namespace, rest)) => (namespace.trim(), rest),
        None => ("", item),
    };
    let (name, interface) = match rest.split_once('@') {
        Some((_, interface)) if interface.contains('@') => return Err(separator('@')),
        Some((name, interface)) => (name.trim(), interface.trim()),
        None => (rest.trim(), ""),
    };
    for part in [namespace, name] {
        if !part.is_empty() && !is_label(part) {
            return Err(AnnotationError::Name {
                name: part.to_owned(),
                item: item.trim().to_owned(),
            });
        }
    }
    Ok(Selection {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        interface: interface_name(interface)?,
        ..Selection::default()
    })
}

/// Matches `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, of any length.
fn is_label(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn interface_name(name: &str) -> Result<Option<String>, AnnotationError> {
    if name.is_empty() {
        return Ok(None);
    }
    match name.parse::<IfName>() {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(_) => Err(AnnotationError::Interface {
            name: name.to_owned(),
        }),
    }
}

fn parse_json(text: &str) -> Result<Vec<Selection>, AnnotationError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let begins_with_name = !text.trim_start().starts_with(['[', '{', '"']);
        if begins_with_name && text.contains(['[', '{']) {
            AnnotationError::Shape("names and JSON cannot be mixed: use one form".to_owned())
        } else {
            AnnotationError::Json(error.to_string())
        }
    })?;
    let Value::Array(items) = value else {
        return Err(AnnotationError::Shape(
            "the JSON form must be a list of objects: put [ ] around it".to_owned(),
        ));
    };
    items
        .iter()
        .enumerate()
        .map(|(index, item)| match item {
            Value::Object(map) => {
                let name = map.get("name").and_then(Value::as_str);
                let name = name.unwrap_or_default().to_owned();
                parse_object(&Entry { index, name }, map)
            }
            _ => Err(AnnotationError::Shape(format!(
                "entry {} of the list is not an object: write {{\"name\": …}}",
                index + 1
            ))),
        })
        .collect()
}

fn parse_object(entry: &Entry, map: &Map<String, Value>) -> Result<Selection, AnnotationError> {
    let entry_of = || entry.clone();
    let typed = |error| AnnotationError::Type {
        entry: entry_of(),
        error,
    };
    let text = |key| keys::non_empty(map, key).map_err(typed);
    let interface = match text("interface")? {
        Some(name) => Some(name),
        None => text("interfaceRequest")?,
    };
    let ips = keys::strings(map, "ips").map_err(typed)?;
    if ips.as_ref().is_some_and(Vec::is_empty) {
        let what = "ips has no entry: write an address, or remove the key";
        return Err(incomplete(entry, what.to_owned()));
    }
    let ips = ips.unwrap_or_default();
    let claim = text(CLAIM)?;
    if claim.is_some() && !ips.is_empty() {
        return Err(AnnotationError::ClaimAndIps { entry: entry_of() });
    }
    let check = |key, value: Option<String>, expected, valid: fn(&str) -> bool| match value {
        Some(value) if !valid(&value) => Err(AnnotationError::Value {
            entry: entry_of(),
            key,
            value,
            expected,
        }),
        value => Ok(value),
    };
    for ip in &ips {
        check(
            "ips",
            Some(ip.clone()),
            "address: write it as in 10.1.2.3/24",
            address::is_ip_or_cidr,
        )?;
    }
    Ok(Selection {
        namespace: text("namespace")?.unwrap_or_default(),
        name: text("name")?.unwrap_or_default(),
        interface: interface_name(&interface.unwrap_or_default())?,
        ips,
        mac: match text("mac")? {
            Some(value) if !address::is_mac(&value) => {
                return Err(AnnotationError::Mac {
                    entry: entry_of(),
                    value,
                });
            }
            mac => mac,
        },
        infiniband_guid: check(
            "infiniband-guid",
            text("infiniband-guid")?,
            "GUID of 8 bytes: write it as in 02:00:00:00:00:00:00:01",
            address::is_guid,
        )?,
        bandwidth: bandwidth(entry, map)?,
        port_mappings: port_mappings(entry, map)?,
        cni_args: keys::object(map, "cni-args").map_err(typed)?.cloned(),
        default_route: default_route(entry, map)?,
        device_id: text("deviceID")?,
        claim,
    })
}

impl Selection {
    /// Returns what the plugins get in `args.cni`: the pod's own values, and its claim.
    pub(crate) fn plugin_args(&self) -> Map<String, Value> {
        let mut args = self.cni_args.clone().unwrap_or_default();
        if let Some(claim) = &self.claim {
            args.insert(CLAIM.to_owned(), claim.as_str().into());
        }
        args
    }
}

/// Reads the limits of both directions. Each needs a rate and a burst, since plugins refuse one without the other. The result has all
/// four numbers, with 0 for a direction without a limit.
fn bandwidth(entry: &Entry, map: &Map<String, Value>) -> Result<Option<Value>, AnnotationError> {
    let typed = |error| wrong_type(entry, error);
    let Some(limits) = keys::object(map, "bandwidth").map_err(typed)? else {
        return Ok(None);
    };
    let mut out = Map::new();
    let mut has_rate = false;
    for [rate, burst] in [
        ["ingressRate", "ingressBurst"],
        ["egressRate", "egressBurst"],
    ] {
        let number = |key| match integer(limits, key).map_err(typed)? {
            Some(number) if number < 1 => Err(AnnotationError::Value {
                entry: entry.clone(),
                key,
                value: number.to_string(),
                expected: "limit: write a number above 0, or remove rate and burst",
            }),
            number => Ok(number),
        };
        let numbers = [number(rate)?, number(burst)?];
        let (present, missing) = match numbers {
            [Some(_), None] => (rate, burst),
            [None, Some(_)] => (burst, rate),
            [rate_value, burst_value] => {
                has_rate |= rate_value.is_some();
                out.insert(rate.to_owned(), json!(rate_value.unwrap_or(0)));
                out.insert(burst.to_owned(), json!(burst_value.unwrap_or(0)));
                continue;
            }
        };
        let what = format!("{present} has no {missing}: set both");
        return Err(incomplete(entry, what));
    }
    if !has_rate {
        let what = "bandwidth has no rate: set ingressRate with ingressBurst, or egressRate with egressBurst, or remove the key";
        return Err(incomplete(entry, what.to_owned()));
    }
    Ok(Some(Value::Object(out)))
}

fn port_mappings(
    entry: &Entry,
    map: &Map<String, Value>,
) -> Result<Option<Value>, AnnotationError> {
    let typed = |error| wrong_type(entry, error);
    let Some(items) = keys::list(map, "portMappings").map_err(typed)? else {
        return Ok(None);
    };
    let mut out = Vec::new();
    for item in items {
        let item = item
            .as_object()
            .ok_or_else(|| typed(keys::wrong_type("portMappings", "a list of objects")))?;
        let mut mapping = Map::new();
        for key in ["hostPort", "containerPort"] {
            let number = integer(item, key).map_err(typed)?;
            let number = number.ok_or_else(|| {
                let what = format!("portMappings: {key} is missing: set both ports");
                incomplete(entry, what)
            })?;
            if u16::try_from(number).is_ok_and(|port| port > 0) {
                mapping.insert(key.to_owned(), json!(number));
            } else {
                return Err(AnnotationError::Value {
                    entry: entry.clone(),
                    key,
                    value: number.to_string(),
                    expected: "port: write a number from 1 to 65535",
                });
            }
        }
        let protocol = keys::non_empty(item, "protocol").map_err(typed)?;
        let protocol = protocol.unwrap_or_else(|| "tcp".to_owned());
        if !["tcp", "udp", "sctp"].contains(&protocol.to_lowercase().as_str()) {
            return Err(AnnotationError::Value {
                entry: entry.clone(),
                key: "protocol",
                value: protocol,
                expected: "protocol: write tcp, udp or sctp",
            });
        }
        mapping.insert("protocol".to_owned(), Value::String(protocol));
        if let Some(text) = keys::non_empty(item, "hostIP").map_err(typed)? {
            mapping.insert("hostIP".to_owned(), Value::String(text));
        }
        out.push(Value::Object(mapping));
    }
    Ok(Some(Value::Array(out)).filter(|_| !items.is_empty()))
}

fn wrong_type(entry: &Entry, error: WrongType) -> AnnotationError {
    AnnotationError::Type {
        entry: entry.clone(),
        error,
    }
}

fn incomplete(entry: &Entry, what: String) -> AnnotationError {
    AnnotationError::Incomplete {
        entry: entry.clone(),
        what,
    }
}

fn integer(map: &Map<String, Value>, key: &str) -> Result<Option<i64>, WrongType> {
    keys::get(map, key)
        .map(|value| {
            value
                .as_i64()
                .ok_or_else(|| keys::wrong_type(key, "a whole number"))
        })
        .transpose()
}

fn default_route(
    entry: &Entry,
    map: &Map<String, Value>,
) -> Result<Option<Vec<IpAddr>>, AnnotationError> {
    let entry_of = || entry.clone();
    let typed = |error| AnnotationError::Type {
        entry: entry_of(),
        error,
    };
    let Some(gateways) = keys::strings(map, "default-route").map_err(typed)? else {
        return Ok(None);
    };
    gateways
        .into_iter()
        .map(|value| {
            value.parse().map_err(|_| AnnotationError::Value {
                entry: entry_of(),
                key: "default-route",
                value,
                expected: "address: write the address of a gateway, as in 10.1.2.1",
            })
        })
        .collect::<Result<_, _>>()
        .map(Some)
}

#[cfg(test)]
mod tests;
