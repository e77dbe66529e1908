//! The life of a VPN on this node: each step looks at it and does the next thing that is missing.
//!
//! A VPN that runs is left as it is. One that does not run is brought up, and the record keeps that this program did it. What an
//! administrator takes down by hand while the cluster runs stays down.

use std::time::{Duration, Instant};

use crate::{
    Facts, Prefix,
    auth::same_server,
    bypass::{Bypass, bypasses},
    flannel::Note,
    kernel::Network,
    peers::{self, Assignment, Other},
    provider::{Guide, Login, Phase, Pods, Provider, ProviderError, Settings, Status},
    routes, rule,
    state::{Record, State},
};

/// The pause after the first login that fails; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_mins(5);
/// The time that routes may wait for their approval before it is reported.
const APPROVAL: Duration = Duration::from_secs(30);
/// The time in which a flannel that starts has named all other nodes.
const NAMING: Duration = Duration::from_mins(2);
/// The time that the control server may be away before it is reported; a provider loses it for a moment at each start.
const AWAY: Duration = Duration::from_secs(30);

/// Keeps the record.
pub trait Store {
    /// Writes the record durably.
    fn save(&mut self, record: &Record) -> std::io::Result<()>;
}

/// The input of one step besides the provider.
pub struct Input<'a> {
    /// The present time.
    pub now: Instant,
    /// The way to log in.
    pub login: &'a Login<'a>,
    /// The user's routes in the settings.
    pub configured: &'a [Prefix],
    /// The user's settings decide about the sources of packets to subnets.
    pub leaves_sources: bool,
    /// The note of flannel's hook.
    pub note: Option<&'a Note>,
    /// The networks of the cluster as the distro has them, where flannel leaves no note.
    pub cluster: &'a [Prefix],
    /// Reads the network of this node, which changes when the VPN comes up.
    pub network: &'a dyn Fn() -> std::io::Result<Network>,
}

/// The VPN of this node, with what is known of it from step to step.
pub struct Life<S> {
    provider: Box<dyn Provider>,
    store: S,
    record: Record,
    has_run: bool,
    failures: u32,
    next_login: Option<Instant>,
    last_error: Option<String>,
    pending_since: Option<Instant>,
    away_since: Option<Instant>,
    /// The number of flannel's present start, and when it was seen first.
    flannel: Option<(u32, Instant)>,
    /// The VPN as it ran last.
    facts: Option<Facts>,
    events: Vec<String>,
}

/// The reason why a step did not get to its end.
enum Stop {
    Missing(String),
}

impl From<ProviderError> for Stop {
    fn from(error: ProviderError) -> Self {
        Self::Missing(error.to_string())
    }
}

impl<S: Store> Life<S> {
    /// Returns the VPN as the record has it.
    pub fn new(provider: Box<dyn Provider>, store: S, record: Record) -> Self {
        Self {
            provider,
            store,
            record,
            has_run: false,
            failures: 0,
            next_login: None,
            last_error: None,
            pending_since: None,
            away_since: None,
            flannel: None,
            facts: None,
            events: Vec::new(),
        }
    }

    /// Returns a line for each change that the steps since the last call have found or made.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Does the next step; returns the state of the VPN. The caller sets the rules for the ranges of the LAN that it names.
    pub fn step(&mut self, input: &Input<'_>) -> State {
        let mut state = match self.try_step(input) {
            Ok(state) => state,
            Err(Stop::Missing(problem)) => State::missing(problem),
        };
        state.selection.clone_from(&self.record.selection);
        state
    }

