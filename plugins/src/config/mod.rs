//! The configurations of all plugins: how they are read, and what is wrong with them. Nothing here reads or changes anything of a node,
//! so that a workstation finds the faults that a plugin would find.

pub(crate) mod bandwidth;
pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod dhcp;
pub(crate) mod dummy;
pub(crate) mod firewall;
pub(crate) mod fixed;
pub(crate) mod host_device;
pub(crate) mod host_local;
pub(crate) mod ipvlan;
pub mod keys;
pub(crate) mod macvlan;
mod misplaced;
pub(crate) mod multus_ipam;
mod needs;
pub(crate) mod portmap;
pub(crate) mod ptp;
pub(crate) mod range;
mod requested;
pub(crate) mod sbr;
pub(crate) mod tap;
pub(crate) mod tuning;
pub(crate) mod vlan;
pub(crate) mod vrf;
pub(crate) mod whereabouts;

use std::fmt;
use std::net::IpAddr;

use cni::config::{NetworkConfig, Plugin};
use cni::types::{Dns, Route};
use cni::version::Version;
use ipam::guest::TYPE as WHEREABOUTS;
use serde::Deserialize;
use serde_json::{Map, Value};

pub use needs::{Need, What, needs};
pub use range::Range;
pub use requested::faults as request_faults;

use crate::call::{Call, UNREADABLE};
use crate::error::{Result, failure};
use crate::ip::{self, Cidr};

/// A fault that a plugin finds in its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The type of the plugin; that of `ipam` for its part.
    pub plugin: String,
    /// Whether the plugin refuses the configuration. Otherwise pods start, and what `text` names has no effect.
    pub is_refused: bool,
    /// The rest of a sentence whose subject is the plugin: the fault and its cure.
    pub text: String,
}

impl Fault {
    fn new(plugin: &str, is_refused: bool, text: impl Into<String>) -> Self {
        Self {
            plugin: plugin.to_owned(),
            is_refused,
            text: text.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.plugin, self.text)
    }
}

/// Returns the faults that the plugins of a network find in it before they touch anything of a node, and parts that they do not read.
/// Plugins of other names are passed over. `has_resource` is true when each attachment gets a device.
pub fn faults(network: &NetworkConfig, has_resource: bool) -> Vec<Fault> {
    let mut faults = misplaced::faults(network, has_resource);
    for (kind, call) in all_calls(network) {
        let known = CHECKS.iter().find(|(name, _)| *name == kind);
        match known.map(|(_, check)| check(&call)) {
            // Words of the parser say less.
            Some(Err(error))
                if error.msg.starts_with(UNREADABLE)
                    && faults.iter().any(|fault| fault.plugin == kind) => {}
            Some(Err(error)) => {
                let text = format!(
                    "refuses its configuration{}: {}: correct the definition",
                    if kind == WHEREABOUTS {
                        " where multus-daemon serves it"
                    } else {
                        ""
                    },
                    error.msg
                );
                // The program of that name may accept it.
                faults.push(Fault::new(kind, kind != WHEREABOUTS, text));
            }
            Some(Ok(())) => faults.extend(unreachable_gateways(&call, kind)),
            None => {}
        }
    }
    faults
}

/// Returns the keys of `whereabouts` in a network that only its own program reads.
pub fn keys_without_effect(network: &NetworkConfig) -> Vec<String> {
    let own = all_calls(network).filter(|(kind, _)| *kind == WHEREABOUTS);
    own.flat_map(|(_, call)| whereabouts::without_effect(&call))
        .collect()
}

/// Returns the ranges of which `host-local` hands out addresses in a network, when its configuration is right.
pub fn ranges(network: &NetworkConfig) -> Vec<Range> {
    all_calls(network)
        .filter(|(kind, _)| *kind == "host-local")
        .filter_map(|(_, call)| host_local::Config::load(&call).ok())
        .flat_map(|config| config.sets)
        .flat_map(|set| set.0)
        .collect()
}

/// Reads an address with or without a prefix length, as the plugins do.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    host_local::parse_requested(text).ok()
}

/// Returns a call of each plugin of a network, those of `ipam` included, by the plugin's type.
fn all_calls(network: &NetworkConfig) -> impl Iterator<Item = (&str, Call)> {
    let plugins = network.plugins.iter();
    plugins.flat_map(|plugin| calls(network, plugin))
}

/// The same of one plugin of the network.
fn calls<'a>(
    network: &'a NetworkConfig,
    plugin: &'a Plugin,
) -> impl Iterator<Item = (&'a str, Call)> {
    let kinds = [Some(plugin.kind.as_str()), ipam_type(&plugin.value)];
    let kinds = kinds.into_iter().flatten();
    kinds.map(|kind| (kind, call(&network.name, network.version(), &plugin.value)))
}

