//! Results and errors as CNI 1.1.0 has them; how each version writes results is in [`crate::convert`].

mod error;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::error::CniError;

/// What a plugin answers to ADD: a superset of all versions, in the shape of 1.1.0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct CniResult {
    /// The version this result was written in; empty means that none was given.
    pub cni_version: String,
    /// Links that were made, on the host and inside the sandbox.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name resolution; written even when empty, as other implementations do.
    pub dns: Dns,
}

/// One link of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: String,
    /// Its MTU (1.1.0); 0 if it was not told.
    pub mtu: i64,
    /// Path of the namespace it is in; empty means the host.
    pub sandbox: String,
    /// Path of a socket that belongs to it (1.1.0).
    pub socket_path: String,
    /// PCI address of its device (1.1.0).
    pub pci_id: String,
}

/// One address of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpConfig {
    /// Index into the interfaces of the same result.
    pub interface: Option<i64>,
    /// Address with prefix length.
    pub address: String,
    /// Gateway of that subnet.
    pub gateway: String,
}

/// One route of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Destination with prefix length.
    pub dst: String,
    /// Next hop.
    pub gw: String,
    /// MTU along it (1.1.0); 0 if it was not told.
    pub mtu: i64,
    /// Segment size to announce (1.1.0); 0 if it was not told.
    pub advmss: i64,
    /// Metric (1.1.0); 0 if it was not told.
    pub priority: i64,
    /// Routing table (1.1.0).
    pub table: Option<i64>,
    /// Scope (1.1.0).
    pub scope: Option<i64>,
}

/// Name resolution of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "Value")]
pub struct Dns {
    /// Addresses of name servers.
    pub nameservers: Vec<String>,
    /// Local domain.
    pub domain: String,
    /// Search list.
    pub search: Vec<String>,
    /// Resolver options.
    pub options: Vec<String>,
}

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
}
