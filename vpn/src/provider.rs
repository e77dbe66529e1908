//! The seam between this project and a VPN. A provider is a file of its own with a [`Provider`] and a [`Guide`], and a variant of
//! [`ProviderName`]; nothing else names it. `tests/it/third.rs` has one more.

use std::{net::IpAddr, path::Path, time::Duration};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Addresses, Prefix, Secret, interface,
    kernel::Network,
    peers::Assignment,
    status::{Finding, Report},
    tailscale, wireguard,
};

/// A VPN that this program knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderName {
    /// Tailscale, with its own control server or another such as headscale.
    #[default]
    Tailscale,
    /// An interface of WireGuard that its user brings up.
    Wireguard,
    /// Any other interface that leads to the other nodes, whoever made it.
    Interface,
}

impl ProviderName {
    /// All providers.
    pub const ALL: [Self; 3] = [Self::Tailscale, Self::Wireguard, Self::Interface];

    /// Returns the provider that settings name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.guide().program.as_bytes() == name)
    }

    /// Returns what is said about the provider.
    pub fn guide(self) -> &'static Guide {
        match self {
            Self::Tailscale => &tailscale::GUIDE,
            Self::Wireguard => &wireguard::GUIDE,
            Self::Interface => &interface::GUIDE,
        }
    }
}

/// What the settings of a node select. The record and the state of `vpn run` repeat it, for the commands that have no settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selection {
    pub provider: ProviderName,
    /// The interface, where the settings name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    #[serde(default)]
    pub pods: Pods,
}

/// The way of packets to pods of other nodes, on a node whose pods have K3s' flannel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pods {
    /// The VPN advertises the subnet of each node's pods.
    #[default]
    Advertised,
    /// flannel's hooks name the subnets of other nodes, and the peers of the interface get them.
    Routes,
    /// flannel sends them from node to node in VXLAN.
    Vxlan,
}

impl Selection {
    /// Returns what is said about the provider.
    pub fn guide(&self) -> &'static Guide {
        self.provider.guide()
    }

    /// Returns the provider on this node; `run_dir` exists, and only root may read it.
    pub fn on_this_node(&self, run_dir: &Path) -> Box<dyn Provider + Sync> {
        match self.provider {
            ProviderName::Tailscale => {
                Box::new(tailscale::Tailscale::new(tailscale::SystemRunner, run_dir))
            }
            ProviderName::Wireguard => Box::new(wireguard::Wireguard {
                name: self.interface.clone().unwrap_or_default(),
            }),
            ProviderName::Interface => Box::new(interface::Interface {
                name: self.interface.clone().unwrap_or_default(),
            }),
        }
    }
}

/// What is said about a provider: its names, its addresses, and the commands of its own program that help. [`Guide::PLAIN`] has what one
/// without a login and without settings of its own needs not say.
#[derive(Debug)]
pub struct Guide {
    /// Its program, by which settings name it, too.
    pub program: &'static str,
    pub daemon: &'static str,
    /// The systemd unit of its daemon.
    pub unit: &'static str,
    /// The ranges of the addresses that it gives to its nodes.
    pub ranges: &'static [&'static str],
    /// Its routes are in a table that comes before the main one, so the LAN needs rules that come before both.
    pub has_table: bool,
    /// The domains below which it names its nodes.
    pub domains: &'static [&'static str],
    /// Brings the VPN up.
    pub up: &'static str,
    /// Takes it down.
    pub down: &'static str,
    pub log_in_again: &'static str,
    pub log_out: &'static str,
    /// Installs the routes of other nodes.
    pub accept_routes: &'static str,
    /// Has the provider make the rules of the packet filter.
    pub filter_packets: &'static str,
    /// Accepts connections from other nodes.
    pub accept_connections: &'static str,
    /// Ends the use of an exit node.
    pub leave_exit_node: &'static str,
    /// Keeps the VPN's DNS servers out of `resolv.conf`.
    pub refuse_dns: &'static str,
    /// Leaves the sources of packets to subnets as they are.
    pub keep_sources: &'static str,
    /// Keeps ranges of its peers from coming back with an interface that is away.
    pub forget_ranges: &'static str,
    /// Shows the path to another node, whose address follows.
    pub ping: &'static str,
    /// The flag of its daemon without which the node has a network interface.
    pub no_interface_flag: &'static str,
    /// The port over which nodes reach each other directly.
    pub port: &'static str,
    /// The beginning of the argument by which the user's settings decide about the sources of packets to subnets.
    pub sources_argument: &'static str,
    /// Returns what helps against a refused login, whose error is given.
    pub cure: fn(&str) -> &'static str,
    /// Returns what a release of its daemon cannot do, with what helps.
    pub outdated: fn(&str) -> Option<String>,
    /// Returns the part of its policy that approves the subnets of nodes, inside of these networks.
    pub policy: fn(&[Prefix]) -> String,
    /// Returns how nodes elsewhere reach these addresses of a node on its LAN.
    pub reach_lan: fn(&[Prefix]) -> String,
    /// Returns what is wrong besides what holds for every provider.
    pub examine: fn(&Report, &Network) -> Vec<Finding>,
}

