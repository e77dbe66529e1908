//! Checks a pod's requests against the plugins of a network.

use cni::config::{NetworkConfig, Plugin};

use crate::config::{CHECKS, Fault, call, fixed, ipam_type, parse_mac};

/// The plugins that give an interface the hardware address which a pod requests.
const TAKE_MAC: &[&str] = &["bridge", "macvlan", "tap", "tuning"];

/// Returns what the plugins of a network refuse of a request for addresses, or ignore. What plugins of somebody else ignore is not known.
pub fn faults(network: &NetworkConfig, ips: &[String], mac: Option<&str>) -> Vec<Fault> {
    let (kind, plugins) = (network.kind(), &network.plugins);
    let mut faults = Vec::new();
    let is_ours = |one: &Plugin| CHECKS.iter().any(|(name, _)| *name == one.kind);
    let are_ours = plugins.iter().all(is_ours);
    if let Some(mac) = mac {
        let bytes = parse_mac(mac).unwrap_or_default();
        if bytes.len() == 6 && (bytes[0] & 1 == 1 || bytes == [0; 6]) {
            let text = format!(
                "cannot set {mac}, an address of multicast or zero: write one as in 02:00:00:00:00:01"
            );
            faults.push(Fault::new(kind, true, text));
        }
        let takes_mac = |one: &Plugin| TAKE_MAC.contains(&one.kind.as_str());
        if are_ours && !plugins.iter().any(takes_mac) {
            let text = "does not take the hardware address that a pod requests: leave out \"mac\"";
            faults.push(Fault::new(kind, false, text));
        }
    }
    let with_ipam = plugins
        .iter()
        .filter_map(|one| Some((one, ipam_type(&one.value)?)));
    let with_ipam: Vec<_> = with_ipam.collect();
    if !ips.is_empty() && with_ipam.is_empty() && are_ours {
        let text = "has no ipam, so requested addresses have no effect: add it to the definition, or leave out \"ips\"";
        faults.push(Fault::new(kind, false, text));
    }
    for (plugin, ipam) in with_ipam {
        let call = call(&network.name, network.version(), &plugin.value);
        let own = || fixed::load(&call).map_or(1, |plan| plan.addresses.len());
        let (is_refused, text) = match (ipam, ips) {
            ("dhcp", [_, ..]) => (false, "ignores requested addresses: leave out \"ips\", or use static or host-local".to_owned()),
            // `CNI_ARGS` has all addresses in one text, of which the plugin reads only one.
            ("host-local", [_, _, ..]) => (true, "refuses more than one address in \"ips\": write them as \"cni-args\": {\"ips\": […]} instead".to_owned()),
            ("static", []) if own() == 0 => (true, "has no address for the pod: request one with \"ips\", or write \"addresses\" into the definition".to_owned()),
            ("static", ips) => match ips.iter().find(|ip| !ip.contains('/')) {
                Some(ip) => {
                    let length = if ip.contains(':') { 64 } else { 24 };
                    (true, format!("needs {ip} with a prefix length: write {ip}/{length}"))
                }
                None => continue,
            },
            _ => continue,
        };
        faults.push(Fault::new(ipam, is_refused, text));
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::Call;
    use crate::config::host_local;

    #[track_caller]
    fn check(config: &Value, ips: &[&str], mac: Option<&str>, expected: &[&str]) {
        let mut config = config.clone();
        config["cniVersion"] = "1.0.0".into();
        config["name"] = "n".into();
        let network = NetworkConfig::parse(config.to_string().as_bytes()).unwrap();
        let ips: Vec<_> = ips.iter().map(|&ip| ip.to_owned()).collect();
        let found = faults(&network, &ips, mac).into_iter();
        let found: Vec<_> = found
            .map(|fault| {
                let severity = if fault.is_refused { "error" } else { "warning" };
                format!("{severity}: {fault}")
            })
            .collect();
        assert_eq!(found, expected, "{config}");
    }

    #[test]
    fn static_needs_addresses_with_their_prefix() {
        let network =
            json!({"type": "macvlan", "capabilities": {"ips": true}, "ipam": {"type": "static"}});
        check(&network, &["192.168.1.50/24", "fd00::5/64"], None, &[]);
        check(
            &network,
            &["192.168.1.50"],
            None,
            &["error: static needs 192.168.1.50 with a prefix length: write 192.168.1.50/24"],
        );
        check(
            &network,
            &[],
            None,
            &[
                "error: static has no address for the pod: request one with \"ips\", or write \"addresses\" into the definition",
            ],
        );
        for definition in [
            json!({"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.2.3/24"}]}}),
            json!({"type": "bridge", "args": {"cni": {"ips": ["10.1.2.3/24"]}}, "ipam": {"type": "static"}}),
        ] {
            check(&definition, &[], None, &[]);
        }
    }

    #[test]
    fn host_local_takes_one_address_of_cni_args() {
        let mut network = json!({"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd00::/64"}]]}});
        let ips = ["10.1.2.3/24", "fd00::5/64"];
        check(&network, &ips[..1], None, &[]);
        check(
            &network,
            &ips,
            None,
            &[
                "error: host-local refuses more than one address in \"ips\": write them as \"cni-args\": {\"ips\": […]} instead",
            ],
        );
        // The plugin agrees, and takes what the text says.
        let load = |network: &Value, args: &str| {
            let config = Call::with_config(&network.to_string(), args);
            host_local::Config::load(&config).map(|config| config.requested.len())
        };
        let args = format!("IgnoreUnknown=true;IP={}", ips.join(","));
        let error = load(&network, &args).unwrap_err().msg;
        assert!(
            error.contains("invalid IP address 10.1.2.3/24,fd00::5/64"),
            "{error}"
        );
        network["args"] = json!({"cni": {"ips": ips}});
        assert_eq!(load(&network, ""), Ok(2));
    }

    #[test]
    fn ignored_requests_are_faults() {
        let dhcp = json!({"type": "macvlan", "ipam": {"type": "dhcp"}});
        check(&dhcp, &[], Some("02:00:00:00:00:01"), &[]);
        check(
            &dhcp,
            &["10.1.2.3/24"],
            Some("03:00:00:00:00:01"),
            &[
                "error: macvlan cannot set 03:00:00:00:00:01, an address of multicast or zero: write one as in 02:00:00:00:00:01",
                "warning: dhcp ignores requested addresses: leave out \"ips\", or use static or host-local",
            ],
        );
        check(
            &json!({"type": "ipvlan"}),
            &["10.1.2.3/24"],
            Some("02:00:00:00:00:01"),
            &[
                "warning: ipvlan does not take the hardware address that a pod requests: leave out \"mac\"",
                "warning: ipvlan has no ipam, so requested addresses have no effect: add it to the definition, or leave out \"ips\"",
            ],
        );
        for others in [
            json!({"type": "ovs"}),
            json!({"plugins": [{"type": "ipvlan"}, {"type": "own"}]}),
        ] {
            check(&others, &["10.1.2.3/24"], Some("02:00:00:00:00:01"), &[]);
        }
    }
}
