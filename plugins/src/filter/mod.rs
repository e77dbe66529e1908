//! The packet filter, as plugins change it: with iptables or with nftables.

pub(crate) mod iptables;
pub(crate) mod masquerade;
pub(crate) mod spoofcheck;

use std::fmt::Write as _;

use sha2::{Digest, Sha512};

pub(crate) use crate::config::Backend;

use crate::error::Result;
use crate::kernel::Netlink;
use iptables::{Iptables, Protocol};

/// How long the names of chains for iptables are.
const CHAIN_LENGTH: usize = 28;

impl Backend {
    /// Returns the one of configurations that name none: iptables, unless only nftables works here.
    pub(crate) fn default_here() -> Self {
        if !supports_iptables() && supports_nftables() {
            Self::Nftables
        } else {
            Self::Iptables
        }
    }

    /// Returns what [`Self::default_here`] returns unless iptables is there and does not work, which costs a run of it to know.
    pub(crate) fn likely_here() -> Self {
        if Iptables::find(Protocol::V4).is_err() && supports_nftables() {
            Self::Nftables
        } else {
            Self::Iptables
        }
    }

    /// Runs `work` with this likely backend and, where another one proves to be the default, with that.
    pub(crate) fn or_other<T>(self, work: impl Fn(Self) -> Result<T>) -> Result<T> {
        match work(self) {
            Err(_) if self == Self::Iptables && Self::default_here() == Self::Nftables => {
                work(Self::Nftables)
            }
            outcome => outcome,
        }
    }
}

/// Returns whether rules can be read with iptables.
pub(crate) fn supports_iptables() -> bool {
    Iptables::find(Protocol::V4).is_ok_and(|iptables| iptables.has_chain("filter", "INPUT").is_ok())
}

/// Returns whether rules can be read with nftables.
pub(crate) fn supports_nftables() -> bool {
    Netlink::open_netfilter().is_ok_and(|mut netlink| netlink.probe_nftables().is_ok())
}

/// Returns the name of the chain that has the rules of one container in one network.
pub(crate) fn chain_name(prefix: &str, network: &str, container_id: &str) -> String {
    let hash = hash(&format!("{network}{container_id}"));
    let mut name = format!("CNI-{prefix}{hash}");
    name.truncate(CHAIN_LENGTH);
    name
}

/// Returns the SHA-512 of a text in hexadecimal digits.
pub(crate) fn hash(text: &str) -> String {
    hex(&Sha512::digest(text.as_bytes()))
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every text");
        text
    })
}

/// Returns a text in double quotes, with a backslash in front of what ends it.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
