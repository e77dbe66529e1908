//! The requests of a pod to a network beyond the attachment itself, and whether a plugin of the network supports them.
//! A configuration declares that with a capability. Addresses are also in `CNI_ARGS`, where many plugins find them without one; for
//! those only the result shows whether the network assigned them.

use std::net::IpAddr;

use api::plugins::{CLUSTER_IPAM, NAMES};
use cni::config::NetworkConfig;
use cni::types::CniResult;
use serde_json::{Map, Value, json};

use super::{Attachment, PlanError, Selection};
use crate::Requested;
use crate::annotation::CLAIM;
use crate::netconf::UnsupportedRequests;

const IPS: &str = "ips";
const MAC: &str = "mac";
/// Requests that reach a plugin only as a capability argument.
const NEED_CAPABILITY: [&str; 4] = ["portMappings", "bandwidth", "infinibandGUID", "deviceID"];

/// Returns the capability arguments that the pod requests, by capability.
pub fn capability_args(selection: &Selection) -> Map<String, Value> {
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

/// Refuses a request that no plugin supports, where the cluster's owner configured an error for it.
pub fn check(attachments: &[Attachment], policy: UnsupportedRequests) -> Result<(), PlanError> {
    if policy != UnsupportedRequests::Error {
        return Ok(());
    }
    for attachment in attachments {
        let requests = unsupported(attachment);
        if !requests.is_empty() {
            return Err(PlanError::Unsupported {
                network: attachment.name.clone(),
                requests: requests.join(", "),
            });
        }
    }
    Ok(())
}

/// Returns the requests that need a capability which no plugin of the network has, and a claim that none serves.
pub fn unsupported(attachment: &Attachment) -> Vec<String> {
    let Some(selection) = &attachment.selection else {
        return Vec::new();
    };
    let mut missing = missing_capabilities(&capability_args(selection), &attachment.config);
    if selection.claim.is_some() && !serves_claims(&attachment.config) {
        missing.push(CLAIM.to_owned());
    }
    missing
}

/// Returns whether a plugin may serve claims: of those that are known here, one does.
fn serves_claims(config: &NetworkConfig) -> bool {
    let may_serve = |kind: &str| kind == CLUSTER_IPAM || !NAMES.contains(&kind);
    config.plugins.iter().any(|plugin| {
        let ipam = plugin.value.get("ipam").and_then(|ipam| ipam.get("type"));
        may_serve(&plugin.kind) || ipam.and_then(Value::as_str).is_some_and(may_serve)
    })
}

/// Returns the same for requests from the state, some of which may need no capability.
pub fn missing_capabilities(requests: &Map<String, Value>, config: &NetworkConfig) -> Vec<String> {
    let names = requests
        .keys()
        .filter(|name| NEED_CAPABILITY.contains(&name.as_str()) && !has(config, name));
    names.cloned().collect()
}

/// Returns the requested kinds of addresses that the network did not assign. The result of plugins with the capability is not checked.
pub fn unassigned_addresses(
    requested: &Requested,
    config: &NetworkConfig,
    result: &CniResult,
) -> Vec<&'static str> {
    let assigned: Vec<IpAddr> = result
        .ips
        .iter()
        .filter_map(|ip| address(&ip.address))
        .collect();
    let is_assigned = |ip: &String| address(ip).is_none_or(|ip| assigned.contains(&ip));
    let inside: Vec<_> = result
        .interfaces
        .iter()
        .filter(|interface| !interface.sandbox.is_empty() && !interface.mac.is_empty())
        .map(|interface| digits(&interface.mac))
        .collect();
    // Hardware addresses are optional in a result.
    let is_mac_assigned = |mac: &String| inside.is_empty() || inside.contains(&digits(mac));
    let mut missing = Vec::new();
    if !requested.ips.iter().all(is_assigned) && !has(config, IPS) {
        missing.push(IPS);
    }
    if !requested.mac.iter().all(is_mac_assigned) && !has(config, MAC) {
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
    fn check_missing(ips: &[&str], mac: &str, result: &Value, expected: &[&str]) {
        let requested = Requested {
            ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
            mac: Some(mac.to_owned()).filter(|mac| !mac.is_empty()),
            ..Requested::default()
        };
        let result: CniResult = serde_json::from_value(result.clone()).unwrap();
        let missing = unassigned_addresses(&requested, &config(&json!({})), &result);
        assert_eq!(missing, expected, "{result:?}");
        let capable = config(&json!({"ips": true, "mac": true}));
        assert!(unassigned_addresses(&requested, &capable, &result).is_empty());
        let incapable = config(&json!({"ips": false, "mac": false}));
        assert_eq!(
            unassigned_addresses(&requested, &incapable, &result),
            expected
        );
    }

    #[test]
    fn claims_are_served_by_some_plugins() {
        let check = |plugins: &str, expected: &[&str]| {
            let config = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "plugins": {plugins}}}"#);
            let attachment = Attachment {
                name: "n".to_owned(),
                is_default: false,
                config: NetworkConfig::parse(config.as_bytes()).unwrap().into(),
                selection: Some(Selection {
                    claim: Some("vm.n".to_owned()),
                    ..Selection::default()
                }),
                device: None,
            };
            assert_eq!(unsupported(&attachment), expected, "{plugins}");
        };
        check(
            r#"[{"type": "macvlan", "ipam": {"type": "host-local"}}]"#,
            &[CLAIM],
        );
        check(r#"[{"type": "macvlan"}, {"type": "tuning"}]"#, &[CLAIM]);
        check(
            r#"[{"type": "macvlan", "ipam": {"type": "multus-ipam"}}, {"type": "tuning"}]"#,
            &[],
        );
        check(r#"[{"type": "ovn-k8s-cni-overlay"}]"#, &[]);
    }

    #[test]
    fn requested_addresses_are_compared_with_the_result() {
        let result = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "veth1", "mac": "02:00:00:00:00:09"}, {"name": "net1", "sandbox": "/x", "mac": "02:AA:00:00:00:05"}],
            "ips": [{"address": "10.0.0.5/24"}, {"address": "fd00:0::5/64"}]});
        check_missing(&["10.0.0.5"], "", &result, &[]);
        check_missing(
            &["10.0.0.5/16", "fd00::5/64"],
            "02-aa-00-00-00-05",
            &result,
            &[],
        );
        check_missing(&["10.0.0.5", "10.0.0.6"], "", &result, &["ips"]);
        check_missing(&[], "02:00:00:00:00:09", &result, &["mac"]);
        check_missing(&["10.0.0.7"], "02:00:00:00:00:07", &result, &["ips", "mac"]);
    }

    #[test]
    fn a_result_without_hardware_addresses_reports_no_missing_mac() {
        let result =
            json!({"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}]});
        check_missing(&[], "02:00:00:00:00:07", &result, &[]);
        check_missing(&["10.0.0.5"], "", &result, &["ips"]);
    }
}
