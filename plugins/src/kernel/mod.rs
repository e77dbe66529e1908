//! The kernel's interface: netlink, network namespaces, sysctls. The plugins read like their documentation because everything that
//! has bytes, flags and file descriptors is here.
//!
//! The codec is ours, the crate `netlink`. The kept libraries with types for all this take more than half as much CPU again for an ADD, fail a message for
//! an attribute that a plugin does not need, and none has all of tbf, u32 and nftables; those without types spare little. The figures
//! are in `docs/contributing/dependencies.md`.

mod errno;
mod socket;

pub(crate) mod address;
pub(crate) mod bridge_port;
pub(crate) mod conntrack;
pub(crate) mod link;
pub(crate) mod netns;
pub(crate) mod nftables;
pub(crate) mod qdisc;
pub(crate) mod route;
pub(crate) mod rule;
pub(crate) mod sysctl;
pub(crate) mod tun;

use netlink::codec;

pub(crate) use codec::Message;
pub(crate) use errno::Errno;
pub(crate) use socket::Netlink;

/// `NLM_F_CREATE | NLM_F_EXCL`: adds an object, and fails when it is there.
const NLM_F_CREATE_EXCL: u16 = 0x600;
