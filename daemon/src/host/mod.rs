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

use node::root::{Kind, Root};
use plan::daemon_config::Config;
use tracing::debug;

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

/// Fails when the path leads to something that must not be replaced by a socket.
pub(crate) fn refuse_other_than_sockets(root: &Root, path: &Path) -> anyhow::Result<()> {
    match root.kind(path)? {
        None | Some(Kind::Socket) => Ok(()),
        Some(_) => anyhow::bail!("{} is not a socket: move it away", path.display()),
    }
}

/// Removes the sockets in a directory that `is_ours` names and at which no process listens.
pub(crate) fn remove_dead_sockets(root: &Root, dir: &Path, is_ours: impl Fn(&str) -> bool) {
    let names = root.list(dir).unwrap_or_default();
    for name in names.iter().filter(|name| is_ours(name)) {
        let path = dir.join(name);
        let is_socket = matches!(root.kind(&path), Ok(Some(Kind::Socket)));
        if is_socket && !root.accepts(&path) {
            let removed = root.remove(&path);
            debug!(path = %path.display(), ?removed, "removed the socket of an ended daemon");
        }
    }
}
