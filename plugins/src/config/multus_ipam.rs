//! The configuration of multus-ipam. The crate `ipam` reads what says which addresses a network has; the rest of it is for the result.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::types::{Dns, Route};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::config::host_local::parse_requested;
use crate::config::{Args, Ips, canonical_route};
use crate::error::{Context as _, Result, failure};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requests {
    #[serde(rename = "runtimeconfig")]
    runtime: Ips,
    args: Args<Requested>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requested {
    ips: Vec<String>,
    #[serde(rename = "ipam-claim-reference")]
    claim: String,
}

/// The configuration, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// The `ipam` object as it was written.
    pub(crate) ipam: Map<String, Value>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Option<Dns>,
    /// The file with the name servers of the result; empty for none.
    pub(crate) resolv_conf: String,
    /// The addresses that the pod is to have.
    pub(crate) addresses: Vec<IpAddr>,
    /// The claim whose address the pod is to have; empty for none.
    pub(crate) claim: String,
}

impl Config {
    /// Reads the configuration of a call.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let document: Value =
            serde_json::from_slice(&call.stdin).context(|| crate::call::UNREADABLE.to_owned())?;
        let object = document.get("ipam").and_then(Value::as_object);
        let object = object.ok_or_else(|| failure!("IPAM config missing 'ipam' key"))?;
        let definition = ipam::config::parse(object).map_err(|error| failure!("{error}"))?;
        let requests: Requests = call.config()?;
        let args = call.args.split(';').filter_map(|pair| pair.split_once('='));
        let from_args = args.filter(|(key, _)| *key == "IP");
        let from_args = from_args.flat_map(|(_, value)| value.split(','));
        let from_config = [&requests.runtime.ips, &requests.args.cni.ips];
        let texts = from_args.chain(from_config.into_iter().flatten().map(String::as_str));
        let texts = texts.map(str::trim).filter(|text| !text.is_empty());
        let addresses = texts
            .map(parse_requested)
            .collect::<Result<BTreeSet<_>>>()?;
        let passed = &definition.passed;
        let routes: Vec<Route> = read(passed.get("routes"), "routes")?;
        let routes = routes.into_iter().map(canonical_route);
        Ok(Self {
            routes: routes.collect::<Result<_>>()?,
            dns: read(passed.get("dns"), "dns")?,
            resolv_conf: read(passed.get("resolvConf"), "resolvConf")?,
            ipam: object.clone(),
            addresses: addresses.into_iter().collect(),
            claim: requests.args.cni.claim,
        })
    }
}

/// Reads a part of the `ipam` object; what is absent is empty.
pub(super) fn read<T: DeserializeOwned + Default>(value: Option<&Value>, key: &str) -> Result<T> {
    let value = value.filter(|value| !value.is_null());
    let read = value.map(T::deserialize).transpose();
    Ok(read.context(|| format!("ipam.{key}"))?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn load(ipam: &Value, more: &str, args: &str) -> Result<Config> {
        let config = format!(r#"{{"ipam": {ipam}{more}}}"#);
        Config::load(&Call::with_config(&config, args))
    }

    #[test]
    fn result_has_what_the_definition_says() {
        let ipam = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "dns": {"nameservers": ["10.0.0.1"]},
            "routes": [{"dst": "10.99.0.0/16"}], "resolvConf": "/etc/resolv.conf"});
        let config = load(&ipam, "", "K8S_POD_UID=u").unwrap();
        assert_eq!(config.routes[0].dst, "10.99.0.0/16");
        assert_eq!(config.dns.unwrap().nameservers, ["10.0.0.1"]);
        assert_eq!(config.resolv_conf, "/etc/resolv.conf");
        assert_eq!(Value::Object(config.ipam), ipam);
    }

    #[test]
    fn requests_come_from_each_place_and_count_once() {
        let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16"});
        let more = r#", "runtimeConfig": {"ips": ["10.20.0.9/16"]}, "args": {"cni": {"ips": ["fd00::9"], "ipam-claim-reference": "vm"}}"#;
        let config = load(&lan, more, "IgnoreUnknown=1;IP=10.20.0.9,10.20.0.8").unwrap();
        let addresses: Vec<_> = config.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.20.0.8", "10.20.0.9", "fd00::9"]);
        assert_eq!(config.claim, "vm");
        assert_eq!(
            load(&lan, "", "IP=").unwrap().addresses,
            Vec::<IpAddr>::new()
        );
    }

    #[test]
    fn bad_configurations_say_what_is_wrong() {
        let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16"});
        let unreadable = "invalid IP address 10.20.0";
        for (ipam, more, args, expected) in [
            (
                json!({"type": "multus-ipam"}),
                "",
                "",
                "ipam: there is no range",
            ),
            (
                json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "rutes": []}),
                "",
                "",
                "ipam.rutes: the key is not known",
            ),
            (
                json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "routes": [1]}),
                "",
                "",
                "ipam.routes",
            ),
            (
                lan.clone(),
                r#", "runtimeConfig": {"ips": ["10.20.0"]}"#,
                "",
                unreadable,
            ),
            (
                lan.clone(),
                r#", "args": {"cni": {"ips": ["10.20.0"]}}"#,
                "",
                unreadable,
            ),
            (lan, "", "IP=10.20.0", unreadable),
        ] {
            let error = load(&ipam, more, args).unwrap_err();
            assert!(error.msg.starts_with(expected), "{error}");
        }
        let error = Config::load(&Call::with_config("{}", "")).unwrap_err();
        assert_eq!(error.msg, "IPAM config missing 'ipam' key");
    }
}