/// Returns the type of the plugin that hands out addresses.
fn ipam_type(plugin: &Map<String, Value>) -> Option<&str> {
    get(get(plugin, "ipam")?.as_object()?, "type")?.as_str()
}

/// Returns the value of a key in any case, as the plugins read it.
fn get<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut entries = object.iter().rev();
    let entry = entries.find(|(own, _)| own.eq_ignore_ascii_case(key));
    entry
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

fn call(network: &str, version: Version, config: &Map<String, Value>) -> Call {
    Call {
        container_id: String::new(),
        netns: String::new(),
        ifname: "net1".to_owned(),
        args: String::new(),
        path: String::new(),
        stdin: serde_json::to_vec(config).unwrap_or_default(),
        version,
        network: network.to_owned(),
        may_share_netns: false,
    }
}

/// Returns the gateways that are outside the network of their address.
fn unreachable_gateways(call: &Call, plugin: &str) -> Vec<Fault> {
    let gateways: Vec<(Cidr, IpAddr)> = match plugin {
        "host-local" => host_local::Config::load(call).map_or_else(
            |_| Vec::new(),
            |config| {
                let ranges = config.sets.into_iter().flat_map(|set| set.0);
                ranges.map(|range| (range.subnet, range.gateway)).collect()
            },
        ),
        "static" => fixed::load(call).map_or_else(
            |_| Vec::new(),
            |plan| {
                let with_gateway = plan.addresses.into_iter();
                with_gateway
                    .filter_map(|(cidr, gateway)| Some((cidr, gateway?)))
                    .collect()
            },
        ),
        _ => Vec::new(),
    };
    let outside = gateways
        .into_iter()
        .filter(|(cidr, gateway)| !cidr.contains(*gateway));
    outside
        .map(|(cidr, gateway)| {
            let text = format!("assigns gateway {gateway}, which is outside the network of {cidr}, so pods cannot use it: choose another");
            Fault::new(plugin, false, text)
        })
        .collect()
}

/// Fails for a configuration that a plugin refuses before it touches anything.
pub(crate) type Check = fn(&Call) -> Result<()>;

/// The checks of configurations, by the name of the plugin. `loopback` has no keys.
pub(crate) const CHECKS: &[(&str, Check)] = &[
    ("bandwidth", |call| bandwidth::Plan::load(call).map(drop)),
    ("bond", bond::check),
    ("bridge", bridge::check),
    ("dhcp", |call| dhcp::load(call).map(drop)),
    ("dummy", |call| dummy::load(call).map(drop)),
    ("firewall", firewall::check),
    ("host-device", host_device::check),
    ("host-local", |call| {
        host_local::Config::load(call).map(drop)
    }),
    ("ipvlan", ipvlan::check),
    ("macvlan", macvlan::check),
    ("multus-ipam", |call| {
        multus_ipam::Config::load(call).map(drop)
    }),
    ("portmap", portmap::check),
    ("ptp", ptp::check),
    ("sbr", |call| call.config::<sbr::Config>().map(drop)),
    ("static", |call| fixed::load(call).map(drop)),
    ("tap", tap::check),
    ("tuning", tuning::check),
    ("vlan", vlan::check),
    ("vrf", |call| vrf::Config::load(call).map(drop)),
    (WHEREABOUTS, |call| {
        whereabouts::Config::load(call, None).map(drop)
    }),
];

/// The `ipam` object of a configuration, as far as the calling plugin reads it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct IpamConfig {
    /// The name of the plugin; without one, the interface has no addresses.
    #[serde(default, rename = "type")]
    pub(crate) plugin: String,
}

impl IpamConfig {
    /// Returns whether the configuration names an IPAM plugin.
    pub(crate) fn is_set(&self) -> bool {
        !self.plugin.is_empty()
    }

    /// Fails when the configuration names none, for a plugin that cannot do without.
    pub(crate) fn require(&self) -> Result<()> {
        if self.is_set() {
            return Ok(());
        }
        Err(failure!("no plugin name provided"))
    }
}

/// The object `args` of a configuration, of which plugins read this part.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Args<T> {
    pub(crate) cni: T,
}

/// A request for addresses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ips {
    pub(crate) ips: Vec<String>,
}

/// A request for a hardware address; empty for none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Mac {
    pub(crate) mac: String,
}

impl Mac {
    /// Returns the runtime's own request, or else that of `CNI_ARGS`.
    fn or_args(self, call: &Call) -> Result<Option<String>> {
        let args = call.known_args(&["MAC"])?;
        let requested = [self.mac.as_str(), args.get("MAC").unwrap_or_default()];
        let mac = requested.into_iter().find(|mac| !mac.is_empty());
        Ok(mac.map(str::to_owned))
    }
}

