//! Links, addresses, routes and rules of the network namespace, by netlink (RFC 3549; `linux/rtnetlink.h`, `linux/fib_rules.h`).
//!
//! Only what the VPN needs: everything is read by dumps, and the one thing that is written is a rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    time::Duration,
};

use netlink::{
    Attributes, Message, Socket,
    codec::{from_octets, octets, text, u32_at},
    route::{self, AF_INET, AF_INET6, AddRoute, RTN_UNICAST, RTN_UNREACHABLE},
};

use crate::{Prefix, rule::PROTOCOL};

const NLM_F_CREATE_EXCL: u16 = 0x600;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
/// `AF_BRIDGE`: the tables by which bridges and VXLAN forward.
const AF_BRIDGE: u8 = 7;
/// `EEXIST`: the rule is there.
const EXISTS: i32 = 17;
/// `ENOENT`: the rule is gone.
const GONE: i32 = 2;

/// `ESRCH`: the route is gone.
const NO_ROUTE: i32 = 3;

/// The length of `struct fib_rule_hdr`.
const RULE: usize = 12;
/// How long a reply of the kernel may take, which is lost afterwards.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// The routing table of ordinary routes.
pub const MAIN: u32 = route::RT_TABLE_MAIN;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// It was set up, and may pass packets.
    pub is_up: bool,
    /// Its kind, such as `bridge`; hardware has none.
    pub kind: Option<String>,
    /// The interface below a VXLAN.
    pub below: Option<Below>,
}

/// The interface through which a VXLAN sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    /// Its index.
    pub link: u32,
    /// The packets around VXLAN are those of IPv6.
    pub is_ipv6: bool,
}

/// A unicast route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The addresses for which it counts.
    pub destination: Prefix,
    pub table: u32,
    /// The index of its interface.
    pub link: Option<u32>,
    /// The program that made it, as a number of its own.
    pub protocol: u8,
}

/// A rule of policy routing that chooses a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its place; lower ones come first.
    pub priority: u32,
    /// The destinations for which it counts; it counts for all unless set.
    pub destination: Option<Prefix>,
    pub table: u32,
    /// The program that made it, as a number of its own.
    pub protocol: u8,
}

/// The network of a namespace at one moment.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Interfaces by their index.
    pub links: BTreeMap<u32, Link>,
    /// Addresses with the index of their interface.
    pub addresses: Vec<(IpAddr, u32)>,
    /// Unicast routes of all tables.
    pub routes: Vec<Route>,
    /// The ranges that this program has made unreachable by any other way than the more specific routes.
    pub barriers: Vec<Prefix>,
    /// Rules that choose a table.
    pub rules: Vec<Rule>,
}

impl Network {
    /// Returns the index of the interface that has one of these addresses.
    pub fn link_of(&self, addresses: &[IpAddr]) -> Option<u32> {
        let found = self
            .addresses
            .iter()
            .find(|(address, _)| addresses.contains(address));
        found.map(|(_, index)| *index)
    }

    /// Returns the index of the interface with this name.
    pub fn link_named(&self, name: &str) -> Option<u32> {
        let mut links = self.links.iter();
        let found = links.find(|(_, link)| link.name == name);
        found.map(|(index, _)| *index)
    }
}

/// A connection to the kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink(Socket);

