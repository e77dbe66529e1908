//! The states of a client (RFC 2131, section 4.4), without I/O.
//!
//! The caller hands in the messages that arrive and the time when it reaches [`Client::deadline`], and carries out the [`Action`]s that
//! come back. A search that finds no lease ends with [`Action::Failed`]. A client that has had a lease does not end by itself: after
//! [`Action::Lost`] it asks for the same address until a server grants it again.

use std::net::Ipv4Addr;
use std::time::Duration;

use thiserror::Error;

use crate::lease::Lease;
use crate::message::{Kind, Message};
use crate::options::code;
use crate::{BROADCAST, Mac};

/// The longest message that the client takes: what fits into a frame.
const MAXIMUM_SIZE: u16 = 1500;
/// How often a request is sent before the client looks for another server.
const REQUESTS: u32 = 4;
/// After so many messages without an answer the client asks for broadcasts: its link may deliver nothing else.
const MESSAGES_BEFORE_BROADCAST: u32 = 2;
/// The shortest pause between two renewals (RFC 2131, section 4.4.5).
const RENEWAL_PAUSE: Duration = Duration::from_mins(1);
/// The least pause before the renewal of a lease.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// Renewals of many clients that began together are spread over at most this time.
const SPREAD: Duration = Duration::from_secs(10);
/// The longest client identifier: its type and this many bytes fill an option.
const IDENTIFIER_LENGTH: usize = 254;

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hardware address of the interface.
    pub mac: Mac,
    /// The text by which the server tells clients apart.
    pub identifier: String,
    /// The options that the client wants, the most important one first.
    pub request: Vec<u8>,
    /// Options that every message to a server has; one for the client identifier takes the identifier's place.
    pub provide: Vec<(u8, Vec<u8>)>,
    /// Whether servers must broadcast their replies from the first one on, for links on which an interface hears nothing else before it
    /// has an address.
    pub broadcast: bool,
    /// The address that the client had before and requests again.
    pub requested_address: Option<Ipv4Addr>,
    /// The pauses while the client looks for a lease.
    pub retry: Retry,
    /// The seed of transaction numbers and jitter, which must differ from client to client.
    pub seed: u64,
}

/// The pauses between messages while a client has no lease. Each one is up to a second longer or shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many of the first pauses are short: a pod waits for them.
    pub fast: u32,
    pub fast_pause: Duration,
    /// The pause after those; each later one is twice as long.
    pub pause: Duration,
    pub longest: Duration,
    /// When the client gives up.
    pub limit: Duration,
}

impl Default for Retry {
    /// The pauses of the reference plugin.
    fn default() -> Self {
        Self {
            fast: 4,
            fast_pause: Duration::from_secs(2),
            pause: Duration::from_secs(4),
            longest: Duration::from_secs(62),
            limit: Duration::from_secs(208),
        }
    }
}

impl Retry {
    /// Returns the pause after so many messages, without jitter.
    fn after(&self, sent: u32) -> Duration {
        if sent <= self.fast {
            return self.fast_pause;
        }
        let factor = 1u32.checked_shl(sent - self.fast - 1).unwrap_or(u32::MAX);
        self.pause.saturating_mul(factor).min(self.longest)
    }
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub message: Message,
    /// The address from which it comes.
    pub source: Ipv4Addr,
    /// The address to which it goes.
    pub destination: Ipv4Addr,
    /// The hardware address to which it goes.
    pub destination_mac: Mac,
}

/// A step that the caller must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send(Box<Outgoing>),
    /// Keep the lease: a new one, or the old one with new times and perhaps other options. The address of a lost lease may be used again.
    Keep(Box<Lease>),
    /// The lease is no longer valid: its address must not be used until it is granted again. A second one has a further reason.
    Lost(Failure),
    /// The client has ended without a lease.
    Failed(Failure),
}

/// Why a client has no lease, or no longer has one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No server has granted a lease in time.
    #[error("no DHCP server has granted a lease within {} seconds; is one on the interface's network?", .0.as_secs())]
    NoLease(Duration),
    /// The lease was not renewed in time.
    #[error("no DHCP server has renewed the lease of {0} before it expired")]
    Expired(Ipv4Addr),
    /// A server has refused to renew the lease.
    #[error("the DHCP server {server} refuses to renew the lease of {address}: {reason:?}")]
    Refused {
        address: Ipv4Addr,
        server: Ipv4Addr,
        /// The server's words.
        reason: String,
    },
    /// A server grants or offers another address than that of the lease.
    #[error("the DHCP server no longer grants {0}, but {1}")]
    Changed(Ipv4Addr, Ipv4Addr),
}

