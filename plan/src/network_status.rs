//! Builds the value of the pod annotation that reports a pod's networks, with the keys that its consumers know.
//! Writing it to the API is the task of `cluster/status`.

use std::{borrow::Cow, net::IpAddr};

use cni::types::{CniResult, Dns, Interface};
use serde::Serialize;
use serde_json::{
    Map, Value,
    ser::{PrettyFormatter, Serializer},
};

use crate::Attached;

/// The annotation's key.
pub const ANNOTATION: &str = "k8s.v1.cni.cncf.io/network-status";

/// One interface of a pod. The order of fields is the order of keys.
#[derive(Debug, Serialize)]
struct Status<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    interface: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: i64,
    default: bool,
    dns: &'a Dns,
    #[serde(rename = "device-info", skip_serializing_if = "Option::is_none")]
    device_info: Option<&'a Map<String, Value>>,
    /// The same list as `default_route`, under upstream's key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway: Vec<Cow<'a, str>>,
    #[serde(rename = "default-route", skip_serializing_if = "Vec::is_empty")]
    default_route: Vec<Cow<'a, str>>,
}

/// Returns the annotation for a pod's networks, or `None` when they have no status to report and the annotation must stay as it is.
pub fn build(attached: &[Attached]) -> Option<String> {
    let statuses: Vec<_> = attached.iter().flat_map(network_statuses).collect();
    if statuses.is_empty() {
        return None;
    }
    let objects: Vec<_> = statuses.iter().map(pretty).collect();
    Some(format!("[{}]", objects.join(",")))
}

/// Returns the entries of one network: one where the result has one interface, else one for each interface in the container. A result
/// without interfaces, as all before 0.3.0, describes the requested interface, and the default network always has an entry.
fn network_statuses(attached: &Attached) -> Vec<Status<'_>> {
    let result = &attached.result;
    let base = || Status::without_interface(attached);
    let inside: Vec<(usize, &Interface)> = result
        .interfaces
        .iter()
        .enumerate()
        .filter(|(_, interface)| !interface.sandbox.is_empty())
        .collect();
    if let [interface] = result.interfaces.as_slice() {
        let mut status = base();
        if !inside.is_empty() {
            status.set_interface(interface);
        }
        status.ips = result.ips.iter().map(|ip| address(&ip.address)).collect();
        status.default = attached.is_default;
        return vec![status];
    }
    let has_addresses_only = result.interfaces.is_empty() && !result.ips.is_empty();
    if inside.is_empty() && (attached.is_default || has_addresses_only) {
        let mut status = base();
        status.interface = &attached.ifname;
        if result.interfaces.is_empty() {
            status.ips = result.ips.iter().map(|ip| address(&ip.address)).collect();
        }
        status.default = attached.is_default;
        return vec![status];
    }
    let default = default_interface(result, &inside);
    let last = inside.len().saturating_sub(1);
    inside
        .iter()
        .enumerate()
        .map(|(position, (index, interface))| {
            let mut status = base();
            status.set_interface(interface);
            status.ips = result
                .ips
                .iter()
                .filter(|ip| match ip.interface {
                    Some(of) => usize::try_from(of) == Ok(*index),
                    None => position == last,
                })
                .map(|ip| address(&ip.address))
                .collect();
            status.default = attached.is_default && default == Some(*index);
            status
        })
        .collect()
}

impl<'a> Status<'a> {
    fn without_interface(attached: &'a Attached) -> Self {
        Self {
            name: &attached.name,
            interface: "",
            ips: Vec::new(),
            mac: "",
            mtu: 0,
            default: false,
            dns: &attached.result.dns,
            device_info: attached.device_info.as_ref(),
            gateway: gateways(&attached.result),
            default_route: gateways(&attached.result),
        }
    }

    fn set_interface(&mut self, interface: &'a Interface) {
        self.interface = &interface.name;
        self.mac = &interface.mac;
        self.mtu = interface.mtu;
    }
}

/// Returns the default one of several interfaces: that of the first address with a gateway, else the first in the container.
fn default_interface(result: &CniResult, inside: &[(usize, &Interface)]) -> Option<usize> {
    let with_gateway = result
        .ips
        .iter()
        .filter(|ip| !ip.gateway.is_empty())
        .find_map(|ip| usize::try_from(ip.interface?).ok())
        .filter(|index| inside.iter().any(|(of, _)| of == index));
    with_gateway.or_else(|| inside.first().map(|(index, _)| *index))
}

/// Returns the gateways of default routes. A default route without a gateway leads to a link and is omitted.
fn gateways(result: &CniResult) -> Vec<Cow<'_, str>> {
    result
        .routes
        .iter()
        .filter(|route| matches!(route.dst.as_str(), "0.0.0.0/0" | "::/0" | "::0/0"))
        .map(|route| route.gw.as_str())
        .filter(|gateway| !gateway.is_empty())
        .map(address)
        .collect()
}

/// Returns the address in its canonical form without the prefix length; a text that is not an address stays as it is.
fn address(cidr: &str) -> Cow<'_, str> {
    let text = cidr.split('/').next().unwrap_or(cidr);
    match text.parse::<IpAddr>().map(|address| address.to_string()) {
        Ok(canonical) if canonical != text => Cow::Owned(canonical),
        _ => Cow::Borrowed(text),
    }
}

fn pretty(status: &Status<'_>) -> String {
    let mut out = Vec::new();
    let mut serializer =
        Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b"    "));
    status
        .serialize(&mut serializer)
        .expect("plain values always serialise");
    String::from_utf8(out).expect("JSON is UTF-8")
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