/// The modes of a kind of link, with the kernel's numbers (`linux/if_link.h`). The first one is the default.
pub(crate) struct Modes {
    kind: &'static str,
    all: &'static [(&'static str, u16)],
}

impl Modes {
    /// Returns the number of a mode; an empty name is the default.
    pub(crate) fn parse(&self, name: &str) -> Result<u16> {
        let mut all = self.all.iter();
        let found = all.find(|(known, _)| name.is_empty() || *known == name);
        found
            .map(|(_, number)| *number)
            .ok_or_else(|| failure!("unknown {} mode: {name:?}", self.kind))
    }

    pub(crate) fn name(&self, number: u32) -> String {
        let mut all = self.all.iter();
        let found = all.find(|(_, known)| u32::from(*known) == number);
        found.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
    }
}

/// The keys `ipMasq` and `ipMasqBackend`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Masquerade {
    /// Whether what the container sends out of its network leaves with the host's address.
    #[serde(rename = "ipmasq")]
    pub(crate) is_on: bool,
    /// `iptables` or `nftables`; the one that works here when absent.
    #[serde(rename = "ipmasqbackend")]
    pub(crate) backend: Option<String>,
}

impl Masquerade {
    /// Fails for a backend that there is none of.
    fn check(&self) -> Result<()> {
        match &self.backend {
            Some(name) if self.is_on => Backend::parse_masquerade(name).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// The `dns` object of a configuration. A list that is there and empty counts too: it takes away the lists of the IPAM plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DnsConfig {
    pub(crate) nameservers: Option<Vec<String>>,
    pub(crate) domain: String,
    pub(crate) search: Option<Vec<String>>,
    pub(crate) options: Option<Vec<String>>,
}

impl DnsConfig {
    /// Returns the name resolution of a result: the configuration's as a whole, if it has any, otherwise that of the IPAM plugin.
    pub(crate) fn or(self, ipam: Dns) -> Dns {
        let lists = [&self.nameservers, &self.search, &self.options];
        if self.domain.is_empty() && lists.iter().all(|list| list.is_none()) {
            return ipam;
        }
        Dns {
            nameservers: self.nameservers.unwrap_or_default(),
            domain: self.domain,
            search: self.search.unwrap_or_default(),
            options: self.options.unwrap_or_default(),
        }
    }
}

/// The two ways to the kernel's packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Iptables,
    Nftables,
}

impl Backend {
    /// Returns the one of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "iptables" => Some(Self::Iptables),
            "nftables" => Some(Self::Nftables),
            _ => None,
        }
    }

    /// Returns the one that `ipMasqBackend` names.
    pub(crate) fn parse_masquerade(name: &str) -> Result<Self> {
        Self::parse(name).ok_or_else(|| failure!("unknown ipmasq backend {name:?}"))
    }
}

/// Returns a route as plugins print it: with the shortest forms of its addresses. One whose addresses cannot be read is refused.
pub(crate) fn canonical_route(mut route: Route) -> Result<Route> {
    let parse = |text: &str| text.parse::<Cidr>().map_err(|error| failure!("{error}"));
    route.dst = parse(&route.dst)?.to_string();
    if !route.gw.is_empty() {
        let gateway = ip::parse(&route.gw).map_err(|error| failure!("{error}"))?;
        route.gw = gateway.to_string();
    }
    Ok(route)
}

/// Reads a hardware address of 6, 8 or 20 bytes, written with `:`, `-` or, in groups of four digits, with `.`.
pub(crate) fn parse_mac(text: &str) -> Option<Vec<u8>> {
    let separator = text
        .chars()
        .find(|character| !character.is_ascii_hexdigit())?;
    let digits = match separator {
        ':' | '-' => 2,
        '.' => 4,
        _ => return None,
    };
    let mut mac = Vec::new();
    for group in text.split(separator) {
        if group.len() != digits {
            return None;
        }
        for at in (0..digits).step_by(2) {
            mac.push(u8::from_str_radix(group.get(at..at + 2)?, 16).ok()?);
        }
    }
    matches!(mac.len(), 6 | 8 | 20).then_some(mac)
}

