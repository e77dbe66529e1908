//! Results from and to every version of the specification.
//!
//! In memory there is one form, [`CniResult`]. 0.1.0 and 0.2.0 have `ip4` and `ip6` instead of `ips` and no interfaces; 0.3.0 to
//! 0.4.0 want `version` in each of `ips`; what 1.1.0 added is left out of anything older.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::types::{CniResult, Dns, Interface, IpConfig, Route};
use crate::version::{Version, VersionError};

/// Why a result cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// Not JSON, or not of the shape its version demands.
    #[error("result does not parse")]
    Json(#[from] serde_json::Error),
    /// JSON, but no object.
    #[error("result is not a JSON object")]
    NotAnObject,
    /// `cniVersion` is no version.
    #[error("result has an invalid cniVersion: {0}")]
    Version(#[from] VersionError),
    /// A version from the future.
    #[error("result version {0} is not supported")]
    Unsupported(Version),
}

/// Reads a result of any version; without `cniVersion` it counts as 0.1.0.
pub fn parse_result(bytes: &[u8]) -> Result<CniResult, ConvertError> {
    parse_value(&serde_json::from_slice(bytes)?, None)
}

/// Reads a result; without `cniVersion` it counts as written in `assumed`, the version of the configuration it answers.
pub fn parse_result_as(bytes: &[u8], assumed: Version) -> Result<CniResult, ConvertError> {
    parse_value(&serde_json::from_slice(bytes)?, Some(assumed))
}

/// Reads a result that is JSON already.
pub fn parse_value(value: &Value, assumed: Option<Version>) -> Result<CniResult, ConvertError> {
    // A list would do for a structure without required fields.
    let fields = value.as_object().ok_or(ConvertError::NotAnObject)?;
    let stated = match fields.get("cniVersion") {
        None | Some(Value::Null) => "",
        Some(Value::String(stated)) => stated,
        Some(other) => return Err(VersionError(other.to_string()).into()),
    };
    let version = if stated.is_empty() {
        assumed.unwrap_or(Version::V0_1_0)
    } else {
        Version::parse(stated)?
    };
    if !version.is_supported() {
        return Err(ConvertError::Unsupported(version));
    }
    let mut result = if version < Version::V0_3_0 {
        from_old(value)?
    } else {
        CniResult::deserialize(value)?
    };
    result.cni_version = version.to_string();
    Ok(result)
}

/// The result as JSON in the given version; fields that version does not know are left out.
pub fn result_to(result: &CniResult, version: Version) -> Value {
    if version < Version::V0_3_0 {
        return to_old(result, version);
    }
    let mut result = result.clone();
    result.cni_version = version.to_string();
    if version < Version::V1_1_0 {
        drop_newer_fields(&mut result);
    }
    let mut value = serde_json::to_value(&result).expect("a result always serialises");
    if version < Version::V1_0_0
        && let Some(Value::Array(ips)) = value.get_mut("ips")
    {
        for ip in ips.iter_mut().filter_map(Value::as_object_mut) {
            let family = if ip.get("address").and_then(Value::as_str).is_some_and(is_v6) {
                "6"
            } else {
                "4"
            };
            ip.shift_insert(0, "version".to_owned(), json!(family));
        }
    }
    value
}

/// What 1.1.0 added, by name, so that a field added later is not forgotten here.
fn drop_newer_fields(result: &mut CniResult) {
    for interface in &mut result.interfaces {
        let Interface {
            name: _,
            mac: _,
            mtu,
            sandbox: _,
            socket_path,
            pci_id,
        } = interface;
        *mtu = 0;
        socket_path.clear();
        pci_id.clear();
    }
    for route in &mut result.routes {
        let Route {
            dst: _,
            gw: _,
            mtu,
            advmss,
            priority,
            table,
            scope,
        } = route;
        *mtu = 0;
        *advmss = 0;
        *priority = 0;
        *table = None;
        *scope = None;
    }
}

/// `ip4` and `ip6` of 0.1.0 and 0.2.0.
#[derive(Deserialize)]
struct OldIp {
    ip: String,
    #[serde(default)]
    gateway: Option<String>,
    #[serde(default)]
    routes: Option<Vec<Route>>,
}

fn from_old(value: &Value) -> Result<CniResult, serde_json::Error> {
    #[derive(Deserialize)]
    struct Old {
        #[serde(default)]
        ip4: Option<OldIp>,
        #[serde(default)]
        ip6: Option<OldIp>,
        #[serde(default)]
        dns: Option<Dns>,
    }
    let old = Old::deserialize(value)?;
    let mut result = CniResult {
        dns: old.dns.unwrap_or_default(),
        ..CniResult::default()
    };
    for ip in [old.ip4, old.ip6].into_iter().flatten() {
        result.ips.push(IpConfig {
            interface: None,
            address: ip.ip,
            gateway: ip.gateway.unwrap_or_default(),
        });
        result.routes.extend(ip.routes.unwrap_or_default());
    }
    Ok(result)
}

/// One address of each family is all that these versions can say; the first of each is taken, with the routes of its family.
fn to_old(result: &CniResult, version: Version) -> Value {
    let mut old = Map::new();
    old.insert("cniVersion".to_owned(), json!(version.to_string()));
    for (key, v6) in [("ip4", false), ("ip6", true)] {
        let Some(ip) = result.ips.iter().find(|ip| is_v6(&ip.address) == v6) else {
            continue;
        };
        let mut entry = Map::new();
        entry.insert("ip".to_owned(), json!(ip.address));
        if !ip.gateway.is_empty() {
            entry.insert("gateway".to_owned(), json!(ip.gateway));
        }
        let routes: Vec<Value> = result
            .routes
            .iter()
            .filter(|route| is_v6(&route.dst) == v6)
            .map(old_route)
            .collect();
        if !routes.is_empty() {
            entry.insert("routes".to_owned(), Value::Array(routes));
        }
        old.insert(key.to_owned(), Value::Object(entry));
    }
    old.insert("dns".to_owned(), json!(result.dns));
    Value::Object(old)
}

fn old_route(route: &Route) -> Value {
    let plain = Route {
        dst: route.dst.clone(),
        gw: route.gw.clone(),
        ..Route::default()
    };
    json!(plain)
}

fn is_v6(address: &str) -> bool {
    address.contains(':')
}
