//! DHCP on a node: the dhcp plugin, and a server on a bridge.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, Service},
    sh,
};

/// The bridge of the server.
pub(crate) const BRIDGE: &str = "br-lease";
/// The socket of the plugin's service, `dhcp daemon`, which renews leases.
const SOCKET: &str = "/run/cni/dhcp.sock";
/// Debian's plugin: the pinned reference plugins do not include it.
const PLUGIN: &str = "/usr/lib/cni/dhcp";
/// The prefix of the server's addresses.
pub(crate) const PREFIX: &str = "10.30.0.";

/// Copies the plugin to the node's plugins; returns its path, or `None` when it was there already.
pub(crate) fn install_plugin(node: &Node, bin_dir: &str) -> anyhow::Result<Option<PathBuf>> {
    let plugin = node.path(&format!("{bin_dir}/dhcp"));
    if plugin.exists() {
        return Ok(None);
    }
    fs::copy(PLUGIN, &plugin).context(PLUGIN)?;
    Ok(Some(plugin))
}

/// Waits until the plugin's service runs.
pub(crate) fn wait_for_service(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the service of the dhcp plugin runs", || {
        ensure!(node.path(SOCKET).exists(), "there is no {SOCKET}");
        Ok(())
    })
}

/// Starts the server and its bridge.
pub(crate) fn start_server(node: &Node) -> anyhow::Result<Service> {
    node.run(&["ip", "link", "add", BRIDGE, "type", "bridge"])?;
    let own = format!("{PREFIX}1/24");
    node.run(&["ip", "address", "add", &own, "dev", BRIDGE])?;
    node.run(&["ip", "link", "set", BRIDGE, "up"])?;
    node.serve("dnsmasq", "/usr/sbin/dnsmasq", |command| {
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--user=root",
            "--bind-interfaces",
            "--pid-file=",
            "--dhcp-leasefile=/run/e2e-leases",
            "--dhcp-authoritative",
            &format!("--dhcp-range={PREFIX}10,{PREFIX}99,255.255.255.0,1h"),
            &format!("--interface={BRIDGE}"),
        ])
    })
}

/// Ends the server and its bridge.
pub(crate) fn end_server(node: &Node, server: &Service) -> anyhow::Result<()> {
    node.end(server, "TERM")?;
    node.run(&["ip", "link", "delete", BRIDGE]).map(drop)
}

/// Returns the process IDs of the plugin's services.
pub(crate) fn services(node: &Node) -> anyhow::Result<Vec<String>> {
    let script = "for pid in /proc/[0-9]*; do tr '\\0' ' ' < $pid/cmdline | grep -q 'dhcp [d]aemon -socketpath' && echo ${pid#/proc/}; done; true";
    let found = node.run(&["sh", "-c", script])?;
    let own = |line: &&str| !line.is_empty();
    Ok(found.lines().filter(own).map(str::to_owned).collect())
}

/// Waits until no service of the plugin runs.
pub(crate) fn wait_for_no_service(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the service of the dhcp plugin has ended", || {
        let services = services(node)?;
        ensure!(services.is_empty(), "processes {services:?} still run");
        Ok(())
    })
}
