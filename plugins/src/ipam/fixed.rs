//! static: addresses that the configuration, `CNI_ARGS` or the runtime names.

use cni::CniResult;
use cni::types::IpConfig;

use crate::call::Call;
use crate::config::fixed::load;
use crate::error::{Result, bail, failure};
use crate::ip::{self, Cidr};

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
        .ok_or_else(|| failure!("Required prevResult missing"))?;
    for (cidr, gateway) in plan.addresses {
        let Some(gateway) = gateway else { continue };
        for config in &result.ips {
            let address: Option<Cidr> = config.address.parse().ok();
            let is_same = address.is_some_and(|address| address.address == cidr.address);
            if is_same && ip::parse(&config.gateway).ok() != Some(gateway) {
                bail!(
                    "static: Failed to match addr {} on interface {}",
                    cidr.address,
                    call.ifname
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

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
