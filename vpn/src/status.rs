//! Problems of this node's VPN, with their cures: facts in, findings out. A pure function.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Prefix,
    bypass::{Bypass, bypasses},
    kernel::{Link, MAIN, Network},
    life::not_logged_in,
    peers::{self, Other},
    provider::{Guide, Peer, Phase, Pods, ProviderError, Settings, Status},
    routes::{self, list},
    rule,
    state::{Record, State},
    vxlan::{MIN_IPV6_MTU, inner_mtu},
};

/// Facts about the VPN, from its program, the kernel and this program's own files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Report {
    pub provider: &'static Guide,
    /// The release of its daemon.
    pub version: Option<String>,
    /// `running`, or a word for what is missing.
    pub phase: &'static str,
    /// What keeps the interface of a user's VPN from being used.
    pub reason: Option<String>,
    /// The way of packets to pods of other nodes.
    pub pods: Pods,
    /// The node's name in the VPN.
    pub name: String,
    /// The addresses in the VPN.
    pub addresses: Vec<std::net::IpAddr>,
    /// The time at which the node's key expires; none for a key that does not, as that of a node with tags.
    pub node_key_expiry: Option<String>,
    /// The time at which the node was made in the VPN.
    pub created: Option<String>,
    pub control_server: Option<String>,
    /// This program brought the VPN up, and takes it down.
    pub brought_up: bool,
    /// The interface with the VPN's addresses.
    pub interface: Option<Interface>,
    /// VXLAN interfaces that send through the VPN.
    pub vxlan: Vec<Vxlan>,
    /// Subnets of pods that are reached around the VPN.
    pub bypasses: Vec<Bypass>,
    /// flannel has its configuration, and has announced no subnet of this node's pods yet.
    pub waits_for_flannel: bool,
    /// `vpn run` runs, and keeps routes and rules.
    pub is_kept: bool,
    /// Routes of other nodes are installed.
    pub accepts_routes: bool,
    /// Packets to pods get this node's address.
    pub translates_sources: bool,
    /// `resolv.conf` names the VPN's DNS servers.
    pub accepts_dns: bool,
    /// The provider makes the rules of the packet filter that it needs.
    pub filters_packets: bool,
    /// Connections from other nodes are refused.
    pub blocks_incoming: bool,
    /// Packets to addresses outside of the VPN leave through another node.
    pub uses_exit_node: bool,
    /// The kernel forwards packets with IPv4.
    pub forwards_ipv4: bool,
    /// The kernel forwards packets with IPv6.
    pub forwards_ipv6: bool,
    /// The routes of this node.
    pub routes: Routes,
    /// The other nodes.
    pub peers: Vec<Peer>,
    /// The ranges of the LAN.
    pub lan: Vec<Prefix>,
    /// Those of them that have no rule before the VPN's.
    pub lan_without_rule: Vec<Prefix>,
    /// The networks of the cluster's pods and services, as far as this node knows them.
    pub cluster: Vec<Prefix>,
    /// The other nodes that flannel's hooks have named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Other>,
    /// Warnings of the provider's own.
    pub health: Vec<String>,
    /// The present time of this node.
    pub now: String,
    /// What the provider finds wrong.
    #[serde(skip)]
    found: Vec<Finding>,
}

/// An interface and its MTU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// A VXLAN interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vxlan {
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its packets are in packets of IPv6.
    pub is_over_ipv6: bool,
}

/// The routes of this node's pods and of its user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Routes {
    /// The subnets of this node's pods.
    pub wanted: Vec<Prefix>,
    /// All routes that are advertised, those of the user among them.
    pub advertised: Vec<Prefix>,
    /// Those that the control server has approved.
    pub approved: Vec<Prefix>,
    /// Subnets of pods that are not approved.
    pub pending: Vec<Prefix>,
    /// The routes of other nodes that the kernel does not have.
    pub not_installed: Vec<Prefix>,
}