#[derive(Clone, Debug)]
struct Offer {
    address: Ipv4Addr,
    server: Ipv4Addr,
}

#[derive(Clone, Debug)]
enum State {
    /// It looks for servers.
    Selecting,
    /// It takes an offer.
    Requesting(Offer),
    Bound(Lease),
    /// It asks its server to renew the lease.
    Renewing(Lease),
    /// It asks all servers to renew the lease.
    Rebinding(Lease),
    /// It asks all servers whether it may use the address of its former lease (INIT-REBOOT). A server that tests whether an address is
    /// in use before it offers it does not do so here, where the interface still has the address.
    Rebooting,
    Ended,
}

/// A lease that is refused or over, and that the client wants again.
#[derive(Clone, Debug)]
struct Former {
    lease: Lease,
    reason: Failure,
    /// Until when its address may be used still; `None` once it is lost.
    usable_until: Option<Duration>,
    /// Another address that a server offers.
    other: Option<Ipv4Addr>,
}

/// A client of one interface.
#[derive(Clone, Debug)]
pub struct Client {
    config: Config,
    random: Random,
    state: State,
    /// The lease to be granted again, while there is no other.
    former: Option<Former>,
    transaction: u32,
    /// When the client began to look for a lease, or to renew it.
    began: Duration,
    /// When the newest message was sent.
    sent: Duration,
    /// How many messages were sent since `began`.
    count: u32,
    /// How many messages were sent in this state.
    count_in_state: u32,
    deadline: Option<Duration>,
}

impl Client {
    /// Begins to look for a lease.
    pub fn start(config: Config, now: Duration) -> (Self, Vec<Action>) {
        let mut client = Self::new(config, State::Selecting, now);
        let action = client.send(now);
        (client, vec![action])
    }

    /// Goes on with a lease that an earlier client kept. The deadline says when something is due; it may have passed.
    pub fn resume(config: Config, lease: Lease, now: Duration) -> Self {
        let deadline = lease.renews();
        let mut client = Self::new(config, State::Bound(lease), now);
        client.deadline = deadline;
        client
    }

    /// Goes on with a lease that an earlier client has lost. Its first message is due at once.
    pub fn regain(config: Config, lease: Lease, now: Duration) -> Self {
        let mut client = Self::new(config, State::Selecting, now);
        client.former = Some(Former {
            reason: Failure::Expired(lease.address()),
            lease,
            usable_until: None,
            other: None,
        });
        client.deadline = Some(now);
        client
    }

    fn new(config: Config, state: State, now: Duration) -> Self {
        let mut random = Random(config.seed);
        Self {
            transaction: random.next(),
            random,
            config,
            state,
            former: None,
            began: now,
            sent: now,
            count: 0,
            count_in_state: 0,
            deadline: None,
        }
    }

    /// Returns when [`Self::advance`] is to be called; `None` is never.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Returns the transaction of which a reply must be.
    pub fn transaction(&self) -> u32 {
        self.transaction
    }

    /// Returns whether the client waits for a reply, so that a socket must be open.
    pub fn waits_for_reply(&self) -> bool {
        !matches!(self.state, State::Bound(_) | State::Ended)
    }

