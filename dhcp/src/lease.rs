//! A lease: what a server's ACK grants, and until when.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::message::Message;
use crate::options::{Options, code};
use crate::{BROADCAST, Mac};

/// The validity of a lease whose server does not say.
const DEFAULT_TIME: Duration = Duration::from_hours(1);
/// Number of seconds that means "for ever".
const FOR_EVER: u32 = u32::MAX;

/// A route from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub destination: Ipv4Addr,
    /// The length of its prefix.
    pub length: u8,
    /// The gateway; `None` when the destination is on the link.
    pub gateway: Option<Ipv4Addr>,
}

/// A granted lease. Its times are on the clock of the one who uses the client: one that goes on while the machine sleeps and does not
/// jump, as `CLOCK_BOOTTIME` does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The ACK. With the two fields below it is all that a store has to keep.
    pub ack: Message,
    /// When the request was sent that the ACK answers; its times count from here (RFC 2131, section 4.4.1).
    pub began: Duration,
    /// The hardware address from which the ACK came: the way to the server.
    pub server_mac: Mac,
}

impl Lease {
    pub fn address(&self) -> Ipv4Addr {
        self.ack.your_address
    }

    /// The length of the network's prefix, or `None` when the server sent no mask, or one with gaps.
    pub fn prefix_length(&self) -> Option<u8> {
        let mask = self.ack.options.number(code::SUBNET_MASK)?;
        let length = mask.leading_ones();
        if mask.count_ones() == length {
            u8::try_from(length).ok()
        } else {
            None
        }
    }

    /// The server's identifier, to which renewals are sent.
    pub fn server(&self) -> Option<Ipv4Addr> {
        self.ack.options.address(code::SERVER_IDENTIFIER)
    }

    /// The first router.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.ack.options.addresses(code::ROUTER).first().copied()
    }

    /// The routes: the classless ones, or else the static ones and the default route of the first router (RFC 3442).
    pub fn routes(&self) -> Vec<Route> {
        routes(&self.ack.options)
    }

    /// When the lease ends; `None` is never.
    pub fn expires(&self) -> Option<Duration> {
        self.valid_for().map(|time| self.began + time)
    }

    /// T1: when the client begins to renew it.
    pub fn renews(&self) -> Option<Duration> {
        self.times().map(|(renewal, _)| self.began + renewal)
    }

    /// T2: when the client begins to ask any server.
    pub fn rebinds(&self) -> Option<Duration> {
        self.times().map(|(_, rebinding)| self.began + rebinding)
    }

    fn valid_for(&self) -> Option<Duration> {
        match self.ack.options.number(code::LEASE_TIME) {
            Some(FOR_EVER) => None,
            Some(seconds) => Some(Duration::from_secs(seconds.into())),
            None => Some(DEFAULT_TIME),
        }
    }

    /// Returns whether the server grants no time at all, which is not a lease.
    pub(crate) fn is_over_at_once(&self) -> bool {
        self.valid_for() == Some(Duration::ZERO)
    }

    /// T1 and T2 in their order within the lease, whatever the server sent; a server that sends 0 leaves them to the client.
    fn times(&self) -> Option<(Duration, Duration)> {
        let valid = self.valid_for()?;
        let of = |code| {
            let seconds = self.ack.options.number(code).filter(|time| *time > 0)?;
            Some(Duration::from_secs(seconds.into()))
        };
        let rebinding = of(code::REBINDING_TIME)
            .filter(|time| *time < valid)
            .unwrap_or(valid * 7 / 8);
        let renewal = of(code::RENEWAL_TIME)
            .filter(|time| *time <= rebinding)
            .unwrap_or(rebinding.min(valid / 2));
        Some((renewal, rebinding))
    }

    /// The hardware address for messages to the server: what a relay or a server used, or that of all.
    pub(crate) fn way_to_server(&self) -> Mac {
        if self.server_mac == [0; 6] {
            BROADCAST
        } else {
            self.server_mac
        }
    }
}

fn routes(options: &Options) -> Vec<Route> {
    let classless = options
        .get(code::CLASSLESS_ROUTES)
        .and_then(classless_routes)
        .unwrap_or_default();
    if !classless.is_empty() {
        return classless;
    }
    let mut routes = static_routes(options);
    if let Some(router) = options.addresses(code::ROUTER).first() {
        routes.push(Route {
            destination: Ipv4Addr::UNSPECIFIED,
            length: 0,
            gateway: Some(*router),
        });
    }
    routes
}

/// Reads option 121: the length of the prefix, those bytes of the destination that have bits of it, the gateway. `None` when it is
/// cut short.
fn classless_routes(mut bytes: &[u8]) -> Option<Vec<Route>> {
    let mut routes = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let significant = usize::from(length.div_ceil(8));
        let (destination, rest) = rest.split_at_checked(significant)?;
        let (gateway, rest) = rest.split_first_chunk::<4>()?;
        let mut octets = [0; 4];
        octets.get_mut(..significant)?.copy_from_slice(destination);
        let gateway = Ipv4Addr::from(*gateway);
        let host_bits = 32 - u32::from(*length);
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        routes.push(Route {
            destination: Ipv4Addr::from_bits(u32::from_be_bytes(octets) & mask),
            length: *length,
            gateway: (!gateway.is_unspecified()).then_some(gateway),
        });
        bytes = rest;
    }
    Some(routes)
}

