//! A pod's network namespace and the interface in it that a lease is for, by the requests of netdevice(7): an index, a hardware address
//! and a flag need no netlink. Addresses and routes do ([`crate::removal`]).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::removal::Configuration;
use crate::{Mac, Socket};

/// Requests of `linux/sockios.h`.
const GET_FLAGS: Opcode = 0x8913;
const SET_FLAGS: Opcode = 0x8914;
const GET_HARDWARE_ADDRESS: Opcode = 0x8927;
/// Netlink's description of a link, whose fixed part is a `struct ifinfomsg`.
const RTM_GETLINK: u16 = 18;
const LINK_FIXED: usize = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// `IFF_UP`.
const UP: u16 = 1;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// `IFNAMSIZ`, with the zero byte at the end.
const NAME_LENGTH: usize = 16;

/// Device and inode of a network namespace, which no other one has as long as this one lives.
pub(crate) type Identity = (u64, u64);

/// An open network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    fd: OwnedFd,
    pub(crate) identity: Identity,
}

impl Namespace {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let stat = fs::fstat(&fd)?;
        Ok(Self {
            fd,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Runs `work` in this namespace, then returns to the one before. A thread that cannot return ends: everything that it did next
    /// would be in the wrong place.
    fn enter<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let path = "/proc/thread-self/ns/net";
        let own = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let before = Self::new(own)?;
        // The kernel demands a privilege even of a thread that is there.
        if before.identity == self.identity {
            return Ok(work());
        }
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.fd.as_fd(), kind)?;
        let value = work();
        move_into_link_name_space(before.fd.as_fd(), kind)
            .expect("the thread returns to the network namespace in which it was");
        Ok(value)
    }
}

/// An interface of a pod.
#[derive(Debug)]
pub(crate) struct Interface {
    namespace: Namespace,
    name: String,
    index: u32,
    /// A socket in the namespace.
    socket: OwnedFd,
}

impl Interface {
    /// Finds the interface of this index, under whatever name the pod has given it, or else the one of this name. The error is of the kind
    /// `NotFound` when there is neither.
    pub(crate) fn find(namespace: Namespace, name: &str, index: Option<u32>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let open = || socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let socket = namespace
            .enter(open)
            .and_then(|opened| Ok(opened?))
            .map_err(|error| {
                let text = format!("cannot enter the network namespace: {error}");
                io::Error::new(error.kind(), text)
            })?;
        let present = index.and_then(|index| {
            let name = netdevice::index_to_name(&socket, index).ok()?;
            Some((name, index))
        });
        if let Some((name, index)) = present {
            return Ok(Self {
                namespace,
                name,
                index,
                socket,
            });
        }
        let found = netdevice::name_to_index(&socket, name);
        let index = found.map_err(|error| {
            let (kind, reason) = match error {
                rustix::io::Errno::NODEV => (io::ErrorKind::NotFound, "Link not found".to_owned()),
                other => (io::Error::from(other).kind(), other.to_string()),
            };
            io::Error::new(kind, format!("error looking up {name:?}: {reason}"))
        })?;
        Ok(Self {
            namespace,
            name: name.to_owned(),
            index,
            socket,
        })
    }

    /// Returns its index, which stays when it is renamed.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the identity of its network namespace.
    pub(crate) fn netns(&self) -> Identity {
        self.namespace.identity
    }

    pub(crate) fn mac(&self) -> Result<Mac, String> {
        let mut request = Request::new(&self.name);
        self.call::<GET_HARDWARE_ADDRESS>(&mut request)
            .map_err(|error| {
                format!("cannot read the hardware address of {}: {error}", self.name)
            })?;
        let [kind_first, kind_second, mac @ .., _, _] = request.value;
        if u16::from_ne_bytes([kind_first, kind_second]) != ETHERNET {
            let name = &self.name;
            return Err(format!("{name} has no hardware address of Ethernet"));
        }
        let (mac, _) = mac.split_first_chunk().expect("the value has 24 bytes");
        Ok(*mac)
    }

    /// Brings the interface up, or takes it down.
    pub(crate) fn set_up(&self, is_up: bool) -> Result<(), String> {
        let set = || -> io::Result<()> {
            let mut request = Request::new(&self.name);
            self.call::<GET_FLAGS>(&mut request)?;
            let before = u16::from_ne_bytes([request.value[0], request.value[1]]);
            let after = if is_up { before | UP } else { before & !UP };
            if after != before {
                request.value[..2].copy_from_slice(&after.to_ne_bytes());
                self.call::<SET_FLAGS>(&mut request)?;
            }
            Ok(())
        };
        let state = if is_up { "up" } else { "down" };
        set().map_err(|error| format!("cannot set {} {state}: {error}", self.name))
    }

    /// Returns whether it is an ipvlan, as far as the kernel says.
    pub(crate) fn is_ipvlan(&self) -> bool {
        let mut fixed = [0; LINK_FIXED];
        fixed[4..8].copy_from_slice(&self.index.to_ne_bytes());
        let get = |socket: &mut netlink::Socket| {
            socket.get(netlink::Message::new(RTM_GETLINK, 0, &fixed))
        };
        self.with_netlink("read the kind of", get)
            .is_ok_and(|link| link_kind(&link).as_deref() == Some("ipvlan"))
    }

