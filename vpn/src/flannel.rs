//! flannel's extension back end: the configuration that K3s gets with `--flannel-conf`, and the hook that flannel calls.
//!
//! flannel waits for the hook, and K3s ends when it fails. So the hook only notes the subnet, and another process advertises it.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Prefix;

/// The networks of a cluster's pods, at most one of each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodNetworks {
    /// The network with IPv4.
    pub ipv4: Option<Prefix>,
    /// The network with IPv6.
    pub ipv6: Option<Prefix>,
}

impl FromIterator<Prefix> for PodNetworks {
    /// Takes the first network of each family.
    fn from_iter<T: IntoIterator<Item = Prefix>>(networks: T) -> Self {
        let mut first = Self::default();
        for network in networks {
            if network.address().is_ipv4() {
                first.ipv4.get_or_insert(network);
            } else {
                first.ipv6.get_or_insert(network);
            }
        }
        first
    }
}

/// Returns `net-conf.json` with the keys that K3s writes. flannel splits the command at spaces, so its words have none.
///
/// There is no `ShutdownCommand`: K3s' own takes the VPN down at every restart, and with it the administrator's session.
pub fn net_conf(networks: PodNetworks, command: &str) -> String {
    let text = |network: Option<Prefix>, none: &str| {
        network.map_or_else(|| none.to_owned(), |network| network.to_string())
    };
    let conf = json!({
        "Network": text(networks.ipv4, "0.0.0.0/0"),
        "EnableIPv6": networks.ipv6.is_some(),
        "EnableIPv4": networks.ipv4.is_some(),
        "IPv6Network": text(networks.ipv6, "::/0"),
        "Backend": {"Type": "extension", "PostStartupCommand": command},
    });
    format!("{conf:#}\n")
}

/// The note that the hook leaves: this node's pod subnets, and the networks that they are part of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The subnets of this node's pods.
    pub subnets: Vec<Prefix>,
    /// The networks of all pods.
    pub networks: Vec<Prefix>,
}

impl Note {
    /// Reads the environment that flannel gives to its commands. It has a default route in place of what there is not.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
        networks: &[Prefix],
    ) -> Result<Self, crate::PrefixError> {
        let mut subnets = Vec::new();
        for name in ["SUBNET", "IPV6SUBNET"] {
            if let Some(text) = variable(name).filter(|text| !text.is_empty()) {
                let subnet: Prefix = text.parse()?;
                if !subnet.is_default() {
                    subnets.push(subnet);
                }
            }
        }
        Ok(Self {
            subnets,
            networks: networks.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(text: &str) -> Vec<Prefix> {
        text.split_whitespace()
            .map(|text| text.parse().unwrap())
            .collect()
    }

    #[test]
    fn configuration_has_the_keys_of_k3s() {
        let check = |networks: &str, expected: serde_json::Value| {
            let networks = prefixes(networks).into_iter().collect();
            let conf = net_conf(networks, "/usr/local/bin/multus-distro vpn hook");
            let mut conf: serde_json::Value = serde_json::from_str(&conf).unwrap();
            let backend = conf.as_object_mut().unwrap().remove("Backend").unwrap();
            assert_eq!(conf, expected);
            assert_eq!(
                backend,
                json!({
                    "Type": "extension",
                    "PostStartupCommand": "/usr/local/bin/multus-distro vpn hook",
                })
            );
        };
        check(
            "10.42.0.0/16",
            json!({"Network": "10.42.0.0/16", "EnableIPv6": false, "EnableIPv4": true, "IPv6Network": "::/0"}),
        );
        check(
            "fd42::/56 10.42.0.0/16",
            json!({"Network": "10.42.0.0/16", "EnableIPv6": true, "EnableIPv4": true, "IPv6Network": "fd42::/56"}),
        );
        check(
            "fd42::/56",
            json!({"Network": "0.0.0.0/0", "EnableIPv6": true, "EnableIPv4": false, "IPv6Network": "fd42::/56"}),
        );
    }

    #[test]
    fn hook_reads_the_subnets_from_the_environment() {
        let networks = prefixes("10.42.0.0/16 fd42::/56");
        let read = |ipv4: &str, ipv6: &str| {
            let variable = |name: &str| match name {
                "SUBNET" => Some(ipv4.to_owned()),
                "IPV6SUBNET" => Some(ipv6.to_owned()),
                _ => None,
            };
            Note::read(variable, &networks).map(|note| note.subnets)
        };
        assert_eq!(
            read("10.42.1.0/24", "::/0").unwrap(),
            prefixes("10.42.1.0/24")
        );
        assert_eq!(read("10.42.1.0/24", "").unwrap(), prefixes("10.42.1.0/24"));
        assert_eq!(
            read("0.0.0.0/0", "fd42:0:0:1::/64").unwrap(),
            prefixes("fd42:0:0:1::/64")
        );
        assert!(read("10.42.1.0", "").is_err());
    }
}
