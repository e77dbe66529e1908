//! The value of the pod annotation that tells which networks a pod got, key by key as consumers know it.
//! Building it is all that is done here; someone else writes it to the API.

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
    /// Upstream's key for the next one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway: Vec<Cow<'a, str>>,
    #[serde(rename = "default-route", skip_serializing_if = "Vec::is_empty")]
    default_route: Vec<Cow<'a, str>>,
}

/// The annotation for a pod's networks; `None` when there is nothing to say, and nothing is to be written.
pub fn build(attached: &[Attached]) -> Option<String> {
    let statuses: Vec<_> = attached.iter().flat_map(of).collect();
    if statuses.is_empty() {
        return None;
    }
    let objects: Vec<_> = statuses.iter().map(pretty).collect();
    Some(format!("[{}]", objects.join(",")))
}

/// One network: one object where the result has one interface, else one for each interface in the container. A result without
/// interfaces, as all before 0.3.0, is about the one that was asked for, and the default network always has an entry.
fn of(attached: &Attached) -> Vec<Status<'_>> {
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
            status.take(interface);
        }
        status.ips = result.ips.iter().map(|ip| address(&ip.address)).collect();
        status.default = attached.master;
        return vec![status];
    }
    let tells_of_pod = result.interfaces.is_empty() && !result.ips.is_empty();
    if inside.is_empty() && (attached.master || tells_of_pod) {
        let mut status = base();
        status.interface = &attached.ifname;
        if result.interfaces.is_empty() {
            status.ips = result.ips.iter().map(|ip| address(&ip.address)).collect();
        }
        status.default = attached.master;
        return vec![status];
    }
    let default = default_interface(result, &inside);
    let last = inside.len().saturating_sub(1);
    inside
        .iter()
        .enumerate()
        .map(|(position, (index, interface))| {
            let mut status = base();
            status.take(interface);
            status.ips = result
                .ips
                .iter()
                .filter(|ip| match ip.interface {
                    Some(of) => usize::try_from(of) == Ok(*index),
                    None => position == last,
                })
                .map(|ip| address(&ip.address))
                .collect();
            status.default = attached.master && default == Some(*index);
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

    fn take(&mut self, interface: &'a Interface) {
        self.interface = &interface.name;
        self.mac = &interface.mac;
        self.mtu = interface.mtu;
    }
}

/// Of several interfaces, the default one: that of the first address with a gateway, else the first in the container.
fn default_interface(result: &CniResult, inside: &[(usize, &Interface)]) -> Option<usize> {
    let with_gateway = result
        .ips
        .iter()
        .filter(|ip| !ip.gateway.is_empty())
        .find_map(|ip| usize::try_from(ip.interface?).ok())
        .filter(|index| inside.iter().any(|(of, _)| of == index));
    with_gateway.or_else(|| inside.first().map(|(index, _)| *index))
}

/// Gateways of default routes. A default route without one is a route to a link, and has nothing to name.
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

/// The address without its prefix, in the one text that it has; what is no address stays as it is.
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