impl PartialEq for Guide {
    fn eq(&self, other: &Self) -> bool {
        self.program == other.program
    }
}

impl Eq for Guide {}

impl Serialize for Guide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.program)
    }
}

impl Guide {
    /// A provider of which nothing is known.
    pub const PLAIN: Self = Self {
        program: "",
        daemon: "",
        unit: "",
        ranges: &[],
        has_table: false,
        domains: &[],
        up: "",
        down: "",
        log_in_again: "",
        log_out: "",
        accept_routes: "",
        filter_packets: "",
        accept_connections: "",
        leave_exit_node: "",
        refuse_dns: "",
        keep_sources: "",
        forget_ranges: "",
        ping: "",
        no_interface_flag: "",
        port: "",
        sources_argument: "",
        cure: |_| "",
        outdated: |_| None,
        policy: |_| String::new(),
        reach_lan: |_| String::new(),
        examine: |_, _| Vec::new(),
    };

    /// Returns the ranges of the addresses that the provider gives to its nodes.
    pub fn ranges(&self) -> Vec<Prefix> {
        let ranges = self.ranges.iter();
        ranges.filter_map(|range| range.parse().ok()).collect()
    }

    /// Returns whether the provider gives such addresses to its nodes.
    pub fn covers(&self, address: IpAddr) -> bool {
        let host = Prefix::host(address);
        self.ranges().iter().any(|range| range.contains(host))
    }
}

/// The name of the file with the key, while a login runs.
pub const KEY_FILE: &str = "key";

/// A VPN on this node. Every call has a deadline. What a provider leaves out is not needed with it.
pub trait Provider {
    /// Returns the state of the VPN, as far as its program knows it.
    fn status(&self) -> Result<Status, ProviderError>;

    /// Returns what is said about it.
    fn guide(&self) -> &'static Guide;

    /// Returns the settings of this node that concern routes and the login.
    fn settings(&self) -> Result<Settings, ProviderError> {
        Ok(Settings {
            accepts_routes: true,
            filters_packets: true,
            ..Settings::default()
        })
    }

    /// Brings the VPN up and keeps the settings that it has.
    fn up(&self, _: &Login<'_>) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Takes the VPN down; the node stays logged in.
    fn down(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Logs the node out; another login needs a key or a person.
    fn logout(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Sends a packet to another node through the tunnel, and returns the time until its answer.
    fn ping(&self, address: IpAddr) -> Result<Duration, ProviderError>;

    /// Replaces the routes that this node advertises.
    fn advertise(&self, _: &[Prefix]) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Has the routes of other nodes installed in this node's kernel, or not.
    fn accept_routes(&self, _: bool) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Has packets from the VPN to subnets behind this node get its own address, or not.
    fn translate_sources(&self, _: bool) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Gives subnets of pods to peers that are there, and takes others from them, with [`Pods::Routes`].
    fn change_ranges(&self, _: &[Assignment], _: &[Assignment]) -> Result<(), ProviderError> {
        Ok(())
    }
}

/// The way in which a node logs in.
#[derive(Debug, Default)]
pub struct Login<'a> {
    /// The key; a node that is logged in needs none.
    pub key: Option<&'a Secret>,
    /// The control server; the provider's own unless set.
    pub control_server: Option<&'a str>,
    /// Further arguments of the provider's program.
    pub extra_args: &'a [String],
}

/// The VPN of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether it runs, and what is missing otherwise.
    pub phase: Phase,
    /// The release of the provider's daemon.
    pub version: String,
    /// This node.
    pub own: Peer,
    /// The other nodes.
    pub peers: Vec<Peer>,
    /// Warnings of the provider's own.
    pub health: Vec<String>,
    /// The packets of the VPN pass through the kernel.
    pub has_interface: bool,
    /// The name of its interface, where it is known; else it is the one with the addresses.
    pub interface: Option<String>,
    /// The ranges of addresses that this node reaches through the VPN, where the provider has none of its own.
    pub ranges: Vec<Prefix>,
}

/// Whether a VPN runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It runs.
    Running,
    /// It is about to run.
    Starting,
    /// It cannot run yet, because its control server is not reached, with the reason. The node's login may be valid.
    Unreached(String),
    /// Its user has to bring its interface up, with the reason and what helps.
    NoInterface(String),
    /// It was taken down.
    Stopped,
    /// The node is not logged in, or its key has expired. There may be a page on which a person logs it in.
    NeedsLogin(Option<String>),
    /// An administrator of the VPN has to approve this node.
    NeedsApproval,
}

