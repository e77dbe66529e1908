//! What a pod asks of a network beside being attached to it, and whether any plugin of the network can give it.
//! A plugin says so with a capability. Addresses are in `CNI_ARGS`, too, where many plugins find them without one: whether those
//! were given is seen in the result.

use std::net::IpAddr;

use cni::config::NetworkConfig;
use cni::types::CniResult;
use serde_json::{Map, Value, json};

use super::{Attachment, PlanError, Selection};
use crate::Requested;
use crate::netconf::Unserved;

const IPS: &str = "ips";
const MAC: &str = "mac";
/// Requests that reach a plugin as a capability argument and in no other way.
const NEED_CAPABILITY: [&str; 4] = ["portMappings", "bandwidth", "infinibandGUID", "deviceID"];

/// Capability arguments as the pod asks for them, by capability.
pub fn asked(selection: &Selection) -> Map<String, Value> {
    let text = |value: &Option<String>| value.as_ref().map(|value| json!(value));
    let ips = Some(json!(selection.ips)).filter(|_| !selection.ips.is_empty());
    let all = [
        ("portMappings", selection.port_mappings.clone()),
        ("bandwidth", selection.bandwidth.clone()),
        (IPS, ips),
        (MAC, text(&selection.mac)),
        ("infinibandGUID", text(&selection.infiniband_guid)),
        ("deviceID", text(&selection.device_id)),
    ];
    all.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Refuses a request that no plugin can serve, where the owner of the cluster wants that.
pub fn check(attachments: &[Attachment], unserved: Unserved) -> Result<(), PlanError> {
    if unserved != Unserved::Error {
        return Ok(());
    }
    for attachment in attachments {
        let requests = without_capability(attachment);
        if !requests.is_empty() {
            return Err(PlanError::Unserved {
                network: attachment.name.clone(),
                requests: requests.join(", "),
            });
        }
    }
    Ok(())
}

/// What is asked for and needs a capability that no plugin has.
pub fn without_capability(attachment: &Attachment) -> Vec<String> {
    let asked = attachment.selection.as_ref().map(asked).unwrap_or_default();
    lacking(&asked, &attachment.config)
}

/// The same for requests that are recorded in the state, beside others that need no capability.
pub fn lacking(requests: &Map<String, Value>, config: &NetworkConfig) -> Vec<String> {
    let names = requests
        .keys()
        .filter(|name| NEED_CAPABILITY.contains(&name.as_str()) && !has(config, name));
    names.cloned().collect()
}

/// Which of the addresses that were asked for a network has not given. What plugins with the capability say is taken as it is.
pub fn not_given(
    requested: &Requested,
    config: &NetworkConfig,
    result: &CniResult,
) -> Vec<&'static str> {
    let given: Vec<IpAddr> = result
        .ips
        .iter()
        .filter_map(|ip| address(&ip.address))
        .collect();
    let is_given = |ip: &String| address(ip).is_none_or(|ip| given.contains(&ip));
    let inside: Vec<_> = result
        .interfaces
        .iter()
        .filter(|interface| !interface.sandbox.is_empty() && !interface.mac.is_empty())
        .map(|interface| digits(&interface.mac))
        .collect();
    // A result need not tell hardware addresses.
    let is_mac_given = |mac: &String| inside.is_empty() || inside.contains(&digits(mac));
    let mut missing = Vec::new();
    if !requested.ips.iter().all(is_given) && !has(config, IPS) {
        missing.push(IPS);
    }
    if !requested.mac.iter().all(is_mac_given) && !has(config, MAC) {
        missing.push(MAC);
    }
    missing
}

fn has(config: &NetworkConfig, capability: &str) -> bool {
    let mut plugins = config.plugins.iter();
    plugins.any(|plugin| plugin.capabilities.iter().any(|own| own == capability))
}

fn address(text: &str) -> Option<IpAddr> {
    text.split('/').next()?.parse().ok()
}

fn digits(mac: &str) -> String {
    let hex = mac.chars().filter(char::is_ascii_hexdigit);
    hex.map(|digit| digit.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(capabilities: &Value) -> NetworkConfig {
        let config = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "bridge"}, {"type": "tuning", "capabilities": capabilities},
        ]});
        NetworkConfig::parse(config.to_string().as_bytes()).unwrap()
    }

    #[track_caller]
    fn check_given(ips: &[&str], mac: &str, result: &Value, expected: &[&str]) {
        let requested = Requested {
            ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
            mac: Some(mac.to_owned()).filter(|mac| !mac.is_empty()),
            ..Requested::default()
        };
        let result: CniResult = serde_json::from_value(result.clone()).unwrap();
        let missing = not_given(&requested, &config(&json!({})), &result);
        assert_eq!(missing, expected, "{result:?}");
        let able = config(&json!({"ips": true, "mac": true}));
        assert!(not_given(&requested, &able, &result).is_empty());
        let unable = config(&json!({"ips": false, "mac": false}));
        assert_eq!(not_given(&requested, &unable, &result), expected);
    }

    #[test]
    fn addresses_that_were_given_were_served() {
        let result = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "veth1", "mac": "02:00:00:00:00:09"}, {"name": "net1", "sandbox": "/x", "mac": "02:AA:00:00:00:05"}],
            "ips": [{"address": "10.0.0.5/24"}, {"address": "fd00:0::5/64"}]});
        check_given(&["10.0.0.5"], "", &result, &[]);
        check_given(
            &["10.0.0.5/16", "fd00::5/64"],
            "02-aa-00-00-00-05",
            &result,
            &[],
        );
        check_given(&["10.0.0.5", "10.0.0.6"], "", &result, &["ips"]);
        check_given(&[], "02:00:00:00:00:09", &result, &["mac"]);
        check_given(&["10.0.0.7"], "02:00:00:00:00:07", &result, &["ips", "mac"]);
    }

    #[test]
    fn a_result_without_hardware_addresses_says_nothing_of_them() {
        let result =
            json!({"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}]});
        check_given(&[], "02:00:00:00:00:07", &result, &[]);
        check_given(&["10.0.0.5"], "", &result, &["ips"]);
    }
}
