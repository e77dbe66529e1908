//! The edges to the node's kernel and processes: plugins in the runtime's namespaces, links and routes, file limits, watched
//! directories. Nothing here decides what a pod gets.

pub mod dhcp_server;
pub mod dhcp_service;
pub mod dir_watch;
pub mod exec;
pub mod ipam_service;
pub mod limits;
pub mod links;
pub(crate) mod node_features;
pub(crate) mod node_resources;
pub mod node_service;
pub mod orphans;

use std::path::Path;

use node::root::Root;

/// Removes what nothing needs while no daemon serves plugins; leases and records of running pods stay. Returns how many processes it ended.
pub fn end_services(state_dir: &Path, root: &Root) -> usize {
    let ended = dhcp_server::end();
    dhcp_service::Paths::new(state_dir).remove(root, root);
    ipam_service::Paths::new(state_dir).remove(root);
    node_features::remove(root);
    ended
}