    fn try_step(&mut self, input: &Input<'_>) -> Result<State, Stop> {
        let mut status = self.provider.status()?;
        if self.needs_login(&status, input)? {
            self.log_in(&status, input)?;
            status = self.provider.status()?;
        }
        let guide = self.provider.guide();
        let missing = match &status.phase {
            Phase::Running => None,
            Phase::Starting => Some("the VPN is starting".to_owned()),
            Phase::Unreached(reason) => Some(unreached(reason)),
            Phase::NoInterface(reason) => Some(reason.clone()),
            Phase::Stopped => Some(format!(
                "the VPN was taken down by hand: {}, or systemctl restart multus-vpn.service",
                guide.up
            )),
            Phase::NeedsLogin(page) => Some(self.login_problem(page.as_deref(), input)),
            Phase::NeedsApproval => Some(format!(
                "the VPN waits for the approval of this node, {}: approve it in the VPN's control server",
                status.own.name
            )),
        };
        if let Some(missing) = missing {
            return Err(Stop::Missing(missing));
        }
        self.has_run = true;
        self.failures = 0;
        self.last_error = None;
        let network = (input.network)().map_err(|error| {
            Stop::Missing(format!("cannot read the interfaces of this node: {error}"))
        })?;
        let link = status.link(&network);
        let Some((index, link)) = link.and_then(|index| Some((index, network.links.get(&index)?)))
        else {
            return Err(Stop::Missing(no_interface(&status, guide)));
        };
        let facts = Facts {
            interface: link.name.clone(),
            addresses: status.addresses(),
            dns_name: status.own.dns_name.clone(),
            mtu: link.mtu,
            ranges: status.ranges.clone(),
        };
        let mut state = State::running(&facts);
        self.compare_facts(facts);
        let carried = carried(input, &status, guide.ranges());
        if self.record.selection.pods == Pods::Advertised {
            self.keep_routes(&status, input, &network, &carried.accepted, &mut state)?;
        }
        state.key.clone_from(&status.own.key);
        if self.record.selection.pods == Pods::Routes {
            self.keep_peers(&status, input, &mut state)?;
        }
        // flannel has its own interface with VXLAN.
        if let Some(note) = input.note
            && self.record.selection.pods != Pods::Vxlan
        {
            let pods = self.record.selection.pods;
            let found = bypasses(&network, Some(index), &note.networks, pods);
            state.notes.extend(found.iter().map(Bypass::text));
        }
        if guide.has_table {
            keep_lan(&status, &network, index, &carried, &mut state);
        }
        self.report_absence(&status, input, &mut state)?;
        Ok(state)
    }

    /// Notes a change of the facts that a distro was started with.
    fn compare_facts(&mut self, facts: Facts) {
        if let Some(former) = &self.facts
            && (&former.interface, former.addresses) != (&facts.interface, facts.addresses)
        {
            self.events.push(format!(
                "the VPN is now on {} with {}, and was on {} with {}: restart the distro, if it was started before",
                facts.interface, facts.addresses, former.interface, former.addresses
            ));
        }
        self.facts = Some(facts);
    }

    /// Notes that the control server is away, which changes nothing for the nodes that know each other.
    fn report_absence(
        &mut self,
        status: &Status,
        input: &Input<'_>,
        state: &mut State,
    ) -> Result<(), Stop> {
        if status.own.is_online {
            self.away_since = None;
            return Ok(());
        }
        let since = *self.away_since.get_or_insert(input.now);
        if input.now.duration_since(since) >= AWAY {
            let server = self.provider.settings()?.control_server;
            state.notes.push(format!(
                "the VPN's control server {} does not answer, so new nodes and routes wait, and known ones work on: see that it runs, and that this node reaches it",
                server.unwrap_or_default()
            ));
        }
        Ok(())
    }

    /// Returns whether the VPN has to be brought up, or to another control server.
    fn needs_login(&self, status: &Status, input: &Input<'_>) -> Result<bool, Stop> {
        let may_try = self.next_login.is_none_or(|next| next <= input.now);
        match &status.phase {
            Phase::Stopped => Ok(!self.has_run && may_try),
            Phase::NeedsLogin(_) => Ok(input.login.key.is_some() && may_try),
            Phase::Running => {
                let Some(wanted) = input.login.control_server else {
                    return Ok(false);
                };
                let present = self.provider.settings()?.control_server.unwrap_or_default();
                if same_server(&present, wanted) {
                    return Ok(false);
                }
                if self.record.brought_up && input.login.key.is_some() {
                    return Ok(may_try);
                }
                Err(Stop::Missing(format!(
                    "this node is logged in at {present}, and the settings name {wanted}: run {}, or take controlServerURL out of the settings",
                    self.provider.guide().log_out
                )))
            }
            Phase::Starting
            | Phase::Unreached(_)
            | Phase::NoInterface(_)
            | Phase::NeedsApproval => Ok(false),
        }
    }

