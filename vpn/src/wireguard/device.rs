//! A WireGuard interface: its peers with what may come from and go to each. The kernel's own is reached by netlink, that of a program such
//! as wireguard-go by its socket.
//!
//! Both answer with the private key, which is overwritten unread.

use std::{fmt, io, net::SocketAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{kernel, uapi};
use crate::Prefix;

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub [u8; 32]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    /// Its public key; a program does not say it.
    pub key: Option<Key>,
    /// The kernel passes its packets.
    pub is_of_kernel: bool,
    pub peers: Vec<DevicePeer>,
}

/// A peer of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DevicePeer {
    pub key: Key,
    /// The address to which its packets go.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between packets that keep the way to it open; 0 for none.
    pub keepalive: u16,
    /// The time of its last handshake, in seconds since 1970; 0 for none.
    pub handshake: u64,
    /// The addresses that belong to it.
    pub ranges: Vec<Prefix>,
}

impl DevicePeer {
    /// Returns a peer of which only the key is known.
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            endpoint: None,
            keepalive: 0,
            handshake: 0,
            ranges: Vec::new(),
        }
    }
}

/// A change of a peer that is there; one that is gone stays gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub key: Key,
    /// The ranges are all that it has afterwards; else they are added to those that it has.
    pub replaces: bool,
    pub ranges: Vec<Prefix>,
}

/// Reads an interface; `None` where it is none of WireGuard.
pub(super) fn read(name: &str) -> io::Result<Option<Device>> {
    match kernel::read(name)? {
        Some(device) => Ok(Some(device)),
        None => uapi::read(name),
    }
}

/// Changes peers of an interface.
pub(super) fn change(name: &str, is_of_kernel: bool, changes: &[Change]) -> io::Result<()> {
    if is_of_kernel {
        kernel::change(name, changes)
    } else {
        uapi::change(name, changes)
    }
}
