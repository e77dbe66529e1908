//! The configuration of static: addresses that it, `CNI_ARGS` or the runtime names.

use std::net::IpAddr;

use cni::types::{Dns, Route};
use cni::version::Version;
use serde::Deserialize;

use crate::call::{self, Call};
use crate::config::{Args, Ips, canonical_route};
use crate::error::{Result, bail, failure};
use crate::ip::{self, Cidr};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) ipam: Option<Ipam>,
    #[serde(rename = "runtimeconfig")]
    pub(crate) runtime: Ips,
    pub(crate) args: Args<Ips>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ipam {
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Dns,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    pub(crate) address: String,
    pub(crate) gateway: String,
}

/// The addresses and routes that the container gets.
pub(crate) struct Plan {
    pub(crate) addresses: Vec<(Cidr, Option<IpAddr>)>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Dns,
}

/// Reads the configuration. Addresses of `CNI_ARGS` are added to its own; those of `args.cni`, and before these the runtime's,
/// take their place.
pub(crate) fn load(call: &Call) -> Result<Plan> {
    let config: Config = call.config()?;
    let ipam = config
        .ipam
        .ok_or_else(|| failure!("IPAM config missing 'ipam' key"))?;
    let routes = ipam
        .routes
        .into_iter()
        .map(canonical_route)
        .collect::<Result<_>>()?;
    let args = call.known_args(&["IP", "GATEWAY"])?;
    let requested = [config.runtime.ips, config.args.cni.ips];
    let addresses = match requested
        .into_iter()
        .find(|requested| !requested.is_empty())
    {
        Some(requested) => {
            let what = "an entry in the 'ips' field is NOT";
            let read = |text: &String| Ok((cidr(text, what)?, None));
            requested.iter().map(read).collect::<Result<_>>()?
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
        bail!(
            "CNI version {} does not support more than 1 address per family",
            call.version
        );
    }
    Ok(Plan {
        addresses,
        routes,
        dns: ipam.dns,
    })
}

/// Returns the addresses of the configuration, and of `CNI_ARGS` those of `IP`, for which `GATEWAY` is.
pub(crate) fn own_addresses(
    entries: &[Address],
    args: &call::Args,
) -> Result<Vec<(Cidr, Option<IpAddr>)>> {
    let mut addresses = Vec::new();
    for entry in entries {
        let address = cidr(&entry.address, "the 'address' field is expected to be")?;
        let gateway = ip::parse_optional(&entry.gateway).map_err(|error| failure!("{error}"))?;
        addresses.push((address, gateway));
    }
    let first_of_args = addresses.len();
    for text in args.list("IP") {
        addresses.push((cidr(text, "the 'ip' field is expected to be")?, None));
    }
    for text in args.list("GATEWAY") {
        let gateway = ip::parse(text).map_err(|_| failure!("invalid gateway address: {text}"))?;
        for (cidr, own_gateway) in &mut addresses[first_of_args..] {
            if cidr.contains(gateway) {
                *own_gateway = Some(gateway);
            }
        }
    }
    Ok(addresses)
}

/// Reads an address with its prefix length; `what` begins the error.
pub(crate) fn cidr(text: &str, what: &str) -> Result<Cidr> {
    let parsed = text.parse();
    parsed.map_err(|_| failure!("{what} in CIDR notation, got: '{text}'"))
}
