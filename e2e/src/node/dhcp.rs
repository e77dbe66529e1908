//! DHCP on a node: a server on a network that a bridge of the node reaches, or on the nodes' own LAN, and what serves the plugin.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, Service},
    sh::{self, words},
};

/// The bridge to the server's network.
pub(crate) const BRIDGE: &str = "br-lease";
/// The port of the bridge behind which the server is.
pub(crate) const PORT: &str = "lan0";
/// The network namespace of the server behind the bridge.
const LAN: &str = "lan";
/// The network namespace of the server on the nodes' LAN.
const NEIGHBOUR: &str = "neighbour";
/// The socket on which the daemon serves its own plugin.
const SOCKET: &str = "/run/cni/multus-dhcp.sock";
/// The socket of a plugin's own service, `dhcp daemon`.
const PLUGIN_SOCKET: &str = "/run/cni/dhcp.sock";
/// The directory of the daemon's leases.
const LEASES: &str = "/var/lib/cni/multus/.multus-rs/dhcp";
/// The prefix of the addresses of the server behind the bridge.
pub(crate) const PREFIX: &str = "10.30.0.";
/// The prefix of the addresses of the server on the nodes' LAN.
pub(crate) const NEIGHBOUR_PREFIX: &str = "10.31.0.";
/// The server's words for a lease that is granted or renewed, and for one that is given back.
pub(crate) const ACK: &str = "DHCPACK";
pub(crate) const RELEASE: &str = "DHCPRELEASE";
/// The name of the server's log.
const SERVER: &str = "dnsmasq";

/// Waits until the daemon serves its own plugin.
pub(crate) fn wait_for_service(node: &Node) -> anyhow::Result<()> {
    wait_for_socket(node, SOCKET)
}

/// Waits until a service of the node's plugin runs.
pub(crate) fn wait_for_plugin_service(node: &Node) -> anyhow::Result<()> {
    wait_for_socket(node, PLUGIN_SOCKET)
}

fn wait_for_socket(node: &Node, socket: &str) -> anyhow::Result<()> {
    sh::until(30, "DHCP is served", || {
        ensure!(node.path(socket).exists(), "there is no {socket}");
        Ok(())
    })
}

/// Starts the server and makes the bridge.
pub(crate) fn start_server(node: &Node) -> anyhow::Result<Service> {
    for line in [
        format!("netns add {LAN}"),
        format!("link add {BRIDGE} type bridge"),
        format!("address add {PREFIX}2/24 dev {BRIDGE}"),
        format!("link set {BRIDGE} up"),
        format!("link add {PORT} type veth peer name eth0 netns {LAN}"),
        format!("link set {PORT} master {BRIDGE} up"),
        format!("-n {LAN} address add {PREFIX}1/24 dev eth0"),
        format!("-n {LAN} link set eth0 up"),
    ] {
        node.run(&words!("ip {line}"))?;
    }
    serve(node, LAN, PREFIX)
}

/// Starts the server behind the bridge once more, with the leases that it has.
pub(crate) fn serve_again(node: &Node) -> anyhow::Result<Service> {
    serve(node, LAN, PREFIX)
}

/// Lets the daemon's leases of an hour be over, while no daemon runs.
pub(crate) fn expire_leases(node: &Node) -> anyhow::Result<()> {
    for name in leases(node)? {
        let file = node.path(LEASES).join(name);
        let text = fs::read_to_string(&file)?;
        // The option for the time of the lease, as the file has the server's message.
        let (hour, second) = ("51,4,0,0,14,16", "51,4,0,0,0,1");
        ensure!(text.contains(hour), "the lease is {text}");
        fs::write(file, text.replace(hour, second))?;
    }
    Ok(())
}

/// Starts a server on the network of the node's `eth0`, in a namespace of its own: a macvlan does not reach its own parent.
pub(crate) fn start_neighbour(node: &Node) -> anyhow::Result<Service> {
    for line in [
        format!("netns add {NEIGHBOUR}"),
        format!("link add link eth0 name lease0 netns {NEIGHBOUR} type macvlan mode bridge"),
        format!("-n {NEIGHBOUR} link set lease0 name eth0"),
        format!("-n {NEIGHBOUR} address add {NEIGHBOUR_PREFIX}1/24 dev eth0"),
        format!("-n {NEIGHBOUR} link set eth0 up"),
    ] {
        node.run(&words!("ip {line}"))?;
    }
    serve(node, NEIGHBOUR, NEIGHBOUR_PREFIX)
}