impl Netlink {
    /// Connects to the kernel.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(None)?;
        socket.limit_wait(ANSWER)?;
        Ok(Self(socket))
    }

    /// Reads the whole network.
    pub fn network(&mut self) -> io::Result<Network> {
        let links = self.dump(RTM_GETLINK, 16)?;
        let addresses = self.dump(RTM_GETADDR, 8)?;
        let routes = self.dump(RTM_GETROUTE, 12)?;
        let rules = self.dump(RTM_GETRULE, RULE)?;
        Ok(Network {
            links: links.iter().filter_map(|body| parse_link(body)).collect(),
            addresses: addresses
                .iter()
                .filter_map(|body| parse_address(body))
                .collect(),
            routes: routes.iter().filter_map(|body| parse_route(body)).collect(),
            barriers: routes
                .iter()
                .filter_map(|body| parse_barrier(body))
                .collect(),
            rules: rules.iter().filter_map(|body| parse_rule(body)).collect(),
        })
    }

    /// Returns the addresses to which these VXLAN interfaces send, each once.
    pub fn vxlan_destinations(&mut self, links: &[u32]) -> io::Result<BTreeSet<IpAddr>> {
        // `struct ifinfomsg`, which all kernels take here.
        let mut fixed = [0; 16];
        fixed[0] = AF_BRIDGE;
        let entries = self.0.dump(|| Message::new(RTM_GETNEIGH, 0, &fixed))?;
        let found = entries.iter().filter_map(|body| parse_destination(body));
        let on_links = found.filter(|(_, link)| links.contains(link));
        Ok(on_links.map(|(address, _)| address).collect())
    }

    /// Adds a rule; one that is there already is kept.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.change(rule_message(RTM_NEWRULE, NLM_F_CREATE_EXCL, rule), EXISTS)
    }

    /// Deletes a rule, if it is there.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.change(rule_message(RTM_DELRULE, 0, rule), GONE)
    }

    /// Adds a route of the main table to addresses on an interface; one that is there already is kept.
    pub fn add_route(&mut self, destination: Prefix, link: u32) -> io::Result<()> {
        let mut route = route::Route::new((destination.address(), destination.length()), link);
        route.protocol = PROTOCOL;
        route.scope = route::RT_SCOPE_LINK;
        self.change(route.add(AddRoute::New), EXISTS)
    }

    /// Deletes a route, if it is there.
    pub fn delete_route(&mut self, found: &Route) -> io::Result<()> {
        let to = (found.destination.address(), found.destination.length());
        let mut route = route::Route::new(to, found.link.unwrap_or(0));
        route.protocol = found.protocol;
        route.scope = route::RT_SCOPE_NOWHERE;
        self.change(route.delete(), NO_ROUTE)
    }

    /// Makes a range unreachable but for more specific routes; one that is already is kept.
    pub fn add_barrier(&mut self, range: Prefix) -> io::Result<()> {
        self.change(barrier(range).add(AddRoute::New), EXISTS)
    }

    /// Takes this back, if it was done.
    pub fn delete_barrier(&mut self, range: Prefix) -> io::Result<()> {
        self.change(barrier(range).delete(), NO_ROUTE)
    }

    fn change(&mut self, message: Message, fine: i32) -> io::Result<()> {
        match self.0.request(message) {
            Err(error) if error.raw_os_error() == Some(fine) => Ok(()),
            other => other,
        }
    }

    fn dump(&mut self, kind: u16, header: usize) -> io::Result<Vec<Vec<u8>>> {
        self.0.dump(|| Message::new(kind, 0, &vec![0; header]))
    }
}

fn parse_link(body: &[u8]) -> Option<(u32, Link)> {
    const IFF_UP: u32 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    const IFLA_VXLAN_LINK: u16 = 3;
    const IFLA_VXLAN_GROUP6: u16 = 16;
    const IFLA_VXLAN_LOCAL6: u16 = 17;
    let attributes = Attributes(body.get(16..)?);
    let info = attributes.nested(IFLA_LINKINFO);
    let kind = info.as_ref().and_then(|info| info.get(IFLA_INFO_KIND));
    let kind = kind.map(text);
    let below = info
        .filter(|_| kind.as_deref() == Some("vxlan"))
        .and_then(|info| info.nested(IFLA_INFO_DATA))
        .and_then(|data| {
            let ipv6_keys = [IFLA_VXLAN_GROUP6, IFLA_VXLAN_LOCAL6];
            Some(Below {
                link: u32_at(data.get(IFLA_VXLAN_LINK)?, 0)?,
                is_ipv6: ipv6_keys.iter().any(|kind| data.get(*kind).is_some()),
            })
        });
    let link = Link {
        name: text(attributes.get(IFLA_IFNAME)?),
        mtu: u32_at(attributes.get(IFLA_MTU)?, 0)?,
        is_up: u32_at(body, 8)? & IFF_UP != 0,
        kind,
        below,
    };
    Some((u32_at(body, 4)?, link))
}

