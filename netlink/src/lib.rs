//! Netlink (RFC 3549): messages and attributes, and a socket for requests to the kernel. Programs add the kinds of objects that they need.

pub mod codec;
mod socket;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use codec::{Attributes, Message};
pub use socket::Socket;
