//! Routes (`linux/rtnetlink.h`).

use std::net::IpAddr;

#[cfg(any(test, fuzzing))]
use crate::codec::HEADER;
use crate::codec::{ALIGNTO, Attributes, Message, from_octets, octets, u32_at};

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
const RTPROT_KERNEL: u8 = 2;
const RTPROT_BOOT: u8 = 3;
/// The length of `struct rtmsg`.
const RTMSG: usize = 12;

pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;
pub const RT_TABLE_MAIN: u32 = 254;
/// The destination is anywhere.
pub const RT_SCOPE_UNIVERSE: u8 = 0;
/// The destination is on the link.
pub const RT_SCOPE_LINK: u8 = 253;
/// The destination is this host.
pub const RT_SCOPE_HOST: u8 = 254;
/// No destination; to delete a route, whatever its scope is.
pub const RT_SCOPE_NOWHERE: u8 = 255;
/// To delete a route, whichever program made it.
pub const RTPROT_UNSPEC: u8 = 0;
/// A gateway or a direct route.
pub const RTN_UNICAST: u8 = 1;
/// The destination cannot be reached: packets are dropped, and the sender gets an error.
pub const RTN_UNREACHABLE: u8 = 7;

/// How a route is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddRoute {
    /// Fails when there is one to the same destination.
    New,
    /// Adds a further path to the same destination, in front of those that are there.
    Ecmp,
    /// Takes the place of one to the same destination.
    Replace,
}

/// A route. `P` is the program's own type of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<P> {
    /// The destination; the default route of either family is `0.0.0.0/0` or `::/0`.
    pub destination: P,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// The index of the outgoing link.
    pub link: Option<u32>,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    pub table: u32,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// The metric; 0 is the kernel's default.
    pub priority: u32,
    /// The MTU along the route; 0 for none.
    pub mtu: u32,
    /// The segment size to announce; 0 for none.
    pub advmss: u32,
    /// `RTPROT_*`: which program made it.
    pub protocol: u8,
    /// `RTN_*`: unicast, local, ….
    pub kind: u8,
    /// `RTNH_F_*`.
    pub flags: u32,
}

impl<P> Route<P> {
    /// A route of the main table through a link.
    pub const fn new(destination: P, link: u32) -> Self
    where
        P: Copy,
    {
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
    pub fn is_kernels(&self) -> bool {
        self.protocol == RTPROT_KERNEL
    }

    /// Returns whether it is a cache entry of another route.
    pub fn is_cached(&self) -> bool {
        self.flags & RTM_F_CLONED != 0
    }
}

impl<P: Copy + Into<(IpAddr, u8)> + From<(IpAddr, u8)>> Route<P> {
    /// Returns the request that adds it.
    pub fn add(&self, how: AddRoute) -> Message {
        let flags = match how {
            AddRoute::New => NLM_F_CREATE | NLM_F_EXCL,
            AddRoute::Ecmp => NLM_F_CREATE,
            AddRoute::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        };
        self.message(RTM_NEWROUTE, flags)
    }

    /// Returns the request that deletes it.
    pub fn delete(&self) -> Message {
        self.message(RTM_DELROUTE, 0)
    }