/// Reads a `struct ndmsg` of a forwarding table: the address to which the packets for a MAC go, and the link.
fn parse_destination(body: &[u8]) -> Option<(IpAddr, u32)> {
    const NDA_DST: u16 = 1;
    let attributes = Attributes(body.get(12..)?);
    Some((from_octets(attributes.get(NDA_DST)?)?, u32_at(body, 4)?))
}

fn parse_address(body: &[u8]) -> Option<(IpAddr, u32)> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let attributes = Attributes(body.get(8..)?);
    let bytes = attributes
        .get(IFA_LOCAL)
        .or_else(|| attributes.get(IFA_ADDRESS))?;
    Some((from_octets(bytes)?, u32_at(body, 4)?))
}

fn parse_route(body: &[u8]) -> Option<Route> {
    let route = route::Route::<(IpAddr, u8)>::parse(body)?;
    let (address, length) = route.destination;
    let destination = Prefix::new(address, length)?;
    (route.kind == RTN_UNICAST).then_some(Route {
        destination,
        table: route.table,
        link: route.link,
        protocol: route.protocol,
    })
}

/// The route that drops packets to a range. Its metric is the last, so that no route of others to the same range is hidden.
fn barrier(range: Prefix) -> route::Route<(IpAddr, u8)> {
    let mut route = route::Route::new((range.address(), range.length()), 0);
    route.link = None;
    route.kind = RTN_UNREACHABLE;
    route.priority = u32::MAX;
    route.protocol = PROTOCOL;
    route
}

fn parse_barrier(body: &[u8]) -> Option<Prefix> {
    let route = route::Route::<(IpAddr, u8)>::parse(body)?;
    let (address, length) = route.destination;
    let is_ours = route.kind == RTN_UNREACHABLE && route.protocol == PROTOCOL;
    Prefix::new(address, length).filter(|_| is_ours && route.table == MAIN)
}

const FR_ACT_TO_TBL: u8 = 1;
const FRA_DST: u16 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;

fn parse_rule(body: &[u8]) -> Option<Rule> {
    let attributes = Attributes(body.get(12..)?);
    if *body.get(7)? != FR_ACT_TO_TBL {
        return None;
    }
    let number = |kind| attributes.get(kind).and_then(|value| u32_at(value, 0));
    let destination = attributes.get(FRA_DST);
    Some(Rule {
        priority: number(FRA_PRIORITY).unwrap_or(0),
        destination: match destination {
            Some(bytes) => Some(Prefix::new(from_octets(bytes)?, *body.get(1)?)?),
            None => None,
        },
        table: number(FRA_TABLE).unwrap_or(u32::from(*body.get(4)?)),
        protocol: attributes
            .get(FRA_PROTOCOL)
            .and_then(|value| value.first().copied())
            .unwrap_or(0),
    })
}

fn rule_message(kind: u16, flags: u16, rule: &Rule) -> Message {
    let mut fixed = [0; RULE];
    let is_v6 = rule
        .destination
        .is_some_and(|range| range.address().is_ipv6());
    fixed[0] = if is_v6 { AF_INET6 } else { AF_INET };
    fixed[1] = rule.destination.map_or(0, Prefix::length);
    // A table above 255 has room in its attribute alone.
    fixed[4] = u8::try_from(rule.table).unwrap_or(0);
    fixed[7] = FR_ACT_TO_TBL;
    let mut message = Message::new(kind, flags, &fixed);
    if let Some(destination) = rule.destination {
        message.put(FRA_DST, &octets(destination.address()));
    }
    message
        .put_u32(FRA_PRIORITY, rule.priority)
        .put_u32(FRA_TABLE, rule.table)
        .put_u8(FRA_PROTOCOL, rule.protocol);
    message
}

