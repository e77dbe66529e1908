//! Links: what `ip link` shows and changes (`linux/if_link.h`).

use super::NLM_F_CREATE_EXCL;
use super::codec::Message;
use super::errno::Errno;
use super::netns::Namespace;
use super::socket::Netlink;

pub(crate) use netlink::link::{IFF_UP, Link, attachment_alias, mac_text};
use netlink::link::{
    IFLA_ADDRESS, IFLA_ALT_IFNAME, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_LINK, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_TXQLEN, RTM_GETLINK, RTM_NEWLINK,
};

const RTM_DELLINK: u16 = 17;

const IFLA_NET_NS_FD: u16 = 28;

/// The longest name of a link, and the longest alternative one.
const NAME_LIMIT: usize = 15;
const ALT_NAME_LIMIT: usize = 127;

/// Flags of a link (`linux/if.h`).
pub(crate) const IFF_RUNNING: u32 = 0x40;
pub(crate) const IFF_PROMISC: u32 = 0x100;
pub(crate) const IFF_ALLMULTI: u32 = 0x200;

/// The link passes packets (RFC 2863).
pub(crate) const IF_OPER_UP: u8 = 6;

/// A virtual link to create.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewLink<'a> {
    pub(crate) name: &'a str,
    /// Its kind (`macvlan`).
    pub(crate) kind: &'a str,
    /// The index of the link below it.
    pub(crate) parent: Option<u32>,
    /// Its MTU; the kind's default when absent.
    pub(crate) mtu: Option<u32>,
    /// Its hardware address; the kernel chooses one when it is empty.
    pub(crate) mac: &'a [u8],
    /// The length of its transmit queue; the kernel's default when absent.
    pub(crate) tx_queue: Option<u32>,
    /// The descriptor of the network namespace in which it appears; the socket's when absent.
    pub(crate) netns: Option<u32>,
    /// The index of the bridge, bond or VRF that it becomes a port of.
    pub(crate) master: Option<u32>,
    /// Whether it is brought up at once.
    pub(crate) is_up: bool,
}

impl NewLink<'_> {
    /// Returns the request that creates the link; `data` appends the attributes that its kind has.
    pub(crate) fn message(&self, data: impl FnOnce(&mut Message)) -> Message {
        let flags = if self.is_up { IFF_UP } else { 0 };
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE_EXCL, &ifinfo(0, flags, flags));
        self.put(&mut message);
        message.nest(IFLA_LINKINFO, |info| {
            info.put(IFLA_INFO_KIND, self.kind.as_bytes());
            info.nest_unless_empty(IFLA_INFO_DATA, data);
        });
        message
    }

    /// Appends the attributes that are set, besides the kind.
    pub(crate) fn put(&self, message: &mut Message) {
        message.put_text(IFLA_IFNAME, self.name);
        if let Some(index) = self.parent {
            message.put_u32(IFLA_LINK, index);
        }
        if let Some(mtu) = self.mtu {
            message.put_u32(IFLA_MTU, mtu);
        }
        if let Some(length) = self.tx_queue {
            message.put_u32(IFLA_TXQLEN, length);
        }
        if !self.mac.is_empty() {
            message.put(IFLA_ADDRESS, self.mac);
        }
        if let Some(fd) = self.netns {
            message.put_u32(IFLA_NET_NS_FD, fd);
        }
        if let Some(index) = self.master {
            message.put_u32(IFLA_MASTER, index);
        }
    }
}

impl Netlink {
    /// Returns the link of this name, which may be an alternative one, or ENODEV.
    pub(crate) fn link_by_name(&mut self, name: &str) -> Result<Link, Errno> {
        if name.len() > ALT_NAME_LIMIT {
            return Err(Errno::ENODEV);
        }
        let kind = if name.len() > NAME_LIMIT {
            IFLA_ALT_IFNAME
        } else {
            IFLA_IFNAME
        };
        let mut message = Message::new(RTM_GETLINK, 0, &ifinfo(0, 0, 0));
        message.put_text(kind, name);
        self.one_link(message).map_err(|error| match error {
            // Kernels before 5.5 have no alternative names, and find no name in the request.
            Errno::EINVAL if kind == IFLA_ALT_IFNAME => Errno::ENODEV,
            other => other,
        })
    }

    /// Returns the link of this index, or ENODEV.
    pub(crate) fn link_by_index(&mut self, index: u32) -> Result<Link, Errno> {
        self.one_link(Message::new(RTM_GETLINK, 0, &ifinfo(index, 0, 0)))
    }

    pub(crate) fn links(&mut self) -> Result<Vec<Link>, Errno> {
        let bodies = self.dump(Link::list)?;
        Ok(bodies.iter().filter_map(|body| Link::parse(body)).collect())
    }

    fn one_link(&mut self, message: Message) -> Result<Link, Errno> {
        let body = self.get(message)?;
        Link::parse(&body).ok_or(Errno::EINVAL)
    }

    pub(crate) fn delete_link(&mut self, index: u32) -> Result<(), Errno> {
        self.request(Message::new(RTM_DELLINK, 0, &ifinfo(index, 0, 0)))
    }

    pub(crate) fn set_up(&mut self, index: u32) -> Result<(), Errno> {
        self.set_flags(index, IFF_UP, IFF_UP)
    }

    pub(crate) fn set_down(&mut self, index: u32) -> Result<(), Errno> {
        self.set_flags(index, 0, IFF_UP)
    }

    /// Sets the flags of `mask` to those of `flags`.
    pub(crate) fn set_flags(&mut self, index: u32, flags: u32, mask: u32) -> Result<(), Errno> {
        self.request(Message::new(RTM_NEWLINK, 0, &ifinfo(index, flags, mask)))
    }

