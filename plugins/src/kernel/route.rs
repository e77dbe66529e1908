//! Routes (`linux/rtnetlink.h`).

use std::net::IpAddr;

use super::address::family;
use super::codec::{Attributes, Message, u32_at};
use super::errno::Errno;
use super::socket::Netlink;
use crate::ip::{Cidr, from_octets, octets};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const RTM_F_CLONED: u32 = 0x200;
const RTN_UNICAST: u8 = 1;
const RTPROT_BOOT: u8 = 3;
const RTPROT_KERNEL: u8 = 2;

/// The main routing table.
pub(crate) const RT_TABLE_MAIN: u32 = 254;
/// The destination is anywhere.
pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
/// The destination is on the link.
pub(crate) const RT_SCOPE_LINK: u8 = 253;
/// The destination is this host.
pub(crate) const RT_SCOPE_HOST: u8 = 254;
/// No destination; to delete a route, whatever its scope is.
pub(crate) const RT_SCOPE_NOWHERE: u8 = 255;
/// To delete a route, whichever program made it.
pub(crate) const RTPROT_UNSPEC: u8 = 0;

/// How a route is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddRoute {
    /// Fails when there is one to the same destination.
    New,
    /// Adds a further path to the same destination, in front of those that are there.
    Ecmp,
    /// Takes the place of one to the same destination.
    Replace,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The destination; the default route of either family is `0.0.0.0/0` or `::/0`.
    pub(crate) destination: Cidr,
    /// The next hop.
    pub(crate) gateway: Option<IpAddr>,
    /// The index of the outgoing link.
    pub(crate) link: Option<u32>,
    /// The preferred source address.
    pub(crate) source: Option<IpAddr>,
    /// The routing table.
    pub(crate) table: u32,
    /// `RT_SCOPE_*`.
    pub(crate) scope: u8,
    /// The metric; 0 is the kernel's default.
    pub(crate) priority: u32,
    /// The MTU along the route; 0 for none.
    pub(crate) mtu: u32,
    /// The segment size to announce; 0 for none.
    pub(crate) advmss: u32,
    /// `RTPROT_*`: which program made it.
    pub(crate) protocol: u8,
    /// `RTN_*`: unicast, local, ….
    pub(crate) kind: u8,
    /// `RTNH_F_*`.
    pub(crate) flags: u32,
}

impl Route {
    /// A route of the main table through a link.
    pub(crate) const fn new(destination: Cidr, link: u32) -> Self {
        Self {
            destination,
            gateway: None,
            link: Some(link),
            source: None,
            table: RT_TABLE_MAIN,
            scope: RT_SCOPE_UNIVERSE,
            priority: 0,
            mtu: 0,
            advmss: 0,
            protocol: RTPROT_BOOT,
            kind: RTN_UNICAST,
            flags: 0,
        }
    }

    /// Returns whether the kernel made it for an address.
    pub(crate) fn is_kernels(&self) -> bool {
        self.protocol == RTPROT_KERNEL
    }

