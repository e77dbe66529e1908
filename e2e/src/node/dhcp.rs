//! Networks whose addresses come from a DHCP server: a real plugin, and a real server on a bridge of a node.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::objects,
    node::{Node, Service},
    sh,
};

const BRIDGE: &str = "br-lease";
/// Where the plugin that keeps leases listens.
const SOCKET: &str = "/run/cni/dhcp.sock";
/// Debian's; it is not among those that are built.
const PLUGIN: &str = "/usr/lib/cni/dhcp";
/// What addresses from the server begin with.
pub(crate) const PREFIX: &str = "10.30.0.";

/// A network on that bridge.
pub(crate) fn network() -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": BRIDGE, "ipam": {"type": "dhcp"}});
    objects::network("leased", &config)
}

/// Puts the plugin among the node's, unless it is there; gives its place if it was put there.
pub(crate) fn bring_plugin(node: &Node, bin_dir: &str) -> anyhow::Result<Option<PathBuf>> {
    let place = node.path(&format!("{bin_dir}/dhcp"));
    if place.exists() {
        return Ok(None);
    }
    fs::copy(PLUGIN, &place).context(PLUGIN)?;
    Ok(Some(place))
}

/// Waits until somebody keeps the plugin serving.
pub(crate) fn are_kept(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the plugin serves", || {
        ensure!(node.path(SOCKET).exists(), "there is no {SOCKET}");
        Ok(())
    })
}

/// Starts a server on a bridge.
pub(crate) fn serve(node: &Node) -> anyhow::Result<Service> {
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
pub(crate) fn end(node: &Node, server: &Service) -> anyhow::Result<()> {
    node.end(server, "TERM")?;
    node.run(&["ip", "link", "delete", BRIDGE]).map(drop)
}

/// Process ids of plugins that hold leases.
pub(crate) fn holders(node: &Node) -> anyhow::Result<Vec<String>> {
    let script = "for pid in /proc/[0-9]*; do tr '\\0' ' ' < $pid/cmdline | grep -q 'dhcp [d]aemon -socketpath' && echo ${pid#/proc/}; done; true";
    let found = node.run(&["sh", "-c", script])?;
    let own = |line: &&str| !line.is_empty();
    Ok(found.lines().filter(own).map(str::to_owned).collect())
}

/// Waits until no plugin holds leases.
pub(crate) fn nobody_holds(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the plugin has ended", || {
        let holders = holders(node)?;
        ensure!(holders.is_empty(), "{holders:?} are there");
        Ok(())
    })
}