/// Fuzz target of the kernel's objects.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use netlink::codec::HEADER;

    use super::{
        RTM_NEWRULE, parse_address, parse_barrier, parse_destination, parse_link, parse_route,
        parse_rule, rule_message,
    };

    /// The bytes after the header of a message, read as an object of each kind; a rule is read again as it is written.
    pub fn netlink(input: &[u8]) -> bool {
        let rule = parse_rule(input);
        if let Some(rule) = rule.as_ref() {
            let written = rule_message(RTM_NEWRULE, 0, rule).finish(0, 1);
            assert_eq!(parse_rule(&written[HEADER..]).as_ref(), Some(rule));
        }
        let found = [
            parse_link(input).is_some(),
            parse_address(input).is_some(),
            parse_destination(input).is_some(),
            parse_route(input).is_some(),
            parse_barrier(input).is_some(),
            rule.is_some(),
        ];
        found.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use netlink::codec::HEADER;

    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for (destination, table) in [("192.168.1.0/24", MAIN), ("fd00:1::/64", 70_000)] {
            let rule = Rule {
                priority: 5200,
                destination: Some(destination.parse().unwrap()),
                table,
                protocol: 77,
            };
            let bytes = rule_message(RTM_NEWRULE, 0, &rule).finish(0, 1);
            assert_eq!(parse_rule(&bytes[HEADER..]), Some(rule));
        }
    }

    #[test]
    fn barriers_are_read_as_they_are_written_and_are_no_routes() {
        for text in ["10.42.0.0/16", "fd42::/56"] {
            let range: Prefix = text.parse().unwrap();
            let bytes = barrier(range).add(AddRoute::New).finish(0, 1);
            let body = &bytes[HEADER..];
            assert_eq!(
                (parse_barrier(body), parse_route(body)),
                (Some(range), None)
            );
            let mut other_body = body.to_vec();
            other_body[5] = 2;
            assert_eq!(parse_barrier(&other_body), None);
        }
    }

    #[test]
    fn routes_without_destination_are_default_routes() {
        let mut body = vec![AF_INET, 0, 0, 0, 254, 3, 0, RTN_UNICAST, 0, 0, 0, 0];
        body.extend([8, 0, 4, 0]);
        body.extend(7_u32.to_ne_bytes());
        let route = parse_route(&body).unwrap();
        assert!(route.destination.is_default());
        assert_eq!((route.table, route.link), (MAIN, Some(7)));
        body[7] = 3;
        assert_eq!(parse_route(&body), None, "a broadcast route");
    }

    /// Returns an attribute with its header.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn vxlan_has_the_family_of_the_packets_around_it() {
        let below = |local: Vec<u8>| {
            let data = [attribute(3, &7_u32.to_ne_bytes()), local].concat();
            let info = [attribute(1, b"vxlan\0"), attribute(2, &data)].concat();
            let body = [
                vec![0; 16],
                attribute(3, b"flannel.1\0"),
                attribute(4, &1230_u32.to_ne_bytes()),
                attribute(18, &info),
            ];
            parse_link(&body.concat()).unwrap().1.below.unwrap()
        };
        let over = |is_ipv6| Below { link: 7, is_ipv6 };
        assert_eq!(below(attribute(4, &[100, 64, 0, 1])), over(false));
        assert_eq!(below(attribute(17, &[0xfd; 16])), over(true));
        assert_eq!(below(Vec::new()), over(false));
    }

    #[test]
    fn forwarding_entry_has_the_address_and_the_link() {
        let fixed = [&[7, 0, 0, 0][..], &7_u32.to_ne_bytes(), &[0; 4]].concat();
        let entry = [fixed.clone(), attribute(1, &[10, 9, 0, 2])].concat();
        let expected = ("10.9.0.2".parse().unwrap(), 7);
        assert_eq!(parse_destination(&entry), Some(expected));
        assert_eq!(parse_destination(&fixed), None, "an entry of a bridge");
    }

    #[test]
    fn network_of_this_process_has_the_loopback_interface() {
        let network = Netlink::open().unwrap().network().unwrap();
        let loopback = network.links.values().find(|link| link.name == "lo");
        assert!(loopback.is_some_and(|link| link.mtu > 0), "{network:?}");
    }
}
