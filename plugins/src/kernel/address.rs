//! Addresses of links (`linux/if_addr.h`).

use super::NLM_F_CREATE_EXCL;
use super::codec::{Attributes, Message, from_octets, octets, u32_at};
use super::errno::Errno;
use super::socket::Netlink;
use crate::ip::Cidr;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;

/// Usable at once, without duplicate address detection.
const IFA_F_NODAD: u32 = 0x02;
/// Duplicate address detection has not ended.
pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;
/// Another node has the address.
pub(crate) const IFA_F_DADFAILED: u32 = 0x08;

pub(crate) use netlink::route::{AF_INET, AF_INET6, family};

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The index of the link.
    pub(crate) link: u32,
    /// The address and the length of its prefix.
    pub(crate) cidr: Cidr,
    /// `IFA_F_*`.
    pub(crate) flags: u32,
    /// `RT_SCOPE_*`: 0 global, 253 link, 254 host.
    pub(crate) scope: u8,
    /// For how many seconds it is preferred and valid; `u32::MAX` is for ever.
    pub(crate) lifetimes: Option<(u32, u32)>,
}

impl Address {
    fn parse(body: &[u8]) -> Option<Self> {
        let (length, flags, scope) = (*body.get(1)?, *body.get(2)?, *body.get(3)?);
        let attributes = Attributes(body.get(8..)?);
        // IFA_ADDRESS is the other end of a point-to-point link, where IFA_LOCAL is the link's own.
        let address = attributes
            .get(IFA_LOCAL)
            .or_else(|| attributes.get(IFA_ADDRESS))?;
        Some(Self {
            link: u32_at(body, 4)?,
            cidr: Cidr::new(from_octets(address)?, length),
            flags: attributes
                .get(IFA_FLAGS)
                .and_then(|value| u32_at(value, 0))
                .unwrap_or(u32::from(flags)),
            scope,
            lifetimes: attributes
                .get(IFA_CACHEINFO)
                .and_then(|value| Some((u32_at(value, 0)?, u32_at(value, 4)?))),
        })
    }

    /// Returns the request that gives the link the address again, as it was.
    fn message(&self) -> Message {
        let mut message = address_message(RTM_NEWADDR, NLM_F_CREATE_EXCL, self.link, self.cidr);
        message.put_u32(IFA_FLAGS, self.flags);
        if let Some((preferred, valid)) = self.lifetimes {
            let numbers = [preferred, valid, 0, 0].map(u32::to_ne_bytes);
            message.put(IFA_CACHEINFO, numbers.as_flattened());
        }
        message
    }
}

impl Netlink {
    /// Gives the link an address. IPv4 gets the broadcast address of its network, as `ip address add` with `brd +` does.
    pub(crate) fn add_address(&mut self, link: u32, cidr: Cidr) -> Result<(), Errno> {
        let message = address_message(RTM_NEWADDR, NLM_F_CREATE_EXCL, link, cidr);
        self.request(message)
    }

    /// Gives the link an address that nobody else on the link can have: an IPv6 address is usable at once.
    pub(crate) fn add_address_of_one_end(&mut self, link: u32, cidr: Cidr) -> Result<(), Errno> {
        let mut message = address_message(RTM_NEWADDR, NLM_F_CREATE_EXCL, link, cidr);
        if cidr.address.is_ipv6() {
            message.put_u32(IFA_FLAGS, IFA_F_NODAD);
        }
        self.request(message)
    }

    /// Gives the link of an address this address again, with its flags and lifetimes.
    pub(crate) fn restore_address(&mut self, address: &Address) -> Result<(), Errno> {
        self.request(address.message())
    }

    /// Takes an address from the link.
    pub(crate) fn delete_address(&mut self, link: u32, cidr: Cidr) -> Result<(), Errno> {
        self.request(address_message(RTM_DELADDR, 0, link, cidr))
    }

    /// Returns the addresses of a link, those of both families in the kernel's order: IPv4 first.
    pub(crate) fn addresses(&mut self, link: u32) -> Result<Vec<Address>, Errno> {
        // AF_UNSPEC.
        self.addresses_of_family(link, 0)
    }

    /// Returns the addresses of a link in one family. The kernel lists those of all links, and a node with many pods has as many of
    /// IPv6.
    pub(crate) fn addresses_of_family(
        &mut self,
        link: u32,
        family: u8,
    ) -> Result<Vec<Address>, Errno> {
        let fixed = [family, 0, 0, 0, 0, 0, 0, 0];
        let bodies = self.dump(|| Message::new(RTM_GETADDR, 0, &fixed))?;
        Ok(bodies
            .iter()
            .filter_map(|body| Address::parse(body))
            .filter(|address| address.link == link)
            .collect())
    }
}

fn address_message(kind: u16, flags: u16, link: u32, cidr: Cidr) -> Message {
    let mut fixed = [0; 8];
    fixed[0] = family(cidr.address);
    fixed[1] = cidr.length;
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    let mut message = Message::new(kind, flags, &fixed);
    let address = octets(cidr.address);
    message.put(IFA_LOCAL, &address).put(IFA_ADDRESS, &address);
    if cidr.address.is_ipv4() && cidr.length < 31 {
        message.put(IFA_BROADCAST, &octets(cidr.last()));
    }
    message
}

/// Fuzz target: reads an object and writes the request that restores it.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(body: &[u8]) -> bool {
    Address::parse(body)
        .map(|address| address.message().finish(0, 1))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::codec::HEADER;

    #[test]
    fn restored_address_is_the_one_that_was_read() {
        let address = Address {
            link: 3,
            cidr: "fd00::5/64".parse().unwrap(),
            flags: 0x282,
            scope: 0,
            lifetimes: Some((100, u32::MAX)),
        };
        let bytes = address.message().finish(0, 1);
        assert_eq!(Address::parse(&bytes[HEADER..]), Some(address));
    }
}
