//! The part of a pod's selection that outlives its ADD: the state keeps it, so that a DEL or a hot plug later gets the same.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What of a pod's selection has to be known again at DEL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requested {
    /// A chosen interface name.
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
    /// A device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    /// The resource that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// All that the pod's annotation said of this network besides its names; only where the annotation asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wishes: Option<Map<String, Value>>,
    /// Whether it was attached to a pod that ran already.
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
