//! flannel's extension back end: the configuration that K3s gets with `--flannel-conf`, and the hook that flannel calls.
//!
//! flannel waits for the hook, and K3s ends when it fails. So the hook only notes the subnet, and another process advertises it.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Prefix,
    peers::{Other, is_key},
    provider::Pods,
};

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

/// Returns `net-conf.json` with the keys that K3s writes. flannel splits commands at spaces, so their words have none.
///
/// There is no `ShutdownCommand`: K3s' own takes the VPN down at every restart, and with it the administrator's session.
pub fn net_conf(networks: PodNetworks, command: &str, pods: Pods, kubeconfig: &str) -> String {
    let text = |network: Option<Prefix>, none: &str| {
        network.map_or_else(|| none.to_owned(), |network| network.to_string())
    };
    let mut backend = json!({"Type": "extension", "PostStartupCommand": command});
    if pods == Pods::Routes {
        // flannel itself names no IPv6 subnet of another node, so each node publishes its own.
        let identity = match networks.ipv6 {
            Some(_) => format!("--identity --kubeconfig={kubeconfig}"),
            None => "--identity".to_owned(),
        };
        for (key, option) in [
            ("PreStartupCommand", identity.as_str()),
            ("SubnetAddCommand", "--add"),
            ("SubnetRemoveCommand", "--remove"),
        ] {
            backend[key] = format!("{command} {option}").into();
        }
    }
    let conf = json!({
        "Network": text(networks.ipv4, "0.0.0.0/0"),
        "EnableIPv6": networks.ipv6.is_some(),
        "EnableIPv4": networks.ipv4.is_some(),
        "IPv6Network": text(networks.ipv6, "::/0"),
        "Backend": backend,
    });
    format!("{conf:#}\n")
}

/// The note that the hook leaves: this node's pod subnets, the networks that they are part of, and the other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The subnets of this node's pods.
    pub subnets: Vec<Prefix>,
    /// The networks of all pods.
    pub networks: Vec<Prefix>,
    /// How often flannel has started in this boot.
    #[serde(default)]
    pub starts: u32,
    /// The other nodes, with those that an earlier start has named and this one not yet.
    #[serde(default)]
    pub others: Vec<Other>,
}

/// A reason why the note of another node is not kept.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    #[error(transparent)]
    Subnet(#[from] crate::PrefixError),
    #[error("{0} is not an address of a node")]
    Address(String),
    #[error(
        "the subnet {0} of another node is not of the pods' networks, or of this node's own pods"
    )]
    Foreign(Prefix),
}

impl Note {
    /// Returns the note of a flannel that starts, from the environment that it gives to its commands. It has a default route in place of
    /// what there is not. flannel names all other nodes anew, and none that left meanwhile.
    pub fn start(
        variable: impl Fn(&str) -> Option<String>,
        networks: &[Prefix],
        former: Option<Self>,
        remembered: &[Other],
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
        let (starts, mut others) = if let Some(former) = former {
            (former.starts, former.others)
        } else {
            let mut others = remembered.to_vec();
            for other in &mut others {
                other.start = 0;
            }
            (0, others)
        };
        // After the node has joined again it may have the subnet that another one had.
        others.retain(|other| {
            let mut own = subnets.iter();
            !own.any(|own| own.intersection(other.subnet).is_some())
        });
        Ok(Self {
            subnets,
            networks: networks.to_vec(),
            starts: starts.saturating_add(1),
            others,
        })
    }

