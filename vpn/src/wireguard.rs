//! The provider wireguard: an interface of WireGuard that its user brings up, as by wg-quick, with the user's keys and peers. What
//! changes are its peers' allowed addresses, by the subnets of pods behind each.

mod device;
mod kernel;
mod uapi;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use self::device::{Change, Device, DevicePeer, Key};
use crate::{
    Prefix, echo,
    interface::{reach_lan, read_network, status_of},
    kernel::{MAIN, Network},
    peers::{Assignment, is_key},
    program::run_program,
    provider::{Guide, Peer, Phase, Provider, ProviderError, Status},
    status::{Finding, Report},
};

/// What is said about it.
pub const GUIDE: Guide = Guide {
    program: "wireguard",
    daemon: "the tunnel",
    unit: "wg-quick@NAME.service",
    forget_ranges: "if wg-quick has saved them (SaveConfig = true), take them out of AllowedIPs in its configuration",
    ping: "ping",
    reach_lan,
    examine,
    ..Guide::PLAIN
};

/// The time after which a session without a new handshake is over (`Reject-After-Time`).
const SESSION: u64 = 180;
/// The bytes around a packet: of IP, of UDP, and WireGuard's own.
const AROUND: u32 = 20 + 8 + 32;

/// The interface on this node.
#[derive(Debug)]
pub struct Wireguard {
    /// Its name.
    pub name: String,
}

impl Wireguard {
    fn failed(&self, error: &std::io::Error) -> ProviderError {
        ProviderError::Failed {
            command: format!("wireguard {}", self.name),
            text: error.to_string(),
        }
    }

    /// Reads the interface; `None` where it is none of WireGuard.
    fn device(&self) -> Result<Option<Device>, ProviderError> {
        device::read(&self.name).map_err(|error| self.failed(&error))
    }

    /// Returns the public key. A program keeps it to itself, and WireGuard's own tool derives it.
    fn key(&self, device: &Device) -> Option<String> {
        if let Some(key) = device.key {
            return Some(key.to_string());
        }
        let args = ["show", &self.name, "public-key"].map(str::to_owned);
        let output = run_program("wg", &args, &[], Duration::from_secs(5)).ok()?;
        let key = output.stdout.trim();
        (output.is_success && is_key(key)).then(|| key.to_owned())
    }
}

impl Provider for Wireguard {
    fn status(&self) -> Result<Status, ProviderError> {
        let cure = format!(
            "systemctl enable --now {}, or bring it up in the way that you made it",
            GUIDE.unit.replace("NAME", &self.name)
        );
        let mut status = status_of(&read_network()?, &self.name, &cure);
        if status.phase != Phase::Running {
            return Ok(status);
        }
        let Some(device) = self.device()? else {
            status.phase = Phase::NoInterface(format!(
                "{} is not an interface of WireGuard: correct its name, or write name=interface, with which flannel wraps packets itself",
                self.name
            ));
            return Ok(status);
        };
        status.version = format!(
            "{} {}",
            self.name,
            if device.is_of_kernel {
                "of the kernel"
            } else {
                "of a program"
            }
        );
        status.own.key = self.key(&device);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        status.peers = device
            .peers
            .iter()
            .map(|peer| peer_status(peer, now))
            .collect();
        Ok(status)
    }

    fn guide(&self) -> &'static Guide {
        &GUIDE
    }

    fn ping(&self, address: IpAddr) -> Result<Duration, ProviderError> {
        echo::ping(address).map_err(ProviderError::Ping)
    }

    fn change_ranges(
        &self,
        add: &[Assignment],
        remove: &[Assignment],
    ) -> Result<(), ProviderError> {
        if add.is_empty() && remove.is_empty() {
            return Ok(());
        }
        // With the interface everything that it had is gone.
        let Some(device) = self.device()? else {
            return Ok(());
        };
        device::change(
            &self.name,
            device.is_of_kernel,
            &changes(&device, add, remove),
        )
        .map_err(|error| self.failed(&error))
    }
}

fn peer_status(peer: &DevicePeer, now: u64) -> Peer {
    let is_host = |range: &&Prefix| **range == Prefix::host(range.address());
    let (hosts, routes): (Vec<Prefix>, Vec<Prefix>) =
        peer.ranges.iter().partition(|range| is_host(range));
    let addresses: Vec<IpAddr> = hosts.into_iter().map(Prefix::address).collect();
    let key = peer.key.to_string();
    let age = (peer.handshake > 0).then(|| now.saturating_sub(peer.handshake));
    let is_online = age.is_some_and(|age| age < SESSION);
    let endpoint = peer.endpoint.map(|endpoint| endpoint.to_string());
    Peer {
        name: addresses
            .first()
            .map_or_else(|| key.clone(), IpAddr::to_string),
        key: Some(key),
        addresses,
        routes,
        is_online,
        direct: endpoint.clone().filter(|_| is_online),
        endpoint,
        handshake_age: age,
        keepalive: Some(peer.keepalive),
        ..Peer::default()
    }
}