/// The sources of a report.
#[derive(Debug)]
pub struct Sources<'a> {
    pub provider: &'static Guide,
    /// The provider's answer.
    pub status: Result<&'a Status, &'a ProviderError>,
    pub settings: &'a Settings,
    /// The record of `vpn run`.
    pub record: &'a Record,
    /// The networks of pods in flannel's configuration, and of services.
    pub cluster: &'a [Prefix],
    /// The networks of pods, from flannel's hook.
    pub pods: &'a [Prefix],
    /// The subnets of this node's pods, from flannel's hook.
    pub subnets: &'a [Prefix],
    /// The other nodes, from flannel's hooks.
    pub others: &'a [Other],
    /// flannel's configuration has been written.
    pub has_flannel: bool,
    /// `vpn run` runs.
    pub is_kept: bool,
    /// The network of this node.
    pub network: &'a Network,
    /// The kernel forwards packets with IPv4 and with IPv6.
    pub forwards: (bool, bool),
    /// The present time.
    pub now: Timestamp,
}

impl Report {
    /// Puts the facts together.
    pub fn new(sources: &Sources<'_>) -> Self {
        let none = Status::default();
        let status = sources.status.unwrap_or(&none);
        let Sources {
            network,
            settings,
            record,
            ..
        } = sources;
        let link = status.link(network);
        let accepted: Vec<Prefix> = status
            .peers
            .iter()
            .flat_map(|peer| peer.routes.iter().copied())
            .filter(|route| !route.is_default())
            .collect();
        let pods = record.selection.pods;
        let decision = peers::decide(
            &status.peers,
            &record.assigned,
            sources.others,
            sources.pods,
        );
        let lan = link.map(|link| rule::lan(network, link, sources.cluster));
        let lan = lan.unwrap_or_default();
        let vxlan = network.links.values();
        let vxlan = vxlan.filter_map(|found| {
            let below = found.below.as_ref()?;
            (Some(below.link) == link).then(|| Vxlan {
                name: found.name.clone(),
                mtu: found.mtu,
                is_over_ipv6: below.is_ipv6,
            })
        });
        let accepted = if pods == Pods::Routes {
            decision.routes
        } else {
            accepted
        };
        let mut report = Self {
            provider: sources.provider,
            version: Some(status.version.clone()).filter(|version| !version.is_empty()),
            phase: phase(sources.status),
            reason: match &status.phase {
                Phase::NoInterface(reason) => Some(reason.clone()),
                _ => None,
            },
            pods,
            name: status.own.name.clone(),
            addresses: status.own.addresses.clone(),
            node_key_expiry: status.own.key_expiry.clone(),
            created: status.own.created.clone(),
            control_server: settings.control_server.clone(),
            brought_up: record.brought_up,
            interface: link
                .and_then(|link| network.links.get(&link))
                .map(Interface::from),
            vxlan: vxlan.collect(),
            bypasses: if sources.has_flannel {
                bypasses(network, link, sources.cluster, pods)
            } else {
                Vec::new()
            },
            waits_for_flannel: sources.has_flannel
                && sources.subnets.is_empty()
                && record.routes.ours.is_empty(),
            is_kept: sources.is_kept,
            accepts_routes: settings.accepts_routes,
            translates_sources: settings.translates_sources,
            accepts_dns: settings.accepts_dns,
            filters_packets: settings.filters_packets,
            blocks_incoming: settings.blocks_incoming,
            uses_exit_node: settings.uses_exit_node,
            forwards_ipv4: sources.forwards.0,
            forwards_ipv6: sources.forwards.1,
            routes: own_routes(sources, status, &accepted, link),
            peers: status.peers.clone(),
            lan_without_rule: if sources.provider.has_table {
                without_rule(sources, &lan, accepted)
            } else {
                Vec::new()
            },
            lan: lan.into_iter().collect(),
            cluster: sources.cluster.to_vec(),
            others: sources.others.to_vec(),
            health: status.health.clone(),
            now: sources.now.to_string(),
            found: Vec::new(),
        };
        let problems = decision.problems.into_iter().map(|text| Finding {
            is_problem: true,
            text,
        });
        report.found = (sources.provider.examine)(&report, network);
        report.found.extend(problems);
        report
    }
}

