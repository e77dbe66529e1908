//! The configuration of multus-ipam. The crate `ipam` reads what says which addresses a network has; the rest of it is for the result.

use cni::types::{Dns, Route};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::config::{Args, Ips, canonical_route};
use crate::error::{Context as _, Result, bail, failure};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requests {
    #[serde(rename = "runtimeconfig")]
    runtime: Ips,
    args: Args<Ips>,
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
}

impl Config {
    /// Reads the configuration of a call.
    pub(crate) fn load(call: &Call) -> Result<Self> {
        let document: Value =
            serde_json::from_slice(&call.stdin).context(|| crate::call::UNREADABLE.to_owned())?;
        let object = document.get("ipam").and_then(Value::as_object);
        let object = object.ok_or_else(|| failure!("IPAM config missing 'ipam' key"))?;
        let definition = ipam::config::parse(object).map_err(|error| failure!("{error}"))?;
        if definition.sticky == ipam::Sticky::Owner {
            bail!("ipam.sticky: \"owner\" is not supported yet: leave it out");
        }
        let requests: Requests = call.config()?;
        let args = call.args.split(';').filter_map(|pair| pair.split_once('='));
        let mut from_args = args.filter(|(key, value)| *key == "IP" && !value.is_empty());
        let asked = [&requests.runtime.ips, &requests.args.cni.ips];
        if from_args.next().is_some() || asked.iter().any(|ips| !ips.is_empty()) {
            bail!(
                "multus-ipam does not give requested addresses: leave out \"ips\", or use static"
            );
        }
        let passed = &definition.passed;
        let routes: Vec<Route> = read(passed.get("routes"), "routes")?;
        let routes = routes.into_iter().map(canonical_route);
        Ok(Self {
            routes: routes.collect::<Result<_>>()?,
            dns: read(passed.get("dns"), "dns")?,
            resolv_conf: read(passed.get("resolvConf"), "resolvConf")?,
            ipam: object.clone(),
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
    fn bad_configurations_say_what_is_wrong() {
        let lan = json!({"type": "multus-ipam", "subnet": "10.20.0.0/16"});
        let refused = "multus-ipam does not give requested addresses";
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
                json!({"type": "multus-ipam", "subnet": "10.20.0.0/16", "sticky": "owner"}),
                "",
                "",
                "ipam.sticky: \"owner\" is not supported yet",
            ),
            (
                lan.clone(),
                r#", "runtimeConfig": {"ips": ["10.20.0.9"]}"#,
                "",
                refused,
            ),
            (
                lan.clone(),
                r#", "args": {"cni": {"ips": ["10.20.0.9"]}}"#,
                "",
                refused,
            ),
            (lan, "", "IP=10.20.0.9", refused),
        ] {
            let error = load(&ipam, more, args).unwrap_err();
            assert!(error.msg.starts_with(expected), "{error}");
        }
        let error = Config::load(&Call::with_config("{}", "")).unwrap_err();
        assert_eq!(error.msg, "IPAM config missing 'ipam' key");
    }
}