/// A node of the VPN, and the report about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its name, without the VPN's domain.
    pub name: String,
    /// Its name in the VPN's own DNS, without a trailing dot.
    #[serde(skip)]
    pub dns_name: Option<String>,
    pub addresses: Vec<IpAddr>,
    /// The control server reaches it.
    #[serde(rename = "online")]
    pub is_online: bool,
    /// Packets went to it lately.
    #[serde(rename = "active")]
    pub is_active: bool,
    /// The address to which packets go directly.
    pub direct: Option<String>,
    /// The relay through which packets go otherwise.
    pub relay: Option<String>,
    /// The routes to subnets behind it that the control server has approved.
    pub routes: Vec<Prefix>,
    /// Its public key, where it is known by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The address to which packets would go, where it is known before there is a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Seconds since its last handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_age: Option<u64>,
    /// Seconds between packets that keep the way to it open; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<u16>,
    /// The time at which its key expires, as the control server writes it (RFC 3339).
    #[serde(skip)]
    pub key_expiry: Option<String>,
    /// The time at which it was made.
    #[serde(skip)]
    pub created: Option<String>,
}

impl Default for Status {
    /// Returns the status of a VPN that is about to run.
    fn default() -> Self {
        Self {
            phase: Phase::Starting,
            version: String::new(),
            own: Peer::default(),
            peers: Vec::new(),
            health: Vec::new(),
            has_interface: true,
            interface: None,
            ranges: Vec::new(),
        }
    }
}

impl Status {
    /// Returns at most one address of this node in each family.
    pub fn addresses(&self) -> Addresses {
        self.own.addresses.iter().copied().collect()
    }

    /// Returns the index of its interface.
    pub fn link(&self, network: &Network) -> Option<u32> {
        match &self.interface {
            Some(name) => network.link_named(name),
            None => network.link_of(&self.own.addresses),
        }
    }
}

/// Settings of this node in the provider's program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the provider's own"
)]
pub struct Settings {
    /// The routes that the node advertises.
    pub advertised: Vec<Prefix>,
    /// Routes of other nodes are installed.
    pub accepts_routes: bool,
    /// Packets of subnets behind this node get its own address.
    pub translates_sources: bool,
    /// The VPN's DNS servers are written into this node's `resolv.conf`.
    pub accepts_dns: bool,
    /// The provider makes the rules of the packet filter that it needs.
    pub filters_packets: bool,
    /// Connections from other nodes are refused, also those that the VPN's policy allows.
    pub blocks_incoming: bool,
    /// Packets to addresses outside of the VPN leave through another node.
    pub uses_exit_node: bool,
    pub control_server: Option<String>,
}

/// The reason why the provider's program did not do what was wanted, with what helps.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The program is not installed.
    #[error("there is no program {0}: install it, and run its daemon")]
    NotInstalled(String),
    /// The kernel does not answer.
    #[error("cannot read the interfaces of this node: {0}")]
    Kernel(std::io::Error),
    /// Another node did not answer.
    #[error("{0}")]
    Ping(std::io::Error),
    /// The program cannot reach its daemon.
    #[error("the daemon of {program} does not run: systemctl start {unit}")]
    DaemonDown {
        program: &'static str,
        /// The systemd unit of its daemon.
        unit: &'static str,
    },
    /// The program did not succeed in time; what it has begun may still succeed.
    #[error("`{command}` did not succeed within {} s: look at journalctl -u {unit}", .limit.as_secs())]
    Timeout {
        /// The command without its values.
        command: String,
        /// The deadline.
        limit: Duration,
        /// The systemd unit of its daemon.
        unit: &'static str,
    },
    /// The program reported an error.
    #[error("`{command}` failed: {text}")]
    Failed {
        /// The command without its values.
        command: String,
        /// The program's own words, on one line.
        text: String,
    },
    /// The program's output is not what this release knows.
    #[error("cannot read the output of `{command}`: {text}")]
    Unreadable {
        command: String,
        /// The place and the cause.
        text: String,
    },
    /// The file with the key cannot be written.
    #[error("cannot write the key for {program}: {source}")]
    KeyFile {
        program: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}