fn phase(status: Result<&Status, &ProviderError>) -> &'static str {
    match status {
        Err(ProviderError::NotInstalled(_)) => "notInstalled",
        Err(ProviderError::DaemonDown { .. }) => "daemonDown",
        Err(_) => "unknown",
        Ok(status) => match status.phase {
            Phase::Running => "running",
            Phase::Starting => "starting",
            Phase::Unreached(_) => "unreached",
            Phase::NoInterface(_) => "noInterface",
            Phase::Stopped => "stopped",
            Phase::NeedsLogin(_) => "needsLogin",
            Phase::NeedsApproval => "needsApproval",
        },
    }
}

fn own_routes(
    sources: &Sources<'_>,
    status: &Status,
    accepted: &[Prefix],
    link: Option<u32>,
) -> Routes {
    let advertised = &sources.settings.advertised;
    let wanted = match sources.subnets {
        [] => &sources.record.routes.ours[..],
        subnets => subnets,
    };
    let is_installed = |route: &Prefix| {
        let mut all = sources.network.routes.iter();
        all.any(|found| found.destination == *route && found.link == link && link.is_some())
    };
    let mut not_installed = accepted.to_vec();
    not_installed.retain(|route| !is_installed(route));
    let not_approved = routes::without(advertised, &status.own.routes);
    let pending = match sources.record.selection.pods {
        Pods::Advertised => routes::without(wanted, &status.own.routes),
        Pods::Routes | Pods::Vxlan => Vec::new(),
    };
    Routes {
        wanted: wanted.to_vec(),
        pending: rule::without_twins(pending, accepted),
        approved: routes::without(advertised, &not_approved),
        advertised: advertised.clone(),
        not_installed,
    }
}

/// Returns the ranges of the LAN that need a rule and have none.
fn without_rule(
    sources: &Sources<'_>,
    lan: &BTreeSet<Prefix>,
    accepted: Vec<Prefix>,
) -> Vec<Prefix> {
    let carried = rule::Carried {
        vpn: sources.provider.ranges(),
        pods: sources.cluster.to_vec(),
        accepted,
        own: sources.subnets.to_vec(),
    };
    let has_rule = |range: &Prefix| {
        sources.network.rules.iter().any(|rule| {
            rule.priority <= rule::PRIORITY
                && rule.table == MAIN
                && rule.destination.is_some_and(|found| found.contains(*range))
        })
    };
    let mut ranges = Vec::from_iter(rule::protected(lan, &carried));
    ranges.retain(|range| !has_rule(range));
    ranges
}

impl From<&Link> for Interface {
    fn from(link: &Link) -> Self {
        Self {
            name: link.name.clone(),
            mtu: link.mtu,
        }
    }
}

/// Something that is wrong, or that deserves attention, with what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Something does not work.
    pub is_problem: bool,
    /// The finding, and its cure.
    pub text: String,
}

