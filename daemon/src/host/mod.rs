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

use node::root::Root;
use plan::daemon_config::Config;

/// Removes what nothing needs while no daemon serves plugins; leases and records of running pods stay. Returns how many processes it ended.
pub fn end_services(config: &Config, root: &Root) -> usize {
    let ended = dhcp_server::end();
    dhcp_service::Paths::new(&config.cni_dir).remove(root, root);
    ipam_service::Paths::new(&config.cni_dir).remove(root);
    remove_published(config, root);
    ended
}

/// Removes from the node what said which networks it can serve.
pub(crate) fn remove_published(config: &Config, root: &Root) {
    node_features::remove(root);
    node_resources::sweep(root, &config.kubelet_dir);
}