    fn log_in(&mut self, status: &Status, input: &Input<'_>) -> Result<(), Stop> {
        // A login that is gone, or that was taken down, is not this program's any more; one that runs may be.
        let was_ours = self.record.brought_up && status.phase == Phase::Running;
        // Written first: what is brought up is taken down, also after a crash.
        self.change_record(|record| record.brought_up = true)?;
        // A node that was logged in needs no key, unless that login is not accepted any more.
        let outcome = if status.phase == Phase::Stopped && self.failures == 0 {
            self.provider.up(&Login::default())
        } else {
            self.provider.up(input.login)
        };
        let Err(error) = outcome else {
            self.next_login = None;
            return Ok(());
        };
        // After a deadline the provider's daemon goes on with this login.
        if !matches!(error, ProviderError::Timeout { .. }) {
            self.change_record(|record| record.brought_up = was_ours)?;
        }
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_PAUSE);
        self.failures += 1;
        self.next_login = Some(input.now + pause);
        let cure = (self.provider.guide().cure)(&error.to_string());
        let problem = format!("{error}: {cure}");
        self.last_error = Some(problem.clone());
        Err(Stop::Missing(problem))
    }

    fn login_problem(&self, page: Option<&str>, input: &Input<'_>) -> String {
        if let Some(error) = &self.last_error {
            return error.clone();
        }
        if input.login.key.is_some() {
            return "this node is not logged in to the VPN; the next attempt follows".to_owned();
        }
        match page {
            Some(page) => format!("this node is not logged in to the VPN: open {page}"),
            None => not_logged_in(self.provider.guide()),
        }
    }

    /// Advertises the subnets of this node's pods, and accepts those of other nodes.
    fn keep_routes(
        &mut self,
        status: &Status,
        input: &Input<'_>,
        network: &Network,
        accepted: &[Prefix],
        state: &mut State,
    ) -> Result<(), Stop> {
        let subnets = input.note.map(|note| &note.subnets[..]);
        let remembered = &self.record.routes;
        if subnets.is_none() && remembered.ours.is_empty() && input.configured.is_empty() {
            return Ok(());
        }
        let settings = self.provider.settings()?;
        let wanted = routes::decide(&settings.advertised, remembered, input.configured, subnets);
        if let Some(routes) = &wanted.advertise {
            let before = wanted.before;
            self.change_record(|record| record.routes = before)?;
            self.provider.advertise(routes)?;
            if !wanted.restored.is_empty() {
                self.events.push(routes::restoration(&wanted.restored));
            }
            if !wanted.withdrawn.is_empty() {
                let line = routes::replacement(&wanted.withdrawn, &wanted.after.ours);
                self.events.push(line);
            }
        }
        let after = wanted.after;
        self.change_record(|record| record.routes = after)?;
        if !self.record.routes.ours.is_empty() {
            self.keep_settings(&settings, input, network, state)?;
        }
        state.advertised.clone_from(&self.record.routes.ours);
        let pending = routes::without(&state.advertised, &status.own.routes);
        state.pending = rule::without_twins(pending, accepted);
        self.report_pending(status, input, state);
        Ok(())
    }

    /// Gives the subnets of other nodes' pods to the peers that lead to them.
    fn keep_peers(
        &mut self,
        status: &Status,
        input: &Input<'_>,
        state: &mut State,
    ) -> Result<(), Stop> {
        let others = match input.note {
            // As they were before this boot.
            None => self.record.others.clone(),
            Some(note) => self.present(note, input.now),
        };
        let networks = input.note.map_or(&[][..], |note| &note.networks);
        let decision = peers::decide(&status.peers, &self.record.assigned, &others, networks);
        let before = decision.before;
        self.change_record(|record| {
            record.others = others;
            record.assigned = before;
        })?;
        state.notes.extend(decision.problems);
        state.pods = decision.routes;
        // The node stays in the VPN when a peer refuses its subnet.
        if let Err(error) = self.provider.change_ranges(&decision.add, &decision.remove) {
            state
                .notes
                .push(format!("peers do not get the subnets of pods: {error}"));
            return Ok(());
        }
        for (done, to, all) in [
            ("allowed", "for", &decision.add),
            ("no more allowed", "for", &decision.remove),
        ] {
            for Assignment { peer, range } in all {
                let mut peers = status.peers.iter();
                let name = peers.find(|one| one.key.as_ref() == Some(peer));
                let name = name.map_or(peer.as_str(), |peer| peer.name.as_str());
                self.events.push(format!(
                    "the subnet of pods {range} is {done} {to} the peer {name}"
                ));
            }
        }
        let after = decision.after;
        self.change_record(|record| record.assigned = after)
    }

    /// Returns the other nodes that flannel has named since its start. Until it has had the time for all of them, those count that it named
    /// before.
    fn present(&mut self, note: &Note, now: Instant) -> Vec<Other> {
        if self.flannel.is_none_or(|(starts, _)| starts != note.starts) {
            self.flannel = Some((note.starts, now));
        }
        let mut others = note.others.clone();
        let since = self.flannel.map_or(now, |(_, since)| since);
        if now.duration_since(since) >= NAMING {
            others.retain(|other| other.start == note.starts);
        }
        others
    }

    /// Changes the settings that subnets of pods need.
    fn keep_settings(
        &mut self,
        settings: &Settings,
        input: &Input<'_>,
        network: &Network,
        state: &mut State,
    ) -> Result<(), Stop> {
        if !settings.accepts_routes {
            self.change_record(|record| record.accepted_routes = true)?;
            self.provider.accept_routes(true)?;
        }
        if settings.translates_sources && !input.leaves_sources {
            // What goes to an address of this node itself is never translated.
            let is_own = |route: &Prefix| {
                let mut own = network.addresses.iter();
                own.any(|(address, _)| Prefix::host(*address) == *route)
            };
            if self.record.routes.of_user.iter().all(is_own) {
                self.change_record(|record| record.kept_sources = true)?;
                self.provider.translate_sources(false)?;
            } else {
                state.notes.push(format!(
                    "packets from other nodes reach pods with this node's address, so NetworkPolicies do not see their sources: {}, if the subnets that you advertise yourself have a route back",
                    self.provider.guide().keep_sources
                ));
            }
        }
        Ok(())
    }

    fn report_pending(&mut self, status: &Status, input: &Input<'_>, state: &mut State) {
        if state.pending.is_empty() {
            self.pending_since = None;
            return;
        }
        let since = *self.pending_since.get_or_insert(input.now);
        if input.now.duration_since(since) < APPROVAL {
            return;
        }
        let networks = input
            .note
            .map(|note| &note.networks[..])
            .unwrap_or_default();
        let networks = if networks.is_empty() {
            &state.pending
        } else {
            networks
        };
        state.notes.push(format!(
            "{}, or have the VPN's policy do it: {}",
            routes::approval(&state.pending, &status.own.name),
            (self.provider.guide().policy)(networks)
        ));
    }

    fn change_record(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), Stop> {
        let mut record = self.record.clone();
        change(&mut record);
        if record != self.record {
            self.store.save(&record).map_err(|error| {
                Stop::Missing(format!("cannot write the VPN's record: {error}"))
            })?;
            self.record = record;
        }
        Ok(())
    }

    /// Undoes what this program did: withdraws its routes, sets settings back, and takes the VPN down if it brought it up and `down` is set.
    /// Otherwise the VPN stays up, and is the user's from then on.
    pub fn end(&mut self, down: bool) -> Result<(), String> {
        let text = |stop: Stop| match stop {
            Stop::Missing(text) => text,
        };
        if !self.record.routes.ours.is_empty() {
            let settings = self
                .provider
                .settings()
                .map_err(|error| error.to_string())?;
            let none = Some(&[][..]);
            let wanted = routes::decide(&settings.advertised, &self.record.routes, &[], none);
            if let Some(routes) = &wanted.advertise {
                self.provider
                    .advertise(routes)
                    .map_err(|error| error.to_string())?;
            }
            self.change_record(|record| record.routes = wanted.after)
                .map_err(text)?;
        }
        if !self.record.assigned.is_empty() {
            let assigned = self.record.assigned.clone();
            self.provider
                .change_ranges(&[], &assigned)
                .map_err(|error| error.to_string())?;
            self.change_record(|record| record.assigned.clear())
                .map_err(text)?;
        }
        if self.record.kept_sources {
            self.provider
                .translate_sources(true)
                .map_err(|error| error.to_string())?;
            self.change_record(|record| record.kept_sources = false)
                .map_err(text)?;
        }
        if self.record.accepted_routes {
            self.provider
                .accept_routes(false)
                .map_err(|error| error.to_string())?;
            self.change_record(|record| record.accepted_routes = false)
                .map_err(text)?;
        }
        if self.record.brought_up && down {
            self.provider.down().map_err(|error| error.to_string())?;
            self.change_record(|record| record.brought_up = false)
                .map_err(text)?;
        }
        Ok(())
    }
}