/// Reads option 33: pairs of destination and gateway. The destination's class is its length.
fn static_routes(options: &Options) -> Vec<Route> {
    let addresses = options.addresses(code::STATIC_ROUTES);
    let (pairs, _) = addresses.as_chunks::<2>();
    let routes = pairs.iter().filter_map(|[destination, gateway]| {
        let length = match destination.octets()[0] {
            0..=127 => 8,
            128..=191 => 16,
            192..=223 => 24,
            _ => return None,
        };
        let mask = u32::MAX << (32 - length);
        Some(Route {
            destination: Ipv4Addr::from_bits(destination.to_bits() & mask),
            length,
            gateway: Some(*gateway),
        })
    });
    routes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Kind;

    fn lease(options: &[(u8, &[u8])]) -> Lease {
        let mut ack = Message::new(Kind::Ack, 1, [2, 0, 0, 0, 0, 1]);
        for (code, value) in options {
            ack.options.set(*code, *value);
        }
        Lease {
            ack,
            began: Duration::from_secs(1000),
            server_mac: [0; 6],
        }
    }

    fn shown(lease: &Lease) -> Vec<String> {
        let show = |route: &Route| {
            let via = route
                .gateway
                .map_or_else(|| "link".to_owned(), |gateway| gateway.to_string());
            format!("{}/{} {via}", route.destination, route.length)
        };
        lease.routes().iter().map(show).collect()
    }

    #[test]
    fn classless_routes_come_before_all_others() {
        let classless: &[u8] = &[
            0, 10, 0, 0, 1, 8, 10, 10, 0, 0, 2, 20, 172, 16, 255, 0, 0, 0, 0, 32, 9, 9, 9, 9, 10,
            0, 0, 3,
        ];
        let router = (code::ROUTER, &[10, 0, 0, 9][..]);
        let fixed = (
            code::STATIC_ROUTES,
            &[
                10, 5, 0, 0, 10, 0, 0, 4, 172, 16, 5, 0, 10, 0, 0, 5, 192, 168, 3, 0, 10, 0, 0, 6,
                240, 0, 0, 0, 1, 1, 1, 1, 7,
            ][..],
        );
        assert_eq!(
            shown(&lease(&[
                (code::CLASSLESS_ROUTES, classless),
                router,
                fixed
            ])),
            [
                "0.0.0.0/0 10.0.0.1",
                "10.0.0.0/8 10.0.0.2",
                "172.16.240.0/20 link",
                "9.9.9.9/32 10.0.0.3"
            ]
        );
        let others = [
            "10.0.0.0/8 10.0.0.4",
            "172.16.0.0/16 10.0.0.5",
            "192.168.3.0/24 10.0.0.6",
            "0.0.0.0/0 10.0.0.9",
        ];
        assert_eq!(shown(&lease(&[router, fixed])), others);
        for wrong in [
            &[33, 1, 2, 3, 4, 5, 0, 0, 0, 0][..],
            &[8, 10, 10, 0, 0],
            &[24],
        ] {
            assert_eq!(
                shown(&lease(&[(code::CLASSLESS_ROUTES, wrong), router, fixed])),
                others
            );
        }
        assert!(shown(&lease(&[])).is_empty());
    }

    #[test]
    fn prefix_is_the_mask_without_gaps() {
        let check = |mask: &[u8], expected| {
            assert_eq!(
                lease(&[(code::SUBNET_MASK, mask)]).prefix_length(),
                expected,
                "{mask:?}"
            );
        };
        check(&[255, 255, 240, 0], Some(20));
        check(&[255, 255, 255, 255], Some(32));
        check(&[0, 0, 0, 0], Some(0));
        check(&[255, 0, 255, 0], None);
        check(&[255, 255], None);
        assert_eq!(lease(&[]).prefix_length(), None);
    }

    #[test]
    fn times_are_in_order() {
        let check = |lease_time: Option<u32>,
                     renewal: Option<u32>,
                     rebinding: Option<u32>,
                     expected: Option<[u64; 3]>| {
            let mut lease = lease(&[]);
            for (code, time) in [
                (code::LEASE_TIME, lease_time),
                (code::RENEWAL_TIME, renewal),
                (code::REBINDING_TIME, rebinding),
            ] {
                if let Some(time) = time {
                    lease.ack.options.set(code, time.to_be_bytes());
                }
            }
            let seconds = |time: Option<Duration>| time.map(|time| time.as_secs() - 1000);
            let times = [lease.renews(), lease.rebinds(), lease.expires()].map(seconds);
            assert_eq!(times, expected.map_or([None; 3], |times| times.map(Some)));
        };
        check(Some(800), None, None, Some([400, 700, 800]));
        check(Some(800), Some(100), Some(200), Some([100, 200, 800]));
        check(Some(800), Some(300), Some(200), Some([200, 200, 800]));
        check(Some(800), Some(900), Some(900), Some([400, 700, 800]));
        check(None, None, None, Some([1800, 3150, 3600]));
        check(Some(FOR_EVER), Some(5), None, None);
    }
}
