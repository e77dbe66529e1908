//! One attached network of a pod, and the texts of its events.

use cni::types::CniResult;
use serde_json::{Map, Value};

/// A network that was attached to a pod.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The network's name in status and events.
    pub name: String,
    /// The interface in the container.
    pub ifname: String,
    /// Whether it is the default network.
    pub is_default: bool,
    /// The result of its plugins.
    pub result: CniResult,
    /// The pod's requests that none of its plugins supports.
    pub unsupported: Vec<String>,
    /// The device information that its plugins provided.
    pub device_info: Option<Map<String, Value>>,
}

/// The most bytes of an event's text in the API.
const EVENT_BYTES: usize = 1024;
/// Stands between the networks in the text of one event.
pub const EVENT_SEPARATOR: &str = "; ";

/// Returns the texts of the `AddedInterface` events about networks that were attached together: one, unless that would be too long for the API.
pub fn added_events(attached: &[Attached]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in attached.iter().filter_map(Attached::event) {
        match texts.last_mut() {
            Some(last) if last.len() + EVENT_SEPARATOR.len() + text.len() <= EVENT_BYTES => {
                last.push_str(EVENT_SEPARATOR);
                last.push_str(&text);
            }
            _ => texts.push(text),
        }
    }
    texts
}

impl Attached {
    /// Returns the text of the pod's `AddedInterface` event, or `None` for a network whose result has neither interface nor
    /// address.
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

    /// Returns the text of the pod's warning about requests that no plugin supports.
    pub fn warning(&self) -> Option<String> {
        if self.unsupported.is_empty() {
            return None;
        }
        Some(format!(
            "no plugin of network {} serves the pod's request for {} on {}: add the capability to the definition, or drop the request",
            self.name,
            self.unsupported.join(", "),
            self.ifname
        ))
    }
}
