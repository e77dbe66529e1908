//! static: addresses that the configuration, `CNI_ARGS` or the runtime names.

use std::net::IpAddr;

use cni::CniResult;
use cni::types::{Dns, IpConfig, Route};
use cni::version::Version;
use serde::Deserialize;

use crate::error::{Failure, Result};
use crate::ip::{self, Cidr};
use crate::ipam::canonical_route;
use crate::protocol::{self, Call};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    ipam: Option<Ipam>,
    #[serde(rename = "runtimeconfig")]
    runtime: Ips,
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ipam {
    addresses: Vec<Address>,
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    address: String,
    gateway: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Ips,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ips {
    ips: Vec<String>,
}

/// The addresses and routes that the container gets.
struct Plan {
    addresses: Vec<(Cidr, Option<IpAddr>)>,
    routes: Vec<Route>,
    dns: Dns,
}

/// Reads the configuration. Addresses of `CNI_ARGS` are added to its own; those of `args.cni`, and before these the runtime's,
/// take their place.
fn load(call: &Call) -> Result<Plan> {
    let config: Config = call.config()?;
    let ipam = config
        .ipam
        .ok_or_else(|| Failure::internal("IPAM config missing 'ipam' key"))?;
    let routes = ipam
        .routes
        .into_iter()
        .map(canonical_route)
        .collect::<Result<_>>()?;
    let args = call.known_args(&["IP", "GATEWAY"])?;
    let wishes = [config.runtime.ips, config.args.cni.ips];
    let addresses = match wishes.into_iter().find(|wishes| !wishes.is_empty()) {
        Some(wishes) => {
            let what = "an entry in the 'ips' field is NOT";
            let read = |text: &String| Ok((cidr(text, what)?, None));
            wishes.iter().map(read).collect::<Result<_>>()?
        }
        None => own_addresses(&ipam.addresses, &args)?,
    };
    let count = |is_v4: bool| {
        addresses
            .iter()
            .filter(|(cidr, _)| cidr.address.is_ipv4() == is_v4)
            .count()
    };
    if call.version < Version::V0_3_0 && (count(true) > 1 || count(false) > 1) {
        return Err(Failure::internal(format!(
            "CNI version {} does not support more than 1 address per family",
            call.version
        )));
    }
    Ok(Plan {
        addresses,
        routes,
        dns: ipam.dns,
    })
}

/// Returns the addresses of the configuration, and of `CNI_ARGS` those of `IP`, for which `GATEWAY` is.
fn own_addresses(
    entries: &[Address],
    args: &protocol::Args,
) -> Result<Vec<(Cidr, Option<IpAddr>)>> {
    let mut addresses = Vec::new();
    for entry in entries {
        let address = cidr(&entry.address, "the 'address' field is expected to be")?;
        let gateway = match entry.gateway.as_str() {
            "" => None,
            text => Some(ip::parse(text).map_err(|error| Failure::internal(error.to_string()))?),
        };
        addresses.push((address, gateway));
    }
    let first_of_args = addresses.len();
    for text in args.list("IP") {
        addresses.push((cidr(text, "the 'ip' field is expected to be")?, None));
    }
    for text in args.list("GATEWAY") {
        let gateway = ip::parse(text)
            .map_err(|_| Failure::internal(format!("invalid gateway address: {text}")))?;
        for (cidr, of_address) in &mut addresses[first_of_args..] {
            if cidr.contains(gateway) {
                *of_address = Some(gateway);
            }
        }
    }
    Ok(addresses)
}

/// Reads an address with its prefix length; `what` begins the error.
fn cidr(text: &str, what: &str) -> Result<Cidr> {
    let parsed = text.parse();
    parsed.map_err(|_| Failure::internal(format!("{what} in CIDR notation, got: '{text}'")))
}

/// Returns the addresses.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let plan = load(call)?;
    let ips = plan.addresses.into_iter().map(|(cidr, gateway)| IpConfig {
        interface: None,
        address: cidr.to_string(),
        gateway: gateway
            .map(|gateway| gateway.to_string())
            .unwrap_or_default(),
    });
    Ok(CniResult {
        ips: ips.collect(),
        routes: plan.routes,
        dns: plan.dns,
        ..CniResult::default()
    })
}

/// Fails when an address of the previous result has another gateway than the configuration.
pub(crate) fn check(call: &Call) -> Result<()> {
    let plan = load(call)?;
    let result = call
        .prev_result()?
        .ok_or_else(|| Failure::internal("Required prevResult missing"))?;
    for (cidr, gateway) in plan.addresses {
        let Some(gateway) = gateway else { continue };
        for config in &result.ips {
            let address: Option<Cidr> = config.address.parse().ok();
            let is_same = address.is_some_and(|address| address.address == cidr.address);
            if is_same && ip::parse(&config.gateway).ok() != Some(gateway) {
                return Err(Failure::internal(format!(
                    "static: Failed to match addr {} on interface {}",
                    cidr.address, call.ifname
                )));
            }
        }
    }
    Ok(())
}

/// Fuzz target: returns whether the configuration is accepted; nothing is done with it.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(call: &Call) -> bool {
    load(call).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(config: &str, args: &str) -> Result<Vec<String>> {
        let plan = load(&Call::with_config(config, args))?;
        let show = |(cidr, gateway): (Cidr, Option<IpAddr>)| match gateway {
            Some(gateway) => format!("{cidr} via {gateway}"),
            None => cidr.to_string(),
        };
        Ok(plan.addresses.into_iter().map(show).collect())
    }

    #[test]
    fn replaced_addresses_need_not_be_right() {
        let ipam = r#""ipam": {"addresses": [{"address": "to be filled in"}]}"#;
        let args = r#""args": {"cni": {"ips": ["10.0.0.5/24"]}}"#;
        let runtime = r#""runtimeConfig": {"ips": ["10.0.0.6/24"]}"#;
        let of = |keys: &[&str]| addresses(&format!("{{{}}}", keys.join(", ")), "IP=nonsense");
        assert_eq!(of(&[ipam, args]).unwrap(), ["10.0.0.5/24"]);
        assert_eq!(of(&[ipam, args, runtime]).unwrap(), ["10.0.0.6/24"]);
        assert_eq!(
            of(&[ipam]).unwrap_err().msg,
            "the 'address' field is expected to be in CIDR notation, got: 'to be filled in'"
        );
    }

    #[test]
    fn gateway_of_args_is_for_addresses_of_args() {
        let config = r#"{"ipam": {"addresses": [{"address": "10.0.0.5/24"}]}}"#;
        assert_eq!(
            addresses(config, "IP=10.0.0.6/24;GATEWAY=10.0.0.1").unwrap(),
            ["10.0.0.5/24", "10.0.0.6/24 via 10.0.0.1"]
        );
    }

    fn routes(dst: &str) -> Result<Vec<String>> {
        let config = format!(
            r#"{{"ipam": {{"addresses": [{{"address": "10.1.2.3/24"}}], "routes": [{{"dst": "{dst}"}}]}}}}"#
        );
        let plan = load(&Call::with_config(&config, ""))?;
        Ok(plan.routes.into_iter().map(|route| route.dst).collect())
    }

    #[test]
    fn routes_are_read_before_they_are_handed_out() {
        assert_eq!(
            routes("fd00:0:0:01ff::1/64").unwrap(),
            ["fd00:0:0:1ff::1/64"]
        );
        assert_eq!(
            routes("nonsense").unwrap_err().msg,
            "invalid CIDR address: nonsense"
        );
    }
}
