//! Results and errors as CNI 1.1.0 has them; [`crate::convert`] has the form of results in each version.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fields::{FieldError, Object, as_object, number, put, put_text, text};

/// The result of ADD: a superset of all versions, in the shape of 1.1.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct CniResult {
    /// The version that this result was written in; empty if the writer stated none.
    pub cni_version: String,
    /// The links that plugins created, on the host and inside the sandbox.
    pub interfaces: Vec<Interface>,
    /// The addresses of these interfaces.
    pub ips: Vec<IpConfig>,
    /// The routes inside the sandbox.
    pub routes: Vec<Route>,
    /// Name resolution. It is written even when empty, as other implementations do.
    pub dns: Dns,
}

/// One link of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The name of the link.
    pub name: String,
    /// The hardware address.
    pub mac: String,
    /// The MTU (1.1.0); 0 if it was not reported.
    pub mtu: i64,
    /// The path of its network namespace; empty means the host.
    pub sandbox: String,
    /// The path of a socket that belongs to it (1.1.0).
    pub socket_path: String,
    /// The PCI address of its device (1.1.0).
    pub pci_id: String,
}

/// One address of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpConfig {
    /// Index into the interfaces of the same result.
    pub interface: Option<i64>,
    /// The address with its prefix length.
    pub address: String,
    /// The gateway of that subnet.
    pub gateway: String,
}

/// One route of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Route {
    /// The destination with its prefix length.
    pub dst: String,
    /// The next hop.
    pub gw: String,
    /// The MTU along the route (1.1.0); 0 if it was not reported.
    pub mtu: i64,
    /// The segment size to announce (1.1.0); 0 if it was not reported.
    pub advmss: i64,
    /// The metric (1.1.0); 0 if it was not reported.
    pub priority: i64,
    /// The routing table (1.1.0).
    pub table: Option<i64>,
    /// The scope (1.1.0).
    pub scope: Option<i64>,
}

/// Name resolution of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Dns {
    /// The addresses of name servers.
    pub nameservers: Vec<String>,
    /// The local domain.
    pub domain: String,
    /// The search list.
    pub search: Vec<String>,
    /// The resolver options.
    pub options: Vec<String>,
}

/// The typed error of the specification, which a plugin prints when it fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct CniError {
    /// Codes below 100 are well-known; a plugin's own codes begin there.
    pub code: u32,
    /// One line for the reader of the pod's event.
    pub msg: String,
    /// The details that go to the log.
    pub details: String,
}

impl CniError {
    /// The plugin does not support the version of the configuration.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The configuration contains a field that is not supported.
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
    /// The network namespace may not be used.
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

    /// Returns the error as a plugin prints it: the only document on its stdout.
    pub fn to_pretty(&self) -> Vec<u8> {
        pretty(&Value::from(self.clone()))
    }

    /// Reads an error from the output of a plugin or a daemon. Returns `None` for anything but a JSON object with a message.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let error = Self::try_from(value).ok()?;
        if error.msg.is_empty() {
            None
        } else {
            Some(error)
        }
    }
}

impl From<CniError> for Value {
    fn from(error: CniError) -> Self {
        let mut object = Object::new();
        put(&mut object, "code", error.code);
        put(&mut object, "msg", error.msg);
        put_text(&mut object, "details", &error.details);
        Self::Object(object)
    }
}

/// A missing code is read as 999, so that no error looks like success.
impl TryFrom<Value> for CniError {
    type Error = FieldError;

    fn try_from(value: Value) -> Result<Self, FieldError> {
        let object = as_object(&value, "error")?;
        let code = number(object, "code")?
            .and_then(|code| u32::try_from(code).ok())
            .filter(|code| *code != 0);
        Ok(Self {
            code: code.unwrap_or(Self::INTERNAL),
            msg: text(object, "msg")?,
            details: text(object, "details")?,
        })
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

/// Returns JSON as plugins print it: indented by four spaces, with one newline at the end.
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn error_prints_as_the_reference_skeleton_does() {
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
    fn parse_accepts_only_an_object_with_a_message() {
        assert_eq!(CniError::parse(b"boom"), None);
        assert_eq!(CniError::parse(b"{}"), None);
        assert_eq!(CniError::parse(br#"[1,"boom"]"#), None);
        assert_eq!(CniError::parse(br#"{"code":3,"msg":""}"#), None);
        assert_eq!(
            CniError::parse(br#"{"msg":"x","cniVersion":"0.4.0"}"#),
            Some(CniError::new(999, "x"))
        );
    }
}
