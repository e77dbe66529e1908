//! The edges to the node's kernel and processes: plugins in the runtime's namespaces, links and routes, file limits, watched
//! directories. Nothing here decides what a pod gets.

pub mod dhcp_server;
pub mod dhcp_service;
pub mod dir_watch;
pub mod exec;
pub mod ipam_service;
pub mod limits;
pub mod links;
pub mod node_service;
pub mod orphans;
