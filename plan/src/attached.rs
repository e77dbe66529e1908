//! One network of a pod, and what its events say.

use cni::types::CniResult;
use serde_json::{Map, Value};

/// One network that a pod now has.
#[derive(Debug, Clone)]
pub struct Attached {
    /// What status and events call it.
    pub name: String,
    /// The interface in the container.
    pub ifname: String,
    /// Whether it is the default network.
    pub master: bool,
    /// What its plugins answered.
    pub result: CniResult,
    /// What the pod asked for and none of its plugins can serve.
    pub unserved: Vec<String>,
    /// What its plugins tell of its device.
    pub device_info: Option<Map<String, Value>>,
}

impl Attached {
    /// The text of the pod's `AddedInterface` event; none for a network that gave neither interface nor address.
    pub fn event(&self) -> Option<String> {
        if self.result.interfaces.is_empty() && self.result.ips.is_empty() {
            return None;
        }
        let ips: Vec<_> = self
            .result
            .ips
            .iter()
            .map(|ip| ip.address.as_str())
            .collect();
        let from = match self.name.as_str() {
            "" => String::new(),
            name => format!(" from {name}"),
        };
        Some(format!("Add {} [{}]{from}", self.ifname, ips.join(" ")))
    }

    /// The text of the pod's warning that something it asked for was not given to anyone.
    pub fn warning(&self) -> Option<String> {
        if self.unserved.is_empty() {
            return None;
        }
        Some(format!(
            "no plugin of network {} serves the pod's request for {} on {}: add the capability to the definition, or drop the request",
            self.name,
            self.unserved.join(", "),
            self.ifname
        ))
    }
}
