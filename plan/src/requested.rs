//! The part of a pod's selection that the state keeps, so that a later DEL or hot plug gets the same.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The part of a pod's selection that DEL needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requested {
    /// A requested interface name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// A hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// An InfiniBand GUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infiniband_guid: Option<String>,
    /// Addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Gateways of a default route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Vec<IpAddr>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// The resource of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// Everything that the pod's annotation requested for this network besides its names; `None` for a network that the annotation did
    /// not request.
    #[serde(rename = "wishes", skip_serializing_if = "Option::is_none")]
    pub annotation_keys: Option<Map<String, Value>>,
    /// Whether it was attached to a running pod.
    #[serde(skip_serializing_if = "is_false")]
    pub plugged: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}