/// Reads the hardware address that is requested for an interface.
pub(crate) fn parse_requested_mac(text: &str) -> Result<Vec<u8>> {
    parse_mac(text).ok_or_else(|| {
        failure!("invalid args {text} for MAC addr: address {text}: invalid MAC address")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(value: &Value) -> NetworkConfig {
        NetworkConfig::parse(value.to_string().as_bytes()).unwrap()
    }

    fn with_ipam(ipam: &Value) -> NetworkConfig {
        network(&json!({"cniVersion": "1.0.0", "name": "n", "type": "sriov", "ipam": ipam}))
    }

    #[track_caller]
    fn check(network: &NetworkConfig, expected: &[(&str, bool, &str)]) {
        let found = faults(network, true);
        let found: Vec<_> = found
            .iter()
            .map(|fault| (fault.plugin.as_str(), fault.is_refused, fault.text.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn right_configurations_have_no_fault() {
        for ipam in [
            json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/25"}, {"subnet": "10.1.2.128/25"}], [{"subnet": "fd00:1::/64"}]]}),
            json!({"type": "host-local", "SUBNET": "10.1.2.0/24", "rangeStart": "10.1.2.10", "gateway": "10.1.2.1"}),
            json!({"type": "static", "addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]}),
            json!({"type": "static"}),
            json!({"type": "dhcp"}),
            json!({"type": "whereabouts", "range": "10.1.2.0/24", "exclude": ["10.1.2.0/28"]}),
            json!({"type": "other", "range": "x"}),
            json!({}),
        ] {
            check(&with_ipam(&ipam), &[]);
        }
        let host_device = json!({"cniVersion": "1.0.0", "name": "n", "type": "host-device"});
        check(&network(&host_device), &[]);
    }

    #[test]
    fn each_plugin_of_a_list_is_checked_with_its_ipam() {
        let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "macvlan", "mode": "brigde", "ipam": {"type": "host-local", "ranges": [[]]}},
            {"type": "tuning", "sysctl": {"kernel.msgmax": "1"}},
            {"type": "vrf"},
        ]});
        check(
            &network(&list),
            &[
                (
                    "macvlan",
                    true,
                    "refuses its configuration: unknown macvlan mode: \"brigde\": correct the definition",
                ),
                (
                    "host-local",
                    true,
                    "refuses its configuration: invalid range set 0: empty range set: correct the definition",
                ),
                (
                    "tuning",
                    true,
                    "refuses its configuration: invalid net sysctl key: \"kernel/msgmax\": correct the definition",
                ),
                (
                    "vrf",
                    true,
                    "refuses its configuration: configuration is expected to have a valid vrf name: correct the definition",
                ),
            ],
        );
    }

    #[test]
    fn gateways_outside_their_network_have_no_effect() {
        check(
            &with_ipam(
                &json!({"type": "host-local", "subnet": "10.1.2.0/24", "gateway": "10.1.3.1"}),
            ),
            &[(
                "host-local",
                false,
                "assigns gateway 10.1.3.1, which is outside the network of 10.1.2.0/24, so pods cannot use it: choose another",
            )],
        );
        check(
            &with_ipam(
                &json!({"type": "static", "addresses": [{"address": "10.1.2.3/24", "gateway": "10.9.9.9"}]}),
            ),
            &[(
                "static",
                false,
                "assigns gateway 10.9.9.9, which is outside the network of 10.1.2.3/24, so pods cannot use it: choose another",
            )],
        );
    }

    #[test]
    fn whereabouts_may_be_served_by_its_own_program() {
        let network = with_ipam(
            &json!({"type": "whereabouts", "ipRanges": [{"range": "10.1.2.0/24"}], "log_level": "debug",
            "kubernetes": {"kubeconfig": "/x"}, "leader_lease_duration": 1500}),
        );
        check(&network, &[]);
        let expected = ["kubernetes", "log_level", "leader_lease_duration"];
        assert_eq!(keys_without_effect(&network), expected);
        check(
            &with_ipam(
                &json!({"type": "whereabouts", "ipRanges": [{"range": "10.1.2.0/24"}, {"range": "fd00::/64"}], "node_slice_size": "/26"}),
            ),
            &[(
                "whereabouts",
                false,
                "refuses its configuration where multus-daemon serves it: ipam.node_slice_size: slices of nodes are those of one range; remove the others, or this key: correct the definition",
            )],
        );
    }

    #[test]
    fn ranges_contain_assignable_addresses_only() {
        let ranges = ranges(&with_ipam(
            &json!({"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24", "rangeEnd": "10.1.2.9"}], [{"subnet": "fd00::/64"}]]}),
        ));
        for (address, expected) in [
            ("10.1.2.1", true),
            ("10.1.2.9/24", true),
            ("10.1.2.0", false),
            ("10.1.2.10", false),
            ("fd00::7/64", true),
            ("fd01::7", false),
        ] {
            let address = parse_address(address).unwrap();
            let is_inside = ranges.iter().any(|range| range.contains(address));
            assert_eq!(is_inside, expected, "{address}");
        }
        assert_eq!(super::ranges(&with_ipam(&json!({"type": "static"}))), []);
    }
}