    /// Returns its addresses and routes.
    pub(crate) fn configuration(&self) -> Result<Configuration, String> {
        let read = |socket: &mut _| Configuration::read(socket, self.index);
        self.with_netlink("list the addresses and routes", read)
    }

    /// Takes an address of its configuration away.
    pub(crate) fn remove(
        &self,
        configuration: &Configuration,
        address: Ipv4Addr,
    ) -> Result<(), String> {
        self.with_netlink("take the address off", |socket| {
            configuration.remove(socket, address)
        })
    }

    pub(crate) fn restore(&self, configuration: &Configuration) -> Result<(), String> {
        self.with_netlink("put all addresses and routes back on", |socket| {
            configuration.restore(socket)
        })
    }

    fn with_netlink<T>(
        &self,
        what: &str,
        work: impl FnOnce(&mut netlink::Socket) -> io::Result<T>,
    ) -> Result<T, String> {
        let opened = self.namespace.enter(|| netlink::Socket::open(None));
        let done = opened.and_then(|opened| work(&mut opened?));
        done.map_err(|error| format!("cannot {what} {}: {error}", self.name))
    }

    /// Opens a socket for DHCP on it.
    pub(crate) fn open(&self) -> Result<Socket, String> {
        // A plugin after IPAM may have changed the hardware address since the lease began.
        let mac = self.mac()?;
        self.namespace
            .enter(|| Socket::open(self.index, mac))
            .and_then(|opened| opened)
            .map_err(|error| format!("cannot open a socket on {}: {error}", self.name))
    }

    #[expect(
        unsafe_code,
        reason = "rustix has no functions for these requests of netdevice(7)"
    )]
    fn call<const OPCODE: Opcode>(&self, request: &mut Request) -> io::Result<()> {
        // SAFETY: each of the three requests reads and writes one `struct ifreq`, which is not longer than `Request`.
        let outcome = unsafe { ioctl(&self.socket, Updater::<OPCODE, Request>::new(request)) };
        Ok(outcome?)
    }
}

/// Returns the kind of a link that the kernel describes.
fn link_kind(link: &[u8]) -> Option<String> {
    let attributes = netlink::Attributes(link.get(LINK_FIXED..)?);
    let information = attributes.nested(IFLA_LINKINFO)?;
    information.get(IFLA_INFO_KIND).map(netlink::codec::text)
}

/// `struct ifreq` (`linux/if.h`) of 64-bit machines; that of 32-bit machines is shorter.
#[repr(C, align(8))]
struct Request {
    name: [u8; NAME_LENGTH],
    value: [u8; 24],
}

impl Request {
    /// A request about the interface of this name, which the kernel knows.
    fn new(name: &str) -> Self {
        let mut request = Self {
            name: [0; NAME_LENGTH],
            value: [0; 24],
        };
        let bytes = name.as_bytes();
        let length = bytes.len().min(NAME_LENGTH - 1);
        request.name[..length].copy_from_slice(&bytes[..length]);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Namespace {
        Namespace::new(std::fs::File::open("/proc/self/ns/net").unwrap().into()).unwrap()
    }

    #[test]
    fn interfaces_are_found_by_index_or_name() {
        let loopback = Interface::find(own(), "lo", None).unwrap();
        assert_eq!(loopback.index(), 1);
        let renamed = Interface::find(own(), "none0", Some(1)).unwrap();
        assert_eq!((renamed.name.as_str(), renamed.index()), ("lo", 1));
        let replaced = Interface::find(own(), "lo", Some(u32::MAX / 2)).unwrap();
        assert_eq!(replaced.index(), 1);
        assert_eq!(loopback.netns(), own().identity);
        assert_eq!(
            loopback.mac().unwrap_err(),
            "lo has no hardware address of Ethernet"
        );
        let error = Interface::find(own(), "none0", Some(u32::MAX / 2)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            "error looking up \"none0\": Link not found"
        );
    }

    #[test]
    fn kind_of_a_link_is_in_its_description() {
        let mut message = netlink::Message::new(16, 0, &[0; LINK_FIXED]);
        message
            .put_text(3, "net1")
            .nest(IFLA_LINKINFO, |information| {
                information.put_text(IFLA_INFO_KIND, "ipvlan");
            });
        let bytes = message.finish(0, 1);
        let link = &bytes[netlink::codec::HEADER..];
        assert_eq!(link_kind(link).as_deref(), Some("ipvlan"));
        assert_eq!(link_kind(&link[..LINK_FIXED]), None);
        assert!(!Interface::find(own(), "lo", None).unwrap().is_ipvlan());
    }

    #[test]
    fn file_that_is_not_a_namespace_cannot_be_entered() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let error = Interface::find(Namespace::new(file.into()).unwrap(), "lo", None).unwrap_err();
        assert!(error.to_string().starts_with("cannot enter"), "{error}");
    }
}
