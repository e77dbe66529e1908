//! Results and errors as CNI 1.1.0 writes them; older forms are made and read in [`crate::convert`].

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What a plugin answers to ADD: a superset of all versions, in the shape of 1.1.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// The version this result was written in; empty means that none was given.
    #[serde(default, rename = "cniVersion", deserialize_with = "or_default")]
    pub cni_version: String,
    /// Links that were made, on the host and inside the sandbox.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ips: Vec<IpConfig>,
    /// Routes.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub routes: Vec<Route>,
    /// Name resolution; written even when empty, as other implementations do.
    #[serde(default, deserialize_with = "or_default")]
    pub dns: Dns,
}

/// One link of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its hardware address.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub mac: String,
    /// Its MTU (1.1.0).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub mtu: i64,
    /// Path of the namespace it is in; empty means the host.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub sandbox: String,
    /// Path of a socket that belongs to it (1.1.0).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub socket_path: String,
    /// PCI address of its device (1.1.0).
    #[serde(
        default,
        rename = "pciID",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub pci_id: String,
}

/// One address of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Index into the interfaces of the same result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<i64>,
    /// Address with prefix length.
    #[serde(default, deserialize_with = "or_default")]
    pub address: String,
    /// Gateway of that subnet.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub gateway: String,
}

/// One route of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination with prefix length.
    #[serde(default, deserialize_with = "or_default")]
    pub dst: String,
    /// Next hop.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub gw: String,
    /// MTU along it (1.1.0).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub mtu: i64,
    /// Segment size to announce (1.1.0).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub advmss: i64,
    /// Metric (1.1.0).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub priority: i64,
    /// Routing table (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<i64>,
    /// Scope (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<i64>,
}

/// Name resolution of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub domain: String,
    /// Search list.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub options: Vec<String>,
}

/// A typed CNI error: what a plugin prints when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    /// Well-known below 100, a plugin's own from there on.
    #[serde(default)]
    pub code: u32,
    /// One line for whoever reads the pod's event.
    #[serde(default, deserialize_with = "or_default")]
    pub msg: String,
    /// The long form.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub details: String,
}

impl CniError {
    /// The version of configuration and plugin do not meet.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The configuration holds a field that is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is not known or does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A variable is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO_FAILURE: u32 = 5;
    /// Input does not parse.
    pub const DECODING_FAILURE: u32 = 6;
    /// The configuration is not valid.
    pub const INVALID_NETWORK_CONFIG: u32 = 7;
    /// The namespace is not one that may be used.
    pub const INVALID_NETNS: u32 = 8;
    /// A transient condition; the runtime should retry later.
    pub const TRY_AGAIN_LATER: u32 = 11;
    /// STATUS: no ADD can be served.
    pub const PLUGIN_NOT_AVAILABLE: u32 = 50;
    /// STATUS: no ADD can be served and existing containers may have lost their network.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
    /// Anything without a code of its own.
    pub const INTERNAL: u32 = 999;

    /// An error without details.
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The same with `context: ` before its message; the code stays.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.msg = format!("{context}: {}", self.msg);
        self
    }

    /// The error as a plugin prints it: the only document on its stdout.
    pub fn to_pretty(&self) -> Vec<u8> {
        pretty(&serde_json::to_value(self).expect("a number and two texts always serialise"))
    }

    /// Reads an error from a plugin's or a daemon's output: a JSON object with a message. Anything else is `None`.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let mut error = Self::deserialize(value.as_object()?).ok()?;
        if error.msg.is_empty() {
            return None;
        }
        if error.code == 0 {
            error.code = Self::INTERNAL;
        }
        Some(error)
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.msg)?;
        if !self.details.is_empty() {
            write!(formatter, "; {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for CniError {}

/// JSON as plugins print it: indented by four spaces, one newline at the end.
pub fn pretty(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    value
        .serialize(&mut serializer)
        .expect("JSON values have string keys and memory takes them");
    bytes.push(b'\n');
    bytes
}

/// `null` stands for the empty value, as in Go.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_the_reference_skeleton_does() {
        let error = CniError::new(CniError::TRY_AGAIN_LATER, "daemon is starting");
        assert_eq!(
            String::from_utf8(error.to_pretty()).unwrap(),
            "{\n    \"code\": 11,\n    \"msg\": \"daemon is starting\"\n}\n"
        );
        let error = error.with_details("socket is absent");
        assert_eq!(error.to_string(), "daemon is starting; socket is absent");
        assert_eq!(CniError::parse(&error.to_pretty()), Some(error));
    }

    #[test]
    fn only_an_object_with_a_message_is_an_error() {
        assert_eq!(CniError::parse(b"boom"), None);
        assert_eq!(CniError::parse(b"{}"), None);
        assert_eq!(CniError::parse(br#"[1,"boom"]"#), None);
        assert_eq!(CniError::parse(br#"{"code":3,"msg":""}"#), None);
        assert_eq!(
            CniError::parse(br#"{"msg":"x","cniVersion":"0.4.0"}"#),
            Some(CniError::new(999, "x"))
        );
    }

    #[test]
    fn null_is_the_empty_value() {
        let text = r#"{"cniVersion":"1.0.0","interfaces":null,"ips":[{"interface":null,"address":"10.0.0.2/8","gateway":null}],"dns":null}"#;
        let result: CniResult = serde_json::from_str(text).unwrap();
        assert_eq!(
            result.ips,
            [IpConfig {
                address: "10.0.0.2/8".into(),
                ..IpConfig::default()
            }]
        );
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/8"}],"dns":{}}"#
        );
    }
}
