//! DHCP for pods (RFC 2131, RFC 2132, RFC 3442): a client for interfaces in network namespaces, and the service that holds leases.
//!
//! [`client`] decides without I/O: messages and the time go in, messages and leases come out. [`socket`] is the edge to the kernel.
//! [`service`] runs the clients of a node on one thread: it serves the plugin, whose protocol is [`wire`], and keeps the leases in a
//! [`store`]. The plugin's own process and the daemon both run it; each brings the way to a pod's network namespace.
//!
//! The crates for DHCP packets were weighed: the one that is kept well brings the types of DNS and 15 further crates, for the 300 lines
//! of [`message`] and [`options`].

pub mod client;
pub mod frame;
pub mod lease;
pub mod message;
pub mod options;
pub mod socket;

mod filter;
mod interface;
mod removal;
pub mod service;
pub mod store;
pub mod wire;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use client::{Action, Client, Config, Failure, Outgoing, Retry};
pub use lease::{Lease, Route};
pub use message::{Kind, Message};
pub use options::Options;
pub use socket::Socket;

/// A hardware address of Ethernet.
pub type Mac = [u8; 6];

/// The hardware address that all stations of a link hear.
pub const BROADCAST: Mac = [0xff; 6];