    pub(crate) fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message.put_u32(IFLA_MTU, mtu);
        })
    }

    pub(crate) fn set_mac(&mut self, index: u32, mac: &[u8]) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message.put(IFLA_ADDRESS, mac);
        })
    }

    pub(crate) fn set_tx_queue(&mut self, index: u32, length: u32) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message.put_u32(IFLA_TXQLEN, length);
        })
    }

    /// Makes the link a port of a master; index 0 takes it away from one.
    pub(crate) fn set_master(&mut self, index: u32, master: u32) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message.put_u32(IFLA_MASTER, master);
        })
    }

    /// Moves the link to another network namespace.
    pub(crate) fn move_to(&mut self, index: u32, namespace: &Namespace) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message.put_u32(IFLA_NET_NS_FD, namespace.fd());
        })
    }

    /// Moves the link to another network namespace, where it gets a name and an alias. It is one request: the name that the link has now
    /// may be taken there.
    pub(crate) fn move_as(
        &mut self,
        index: u32,
        namespace: &Namespace,
        name: &str,
        alias: &str,
    ) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message
                .put_u32(IFLA_NET_NS_FD, namespace.fd())
                .put_text(IFLA_IFNAME, name)
                .put(IFLA_IFALIAS, alias.as_bytes());
        })
    }

    /// Changes the name and the alias; the link must be down on kernels before 6.2.
    pub(crate) fn rename_with_alias(
        &mut self,
        index: u32,
        name: &str,
        alias: &str,
    ) -> Result<(), Errno> {
        self.set_attribute(index, |message| {
            message
                .put_text(IFLA_IFNAME, name)
                .put(IFLA_IFALIAS, alias.as_bytes());
        })
    }

    fn set_attribute(&mut self, index: u32, put: impl FnOnce(&mut Message)) -> Result<(), Errno> {
        let mut message = Message::new(RTM_NEWLINK, 0, &ifinfo(index, 0, 0));
        put(&mut message);
        self.request(message)
    }
}

/// Returns `struct ifinfomsg`: family, type, index, flags and the mask of the flags to change.
pub(crate) fn ifinfo(index: u32, flags: u32, mask: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

/// Requests for links that the kernel of a test cannot make, compared with those of the reference.
#[cfg(test)]
pub(crate) mod requests {
    use super::*;
    use crate::kernel::codec::{Attributes, HEADER, u16_at};

    const NLM_F_ACK: u16 = 0x4;

    /// Fails unless the request creates a link with these attributes, as the reference sends them: in hexadecimal, with blanks
    /// anywhere. Their order does not count, nor does the bit that marks attributes that hold attributes.
    #[track_caller]
    pub(crate) fn check_new_link(message: Message, expected: &str) {
        let bytes = message.finish(NLM_F_ACK, 1);
        assert_eq!(u16_at(&bytes, 4), Some(RTM_NEWLINK));
        // REQUEST, ACK, EXCL, CREATE.
        assert_eq!(u16_at(&bytes, 6), Some(0x605));
        assert_eq!(bytes[HEADER..HEADER + 16], [0; 16]);
        let digits: Vec<_> = expected.bytes().filter(u8::is_ascii_hexdigit).collect();
        let expected: Vec<_> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        assert_eq!(tree(&bytes[HEADER + 16..], &[]), tree(&expected, &[]));
    }

    /// Returns the attributes, each with the kinds of those around it.
    fn tree(bytes: &[u8], around: &[u16]) -> Vec<(Vec<u16>, Vec<u8>)> {
        let mut found = Vec::new();
        for (kind, value) in Attributes(bytes) {
            let path = [around, &[kind]].concat();
            if matches!(path[..], [IFLA_LINKINFO] | [IFLA_LINKINFO, IFLA_INFO_DATA]) {
                found.extend(tree(value, &path));
            } else {
                found.push((path, value.to_vec()));
            }
        }
        found.sort();
        found
    }
}

/// Fuzz target: reads an object.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(body: &[u8]) -> bool {
    Link::parse(body)
        .map(|link| (link.mac_text(), link.data(1).is_some()))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_mac;

    #[test]
    fn macs_are_read_in_three_forms() {
        let mac = vec![0, 0x11, 0x22, 0xaa, 0xbb, 0xcc];
        for text in ["00:11:22:aa:bb:cc", "00-11-22-AA-BB-CC", "0011.22aa.bbcc"] {
            assert_eq!(parse_mac(text).as_ref(), Some(&mac), "{text}");
        }
        for text in [
            "",
            "00",
            "00:11",
            "0:11:22:aa:bb:cc",
            "00:11:22:aa:bb:c+",
            "00:11-22:aa:bb:cc",
        ] {
            assert_eq!(parse_mac(text), None, "{text}");
        }
        assert_eq!(mac_text(&mac), "00:11:22:aa:bb:cc");
    }

    #[test]
    fn loopback_is_found_by_name_and_index() {
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link_by_name("lo").unwrap();
        let is_loopback = 0x8;
        assert_eq!((link.index, link.flags & is_loopback), (1, is_loopback));
        assert_eq!(netlink.link_by_index(1).unwrap(), link);
        assert!(
            netlink
                .links()
                .unwrap()
                .iter()
                .any(|other| other.name == "lo")
        );
        for name in [
            "no-such-link".to_owned(),
            "x".repeat(127),
            "x".repeat(70_000),
        ] {
            assert_eq!(netlink.link_by_name(&name), Err(Errno::ENODEV), "{name}");
        }
    }
}