/// Returns the findings: what keeps everything else from working comes first.
pub fn findings(report: &Report, state: Option<&State>) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    found.phase(report);
    if let Some(problem) = state.and_then(|state| state.problem.as_ref()) {
        // The unit knows more than the provider's status, such as that a key was refused.
        found.0.retain(|finding| {
            !matches!(report.phase, "needsLogin" | "unreached" | "noInterface")
                || !finding.is_problem
        });
        found.problem(problem.clone());
    }
    if !report.is_kept && (state.is_some() || report.brought_up || !report.routes.wanted.is_empty())
    {
        found.problem("multus-vpn.service does not run, so the VPN, routes and rules are not kept: systemctl start multus-vpn.service");
    }
    found.expiry(report);
    if report.phase == "running" {
        found.interface(report);
        found.routes(report);
        found.overlaps(report);
        found.paths(report);
        found.dns_and_sources(report);
        found.0.extend(report.found.iter().cloned());
    }
    for text in &report.health {
        // These repeat the phase.
        if report.phase == "running" {
            let program = report.provider.program;
            found.note(format!("{program} warns: {}", text.trim_end_matches('.')));
        }
    }
    found.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn note(&mut self, text: impl Into<String>) {
        self.0.push(Finding {
            is_problem: false,
            text: text.into(),
        });
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.0.push(Finding {
            is_problem: true,
            text: text.into(),
        });
    }

    fn phase(&mut self, report: &Report) {
        let Guide {
            program,
            daemon,
            unit,
            up,
            ..
        } = report.provider;
        match report.phase {
            "notInstalled" => self.problem(format!("{program} is not installed: install it, and systemctl enable --now {unit}")),
            "daemonDown" => self.problem(format!("{daemon} does not run: systemctl start {unit}")),
            "unknown" => self.problem(format!("{program} does not answer: look at journalctl -u {unit}")),
            "noInterface" => self.problem(report.reason.clone().unwrap_or_default()),
            "starting" => self.note("the VPN is starting"),
            "unreached" => self.problem("the VPN's control server is not reached, and without it this node has no address after a start: see that it runs, and that this node reaches it"),
            "stopped" => self.problem(format!("the VPN is down: {up}, or systemctl restart multus-vpn.service")),
            "needsLogin" => self.problem(not_logged_in(report.provider)),
            "needsApproval" => self.problem(format!("the VPN waits for the approval of this node, {}: approve it in the VPN's control server", report.name)),
            _ => {}
        }
        let version = report.version.as_deref();
        if let Some(problem) = version.and_then(report.provider.outdated) {
            self.problem(problem);
        }
    }

    fn expiry(&mut self, report: &Report) {
        let now: Option<Timestamp> = report.now.parse().ok();
        let seconds_to = |time: &Option<String>| {
            let time: Timestamp = time.as_ref()?.parse().ok()?;
            Some(time.as_second() - now?.as_second())
        };
        if let (Some(seconds), Some(time)) =
            (seconds_to(&report.node_key_expiry), &report.node_key_expiry)
        {
            let cure = format!(
                "log in again with {}, or switch the expiry off for nodes of a cluster",
                report.provider.log_in_again
            );
            match seconds / 86_400 {
                _ if seconds <= 0 => {
                    self.problem(format!("the node's key expired at {time}: {cure}"));
                }
                days if days < 14 => {
                    self.problem(format!("the node's key expires at {time}: {cure}"));
                }
                _ => self.note(format!(
                    "the node's key expires at {time}, and the node leaves the cluster then: {cure}"
                )),
            }
        }
        // A margin for clocks that differ a little.
        if seconds_to(&report.created).is_some_and(|seconds| seconds > 300) {
            self.problem(format!(
                "the clock says {}, before this node was made in the VPN: set it, and run a time service",
                report.now
            ));
        }
    }

    fn interface(&mut self, report: &Report) {
        let Some(interface) = &report.interface else {
            self.problem(format!(
                "no interface has the VPN's addresses: run {} without {}",
                report.provider.daemon, report.provider.no_interface_flag
            ));
            return;
        };
        if interface.mtu < MIN_IPV6_MTU {
            self.problem(format!(
                "{} has an MTU of {}, too small for IPv6: {MIN_IPV6_MTU} or more",
                interface.name, interface.mtu
            ));
        }
        for vxlan in &report.vxlan {
            let text = format!(
                "{} sends VXLAN through {}: every packet is wrapped twice",
                vxlan.name, interface.name
            );
            let fits = inner_mtu(interface.mtu, vxlan.is_over_ipv6);
            if vxlan.mtu > fits {
                self.problem(format!(
                    "{text}, and its MTU of {} does not fit into {}: set it to {fits}",
                    vxlan.mtu, interface.mtu
                ));
            } else if report.pods != Pods::Vxlan {
                self.note(format!(
                    "{text}; with K3s' flannel, --vpn-auth-file announces subnets without VXLAN"
                ));
            }
        }
    }

    fn routes(&mut self, report: &Report) {
        let routes = &report.routes;
        if report.waits_for_flannel {
            self.note("flannel has announced no subnet of this node's pods yet: start the distro; where its log says that the flannel net config doesn't contain the node's PodCIDR, the servers have another cluster-cidr, and multus-distro install needs it as --vpn-cluster-cidr");
        }
        for bypass in &report.bypasses {
            self.problem(bypass.text());
        }
        let mut lost = routes::without(&routes.wanted, &routes.advertised);
        if report.pods != Pods::Advertised {
            lost.clear();
        }
        if !lost.is_empty() {
            self.problem(format!(
                "{} of this node's pods is not advertised: systemctl restart multus-vpn.service",
                list(&lost)
            ));
        }
        let bypasses = report.bypasses.iter();
        let elsewhere: Vec<Prefix> = bypasses.flat_map(|one| one.subnets.clone()).collect();
        let missing = routes::without(&routes.not_installed, &elsewhere);
        let pending = routes::without(&routes.pending, &lost);
        if !pending.is_empty() {
            self.problem(routes::approval(&pending, &report.name));
        }
        if !report.accepts_routes && !routes.wanted.is_empty() {
            self.problem(format!(
                "this node does not take the routes of other nodes: {}",
                report.provider.accept_routes
            ));
        } else if report.accepts_routes && !missing.is_empty() {
            self.problem(format!(
                "the kernel has no route to {}: systemctl restart {}",
                list(&missing),
                if report.pods == Pods::Routes {
                    "multus-vpn.service"
                } else {
                    report.provider.unit
                }
            ));
        }
        let has = |ipv4: bool| {
            routes
                .wanted
                .iter()
                .any(|route| route.address().is_ipv4() == ipv4)
        };
        if has(true) && !report.forwards_ipv4 {
            self.problem("the kernel forwards no packets to pods: sysctl -w net.ipv4.ip_forward=1");
        }
        if has(false) && !report.forwards_ipv6 {
            self.problem("the kernel forwards no IPv6 packets to pods: sysctl -w net.ipv6.conf.all.forwarding=1");
        }
        if !report.filters_packets && !routes.wanted.is_empty() {
            let Guide {
                program,
                filter_packets,
                ..
            } = report.provider;
            self.note(format!("{program} makes no rules of the packet filter: a firewall that drops forwarded packets drops those of pods, so accept them from and to the VPN's interface, or {filter_packets}"));
        }
        if !report.lan_without_rule.is_empty() {
            self.problem(format!("a route of another node could pull {} into the VPN: systemctl restart multus-vpn.service, which keeps it on the LAN", list(&report.lan_without_rule)));
        }
    }

    fn overlaps(&mut self, report: &Report) {
        let mut vpn = report.provider.ranges();
        if vpn.is_empty() {
            // An interface of the user's may lead to a part of these networks on purpose.
            vpn.extend(report.addresses.iter().copied().map(Prefix::host));
        }
        let mut pairs = Vec::new();
        for lan in &report.lan {
            pairs.extend(vpn.iter().map(|vpn| ("the LAN", *lan, "the VPN", *vpn)));
            pairs.extend(
                report
                    .cluster
                    .iter()
                    .map(|own| ("the LAN", *lan, "the cluster", *own)),
            );
        }
        for own in &report.cluster {
            pairs.extend(vpn.iter().map(|vpn| ("the cluster", *own, "the VPN", *vpn)));
        }
        for (one, first, other, second) in pairs {
            if first.intersection(second).is_some() {
                self.problem(format!("{first} of {one} overlaps {second} of {other}, and packets go astray: give one of them another range"));
            }
        }
        let peers = report.peers.iter();
        let routes = peers.flat_map(|peer| {
            let routes = peer.routes.iter();
            routes.map(|route| (peer.name.as_str(), *route))
        });
        if report.provider.has_table {
            for claim in rule::claims(&report.lan, routes.clone()) {
                self.note(claim);
            }
            for twin in rule::twins(&report.routes.wanted, routes) {
                self.problem(twin);
            }
        }
    }

    fn paths(&mut self, report: &Report) {
        if report.blocks_incoming {
            let cure = report.provider.accept_connections;
            self.problem(format!("this node takes no connection from other nodes, so its kubelet, API server and pods are out of reach: {cure}"));
        }
        if report.uses_exit_node {
            let cure = report.provider.leave_exit_node;
            self.note(format!("packets of this node and its pods to the Internet leave through an exit node, and fail while it is away: {cure}, unless this is meant"));
        }
        for peer in report.peers.iter().filter(|peer| peer.is_active) {
            if let (None, Some(relay)) = (&peer.direct, &peer.relay) {
                self.note(format!("packets to {} go through the relay {relay}, slower than directly: let {} through the firewalls of both nodes", peer.name, report.provider.port));
            }
        }
    }

    fn dns_and_sources(&mut self, report: &Report) {
        if report.accepts_dns {
            let cure = report.provider.refuse_dns;
            self.note(format!("resolv.conf may name the VPN's DNS server, and CoreDNS asks it then: {cure}, unless pods shall resolve the VPN's names"));
        }
        if report.translates_sources && !report.routes.wanted.is_empty() {
            let cure = report.provider.keep_sources;
            self.note(format!("packets from other nodes reach pods with this node's address, so NetworkPolicies do not see their sources: {cure}"));
        }
    }
}