/// Returns a line for a control server that is away while the VPN starts. A node that runs already does not need it.
fn unreached(reason: &str) -> String {
    format!(
        "the VPN's control server is not reached ({reason}), and without it this node has no address after a start: see that it runs, and that this node reaches it"
    )
}

/// Returns a line for a node that has to be logged in by a person or a key.
pub(crate) fn not_logged_in(guide: &Guide) -> String {
    format!(
        "this node is not logged in to the VPN: run {}, or set a key with --vpn-auth-file",
        guide.up
    )
}

fn no_interface(status: &Status, guide: &Guide) -> String {
    if status.has_interface {
        return format!(
            "the VPN runs, and no interface of this node has its addresses: it appears in a moment, or look at journalctl -u {}",
            guide.unit
        );
    }
    format!(
        "{} runs without a network interface ({}), and pods need one: take this flag away",
        guide.daemon, guide.no_interface_flag
    )
}

/// Names the ranges of the LAN that need a rule, and the routes of other nodes that claim addresses of this one.
fn keep_lan(
    status: &Status,
    network: &Network,
    link: u32,
    carried: &rule::Carried,
    state: &mut State,
) {
    let lan = rule::lan(network, link, &carried.pods);
    state.lan = rule::protected(&lan, carried).into_iter().collect();
    let routes = status.peers.iter().flat_map(|peer| {
        let routes = peer.routes.iter();
        routes.map(|route| (peer.name.as_str(), *route))
    });
    let claims = rule::claims(&Vec::from_iter(lan), routes.clone());
    state.notes.extend(claims);
    state.notes.extend(rule::twins(&carried.own, routes));
}

/// Returns the ranges that belong into the VPN.
fn carried(input: &Input<'_>, status: &Status, vpn: Vec<Prefix>) -> rule::Carried {
    let pods = input.note.map(|note| note.networks.clone());
    let accepted = status.peers.iter().flat_map(|peer| peer.routes.clone());
    rule::Carried {
        vpn,
        accepted: accepted.filter(|route| !route.is_default()).collect(),
        pods: pods.unwrap_or_else(|| input.cluster.to_vec()),
        own: input
            .note
            .map(|note| note.subnets.clone())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