    /// Returns the request for the route that a packet to this address takes.
    pub fn to(address: IpAddr) -> Message {
        let bytes = octets(address);
        let mut fixed = [0; RTMSG];
        fixed[0] = family(address);
        fixed[1] = if address.is_ipv4() { 32 } else { 128 };
        let mut message = Message::new(RTM_GETROUTE, 0, &fixed);
        message.put(RTA_DST, &bytes);
        message
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        let (destination, length) = self.destination.into();
        let mut fixed = [0; RTMSG];
        fixed[0] = family(destination);
        fixed[1] = length;
        // A table above 255 has room in its attribute alone.
        fixed[4] = u8::try_from(self.table).unwrap_or(0);
        fixed[5] = self.protocol;
        fixed[6] = self.scope;
        fixed[7] = self.kind;
        fixed[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        let mut message = Message::new(kind, flags, &fixed);
        message.put(RTA_DST, &octets(destination));
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

    /// Reads what follows the header of a message.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let attributes = Attributes(body.get(RTMSG..)?);
        let number = |kind| attributes.get(kind).and_then(|value| u32_at(value, 0));
        let metrics = attributes.nested(RTA_METRICS);
        let metric = |kind| {
            let value = metrics.as_ref().and_then(|metrics| metrics.get(kind))?;
            u32_at(value, 0)
        };
        let address = |kind| attributes.get(kind).and_then(from_octets);
        let any = match *body.first()? {
            AF_INET => IpAddr::from([0; 4]),
            AF_INET6 => IpAddr::from([0; 16]),
            _ => return None,
        };
        Some(Self {
            destination: P::from((address(RTA_DST).unwrap_or(any), *body.get(1)?)),
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
pub struct WholeRoute<P> {
    /// The part that programs read.
    pub route: Route<P>,
    body: Vec<u8>,
}

impl<P: Copy + Into<(IpAddr, u8)> + From<(IpAddr, u8)>> WholeRoute<P> {
    /// Returns the request for all routes of a family, each of which [`WholeRoute::parse`] reads.
    pub fn list(family: u8) -> Message {
        let mut fixed = [0; RTMSG];
        fixed[0] = family;
        Message::new(RTM_GETROUTE, 0, &fixed)
    }

    /// Reads what follows the header of a message. The kernel pads every attribute; a body that ends within one cannot be sent back,
    /// since its padding would complete the attribute.
    pub fn parse(body: &[u8]) -> Option<Self> {
        if !body.len().is_multiple_of(ALIGNTO) {
            return None;
        }
        Some(Self {
            route: Route::parse(body)?,
            body: body.to_vec(),
        })
    }

    /// Returns the request that deletes it, with everything that the kernel wrote of it.
    pub fn delete(&self) -> Message {
        Message::new(RTM_DELROUTE, 0, &self.body)
    }

    /// Returns the request that adds it to another table than its own, in place of one to the same destination.
    pub fn copy_to(&self, table: u32) -> Message {
        self.in_table(table, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Returns the request that deletes it in this table.
    pub fn delete_in(&self, table: u32) -> Message {
        self.in_table(table, RTM_DELROUTE, 0)
    }

    /// Returns the same route in another table. Its flags are those of its state in this one, which no request may have.
    fn in_table(&self, table: u32, kind: u16, flags: u16) -> Message {
        let mut fixed = self.body[..RTMSG].to_vec();
        fixed[4] = u8::try_from(table).unwrap_or(0);
        fixed[8..12].fill(0);
        let mut message = Message::new(kind, flags, &fixed);
        for (kind, value) in Attributes(&self.body[RTMSG..]) {
            if !matches!(kind, RTA_TABLE | RTA_CACHEINFO) {
                message.put(kind, value);
            }
        }
        message.put_u32(RTA_TABLE, table);
        message
    }
}

/// Returns `AF_INET` or `AF_INET6`.
pub fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// Fuzz target: reads an object and writes it into other tables; what was written is read again.
#[cfg(any(test, fuzzing))]
pub fn fuzz(body: &[u8]) -> bool {
    let Some(whole) = WholeRoute::<(IpAddr, u8)>::parse(body) else {
        return false;
    };
    let read = |message: Message| {
        let bytes = message.finish(0, 1);
        Route::parse(&bytes[HEADER..]).expect("a route is read as it is written")
    };
    let copy: Route<(IpAddr, u8)> = read(whole.copy_to(1000));
    assert_eq!(
        (copy.table, copy.gateway, copy.flags),
        (1000, whole.route.gateway, 0)
    );
    assert_eq!(read(whole.delete()), whole.route);
    assert_eq!(read(whole.route.add(AddRoute::New)), whole.route);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pair = (IpAddr, u8);

    fn default_through(gateway: Option<&str>) -> Route<Pair> {
        let any = IpAddr::from([0; 4]);
        Route {
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            priority: 7,
            ..Route::new((any, 0), 3)
        }
    }

    #[test]
    fn route_is_read_as_it_is_written() {
        for gateway in [None, Some("10.0.0.1")] {
            let route = default_through(gateway);
            let bytes = route.add(AddRoute::Ecmp).finish(0, 1);
            let body = &bytes[HEADER..];
            assert_eq!(Route::parse(body), Some(route.clone()));
            assert_eq!((body[0], body[4], body[5]), (AF_INET, 254, RTPROT_BOOT));
            // The request to delete repeats all that was read, byte by byte.
            let whole = WholeRoute::<Pair>::parse(body).unwrap();
            assert_eq!(&whole.delete().finish(0, 1)[HEADER..], body);
            assert!(fuzz(body));
        }
    }

    #[test]
    fn routes_that_are_cut_short_or_of_another_family_are_refused() {
        let bytes = default_through(None).add(AddRoute::New).finish(0, 1);
        let body = &bytes[HEADER..];
        for end in 0..RTMSG {
            assert_eq!(Route::<Pair>::parse(&body[..end]), None, "{end}");
        }
        let mut other = body.to_vec();
        other[0] = 7;
        assert_eq!(Route::<Pair>::parse(&other), None);
    }
}