    /// Notes another node, with what it has published of itself. Nodes write that themselves, so only pods' subnets count.
    pub fn add(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
        published: &str,
    ) -> Result<(), NoteError> {
        let subnet: Prefix = variable("SUBNET").unwrap_or_default().parse()?;
        let address = variable("PUBLIC_IP").unwrap_or_default();
        let address = match address.parse::<IpAddr>() {
            Ok(parsed) if !parsed.is_unspecified() => parsed,
            _ => return Err(NoteError::Address(address)),
        };
        if !self.is_of_others(subnet) {
            return Err(NoteError::Foreign(subnet));
        }
        let published = Published::parse(published);
        // One that is not of other nodes' pods counts as absent, which `vpn run` reports.
        let ipv6 = published.ipv6.filter(|ipv6| self.is_of_others(*ipv6));
        for subnet in [Some(subnet), ipv6].into_iter().flatten() {
            self.others
                .retain(|other| other.subnet.intersection(subnet).is_none());
            self.others.push(Other {
                subnet,
                address,
                key: published.key.clone(),
                start: self.starts,
            });
        }
        Ok(())
    }

    /// Forgets a node that has left, with what it had published.
    pub fn remove(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
        published: &str,
    ) -> Result<(), NoteError> {
        let subnet: Prefix = variable("SUBNET").unwrap_or_default().parse()?;
        let ipv6 = Published::parse(published).ipv6;
        self.others
            .retain(|other| other.subnet != subnet && Some(other.subnet) != ipv6);
        Ok(())
    }

    /// Returns whether a subnet is of pods, and not of this node's own.
    fn is_of_others(&self, subnet: Prefix) -> bool {
        let is_of_pods = self.networks.iter().any(|pods| pods.contains(subnet));
        let mut own = self.subnets.iter();
        is_of_pods && !own.any(|own| own.intersection(subnet).is_some())
    }
}

/// What a node publishes of itself by flannel: its public key, and the IPv6 subnet of its pods where the cluster has both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    pub key: Option<String>,
    pub ipv6: Option<Prefix>,
}

