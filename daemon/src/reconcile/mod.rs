//! Keeps the node as the configuration asks for it, as long as the daemon lives: shim and configuration in the runtime's
//! directories, or only plugins, the DHCP plugin's server, no state of containers that are deleted, and what it can serve where others look
//! for it.

pub mod dhcp;
pub mod ipam;
pub mod node;
mod node_service;
pub mod publish;
pub mod stale;
mod standalone;