    /// Returns whether it is a cache entry of another route.
    pub(crate) fn is_cached(&self) -> bool {
        self.flags & RTM_F_CLONED != 0
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let mut fixed = [0; 12];
        fixed[0] = family(self.destination.address);
        fixed[1] = self.destination.length;
        // A table above 255 has room in its attribute alone.
        fixed[4] = u8::try_from(self.table).unwrap_or(0);
        fixed[5] = self.protocol;
        fixed[6] = self.scope;
        fixed[7] = self.kind;
        fixed[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        let mut message = Message::new(kind, flags, &fixed);
        message.put(RTA_DST, &octets(self.destination.network().address));
        if let Some(gateway) = self.gateway {
            message.put(RTA_GATEWAY, &octets(gateway));
        }
        if let Some(source) = self.source {
            message.put(RTA_PREFSRC, &octets(source));
        }
        if self.priority != 0 {
            message.put_u32(RTA_PRIORITY, self.priority);
        }
        if self.table > 255 {
            message.put_u32(RTA_TABLE, self.table);
        }
        if self.mtu != 0 || self.advmss != 0 {
            message.nest(RTA_METRICS, |metrics| {
                for (kind, value) in [(RTAX_MTU, self.mtu), (RTAX_ADVMSS, self.advmss)] {
                    if value != 0 {
                        metrics.put_u32(kind, value);
                    }
                }
            });
        }
        if let Some(index) = self.link {
            message.put_u32(RTA_OIF, index);
        }
        message
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let family_of_route = *body.first()?;
        let attributes = Attributes(body.get(12..)?);
        let number = |kind| attributes.get(kind).and_then(|value| u32_at(value, 0));
        let metrics = attributes.nested(RTA_METRICS);
        let metric = |kind| {
            let value = metrics.as_ref().and_then(|metrics| metrics.get(kind))?;
            u32_at(value, 0)
        };
        let address = |kind| attributes.get(kind).and_then(from_octets);
        let any: IpAddr = match family_of_route {
            super::address::AF_INET => IpAddr::from([0; 4]),
            super::address::AF_INET6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        Some(Self {
            destination: Cidr::new(address(RTA_DST).unwrap_or(any), *body.get(1)?),
            gateway: address(RTA_GATEWAY),
            link: number(RTA_OIF),
            source: address(RTA_PREFSRC),
            table: number(RTA_TABLE).unwrap_or(u32::from(*body.get(4)?)),
            protocol: *body.get(5)?,
            scope: *body.get(6)?,
            kind: *body.get(7)?,
            flags: u32_at(body, 8)?,
            priority: number(RTA_PRIORITY).unwrap_or_default(),
            mtu: metric(RTAX_MTU).unwrap_or_default(),
            advmss: metric(RTAX_ADVMSS).unwrap_or_default(),
        })
    }
}

/// A route with all that the kernel wrote of it, so that it can be deleted and added again with attributes that `Route` lacks.
#[derive(Clone, Debug)]
pub(crate) struct WholeRoute {
    /// The part that plugins read.
    pub(crate) route: Route,
    body: Vec<u8>,
}

impl WholeRoute {
    fn parse(body: &[u8]) -> Option<Self> {
        Some(Self {
            route: Route::parse(body)?,
            body: body.to_vec(),
        })
    }

    /// Returns the same route in another table. Its flags are those of its state in this one, which no request may have.
    fn in_table(&self, table: u32, kind: u16, flags: u16) -> Message {
        let mut fixed = self.body[..12].to_vec();
        fixed[4] = u8::try_from(table).unwrap_or(0);
        fixed[8..12].fill(0);
        let mut message = Message::new(kind, flags, &fixed);
        for (kind, value) in Attributes(&self.body[12..]) {
            if !matches!(kind, RTA_TABLE | RTA_CACHEINFO) {
                message.put(kind, value);
            }
        }
        message.put_u32(RTA_TABLE, table);
        message
    }
}

impl Netlink {
    /// Adds a route to another table than its own, in place of one to the same destination.
    pub(crate) fn copy_route(&mut self, route: &WholeRoute, table: u32) -> Result<(), Errno> {
        self.request(route.in_table(table, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE))
    }

    /// Deletes a route of this table.
    pub(crate) fn delete_copy(&mut self, route: &WholeRoute, table: u32) -> Result<(), Errno> {
        self.request(route.in_table(table, RTM_DELROUTE, 0))
    }

    /// Returns the routes of all tables and both families with everything that the kernel says of them.
    pub(crate) fn whole_routes(&mut self) -> Result<Vec<WholeRoute>, Errno> {
        let mut routes = Vec::new();
        for family in [super::address::AF_INET, super::address::AF_INET6] {
            let mut fixed = [0; 12];
            fixed[0] = family;
            let bodies = self.dump(|| Message::new(RTM_GETROUTE, 0, &fixed))?;
            routes.extend(bodies.iter().filter_map(|body| WholeRoute::parse(body)));
        }
        Ok(routes)
    }

    /// Adds a route.
    pub(crate) fn add_route(&mut self, route: &Route, how: AddRoute) -> Result<(), Errno> {
        let flags = match how {
            AddRoute::New => NLM_F_CREATE | NLM_F_EXCL,
            AddRoute::Ecmp => NLM_F_CREATE,
            AddRoute::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        };
        self.request(route.message(RTM_NEWROUTE, flags))
    }

    /// Deletes a route.
    pub(crate) fn delete_route(&mut self, route: &Route) -> Result<(), Errno> {
        self.request(route.message(RTM_DELROUTE, 0))
    }

    /// Returns the route that a packet to this address takes.
    pub(crate) fn route_to(&mut self, address: IpAddr) -> Result<Route, Errno> {
        let destination = Cidr::host(address);
        let mut fixed = [0; 12];
        fixed[0] = family(address);
        fixed[1] = destination.length;
        let mut message = Message::new(RTM_GETROUTE, 0, &fixed);
        message.put(RTA_DST, &octets(address));
        let body = self.get(message)?;
        Route::parse(&body).ok_or(Errno::ENOENT)
    }

    /// Returns the routes of all tables and both families.
    pub(crate) fn routes(&mut self) -> Result<Vec<Route>, Errno> {
        let routes = self.whole_routes()?;
        Ok(routes.into_iter().map(|whole| whole.route).collect())
    }
}

/// Fuzz target: reads an object and writes it into other tables; what was written is read again.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(body: &[u8]) -> bool {
    let Some(whole) = WholeRoute::parse(body) else {
        return false;
    };
    let copy = whole.in_table(1000, RTM_NEWROUTE, 0).finish(0, 1);
    let copy = Route::parse(&copy[netlink::codec::HEADER..]).expect("a copy is a route");
    assert_eq!(
        (copy.table, copy.gateway, copy.flags),
        (1000, whole.route.gateway, 0)
    );
    let written = whole.route.message(RTM_NEWROUTE, 0).finish(0, 1);
    let again =
        Route::parse(&written[netlink::codec::HEADER..]).expect("a route is read as it is written");
    let destination = whole.route.destination.network();
    assert_eq!(
        again,
        Route {
            destination,
            ..whole.route
        }
    );
    true
}