impl Published {
    /// Reads what a node has published, as far as it is understood.
    pub fn parse(text: &str) -> Self {
        let key = text.split_whitespace().find(|word| is_key(word));
        let prefixes = text.split_whitespace().map(str::parse);
        let mut prefixes = prefixes.filter_map(Result::<Prefix, _>::ok);
        Self {
            key: key.map(str::to_owned),
            ipv6: prefixes.find(|prefix| prefix.address().is_ipv6()),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.iter().cloned();
        let ipv6 = self.ipv6.map(|ipv6| ipv6.to_string());
        f.write_str(&key.chain(ipv6).collect::<Vec<_>>().join(" "))
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
            let command = "/usr/local/bin/multus-distro vpn hook";
            let conf = net_conf(networks, command, Pods::Advertised, "/k");
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
            Note::start(variable, &networks, None, &[]).map(|note| note.subnets)
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

    #[test]
    fn routes_need_all_of_flannels_commands() {
        let networks = prefixes("10.42.0.0/16").into_iter().collect();
        let conf = net_conf(networks, "/x vpn hook", Pods::Routes, "/k");
        let conf: serde_json::Value = serde_json::from_str(&conf).unwrap();
        assert_eq!(
            conf["Backend"],
            json!({
                "Type": "extension",
                "PreStartupCommand": "/x vpn hook --identity",
                "PostStartupCommand": "/x vpn hook",
                "SubnetAddCommand": "/x vpn hook --add",
                "SubnetRemoveCommand": "/x vpn hook --remove",
            })
        );
        let both = prefixes("10.42.0.0/16 fd42::/56").into_iter().collect();
        let conf = net_conf(both, "/x vpn hook", Pods::Routes, "/k");
        let conf: serde_json::Value = serde_json::from_str(&conf).unwrap();
        assert_eq!(
            conf["Backend"]["PreStartupCommand"],
            "/x vpn hook --identity --kubeconfig=/k"
        );
    }

    const KEY: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    fn of(subnet: &str, address: &str) -> impl Fn(&str) -> Option<String> {
        move |name: &str| match name {
            "SUBNET" => Some(subnet.to_owned()),
            "PUBLIC_IP" => Some(address.to_owned()),
            _ => None,
        }
    }

    #[test]
    fn others_are_noted_until_they_leave_and_named_anew_by_each_start() {
        let networks = prefixes("10.42.0.0/16");
        let start = |former, remembered: &[Other]| {
            Note::start(
                of("10.42.1.0/24", "10.9.0.1"),
                &networks,
                former,
                remembered,
            )
            .unwrap()
        };
        let mut note = start(None, &[]);
        note.add(of("10.42.2.0/24", "10.9.0.2"), &format!("{KEY}\n"))
            .unwrap();
        note.add(of("10.42.3.0/24", "10.9.0.3"), "cannot say")
            .unwrap();
        let keys: Vec<_> = note
            .others
            .iter()
            .map(|other| other.key.as_deref())
            .collect();
        assert_eq!(keys, [Some(KEY), None]);
        note.remove(of("10.42.3.0/24", "10.9.0.3"), "").unwrap();
        note.remove(of("10.42.3.0/24", "10.9.0.3"), "").unwrap();
        assert_eq!(note.others.len(), 1);
        let mut again = start(Some(note.clone()), &[]);
        assert_eq!((again.starts, again.others[0].start), (2, 1));
        again.add(of("10.42.2.0/24", "10.9.0.9"), "").unwrap();
        assert_eq!((again.others.len(), again.others[0].start), (1, 2));
        // After a boot the record has them.
        let rebooted = start(None, &again.others);
        assert_eq!((rebooted.starts, rebooted.others[0].start), (1, 0));
        // This node has joined anew, with the subnet that the other one had.
        let own = of("10.42.2.0/24", "10.9.0.1");
        let joined = Note::start(own, &networks, None, &again.others).unwrap();
        assert_eq!(joined.others, []);
    }

    #[test]
    fn nodes_cannot_take_more_than_subnets_of_pods() {
        let networks = prefixes("10.42.0.0/16");
        let mut note = Note::start(of("10.42.1.0/24", "10.9.0.1"), &networks, None, &[]).unwrap();
        for (subnet, address) in [
            ("0.0.0.0/0", "10.9.0.2"),
            ("10.0.0.0/8", "10.9.0.2"),
            ("192.168.1.0/24", "10.9.0.2"),
            ("10.42.1.128/25", "10.9.0.2"),
            ("10.42.2.0/24", ""),
            ("10.42.2.0/24", "0.0.0.0"),
            ("", "10.9.0.2"),
        ] {
            assert!(
                note.add(of(subnet, address), "").is_err(),
                "{subnet} {address}"
            );
        }
        assert_eq!(note.others, []);
    }

    #[test]
    fn ipv6_subnet_is_the_one_that_its_node_has_published() {
        let networks = prefixes("10.42.0.0/16 fd42::/56");
        let own = |name: &str| match name {
            "SUBNET" => Some("10.42.1.0/24".to_owned()),
            "IPV6SUBNET" => Some("fd42:0:0:1::/64".to_owned()),
            _ => None,
        };
        let mut note = Note::start(own, &networks, None, &[]).unwrap();
        let subnets = |note: &Note| {
            let others = note.others.iter();
            let texts: Vec<_> = others.map(|other| other.subnet.to_string()).collect();
            texts.join(" ")
        };
        let second = || of("10.42.2.0/24", "10.9.0.2");
        let published = format!("{KEY} fd42:0:0:2::/64");
        assert_eq!(Published::parse(&published).to_string(), published);
        note.add(second(), &format!("{published}\n")).unwrap();
        assert_eq!(subnets(&note), "10.42.2.0/24 fd42:0:0:2::/64");
        let mut others = note.others.iter();
        assert!(others.all(|one| one.key.as_deref() == Some(KEY) && one.address == node_address()));
        // Neither what is not of pods, nor this node's own.
        for foreign in ["::/0", "fd43::/64", "fd42:0:0:1::/64"] {
            let mut other = note.clone();
            other.others.clear();
            other.add(second(), foreign).unwrap();
            assert_eq!(subnets(&other), "10.42.2.0/24", "{foreign}");
        }
        note.remove(second(), &published).unwrap();
        assert_eq!(note.others, []);
    }

    fn node_address() -> IpAddr {
        [10, 9, 0, 2].into()
    }
}
