//! The configuration of whereabouts: a definition of the network, to which a file of the node may add keys. The crate `ipam` reads what says
//! which addresses it has; fixed addresses and the rest are for the result.

use std::net::IpAddr;

use cni::types::{Dns, Route};
use ipam::guest::Definition;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::config::canonical_route;
use crate::config::fixed::{Address, own_addresses};
use crate::config::multus_ipam::read;
use crate::error::{Context as _, Result, failure};
use crate::ip::{self, Cidr};

/// The keys of `CNI_ARGS` that the plugin knows.
const ARGS: [&str; 6] = [
    "IP",
    "GATEWAY",
    "K8S_POD_NAME",
    "K8S_POD_NAMESPACE",
    "K8S_POD_UID",
    "K8S_POD_INFRA_CONTAINER_ID",
];

/// The configuration, checked.
#[derive(Debug)]
pub(crate) struct Config {
    /// The `ipam` object with the keys of the file.
    pub(crate) ipam: Map<String, Value>,
    /// Whether addresses come from pools.
    pub(crate) has_ranges: bool,
    /// Those of the definition and of `CNI_ARGS`, which are in no pool.
    pub(crate) addresses: Vec<(Cidr, Option<IpAddr>)>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Dns,
}

impl Config {
    /// Reads the configuration of a call with the content of the node's file, which has the keys of `ipam`.
    pub(crate) fn load(call: &Call, file: Option<&[u8]>) -> Result<Self> {
        let mut ipam = object(call)?;
        if let Some(file) = file {
            let file = serde_json::from_slice(file);
            let file: Map<String, Value> =
                file.context(|| "the flat file of whereabouts is not a JSON object".to_owned())?;
            fill(&mut ipam, file);
        }
        let definition = Definition::parse(&ipam).map_err(|error| failure!("{error}"))?;
        let entries: Vec<Address> = read(ipam.get("addresses"), "addresses")?;
        let args = call.known_args(&ARGS)?;
        let mut addresses = own_addresses(&entries, &args)?;
        // As the reference does: a gateway of the arguments counts for all of them.
        for text in args.list("GATEWAY") {
            let gateway = ip::parse(text).ok();
            let own = |(cidr, _): &&mut (Cidr, Option<IpAddr>)| {
                gateway.is_some_and(|gateway| cidr.contains(gateway))
            };
            addresses
                .iter_mut()
                .filter(own)
                .for_each(|one| one.1 = gateway);
        }
        let routes: Vec<Route> = read(ipam.get("routes"), "routes")?;
        let routes = routes.into_iter().map(canonical_route);
        Ok(Self {
            has_ranges: !definition.ranges.is_empty(),
            addresses,
            routes: routes.collect::<Result<_>>()?,
            dns: read(ipam.get("dns"), "dns")?,
            ipam,
        })
    }
}

/// Returns the `ipam` object of a call.
pub(crate) fn object(call: &Call) -> Result<Map<String, Value>> {
    let document: Value =
        serde_json::from_slice(&call.stdin).context(|| crate::call::UNREADABLE.to_owned())?;
    let object = document.get("ipam").and_then(Value::as_object);
    object
        .cloned()
        .ok_or_else(|| failure!("IPAM config missing 'ipam' key"))
}

/// Returns the keys of a call's definition that have no effect.
pub(super) fn without_effect(call: &Call) -> Vec<String> {
    let definition = object(call).ok().map(|object| ipam::config::parse(&object));
    let definition = definition.and_then(std::result::Result::ok);
    definition.map_or_else(Vec::new, |definition| definition.ignored)
}