impl Report {
    /// Returns the provider, its release and whether it runs.
    pub fn summary(&self) -> String {
        let version = self.version.as_deref();
        let version = version.unwrap_or("of an unknown release");
        format!("{} {version}, {}", self.provider.program, self.phase)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |subject: &str, text: String| writeln!(f, "{subject:<14} {text}");
        let version = self.version.as_deref().unwrap_or("of an unknown release");
        line(
            "vpn",
            format!("{} {version}, {}", self.provider.program, self.phase),
        )?;
        if !self.addresses.is_empty() {
            let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
            line("node", format!("{}: {}", self.name, addresses.join(", ")))?;
        }
        if let Some(interface) = &self.interface {
            line(
                "interface",
                format!("{}, MTU {}", interface.name, interface.mtu),
            )?;
        }
        if let Some(server) = &self.control_server {
            let by = if self.brought_up {
                "this program"
            } else {
                "its user"
            };
            line("login", format!("{server}, brought up by {by}"))?;
        }
        let has_login = !self.provider.log_in_again.is_empty();
        let expiry = self
            .node_key_expiry
            .as_deref()
            .unwrap_or("never, or unknown");
        if has_login {
            line(
                "expiry",
                format!(
                    "of the node's key: {expiry}; that of an auth key is known to the control server alone"
                ),
            )?;
        }
        let or_none = |routes: &[Prefix]| {
            if routes.is_empty() {
                "none".to_owned()
            } else {
                list(routes)
            }
        };
        let routes = &self.routes;
        line("pod subnets", or_none(&routes.wanted))?;
        if self.pods == Pods::Advertised {
            line(
                "advertised",
                format!(
                    "{}; approved: {}",
                    or_none(&routes.advertised),
                    or_none(&routes.approved)
                ),
            )?;
        }
        for peer in &self.peers {
            let path = match (&peer.direct, &peer.relay, peer.is_active) {
                (Some(address), _, _) => format!("direct, {address}"),
                (None, Some(relay), true) => format!("relayed by {relay}"),
                _ if peer.is_online => "online".to_owned(),
                _ => "offline".to_owned(),
            };
            line(
                "peer",
                format!("{} {path}; routes: {}", peer.name, or_none(&peer.routes)),
            )?;
        }
        if !self.lan.is_empty() {
            line("lan", list(&self.lan))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
