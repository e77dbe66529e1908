//! The parts that suites with nodes on a VPN share: its settings, the answers of multus-distro about it, and the VPNs themselves.

pub(crate) mod tailnet;
pub(crate) mod wg_quick;

use std::fs;

use anyhow::Context as _;
use serde_json::Value;

use crate::{node::Node, sh, test_env::TestEnv};

/// The state that `vpn run` keeps for the other commands.
const STATE: &str = "/run/multus-vpn/state.json";

/// Writes a file for root alone.
pub(crate) fn write_private(node: &Node, file: &str, text: &str) -> anyhow::Result<()> {
    node.write(file, text)?;
    node.run(&["chmod", "600", file]).map(drop)
}

/// Returns the state that `vpn run` keeps.
pub(crate) fn state(node: &Node) -> anyhow::Result<Value> {
    let text = fs::read(node.path(STATE)).context("there is no state")?;
    serde_json::from_slice(&text).context("the state is no JSON")
}

/// Waits until a node is in the VPN; returns its IPv4 address there.
pub(crate) fn address(node: &Node) -> anyhow::Result<String> {
    sh::until(30, "the node is in the VPN", || {
        let state = state(node)?;
        let address = state["node"]["ipv4"].as_str();
        Ok(address.with_context(|| state.to_string())?.to_owned())
    })
}

/// Returns the JSON of a command of multus-distro, whose exit status says whether there are problems.
pub(crate) fn distro_json(env: &TestEnv, node: &Node, args: &[&str]) -> anyhow::Result<Value> {
    let mut command = node.command(env.program("multus-distro"));
    let output = sh::output(command.args(args), b"")?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns the findings of `vpn status` on a node; a problem begins with `!`.
pub(crate) fn findings(env: &TestEnv, node: &Node) -> anyhow::Result<Vec<String>> {
    let status = distro_json(env, node, &["vpn", "status", "--json"])?;
    let findings = status["findings"].as_array().context("no findings")?;
    let texts = findings.iter().map(|finding| {
        let mark = if finding["isProblem"] == true {
            "!"
        } else {
            ""
        };
        format!("{mark}{}", finding["text"].as_str().unwrap_or_default())
    });
    Ok(texts.collect())
}

/// Returns the addresses and ports at which etcd listens, sorted.
pub(crate) fn etcd_sockets(node: &Node) -> anyhow::Result<Vec<String>> {
    let sockets = node.run(&["ss", "-Hltn"])?;
    let local = sockets
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    let mut etcd: Vec<_> = local
        .filter(|socket| socket.ends_with(":2379") || socket.ends_with(":2380"))
        .map(str::to_owned)
        .collect();
    etcd.sort_unstable();
    Ok(etcd)
}

/// Drops every packet that comes from the LAN, except those that nft describes so; in place of what was dropped before.
pub(crate) fn drop_from_lan(node: &Node, except: &[String]) -> anyhow::Result<()> {
    let accepts = except.iter();
    let accepts = accepts.map(|packets| format!("iifname \"eth0\" {packets} accept\n"));
    let rules = format!(
        "table inet e2e {{}}\ndelete table inet e2e\ntable inet e2e {{ chain lan {{ type filter hook prerouting priority -500;\n{}iifname \"eth0\" drop\n}}\n}}\n",
        accepts.collect::<String>()
    );
    sh::feed(node.command("nft").args(["--file", "-"]), rules.as_bytes()).map(drop)
}

/// Gives a node an IPv6 address on the LAN, and a default route there, with which packets for pods must not leave.
pub(crate) fn add_ipv6(node: &Node) -> anyhow::Result<()> {
    let address = format!("fd77::{}/64", node.number);
    node.run(&["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"])?;
    node.run(&["ip", "address", "add", &address, "dev", "eth0", "nodad"])?;
    node.run(&["ip", "-6", "route", "add", "default", "dev", "eth0"])?;
    Ok(())
}