/// Adds the keys of the file that the definition lacks or leaves empty. Only the definition says whether ranges overlap.
fn fill(own: &mut Map<String, Value>, file: Map<String, Value>) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let file = file.into_iter();
    for (key, value) in file.filter(|(key, _)| key != "enable_overlapping_ranges") {
        match own.get_mut(&key) {
            Some(Value::Object(part)) => {
                if let Value::Object(value) = value {
                    fill(part, value);
                }
            }
            Some(known) if !is_empty(known) => {}
            _ => drop(own.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn load(ipam: &Value, file: Option<&Value>, args: &str) -> Result<Config> {
        let config = json!({"ipam": ipam}).to_string();
        let file = file.map(|file| file.to_string().into_bytes());
        Config::load(&Call::with_config(&config, args), file.as_deref())
    }

    #[test]
    fn file_adds_what_the_definition_leaves_out() {
        let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/24", "gateway": "10.0.0.1", "exclude": [], "dns": {"domain": "own"},
            "network_name": ""});
        let file = json!({"gateway": "10.0.0.9", "exclude": ["10.0.0.8/30"], "network_name": "blue", "enable_overlapping_ranges": false,
            "dns": {"domain": "lan", "nameservers": ["10.0.0.2"]}, "kubernetes": {"kubeconfig": "/x"}, "configuration_path": "/etc/x"});
        let config = load(&ipam, Some(&file), "").unwrap();
        let expected = json!({"type": "whereabouts", "range": "10.0.0.0/24", "gateway": "10.0.0.1", "exclude": ["10.0.0.8/30"],
            "network_name": "blue", "dns": {"domain": "own", "nameservers": ["10.0.0.2"]}, "kubernetes": {"kubeconfig": "/x"},
            "configuration_path": "/etc/x"});
        assert_eq!(Value::Object(config.ipam), expected);
        assert_eq!(
            (config.dns.domain.as_str(), config.has_ranges),
            ("own", true)
        );
    }

    /// The case of `cmd` with fixed addresses, and both arguments.
    #[test]
    fn fixed_addresses_come_from_the_definition_and_the_arguments() {
        let ipam = json!({"type": "whereabouts", "range": "192.168.1.44/28", "gateway": "192.168.1.1",
            "addresses": [{"address": "10.10.0.1/24", "gateway": "10.10.0.254"}, {"address": "3ffe:ffff:0:01ff::1/64", "gateway": "3ffe:ffff:0::1"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "3ffe:ffff:0:01ff::1/64", "gw": "3ffe:ffff:0::1"}]});
        let seen = |args: &str| {
            let addresses = load(&ipam, None, args).unwrap().addresses;
            let show = |(cidr, gateway): &(Cidr, Option<IpAddr>)| {
                format!(
                    "{cidr} {}",
                    gateway.map_or("-".to_owned(), |it| it.to_string())
                )
            };
            addresses.iter().map(show).collect::<Vec<_>>()
        };
        let own = [
            "10.10.0.1/24 10.10.0.254",
            "3ffe:ffff:0:1ff::1/64 3ffe:ffff::1",
        ];
        assert_eq!(seen(""), own);
        let args = "K8S_POD_NAME=a;K8S_POD_NAMESPACE=b;IP=10.11.0.7/24, fd00::7/64;GATEWAY=10.11.0.1,10.10.0.2";
        let expected = [
            "10.10.0.1/24 10.10.0.2",
            own[1],
            "10.11.0.7/24 10.11.0.1",
            "fd00::7/64 -",
        ];
        assert_eq!(seen(args), expected);
        let alone = json!({"type": "whereabouts", "addresses": [{"address": "10.10.0.1/24"}]});
        assert!(!load(&alone, None, "").unwrap().has_ranges);
    }

    #[test]
    fn bad_configurations_say_what_is_wrong() {
        let lan = json!({"type": "whereabouts", "range": "10.0.0.0/24"});
        for (ipam, file, args, expected) in [
            (
                json!({"type": "whereabouts"}),
                None,
                "",
                "ipam: there is no range",
            ),
            (
                lan.clone(),
                Some(json!([])),
                "",
                "the flat file of whereabouts is not",
            ),
            (
                lan.clone(),
                Some(json!({"exclude": ["x"]})),
                "",
                "ipam.exclude[0]",
            ),
            (
                lan.clone(),
                None,
                "IP=10.0.0.7",
                "the 'ip' field is expected",
            ),
            (lan.clone(), None, "GATEWAY=x", "invalid gateway address: x"),
            (lan, None, "MORE=1", "ARGS: unknown args"),
        ] {
            let error = load(&ipam, file.as_ref(), args).unwrap_err();
            assert!(error.msg.starts_with(expected), "{error}");
        }
    }
}
