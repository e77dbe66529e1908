//! Netlink (RFC 3549): messages and attributes, a socket for requests to the kernel, links and routes. Programs add the other
//! kinds of objects that they need.

pub mod codec;
pub mod link;
pub mod route;
mod socket;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use codec::{Attributes, Message};
pub use socket::{Socket, changes_of_links};
