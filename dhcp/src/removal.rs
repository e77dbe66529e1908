//! Takes the address of a lost lease off its interface, and puts it back with what the kernel removes along with it: the routes through
//! the interface. The link stays up: a packet socket sends nothing through one that is down, and the lease is asked for through it.

use std::io;
use std::net::Ipv4Addr;

use netlink::codec::u32_at;
use netlink::{Attributes, Message, Socket};
use serde::{Deserialize, Serialize};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_CREATE_EXCL: u16 = 0x600;
/// The lengths of `struct ifaddrmsg` and `struct rtmsg`.
const ADDRESS_FIXED: usize = 8;
const ROUTE_FIXED: usize = 12;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
/// The places of protocol, scope and flags in `struct rtmsg`.
const PROTOCOL: usize = 5;
const SCOPE: usize = 6;
const FLAGS: usize = 8;
/// The kernel makes these routes itself for each address.
const RTPROT_KERNEL: u8 = 2;
/// The one flag of a route that is not a state of the kernel's.
const RTNH_F_ONLINK: u32 = 4;
const AF_INET: u8 = 2;

/// The IPv4 addresses and routes of an interface, as the kernel lists them: the messages that make them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    addresses: Vec<Vec<u8>>,
    routes: Vec<Vec<u8>>,
}

impl Configuration {
    /// Reads that of the interface of this index in the socket's network namespace.
    pub(crate) fn read(socket: &mut Socket, index: u32) -> io::Result<Self> {
        let mut list = |kind, length| {
            let mut fixed = vec![0; length];
            fixed[0] = AF_INET;
            socket.dump(|| Message::new(kind, 0, &fixed))
        };
        let addresses = list(RTM_GETADDR, ADDRESS_FIXED)?;
        Ok(Self::of(index, addresses, list(RTM_GETROUTE, ROUTE_FIXED)?))
    }

    /// Picks what belongs to an interface. Routes come in the order in which the kernel accepts them: a gateway must be reached first.
    fn of(index: u32, mut addresses: Vec<Vec<u8>>, mut routes: Vec<Vec<u8>>) -> Self {
        addresses.retain(|body| u32_at(body, 4) == Some(index));
        routes.retain_mut(|body| {
            let Some(attributes) = body.get(ROUTE_FIXED..) else {
                return false;
            };
            let link = Attributes(attributes).get(RTA_OIF);
            let is_of_link = link.and_then(|link| u32_at(link, 0)) == Some(index);
            let flags = u32_at(body, FLAGS).unwrap_or_default() & RTNH_F_ONLINK;
            body[FLAGS..ROUTE_FIXED].copy_from_slice(&flags.to_ne_bytes());
            is_of_link && body[PROTOCOL] != RTPROT_KERNEL
        });
        routes.sort_by_key(|body| std::cmp::Reverse(body[SCOPE]));
        Self { addresses, routes }
    }

    /// Takes an address away.
    pub(crate) fn remove(&self, socket: &mut Socket, address: Ipv4Addr) -> io::Result<()> {
        for body in &self.addresses {
            let attributes = Attributes(body.get(ADDRESS_FIXED..).unwrap_or_default());
            if attributes.get(IFA_LOCAL) == Some(&address.octets()[..]) {
                socket.request(Message::new(RTM_DELADDR, 0, body))?;
            }
        }
        Ok(())
    }

    /// Puts everything back that is missing. Returns the first error, after all was tried.
    pub(crate) fn restore(&self, socket: &mut Socket) -> io::Result<()> {
        let addresses = self.addresses.iter().map(|body| (RTM_NEWADDR, body));
        let routes = self.routes.iter().map(|body| (RTM_NEWROUTE, body));
        let mut outcome = Ok(());
        for (kind, body) in addresses.chain(routes) {
            match socket.request(Message::new(kind, NLM_F_CREATE_EXCL, body)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    outcome = outcome.and(Err(error));
                }
                _ => {}
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = Message::new(0, 0, fixed);
        for (kind, value) in attributes {
            message.put(*kind, value);
        }
        message.finish(0, 1)[netlink::codec::HEADER..].to_vec()
    }

    fn address(index: u8) -> Vec<u8> {
        let local = [10, 0, 0, index];
        body(&[AF_INET, 24, 0, 0, index, 0, 0, 0], &[(IFA_LOCAL, &local)])
    }

    fn route(index: u8, protocol: u8, scope: u8, flags: u8) -> Vec<u8> {
        let fixed = [AF_INET, 0, 0, 0, 254, protocol, scope, 1, flags, 0, 0, 0];
        body(&fixed, &[(RTA_OIF, &[index, 0, 0, 0])])
    }

    #[test]
    fn configuration_has_what_the_kernel_does_not_make_itself() {
        let addresses = vec![address(1), address(7), Vec::new()];
        let routes = vec![
            route(7, 3, 0, 0x10 | 4),
            route(7, RTPROT_KERNEL, 253, 0),
            route(1, 3, 0, 0),
            route(7, 4, 253, 0x10),
            vec![0; 5],
        ];
        let configuration = Configuration::of(7, addresses, routes);
        assert_eq!(configuration.addresses, [address(7)]);
        assert_eq!(
            configuration.routes,
            [route(7, 4, 253, 0), route(7, 3, 0, 4)]
        );
    }
}