/// Returns the changes of peers that are there. A range is taken away by replacing all others.
fn changes(device: &Device, add: &[Assignment], remove: &[Assignment]) -> Vec<Change> {
    let mut wanted: BTreeMap<Key, (Vec<Prefix>, Vec<Prefix>)> = BTreeMap::new();
    for peer in &device.peers {
        let ranges_for = |all: &[Assignment]| {
            let name = peer.key.to_string();
            let own = all.iter().filter(|one| one.peer == name);
            own.map(|one| one.range).collect::<Vec<_>>()
        };
        let (add, mut remove) = (ranges_for(add), ranges_for(remove));
        remove.retain(|range| peer.ranges.contains(range) && !add.contains(range));
        if !add.is_empty() || !remove.is_empty() {
            wanted.insert(peer.key, (add, remove));
        }
    }
    let peers = device.peers.iter();
    peers
        .filter_map(|peer| {
            let (own, remove) = wanted.remove(&peer.key)?;
            let name = peer.key.to_string();
            // A range that another peer gets leaves this one by itself; to repeat it here would take it back.
            let is_moved = |range: &Prefix| {
                let mut others = add.iter().filter(|one| one.peer != name);
                others.any(|one| one.range == *range)
            };
            let kept = peer.ranges.iter();
            let kept = kept.filter(|range| !remove.contains(range) && !is_moved(range));
            Some(Change {
                key: peer.key,
                replaces: !remove.is_empty(),
                ranges: if remove.is_empty() {
                    own
                } else {
                    kept.copied().chain(own).collect()
                },
            })
        })
        .collect()
}

/// Returns what is wrong with the interface and its peers.
fn examine(report: &Report, network: &Network) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = report
        .interface
        .as_ref()
        .map_or("", |one| one.name.as_str());
    let mut add = |is_problem, text| found.push(Finding { is_problem, text });
    if report.peers.is_empty() {
        add(
            true,
            format!(
                "{name} has no peer, so no other node is reached: add the other nodes to its configuration"
            ),
        );
    }
    for peer in &report.peers {
        let minutes = peer.handshake_age.map(|age| age / 60);
        let since = minutes.map_or_else(
            || "never had a handshake".to_owned(),
            |minutes| format!("had its last handshake {minutes} min ago"),
        );
        let keepalive = peer.keepalive.unwrap_or(0);
        // A peer that keeps the way open, or one to which nobody knows the way, has no other reason to be silent.
        match &peer.endpoint {
            _ if peer.is_online => {}
            Some(endpoint) if keepalive > 0 => add(
                true,
                format!(
                    "{} {since}: see that its tunnel is up, that the keys of both sides match, and that UDP to {endpoint} passes",
                    peer.name
                ),
            ),
            Some(_) => add(
                false,
                format!(
                    "{} {since}, which is not a fault while nothing is sent to it",
                    peer.name
                ),
            ),
            None => add(
                false,
                format!(
                    "{} {since}, and this node has no Endpoint for it: it has to begin, with a PersistentKeepalive there",
                    peer.name
                ),
            ),
        }
        let endpoint: Option<SocketAddr> =
            peer.endpoint.as_ref().and_then(|text| text.parse().ok());
        let Some(endpoint) = endpoint else { continue };
        if keepalive == 0 && is_behind_nat(network, endpoint.ip()) {
            add(
                false,
                format!(
                    "this node has no public address, and does not keep the way from {} open: add PersistentKeepalive = 25 to that peer",
                    peer.name
                ),
            );
        }
    }
    found.extend(mtu(report, network));
    found.extend(without_route(report, network));
    found
}

/// Returns whether packets to a public address leave a node that has none of its family.
fn is_behind_nat(network: &Network, endpoint: IpAddr) -> bool {
    let mut own = network.addresses.iter().map(|(address, _)| *address);
    is_public(endpoint) && !own.any(|one| one.is_ipv4() == endpoint.is_ipv4() && is_public(one))
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || is_shared
                || address.is_unspecified())
        }
        // 2000::/3
        IpAddr::V6(address) => address.segments()[0] & 0xe000 == 0x2000,
    }
}

/// Names an MTU that does not leave room for WireGuard on the interface below.
fn mtu(report: &Report, network: &Network) -> Option<Finding> {
    let interface = report.interface.as_ref()?;
    let endpoints = report.peers.iter().filter_map(|peer| {
        let endpoint: SocketAddr = peer.endpoint.as_ref()?.parse().ok()?;
        let below = network.links.get(&link_to(network, endpoint.ip())?)?;
        let more = if endpoint.is_ipv6() { 20 } else { 0 };
        let room = below.mtu.checked_sub(AROUND + more)?;
        (below.name != interface.name).then_some((room, below))
    });
    let (room, below) = endpoints.min_by_key(|(room, _)| *room)?;
    (interface.mtu > room).then(|| Finding {
        is_problem: true,
        text: format!(
            "{} has an MTU of {}, and {} of {} leaves {room}: set MTU = {room} or less in its configuration, on every node",
            interface.name, interface.mtu, below.name, below.mtu
        ),
    })
}

/// Returns the interface of the smallest route of the main table to an address.
fn link_to(network: &Network, address: IpAddr) -> Option<u32> {
    let routes = network
        .routes
        .iter()
        .filter(|route| route.table == MAIN && route.destination.contains(Prefix::host(address)));
    routes
        .max_by_key(|route| route.destination.length())
        .and_then(|route| route.link)
}

/// Names the nodes to which no route leads through the interface, as with `Table = off`.
fn without_route(report: &Report, network: &Network) -> Option<Finding> {
    let interface = report.interface.as_ref()?;
    let link = network.link_named(&interface.name);
    let mut lost: Vec<IpAddr> = report.others.iter().map(|other| other.address).collect();
    lost.retain(|address| {
        let mut routes = network.routes.iter();
        !routes
            .any(|route| route.link == link && route.destination.contains(Prefix::host(*address)))
    });
    let first = lost.first()?;
    Some(Finding {
        is_problem: true,
        text: format!(
            "no route leads to {first} through {}: take Table = off out of its configuration, or add routes to the addresses of all nodes",
            interface.name
        ),
    })
}

/// Fuzz targets of what the kernel and programs answer.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    /// An answer of the kernel or of a program.
    pub fn wireguard(input: &[u8]) -> bool {
        let found = [super::uapi::fuzz(input), super::kernel::fuzz(input)];
        found.contains(&true)
    }
}

#[cfg(test)]
mod tests;
