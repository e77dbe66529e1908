//! Nodes that meet over a VPN: its settings, the addresses that a distro gets, routes, and the program that runs it.

pub mod auth;
pub mod interface;
pub mod plan;
pub mod provider;
pub mod tailscale;
pub mod wireguard;

pub mod bypass;
pub mod flannel;
pub mod kernel;
pub mod life;
pub mod peers;
pub mod probe;
pub mod program;
pub mod routes;
pub mod rule;
pub mod site;
pub mod state;
pub mod status;
pub mod watch;

mod echo;
mod facts;
mod family;
mod prefix;
mod secret;
mod vxlan;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use auth::Auth;
pub use facts::{Addresses, Facts};
pub use family::Family;
pub use prefix::{Prefix, PrefixError};
pub use secret::Secret;
