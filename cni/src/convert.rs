//! Conversion of results from and to every version of the specification.
//!
//! [`CniResult`] is the one form in memory. 0.1.0 and 0.2.0 have `ip4` and `ip6` instead of `ips`, and no interfaces; 0.3.0 to
//! 0.4.0 have `version` in each of `ips`; fields that 1.1.0 added are left out of older versions.

use serde_json::Value;

use crate::fields::{
    FieldError, Object, as_object, field, list, number, put, put_list, put_number, put_text,
    put_texts, text, texts,
};
use crate::types::{CniResult, Dns, Interface, IpConfig, Route};
use crate::version::{Version, VersionError};

/// The reason why a result cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The text is not JSON.
    #[error("result is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A field does not have the type that the version demands.
    #[error("unusable result: {0}")]
    Field(#[from] FieldError),
    /// `cniVersion` is not a version.
    #[error("result has an invalid cniVersion: {0}")]
    Version(#[from] VersionError),
    /// The version is newer than any that is supported.
    #[error("result version {0} is not supported")]
    Unsupported(Version),
}

/// Reads a result of any version; one without `cniVersion` counts as 0.1.0.
pub fn parse_result(bytes: &[u8]) -> Result<CniResult, ConvertError> {
    parse_value(&serde_json::from_slice(bytes)?, None)
}

/// Reads a result; one without `cniVersion` counts as written in `assumed`, the version of the network's configuration.
pub fn parse_result_as(bytes: &[u8], assumed: Version) -> Result<CniResult, ConvertError> {
    parse_value(&serde_json::from_slice(bytes)?, Some(assumed))
}

/// Reads a result that is already parsed as JSON; see [`parse_result_as`].
pub fn parse_value(value: &Value, assumed: Option<Version>) -> Result<CniResult, ConvertError> {
    let object = as_object(value, "result")?;
    let stated = text(object, "cniVersion")?;
    let version = if stated.is_empty() {
        assumed.unwrap_or(Version::V0_1_0)
    } else {
        Version::parse(&stated)?
    };
    if !version.is_supported() {
        return Err(ConvertError::Unsupported(version));
    }
    let mut result = if version < Version::V0_3_0 {
        read_old(object)?
    } else {
        read(object)?
    };
    result.cni_version = version.to_string();
    Ok(result)
}

/// Returns the result as JSON in this version, without the fields that the version does not know.
pub fn result_to(result: &CniResult, version: Version) -> Value {
    let mut object = Object::new();
    put(&mut object, "cniVersion", version.to_string());
    if version < Version::V0_3_0 {
        write_old(result, &mut object);
    } else {
        put_list(
            &mut object,
            "interfaces",
            result
                .interfaces
                .iter()
                .map(|interface| write_interface(interface, version))
                .collect(),
        );
        put_list(
            &mut object,
            "ips",
            result.ips.iter().map(|ip| write_ip(ip, version)).collect(),
        );
        put_list(
            &mut object,
            "routes",
            result
                .routes
                .iter()
                .map(|route| write_route(route, version))
                .collect(),
        );
    }
    put(&mut object, "dns", write_dns(&result.dns));
    Value::Object(object)
}

/// Writes the version that the result states, or the newest one if it states none that is supported.
impl From<CniResult> for Value {
    fn from(result: CniResult) -> Self {
        let stated = Version::parse(&result.cni_version)
            .ok()
            .filter(|version| version.is_supported() && !result.cni_version.is_empty());
        result_to(&result, stated.unwrap_or(Version::LATEST))
    }
}

impl TryFrom<Value> for CniResult {
    type Error = ConvertError;

    fn try_from(value: Value) -> Result<Self, ConvertError> {
        parse_value(&value, Some(Version::LATEST))
    }
}

impl From<Dns> for Value {
    fn from(dns: Dns) -> Self {
        write_dns(&dns)
    }
}

impl TryFrom<Value> for Dns {
    type Error = FieldError;

    fn try_from(value: Value) -> Result<Self, FieldError> {
        read_dns(&Object::from_iter([("dns".to_owned(), value)]))
    }
}

impl TryFrom<Value> for Route {
    type Error = FieldError;

    fn try_from(value: Value) -> Result<Self, FieldError> {
        read_route(&value)
    }
}

fn read(object: &Object) -> Result<CniResult, FieldError> {
    Ok(CniResult {
        cni_version: String::new(),
        interfaces: list(object, "interfaces", read_interface)?,
        ips: list(object, "ips", read_ip)?,
        routes: list(object, "routes", read_route)?,
        dns: read_dns(object)?,
    })
}

/// Reads the form of 0.1.0 and 0.2.0: one object for each family, with an address and the routes of that family.
fn read_old(object: &Object) -> Result<CniResult, FieldError> {
    let mut result = CniResult {
        dns: read_dns(object)?,
        ..CniResult::default()
    };
    for name in ["ip4", "ip6"] {
        let Some(ip) = field(object, name) else {
            continue;
        };
        let ip = as_object(ip, name)?;
        let address = text(ip, "ip")?;
        if address.is_empty() {
            return Err(FieldError {
                field: name,
                expected: "an object with an address",
            });
        }
        result.ips.push(IpConfig {
            interface: None,
            address,
            gateway: text(ip, "gateway")?,
        });
        result.routes.append(&mut list(ip, "routes", read_route)?);
    }
    Ok(result)
}

/// Writes the form of 0.1.0 and 0.2.0, which has room for one address of each family: the first of each, with the routes of its family.
fn write_old(result: &CniResult, object: &mut Object) {
    for (name, v6) in [("ip4", false), ("ip6", true)] {
        let mut ips = result.ips.iter().filter(|ip| !ip.address.is_empty());
        let Some(ip) = ips.find(|ip| is_v6(&ip.address) == v6) else {
            continue;
        };
        let routes = result.routes.iter().filter(|route| is_v6(&route.dst) == v6);
        let mut entry = Object::new();
        put(&mut entry, "ip", ip.address.as_str());
        put_text(&mut entry, "gateway", &ip.gateway);
        put_list(
            &mut entry,
            "routes",
            routes
                .map(|route| write_route(route, Version::V0_2_0))
                .collect(),
        );
        put(object, name, entry);
    }
}

fn read_interface(value: &Value) -> Result<Interface, FieldError> {
    let object = as_object(value, "an interface")?;
    Ok(Interface {
        name: text(object, "name")?,
        mac: text(object, "mac")?,
        mtu: number(object, "mtu")?.unwrap_or_default(),
        sandbox: text(object, "sandbox")?,
        socket_path: text(object, "socketPath")?,
        pci_id: text(object, "pciID")?,
    })
}

fn write_interface(interface: &Interface, version: Version) -> Value {
    let has_1_1_fields = version >= Version::V1_1_0;
    let mut object = Object::new();
    put(&mut object, "name", interface.name.as_str());
    put_text(&mut object, "mac", &interface.mac);
    put_number(
        &mut object,
        "mtu",
        nonzero(interface.mtu).filter(|_| has_1_1_fields),
    );
    put_text(&mut object, "sandbox", &interface.sandbox);
    if has_1_1_fields {
        put_text(&mut object, "socketPath", &interface.socket_path);
        put_text(&mut object, "pciID", &interface.pci_id);
    }
    Value::Object(object)
}

fn read_ip(value: &Value) -> Result<IpConfig, FieldError> {
    let object = as_object(value, "an ip")?;
    Ok(IpConfig {
        interface: number(object, "interface")?,
        address: text(object, "address")?,
        gateway: text(object, "gateway")?,
    })
}

fn write_ip(ip: &IpConfig, version: Version) -> Value {
    let mut object = Object::new();
    if version < Version::V1_0_0 {
        put(
            &mut object,
            "version",
            if is_v6(&ip.address) { "6" } else { "4" },
        );
    }
    put_number(&mut object, "interface", ip.interface);
    put(&mut object, "address", ip.address.as_str());
    put_text(&mut object, "gateway", &ip.gateway);
    Value::Object(object)
}

fn read_route(value: &Value) -> Result<Route, FieldError> {
    let object = as_object(value, "a route")?;
    Ok(Route {
        dst: text(object, "dst")?,
        gw: text(object, "gw")?,
        mtu: number(object, "mtu")?.unwrap_or_default(),
        advmss: number(object, "advmss")?.unwrap_or_default(),
        priority: number(object, "priority")?.unwrap_or_default(),
        table: number(object, "table")?,
        scope: number(object, "scope")?,
    })
}

fn write_route(route: &Route, version: Version) -> Value {
    let mut object = Object::new();
    put(&mut object, "dst", route.dst.as_str());
    put_text(&mut object, "gw", &route.gw);
    if version >= Version::V1_1_0 {
        put_number(&mut object, "mtu", nonzero(route.mtu));
        put_number(&mut object, "advmss", nonzero(route.advmss));
        put_number(&mut object, "priority", nonzero(route.priority));
        put_number(&mut object, "table", route.table);
        put_number(&mut object, "scope", route.scope);
    }
    Value::Object(object)
}

fn read_dns(result: &Object) -> Result<Dns, FieldError> {
    let Some(dns) = field(result, "dns") else {
        return Ok(Dns::default());
    };
    let object = as_object(dns, "dns")?;
    Ok(Dns {
        nameservers: texts(object, "nameservers")?,
        domain: text(object, "domain")?,
        search: texts(object, "search")?,
        options: texts(object, "options")?,
    })
}

fn write_dns(dns: &Dns) -> Value {
    let mut object = Object::new();
    put_texts(&mut object, "nameservers", &dns.nameservers);
    put_text(&mut object, "domain", &dns.domain);
    put_texts(&mut object, "search", &dns.search);
    put_texts(&mut object, "options", &dns.options);
    Value::Object(object)
}

fn nonzero(number: i64) -> Option<i64> {
    Some(number).filter(|number| *number != 0)
}

fn is_v6(address: &str) -> bool {
    address.contains(':')
}
