//! Nodes with an interface of WireGuard that wg-quick makes: the first is the hub, through which all others meet.

use std::{fmt::Write as _, process::Command};

use crate::{node::Node, sh};

pub(crate) const INTERFACE: &str = "wg0";
/// The settings for it.
pub(crate) const SETTINGS: &str = "name=wireguard,interface=wg0";
/// The UDP port of the hub.
const PORT: u16 = 51820;
const CONF: &str = "/etc/wireguard/wg0.conf";

/// A private key with its public one.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) private: String,
    pub(crate) public: String,
}

impl Keys {
    /// Makes new keys.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let private = sh::run(Command::new("wg").arg("genkey"))?;
        let public = sh::feed(Command::new("wg").arg("pubkey"), private.as_bytes())?;
        Ok(Self {
            private: private.trim().to_owned(),
            public: public.trim().to_owned(),
        })
    }
}

/// Returns the address of a node in the tunnel.
pub(crate) fn address(index: usize) -> String {
    format!("10.9.0.{}", index + 1)
}

/// The families of the addresses in a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Families {
    Ipv4,
    Both,
}

impl Families {
    /// Returns the addresses of a node in the tunnel, each with the length of the tunnel's prefix and that of a host.
    fn addresses(self, index: usize) -> Vec<(String, u8, u8)> {
        let ipv6 = (format!("fd09::{}", index + 1), 64, 128);
        let ipv6 = Some(ipv6).filter(|_| self == Self::Both);
        [(address(index), 24, 32)].into_iter().chain(ipv6).collect()
    }

    /// Returns the ranges of a node's own addresses, as AllowedIPs have them.
    pub(crate) fn node_networks(self, index: usize) -> String {
        let all = self.addresses(index).into_iter();
        let all = all.map(|(address, _, host)| format!("{address}/{host}"));
        all.collect::<Vec<_>>().join(",")
    }

    /// Returns the ranges of all addresses in the tunnel.
    fn tunnel(self) -> &'static str {
        match self {
            Self::Ipv4 => "10.9.0.0/24",
            Self::Both => "10.9.0.0/24, fd09::/64",
        }
    }
}

/// Describes the packets of WireGuard between the hub and the others, for nft on a node; `hub` is its address on the LAN.
pub(crate) fn packets(index: usize, hub: &str) -> String {
    if index == 0 {
        format!("udp dport {PORT}")
    } else {
        format!("ip saddr {hub} udp sport {PORT}")
    }
}

/// Writes wg-quick's configuration for the nodes with these keys: the hub has each node as a peer, and each node the hub with all addresses.
pub(crate) fn write_conf(
    node: &Node,
    index: usize,
    keys: &[Keys],
    hub: &str,
    families: Families,
) -> anyhow::Result<()> {
    let own = families.addresses(index).into_iter();
    let own = own.map(|(address, length, _)| format!("{address}/{length}"));
    let mut conf = format!(
        "[Interface]\nAddress = {}\nPrivateKey = {}\n",
        own.collect::<Vec<_>>().join(", "),
        keys[index].private
    );
    if index == 0 {
        writeln!(conf, "ListenPort = {PORT}")?;
        for (other, keys) in keys.iter().enumerate().skip(1) {
            write!(
                conf,
                "[Peer]\nPublicKey = {}\nAllowedIPs = {}\n",
                keys.public,
                families.node_networks(other)
            )?;
        }
    } else {
        write!(
            conf,
            "[Peer]\nPublicKey = {}\nAllowedIPs = {}\nEndpoint = {hub}:{PORT}\nPersistentKeepalive = 1\n",
            keys[0].public,
            families.tunnel()
        )?;
    }
    node.run(&["mkdir", "-p", "/etc/wireguard"])?;
    super::write_private(node, CONF, &conf)
}

/// What passes the packets of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Implementation {
    /// The kernel, where it has WireGuard.
    Kernel,
    /// The program wireguard-go, which is named like its module here.
    Program,
}

/// In place of `ip` in wg-quick, which takes the program only where the kernel has no WireGuard.
const IP: &str = "() { if [[ $1 = link && $2 = add && $5 = wireguard ]]; then wireguard \"$3\"; else command ip \"$@\"; fi; }";

impl Implementation {
    /// Returns the kernel where it has WireGuard, else the program.
    pub(crate) fn detect() -> Self {
        if is_of_kernel() {
            Self::Kernel
        } else {
            Self::Program
        }
    }

    /// Returns what `vpn status` says of an interface.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Kernel => "of the kernel",
            Self::Program => "of a program",
        }
    }

    /// Runs wg-quick.
    pub(crate) fn run(self, node: &Node, action: &str) -> anyhow::Result<()> {
        let mut command = node.command("wg-quick");
        if self == Self::Program {
            command.env("BASH_FUNC_ip%%", IP);
        }
        sh::run(command.args([action, INTERFACE])).map(drop)
    }
}

/// Returns whether this machine's kernel makes links of WireGuard.
pub(crate) fn is_of_kernel() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(["--net", "ip", "link", "add", "probe", "type", "wireguard"]);
    sh::run(&mut probe).is_ok()
}
