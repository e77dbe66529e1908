//! The seam between this project and a VPN's own program. A second provider implements [`Provider`] in a file of its own.

use std::{net::IpAddr, time::Duration};

use crate::{Addresses, Prefix, Secret};

/// A VPN's own program on this node. Every call has a deadline.
pub trait Provider {
    /// Returns the state of the VPN, as far as its program knows it.
    fn status(&self) -> Result<Status, ProviderError>;

    /// Returns the settings of this node that concern routes and the login.
    fn settings(&self) -> Result<Settings, ProviderError>;

    /// Brings the VPN up and keeps the settings that it has.
    fn up(&self, login: &Login<'_>) -> Result<(), ProviderError>;

    /// Takes the VPN down; the node stays logged in.
    fn down(&self) -> Result<(), ProviderError>;

    /// Logs the node out; another login needs a key or a person.
    fn logout(&self) -> Result<(), ProviderError>;

    /// Sends a packet to another node through the tunnel, and returns the time until its answer.
    fn ping(&self, address: IpAddr) -> Result<Duration, ProviderError>;

    /// Replaces the routes that this node advertises.
    fn advertise(&self, routes: &[Prefix]) -> Result<(), ProviderError>;

    /// Has the routes of other nodes installed in this node's kernel, or not.
    fn accept_routes(&self, accept: bool) -> Result<(), ProviderError>;

    /// Has packets from the VPN to subnets behind this node get its own address, or not.
    fn translate_sources(&self, translate: bool) -> Result<(), ProviderError>;

    /// Returns the ranges of the VPN's own addresses.
    fn ranges(&self) -> Vec<Prefix>;
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
    /// It was taken down.
    Stopped,
    /// The node is not logged in, or its key has expired. There may be a page on which a person logs it in.
    NeedsLogin(Option<String>),
    /// An administrator of the VPN has to approve this node.
    NeedsApproval,
}

/// A node of the VPN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its name, without the VPN's domain.
    pub name: String,
    /// Its name in the VPN's own DNS, without a trailing dot.
    pub dns_name: Option<String>,
    pub addresses: Vec<IpAddr>,
    /// The routes to subnets behind it that the control server has approved.
    pub routes: Vec<Prefix>,
    /// The control server reaches it.
    pub is_online: bool,
    /// Packets went to it lately.
    pub is_active: bool,
    /// The address to which packets go directly.
    pub direct: Option<String>,
    /// The relay through which packets go otherwise.
    pub relay: Option<String>,
    /// The time at which its key expires, as the control server writes it (RFC 3339).
    pub key_expiry: Option<String>,
    /// The time at which it was made.
    pub created: Option<String>,
}

impl Status {
    /// Returns at most one address of this node in each family.
    pub fn addresses(&self) -> Addresses {
        self.own.addresses.iter().copied().collect()
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