/// Runs the server on `eth0` of a namespace. Leases are renewed after three seconds, as early as the server permits.
fn serve(node: &Node, namespace: &str, prefix: &str) -> anyhow::Result<Service> {
    let service = node.serve(SERVER, "ip", |command| {
        command
            .args(["netns", "exec", namespace, "/usr/sbin/dnsmasq"])
            .args(
                "--keep-in-foreground --conf-file=/dev/null --pid-file= --log-facility=-"
                    .split(' '),
            )
            .args("--port=0 --user=root --bind-interfaces --interface=eth0 --no-ping".split(' '))
            .args(
                "--dhcp-authoritative --dhcp-option=option:T1,3 --dhcp-option=option:T2,60"
                    .split(' '),
            )
            .arg(format!("--dhcp-leasefile=/run/e2e-{namespace}-leases"))
            .arg(format!(
                "--dhcp-range={prefix}10,{prefix}99,255.255.255.0,1h"
            ))
    })?;
    sh::until(10, "the DHCP server runs", || {
        let start = format!("DHCP, IP range {prefix}10");
        ensure!(server_log(node)?.contains(&start), "it starts");
        Ok(())
    })?;
    Ok(service)
}

/// Ends the server and removes its network.
pub(crate) fn end_server(node: &Node, server: &Service) -> anyhow::Result<()> {
    node.end(server, "TERM")?;
    node.run(&["ip", "netns", "delete", LAN])?;
    node.run(&["ip", "link", "delete", BRIDGE]).map(drop)
}

/// Ends the server on the nodes' LAN and removes its link.
pub(crate) fn end_neighbour(node: &Node, server: &Service) -> anyhow::Result<()> {
    node.end(server, "TERM")?;
    node.run(&["ip", "netns", "delete", NEIGHBOUR]).map(drop)
}

fn server_log(node: &Node) -> anyhow::Result<String> {
    let path = node.log(SERVER);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns how often the server has logged this message about an address.
pub(crate) fn messages(node: &Node, message: &str, address: &str) -> anyhow::Result<usize> {
    let line = format!("{message}(eth0) {address} ");
    Ok(server_log(node)?.matches(&line).count())
}

/// Returns how often a client has looked for a server.
pub(crate) fn searches(node: &Node) -> anyhow::Result<usize> {
    Ok(server_log(node)?.matches("DHCPDISCOVER(eth0) ").count())
}

/// Waits until the server has logged this message about an address more often than `before`.
pub(crate) fn wait_for_message(
    node: &Node,
    message: &str,
    address: &str,
    before: usize,
) -> anyhow::Result<()> {
    sh::until(30, &format!("{message} of {address}"), || {
        let count = messages(node, message, address)?;
        ensure!(count > before, "the server has logged {count} of them");
        Ok(())
    })
}

/// Returns the names of the files with the daemon's leases.
pub(crate) fn leases(node: &Node) -> anyhow::Result<Vec<String>> {
    node.list(LEASES)
}

/// Returns the process IDs of services of the node's plugin.
pub(crate) fn services(node: &Node) -> anyhow::Result<Vec<String>> {
    let script = "for pid in /proc/[0-9]*; do tr '\\0' ' ' < $pid/cmdline | grep -q 'dhcp [d]aemon -socketpath' && echo ${pid#/proc/}; done; true";
    let found = node.run(&["sh", "-c", script])?;
    let own = |line: &&str| !line.is_empty();
    Ok(found.lines().filter(own).map(str::to_owned).collect())
}

/// Waits until nothing serves DHCP on the node.
pub(crate) fn wait_for_no_service(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the DHCP services have ended", || {
        let services = services(node)?;
        ensure!(services.is_empty(), "processes {services:?} still run");
        ensure!(!node.path(SOCKET).exists(), "{SOCKET} exists");
        Ok(())
    })
}