    /// Returns the lease whose address may be used, also while it is renewed.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(lease) | State::Renewing(lease) | State::Rebinding(lease) => Some(lease),
            State::Selecting | State::Requesting(_) | State::Rebooting | State::Ended => {
                let former = self.former.as_ref()?;
                former.usable_until.map(|_| &former.lease)
            }
        }
    }

    /// Returns the lease that was lost and that the client asks for.
    pub fn lost(&self) -> Option<&Lease> {
        let former = self.former.as_ref()?;
        former.usable_until.is_none().then_some(&former.lease)
    }

    /// Does what is due at this time.
    pub fn advance(&mut self, now: Duration) -> Vec<Action> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        if let Some(failure) = self.lose(now) {
            return self.search_anew(failure, now);
        }
        let action = match std::mem::replace(&mut self.state, State::Ended) {
            State::Selecting => self.select_again(now),
            State::Requesting(offer) => {
                if self.count_in_state < REQUESTS {
                    self.enter(State::Requesting(offer), now)
                } else {
                    self.select_again(now)
                }
            }
            State::Rebooting if self.count_in_state < REQUESTS => self.enter(State::Rebooting, now),
            State::Rebooting => self.enter(State::Selecting, now),
            State::Bound(lease) | State::Renewing(lease) | State::Rebinding(lease) => {
                return self.renew(lease, now);
            }
            State::Ended => {
                self.deadline = None;
                return Vec::new();
            }
        };
        vec![action]
    }

    /// Returns why the former lease is lost, once its time is over or another address is offered in its place. Each reason is returned
    /// once.
    fn lose(&mut self, now: Duration) -> Option<Failure> {
        let former = self.former.as_mut()?;
        let is_usable = former.usable_until.is_some();
        let is_known = matches!(former.reason, Failure::Changed(..));
        if let Some(other) = former.other
            && (is_usable || !is_known)
        {
            former.reason = Failure::Changed(former.lease.address(), other);
        } else if !is_usable || !has_passed(former.usable_until, now) {
            return None;
        }
        former.usable_until = None;
        Some(former.reason.clone())
    }

    /// Reports the loss of the former lease and looks for a server that grants its address.
    fn search_anew(&mut self, failure: Failure, now: Duration) -> Vec<Action> {
        self.restart(now);
        let action = self.enter(State::Selecting, now);
        vec![Action::Lost(failure), action]
    }

    /// Asks all servers for the address of a lease that is refused or over. Without a time until which it may be used it is lost.
    fn reclaim(
        &mut self,
        lease: Lease,
        reason: Failure,
        usable_until: Option<Duration>,
        now: Duration,
    ) -> Vec<Action> {
        self.former = Some(Former {
            lease,
            reason: reason.clone(),
            usable_until,
            other: None,
        });
        if usable_until.is_none() {
            return self.search_anew(reason, now);
        }
        self.restart(now);
        vec![self.enter(State::Rebooting, now)]
    }

    fn restart(&mut self, now: Duration) {
        self.began = now;
        self.count = 0;
        self.count_in_state = 0;
        self.transaction = self.random.next();
    }

    fn select_again(&mut self, now: Duration) -> Action {
        if self.former.is_none() && now >= self.began + self.config.retry.limit {
            return self.end(Failure::NoLease(self.config.retry.limit));
        }
        self.enter(State::Selecting, now)
    }

    /// Asks for the lease's renewal, as far as it has progressed; the machine may have slept through some of its times.
    fn renew(&mut self, lease: Lease, now: Duration) -> Vec<Action> {
        let is_first = self.count_in_state == 0;
        if has_passed(lease.expires(), now) {
            // Where no server was asked in time, since no client ran or the machine slept, the interface keeps its address for a few
            // requests.
            let grace = is_first.then(|| now + REQUESTS * self.config.retry.fast_pause);
            let reason = Failure::Expired(lease.address());
            return self.reclaim(lease, reason, grace, now);
        }
        if is_first {
            self.restart(now);
        }
        let state = if has_passed(lease.rebinds(), now) {
            State::Rebinding(lease)
        } else {
            State::Renewing(lease)
        };
        vec![self.enter(state, now)]
    }

    fn end(&mut self, failure: Failure) -> Action {
        self.state = State::Ended;
        self.deadline = None;
        Action::Failed(failure)
    }

    /// Goes to a state, or stays in it, and sends its message.
    fn enter(&mut self, state: State, now: Duration) -> Action {
        self.state = state;
        self.send(now)
    }

    /// Sends the message of the state and sets the deadline for its reply.
    fn send(&mut self, now: Duration) -> Action {
        self.sent = now;
        self.count += 1;
        self.count_in_state += 1;
        if !matches!(self.state, State::Renewing(_) | State::Rebinding(_)) {
            self.config.broadcast |= self.count_in_state > MESSAGES_BEFORE_BROADCAST;
        }
        let outgoing = self.message(now);
        self.deadline = match &self.state {
            State::Selecting | State::Requesting(_) | State::Rebooting => {
                let pause = self.config.retry.after(self.count);
                let next = now + self.random.jitter(pause);
                let end = match &self.former {
                    None => Some(self.began + self.config.retry.limit),
                    Some(former) => former.usable_until,
                };
                Some(end.map_or(next, |end| next.min(end)).max(now))
            }
            State::Renewing(lease) => next_try(now, lease.rebinds()),
            State::Rebinding(lease) => next_try(now, lease.expires()),
            State::Bound(_) | State::Ended => None,
        };
        Action::Send(Box::new(outgoing))
    }

    fn message(&self, now: Duration) -> Outgoing {
        let kind = match self.state {
            State::Selecting => Kind::Discover,
            _ => Kind::Request,
        };
        let mut message = Message::new(kind, self.transaction, self.config.mac);
        message.wants_broadcast = self.config.broadcast;
        let waited = now.saturating_sub(self.began).as_secs();
        message.seconds = u16::try_from(waited).unwrap_or(u16::MAX);
        let mut outgoing = Outgoing {
            message,
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::BROADCAST,
            destination_mac: BROADCAST,
        };
        let options = &mut outgoing.message.options;
        options.set(code::MAXIMUM_SIZE, MAXIMUM_SIZE.to_be_bytes());
        match &self.state {
            State::Selecting | State::Rebooting => {
                if let Some(address) = self.requested_address() {
                    options.set(code::REQUESTED_ADDRESS, address.octets());
                }
            }
            State::Requesting(offer) => {
                options.set(code::REQUESTED_ADDRESS, offer.address.octets());
                options.set(code::SERVER_IDENTIFIER, offer.server.octets());
            }
            State::Renewing(lease) | State::Rebinding(lease) | State::Bound(lease) => {
                outgoing.message.client_address = lease.address();
                outgoing.source = lease.address();
                // The reply comes to the address.
                outgoing.message.wants_broadcast = false;
            }
            State::Ended => {}
        }
        if let State::Renewing(lease) = &self.state
            && let Some(server) = lease.server()
        {
            outgoing.destination = server;
            outgoing.destination_mac = lease.way_to_server();
        }
        self.identify(&mut outgoing.message);
        if !self.config.request.is_empty() {
            outgoing
                .message
                .options
                .set(code::PARAMETER_REQUEST_LIST, self.config.request.clone());
        }
        for (code, value) in &self.config.provide {
            outgoing.message.options.set(*code, value.clone());
        }
        outgoing
    }

    /// Returns the address that the client asks for. Of a former lease it takes no other: the pod cannot change its address.
    fn requested_address(&self) -> Option<Ipv4Addr> {
        let former = self.former.as_ref().map(|former| former.lease.address());
        former.or(self.config.requested_address)
    }

    /// Sets the client identifier: type 0, which is not a hardware address, and the text.
    fn identify(&self, message: &mut Message) {
        let text = self.config.identifier.as_bytes();
        let mut identifier = vec![0];
        identifier.extend_from_slice(&text[..text.len().min(IDENTIFIER_LENGTH)]);
        let own = self
            .config
            .provide
            .iter()
            .find(|(code, _)| *code == code::CLIENT_IDENTIFIER);
        let identifier = own.map_or(identifier, |(_, value)| value.clone());
        message.options.set(code::CLIENT_IDENTIFIER, identifier);
    }

    /// Takes a message that arrived from this hardware address. Those that answer nothing are passed over.
    pub fn receive(&mut self, message: &Message, from: Mac, now: Duration) -> Vec<Action> {
        let is_for_us = message.transaction == self.transaction && message.mac == self.config.mac;
        if !is_for_us || !self.waits_for_reply() {
            return Vec::new();
        }
        match message.kind {
            Kind::Offer => self.take_offer(message, now),
            Kind::Ack => self.take_ack(message, from, now),
            Kind::Nak => self.take_nak(message, now),
            _ => Vec::new(),
        }
    }

    fn take_offer(&mut self, message: &Message, now: Duration) -> Vec<Action> {
        let server = message.options.address(code::SERVER_IDENTIFIER);
        let address = message.your_address;
        match (&self.state, server, &mut self.former) {
            (State::Selecting, Some(_), Some(former))
                if !address.is_unspecified() && address != former.lease.address() =>
            {
                // Another server may still offer the address. One that did not grant the lease need not know it.
                if server == former.lease.server() || former.usable_until.is_none() {
                    former.other = Some(address);
                }
                Vec::new()
            }
            (State::Selecting, Some(server), former) if !address.is_unspecified() => {
                if let Some(former) = former {
                    former.other = None;
                }
                self.count_in_state = 0;
                vec![self.enter(State::Requesting(Offer { address, server }), now)]
            }
            _ => Vec::new(),
        }
    }

    fn take_ack(&mut self, message: &Message, from: Mac, now: Duration) -> Vec<Action> {
        let address = message.your_address;
        match &self.state {
            State::Requesting(offer) if address == offer.address => {}
            State::Renewing(lease) | State::Rebinding(lease) => {
                if address != lease.address() {
                    let reason = Failure::Changed(lease.address(), address);
                    let (lease, end) = (lease.clone(), lease.expires());
                    return self.reclaim(lease, reason, end, now);
                }
            }
            State::Rebooting if self.requested_address() == Some(address) => {}
            _ => return Vec::new(),
        }
        let lease = Lease {
            ack: message.clone(),
            began: self.sent.min(now),
            server_mac: from,
        };
        if lease.is_over_at_once() {
            return Vec::new();
        }
        self.deadline = lease.renews().map(|renewal| {
            let until_rebinding = lease.rebinds().unwrap_or(renewal).saturating_sub(renewal);
            let renewal = renewal + self.random.below((until_rebinding / 10).min(SPREAD));
            // A server that grants very short leases is not asked without a pause.
            renewal.max(now + LEAST_PAUSE)
        });
        self.count_in_state = 0;
        self.former = None;
        self.state = State::Bound(lease.clone());
        vec![Action::Keep(Box::new(lease))]
    }

    /// A refused offer makes the client look again, after a pause. A refused lease is asked for again, of all servers.
    fn take_nak(&mut self, message: &Message, now: Duration) -> Vec<Action> {
        let server = message.options.address(code::SERVER_IDENTIFIER);
        match &self.state {
            State::Requesting(offer) if server.is_none_or(|server| server == offer.server) => {
                let pause = self.config.retry.fast_pause;
                self.deadline = Some(now + self.random.jitter(pause));
                self.count_in_state = 0;
                self.config.requested_address = None;
                self.state = State::Selecting;
                self.transaction = self.random.next();
                Vec::new()
            }
            State::Renewing(lease) | State::Rebinding(lease) => {
                let reason = message.options.get(code::MESSAGE).unwrap_or_default();
                let reason = Failure::Refused {
                    address: lease.address(),
                    server: server.unwrap_or(Ipv4Addr::UNSPECIFIED),
                    reason: String::from_utf8_lossy(reason).into_owned(),
                };
                let (lease, end) = (lease.clone(), lease.expires());
                self.reclaim(lease, reason, end, now)
            }
            // The word of another server than that of the lease says nothing: it need not know the lease.
            State::Rebooting if server.is_none() || server == self.former_server() => {
                self.count_in_state = 0;
                vec![self.enter(State::Selecting, now)]
            }
            _ => Vec::new(),
        }
    }

    fn former_server(&self) -> Option<Ipv4Addr> {
        self.former.as_ref()?.lease.server()
    }

    /// Gives the lease back, if there is one, and ends. No reply will come. A server that was asked may have granted a lease of which the
    /// client has not heard.
    pub fn release(&mut self) -> Option<Outgoing> {
        let (address, server, mac) = match (&self.state, self.lease()) {
            (_, Some(lease)) => (lease.address(), lease.server(), lease.way_to_server()),
            (State::Requesting(offer), None) => (offer.address, Some(offer.server), BROADCAST),
            _ => return None,
        };
        self.state = State::Ended;
        self.former = None;
        self.deadline = None;
        let server = server?;
        let mut message = Message::new(Kind::Release, self.random.next(), self.config.mac);
        message.client_address = address;
        message
            .options
            .set(code::SERVER_IDENTIFIER, server.octets());
        self.identify(&mut message);
        Some(Outgoing {
            message,
            source: address,
            destination: server,
            destination_mac: mac,
        })
    }
}

fn has_passed(time: Option<Duration>, now: Duration) -> bool {
    time.is_some_and(|time| now >= time)
}

/// Returns when a renewal is tried again: after half of the time that is left, or when that is over.
fn next_try(now: Duration, end: Option<Duration>) -> Option<Duration> {
    let end = end?;
    let pause = (end.saturating_sub(now) / 2).max(RENEWAL_PAUSE);
    Some((now + pause).min(end))
}

/// Numbers that need not be secret (splitmix64).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) >> 32).expect("32 bits are left")
    }

    /// Returns a time below this one.
    fn below(&mut self, time: Duration) -> Duration {
        time.mul_f64(f64::from(self.next()) / f64::from(u32::MAX))
    }

    /// Returns a time that is up to a second longer or shorter.
    fn jitter(&mut self, time: Duration) -> Duration {
        let second = Duration::from_secs(1);
        (time + self.below(2 * second)).saturating_sub(second)
    }
}

#[cfg(test)]
mod tests;
