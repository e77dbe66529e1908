//! Tap devices (`linux/if_tun.h`): the one kind of link that netlink does not create.

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno as SystemError;
use rustix::ioctl::{self, IntegerSetter, Opcode, Updater, opcode};

use super::errno::Errno;

const TUN: &str = "/dev/net/tun";
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETPERSIST: Opcode = opcode::write::<i32>(b'T', 203);
const TUNSETOWNER: Opcode = opcode::write::<i32>(b'T', 204);
const TUNSETGROUP: Opcode = opcode::write::<i32>(b'T', 206);

pub(crate) const IFF_TAP: u16 = 0x0002;
/// Packets have no header with their protocol.
pub(crate) const IFF_NO_PI: u16 = 0x1000;
/// Packets have the header of virtio-net.
pub(crate) const IFF_VNET_HDR: u16 = 0x4000;
pub(crate) const IFF_MULTI_QUEUE: u16 = 0x0100;
/// The device must be a new one.
const IFF_TUN_EXCL: u16 = 0x8000;

/// The length of `struct ifreq`, and of the name at its beginning.
const IFREQ: usize = 40;
const IFNAMSIZ: usize = 16;

/// A tap device to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewTap<'a> {
    pub(crate) name: &'a str,
    /// `IFF_*`.
    pub(crate) flags: u16,
    /// The user who may attach to it; everybody with `CAP_NET_ADMIN` when absent.
    pub(crate) owner: Option<u32>,
    /// The group whose members may attach to it.
    pub(crate) group: Option<u32>,
}

/// A step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TapError {
    Open(Errno),
    Ioctl(&'static str, Errno),
}

impl NewTap<'_> {
    /// Creates the device in the thread's network namespace. It stays when no program has it open.
    pub(crate) fn create(&self) -> Result<(), TapError> {
        let file = fs::open(TUN, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| TapError::Open(error.into()))?;
        let step = |name: &'static str, result: Result<(), SystemError>| {
            result.map_err(|error| TapError::Ioctl(name, error.into()))
        };
        let mut request = self.request();
        let number = |id: u32| usize::try_from(id).unwrap_or(usize::MAX);
        #[expect(
            unsafe_code,
            reason = "rustix leaves it to the caller that the argument fits: TUNSETIFF takes a struct ifreq, the others an integer"
        )]
        unsafe {
            step(
                "TUNSETIFF",
                ioctl::ioctl(&file, Updater::<TUNSETIFF, _>::new(&mut request)),
            )?;
            if let Some(owner) = self.owner {
                let owner = IntegerSetter::<TUNSETOWNER>::new_usize(number(owner));
                step("TUNSETOWNER", ioctl::ioctl(&file, owner))?;
            }
            if let Some(group) = self.group {
                let group = IntegerSetter::<TUNSETGROUP>::new_usize(number(group));
                step("TUNSETGROUP", ioctl::ioctl(&file, group))?;
            }
            let persist = IntegerSetter::<TUNSETPERSIST>::new_usize(1);
            step("TUNSETPERSIST", ioctl::ioctl(&file, persist))
        }
    }

    /// Returns the `struct ifreq`. A name that is too long is cut; runtimes refuse it before.
    fn request(&self) -> [u8; IFREQ] {
        let mut request = [0; IFREQ];
        let name = self.name.as_bytes();
        let length = name.len().min(IFNAMSIZ - 1);
        request[..length].copy_from_slice(&name[..length]);
        let flags = (self.flags | IFF_TAP | IFF_TUN_EXCL).to_ne_bytes();
        request[IFNAMSIZ..IFNAMSIZ + 2].copy_from_slice(&flags);
        request
    }
}

impl std::fmt::Display for TapError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(error) => write!(formatter, "open {TUN}: {error}"),
            Self::Ioctl(name, error) => {
                write!(formatter, "Tuntap IOCTL {name} failed [0], errno {error}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_name_and_flags() {
        let tap = NewTap {
            name: "tap7",
            flags: IFF_VNET_HDR,
            owner: None,
            group: None,
        };
        let request = tap.request();
        assert_eq!(&request[..5], b"tap7\0");
        assert_eq!(u16::from_ne_bytes([request[16], request[17]]), 0xc002);
        assert!(request[18..].iter().all(|byte| *byte == 0));
        let long = NewTap {
            name: "sixteen-bytes-ab",
            ..tap
        };
        assert_eq!(&long.request()[..16], b"sixteen-bytes-a\0");
        assert_eq!([TUNSETIFF, TUNSETPERSIST], [0x4004_54ca, 0x4004_54cb]);
        assert_eq!([TUNSETOWNER, TUNSETGROUP], [0x4004_54cc, 0x4004_54ce]);
    }
}
