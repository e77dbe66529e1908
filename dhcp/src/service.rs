//! Holds leases: one thread that waits for requests of plugins, for replies of servers and for the times of leases. It enters a pod's
//! network namespace to open a socket and stays in none: an open socket, too, keeps the interfaces of a deleted pod alive, so there is
//! one only while a reply is awaited.
//!
//! An address whose lease is lost is taken off its interface, and put back when a server grants it again. Servers are asked for it for as
//! long as the interface exists.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::frame::SERVER_PORT;
use crate::interface::{Identity, Interface, Namespace};
use crate::removal::Configuration;
use crate::store::{Store, Stored};
use crate::wire::{Answer, Ask, Verb};
use crate::{Action, Client, Config, Failure, Lease, Mac, Outgoing, Retry, Socket};

/// How long a plugin may take to write its request; it does so at once.
const PEER_TIME: Duration = Duration::from_secs(2);
/// How long a server may take to answer: one that tests an address before it offers it takes about three seconds.
const REPLY_TIME: Duration = Duration::from_secs(10);
/// How long a request may be.
const REQUEST_LIMIT: u64 = 1 << 20;
/// The pause after a connection that could not be accepted, as when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How clients behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether servers must broadcast their replies.
    pub broadcast: bool,
    /// The pauses of clients without a lease.
    pub retry: Retry,
}

/// The process that runs the service.
pub trait Host {
    /// Opens the network namespace of a path in a plugin's request. The error is of the kind `NotFound` when it was deleted.
    fn open_namespace(&self, path: &str) -> io::Result<OwnedFd>;
    /// Records what has happened to the lease of this client.
    fn record(&self, client: &str, event: &Event<'_>);
    /// Takes the number of leases that are held now.
    fn set_held(&self, leases: usize);
}

/// An event in the life of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A client looks for a lease.
    Searching,
    /// A server has granted a lease.
    Granted(Ipv4Addr),
    /// The lease of an earlier process is held again.
    Resumed(Ipv4Addr),
    /// The lease was renewed.
    Renewed(Ipv4Addr),
    /// The lease is no longer valid, and the address taken off the interface.
    Lost(&'a Failure),
    /// A server has granted the address again whose lease was lost, and it is back on the interface.
    Regained(Ipv4Addr),
    /// The lease was given back.
    Released(Ipv4Addr),
    /// The lease's pod or interface no longer exists.
    Orphaned(Ipv4Addr),
    /// No lease was found.
    Failed(&'a Failure),
    /// Something else went wrong; the client goes on where it can.
    Trouble(&'a str),
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Searching => formatter.write_str("looks for a lease"),
            Self::Granted(address) => write!(formatter, "has the lease of {address}"),
            Self::Resumed(address) => write!(formatter, "holds the lease of {address}"),
            Self::Renewed(address) => write!(formatter, "has renewed the lease of {address}"),
            Self::Lost(failure) => write!(
                formatter,
                "has lost its lease, whose address is removed from the interface: {failure}"
            ),
            Self::Regained(address) => write!(formatter, "has the lease of {address} again"),
            Self::Released(address) => write!(formatter, "releases the lease of {address}"),
            Self::Orphaned(address) => {
                write!(
                    formatter,
                    "no longer exists, and had the lease of {address}"
                )
            }
            Self::Failed(failure) => write!(formatter, "{failure}"),
            Self::Trouble(text) => formatter.write_str(text),
        }
    }
}

/// A lease that the service holds or looks for.
struct Held {
    ask: Ask,
    client: Client,
    netns: Identity,
    /// The interface's index, which stays when the pod renames it.
    index: Option<u32>,
    mac: Mac,
    /// Whether the next grant is a renewal.
    is_renewed: bool,
    /// What was on the interface before the address of a lost lease was taken off.
    removed: Option<Configuration>,
    socket: Option<Socket>,
    /// When the socket is closed unless another message is sent.
    listens_until: Duration,
    /// The plugins that wait for the lease.
    waiting: Vec<UnixStream>,
}

impl Held {
    fn new(ask: Ask, client: Client, netns: Identity, mac: Mac) -> Self {
        Self {
            ask,
            client,
            netns,
            index: None,
            mac,
            is_renewed: false,
            removed: None,
            socket: None,
            listens_until: Duration::ZERO,
            waiting: Vec::new(),
        }
    }
}

/// A plugin that has not written all of its request.
struct Caller {
    stream: UnixStream,
    bytes: Vec<u8>,
    /// When it is given up.
    ends: Duration,
}

/// The leases of a node.
pub struct Service<H> {
    options: Options,
    store: Store,
    leases: HashMap<String, Held>,
    callers: Vec<Caller>,
    /// When connections are accepted again.
    accepts_from: Duration,
    host: H,
}

impl<H: Host> Service<H> {
    /// Goes on with the stored leases. Those of pods that no longer exist are given back. Fails when the leases cannot be read.
    pub fn resume(options: Options, store: Store, host: H) -> io::Result<Self> {
        let mut service = Self {
            options,
            store,
            leases: HashMap::new(),
            callers: Vec::new(),
            accepts_from: Duration::ZERO,
            host,
        };
        let mut orphans = Vec::new();
        for stored in service.store.all()? {
            let name = stored.ask.client.clone();
            // Another release's stays for that one.
            let Some(lease) = stored.lease() else {
                continue;
            };
            let has_pod = service.store.is_of_this_boot(&stored) && service.may_exist(&stored);
            let address = lease.address();
            let config = service.config(&stored.ask, stored.mac);
            let client = match stored.removed {
                None => Client::resume(config, lease, now()),
                Some(_) => Client::regain(config, lease, now()),
            };
            let mut held = Held::new(stored.ask, client, stored.netns, stored.mac);
            (held.index, held.removed) = (stored.ifindex, stored.removed);
            held.is_renewed = true;
            if has_pod {
                if held.removed.is_none() {
                    service.host.record(&name, &Event::Resumed(address));
                }
                service.leases.insert(name, held);
            } else {
                orphans.push(held);
            }
        }
        // An address may have been granted again to a pod that lives.
        for mut held in orphans {
            service.abandon(&mut held);
            service.store.forget(&held.ask.client);
        }
        Ok(service)
    }

    /// Returns whether the pod of a stored lease exists, as far as that can be found out.
    fn may_exist(&self, stored: &Stored) -> bool {
        match self.namespace(&stored.ask) {
            Ok(namespace) => namespace.identity == stored.netns,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn namespace(&self, ask: &Ask) -> io::Result<Namespace> {
        Namespace::new(self.host.open_namespace(&ask.netns)?)
    }

    fn config(&self, ask: &Ask, mac: Mac) -> Config {
        let provide = ask.provide.iter();
        Config {
            mac,
            identifier: ask.client.clone(),
            request: ask.request.clone(),
            provide: provide
                .map(|(code, value)| (*code, value.as_bytes().to_vec()))
                .collect(),
            broadcast: self.options.broadcast || ask.broadcast,
            requested_address: None,
            retry: self.options.retry,
            seed: seed(),
        }
    }

    /// Serves until there is something to read from `stop`, or its other end is closed. Plugins that wait get no answer then.
    pub fn run(mut self, listener: &UnixListener, stop: impl AsFd) -> io::Result<()> {
        // The timeout of poll() does not go on while the machine sleeps.
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        loop {
            let held = self.leases.values();
            let held = held.filter(|held| held.client.lease().is_some());
            self.host.set_held(held.count());
            let Some((has_caller, readable)) = self.wait(listener, &stop, &timer)? else {
                return Ok(());
            };
            for name in readable {
                self.with_held(&name, Self::receive);
            }
            for held in self.leases.values_mut() {
                held.socket.take_if(|_| held.listens_until <= now());
            }
            let due: Vec<_> = self
                .leases
                .iter()
                .filter(|(_, held)| held.client.deadline().is_some_and(|time| time <= now()))
                .map(|(name, _)| name.clone())
                .collect();
            for name in due {
                self.with_held(&name, |service, held| {
                    let actions = held.client.advance(now());
                    service.carry_out(held, actions)
                });
            }
            if has_caller {
                self.accept(listener);
            }
            self.serve_callers();
        }
    }

    /// Waits until something is due. Returns whether a plugin has connected, and the leases whose sockets have something to read; `None`
    /// is the end.
    fn wait(
        &self,
        listener: &UnixListener,
        stop: &impl AsFd,
        timer: &OwnedFd,
    ) -> io::Result<Option<(bool, Vec<String>)>> {
        let deadlines = self.leases.values().flat_map(|held| {
            let closes = held.socket.as_ref().map(|_| held.listens_until);
            [held.client.deadline(), closes]
        });
        let accepts = now() >= self.accepts_from;
        let callers = self.callers.iter().map(|caller| caller.ends);
        let first = deadlines
            .flatten()
            .chain(callers)
            .chain((!accepts).then_some(self.accepts_from))
            .min();
        set_timer(timer, first)?;
        let open: Vec<_> = self
            .leases
            .iter()
            .filter_map(|(name, held)| Some((name, held.socket.as_ref()?)))
            .collect();
        let mut fds = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(
                listener,
                if accepts {
                    PollFlags::IN
                } else {
                    PollFlags::empty()
                },
            ),
            PollFd::new(timer, PollFlags::IN),
        ];
        fds.extend(
            open.iter()
                .map(|(_, socket)| PollFd::new(*socket, PollFlags::IN)),
        );
        let streams = self.callers.iter().map(|caller| &caller.stream);
        fds.extend(streams.map(|stream| PollFd::new(stream, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_event = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let readable = open
            .iter()
            .zip(&fds[3..])
            .filter(|(_, fd)| has_event(fd))
            .map(|((name, _), _)| (*name).clone())
            .collect();
        Ok((!has_event(&fds[0])).then(|| (has_event(&fds[1]), readable)))
    }

    /// Lets `work` do something with a lease; it is forgotten when `work` says that it has ended.
    fn with_held(&mut self, name: &str, work: impl FnOnce(&Self, &mut Held) -> bool) {
        let Some(mut held) = self.leases.remove(name) else {
            return;
        };
        if work(self, &mut held) {
            self.leases.insert(name.to_owned(), held);
        } else {
            self.store.forget(name);
        }
    }

    /// Takes one message, since the other leases and the plugins have their turn as well. The next one makes the socket readable again.
    fn receive(&self, held: &mut Held) -> bool {
        let Some(socket) = &held.socket else {
            return true;
        };
        match socket.receive(held.client.transaction()) {
            Ok(None) => true,
            Ok(Some((message, from))) => {
                let actions = held.client.receive(&message, from, now());
                self.carry_out(held, actions)
            }
            Err(error) => {
                // The interface is down or gone: the next message shows which.
                self.trouble(held, &error.to_string());
                held.socket = None;
                true
            }
        }
    }

    /// Carries out what a client has decided. Returns whether the client goes on.
    fn carry_out(&self, held: &mut Held, actions: Vec<Action>) -> bool {
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    if held.socket.is_none() {
                        held.socket = match self.open_socket(held) {
                            Ok(socket) => Some(socket),
                            Err(reason) => {
                                self.trouble(held, &reason);
                                if self.is_worth_another_try(held) {
                                    continue;
                                }
                                answer_all(held, &Answer::Failed(reason));
                                self.abandon(held);
                                return false;
                            }
                        };
                    }
                    held.listens_until = now() + REPLY_TIME;
                    let sent = held.socket.as_ref().map(|socket| socket.send(&outgoing));
                    if let Some(Err(error)) = sent {
                        // Another message follows after a pause.
                        self.trouble(held, &format!("cannot send: {error}"));
                    }
                }
                Action::Keep(lease) => {
                    if !self.keep(held, &lease) {
                        return false;
                    }
                }
                Action::Lost(failure) => self.lose(held, &failure),
                Action::Failed(failure) => {
                    self.record(held, &Event::Failed(&failure));
                    answer_all(held, &Answer::Failed(in_short(&failure)));
                    return false;
                }
            }
        }
        if !held.client.waits_for_reply() {
            held.socket = None;
        }
        true
    }

    /// Returns whether a lease may have an interface still, so that its renewal may succeed later.
    fn is_worth_another_try(&self, held: &Held) -> bool {
        let found = self.interface(&held.ask, Some((held.netns, held.index)));
        let is_deleted = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        lease_of(&held.client).is_some() && !is_deleted
    }

    /// Keeps a lease and answers the plugins that wait for it. A lease that is of no use is given back.
    fn keep(&self, held: &mut Held, lease: &Lease) -> bool {
        let address = lease.address();
        let event = if held.removed.is_some() {
            self.restore(held);
            Event::Regained(address)
        } else if held.is_renewed {
            Event::Renewed(address)
        } else {
            Event::Granted(address)
        };
        held.is_renewed = true;
        self.record(held, &event);
        self.store(held, lease);
        match Answer::from_lease(lease) {
            Answer::Failed(reason) if held.waiting.is_empty() => {
                self.trouble(held, &reason);
                true
            }
            answer => {
                let is_of_use = matches!(answer, Answer::Done(_));
                answer_all(held, &answer);
                if !is_of_use {
                    self.release(held);
                }
                is_of_use
            }
        }
    }

    fn store(&self, held: &Held, lease: &Lease) {
        let mut stored = Stored::new(&held.ask, held.netns, held.mac, lease);
        stored.ifindex = held.index;
        stored.removed.clone_from(&held.removed);
        if let Err(error) = self.store.keep(stored) {
            self.trouble(held, &format!("cannot store the lease: {error}"));
        }
    }

    /// Takes the address of a lost lease off its interface. It is stored before that what was there: a daemon may end in between.
    fn lose(&self, held: &mut Held, failure: &Failure) {
        self.record(held, &Event::Lost(failure));
        let Some(lease) = held.client.lost().cloned() else {
            return;
        };
        if held.removed.is_some() {
            return;
        }
        let take_off = |held: &mut Held| -> Result<(), String> {
            let interface = self.own_interface(held)?;
            let configuration = held.removed.insert(interface.configuration()?).clone();
            self.store(held, &lease);
            interface.remove(&configuration, lease.address())
        };
        if let Err(reason) = take_off(held) {
            self.trouble(held, &reason);
        }
    }

    /// Puts back what was on the interface before its lease was lost.
    fn restore(&self, held: &mut Held) {
        let Some(configuration) = held.removed.take() else {
            return;
        };
        let interface = self.own_interface(held);
        if let Err(reason) = interface.and_then(|interface| interface.restore(&configuration)) {
            self.trouble(held, &reason);
        }
    }

    fn own_interface(&self, held: &Held) -> Result<Interface, String> {
        let interface = self.interface(&held.ask, Some((held.netns, held.index)));
        interface.map_err(|error| error.to_string())
    }

    fn open_socket(&self, held: &Held) -> Result<Socket, String> {
        self.own_interface(held)?.open()
    }

    /// Finds the interface of a request: of a lease, the one in the namespace of this identity, by its index if that is known. The error is
    /// of the kind `NotFound` when it no longer exists.
    fn interface(
        &self,
        ask: &Ask,
        known: Option<(Identity, Option<u32>)>,
    ) -> io::Result<Interface> {
        let namespace = self.namespace(ask)?;
        let (netns, index) = known.unzip();
        if netns.is_some_and(|netns| netns != namespace.identity) {
            let text = format!("{} is another network namespace now", ask.netns);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Interface::find(namespace, &ask.ifname, index.flatten())
    }

    fn accept(&mut self, listener: &UnixListener) {
        let accepted = listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        match accepted {
            Ok(stream) => self.callers.push(Caller {
                stream,
                bytes: Vec::new(),
                ends: now() + PEER_TIME,
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.accepts_from = now() + ACCEPT_PAUSE,
        }
    }

    /// Serves the requests that are complete. One that never is holds up nothing.
    fn serve_callers(&mut self) {
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.read() {
                Ok(Some(ask)) => self.dispatch(ask, caller.stream),
                Ok(None) => self.callers.push(caller),
                Err(error) => answer(&mut caller.stream, &Answer::Failed(error.to_string())),
            }
        }
    }

    fn dispatch(&mut self, ask: Ask, mut stream: UnixStream) {
        let name = ask.client.clone();
        // The interface of a new ADD has nothing of the lease that was lost.
        if ask.verb == Verb::Allocate {
            let is_lost = |held: &mut Held| held.client.lost().is_some();
            self.leases
                .extract_if(|client, held| *client == name && is_lost(held))
                .for_each(drop);
        }
        match (ask.verb, self.leases.get_mut(&name)) {
            (Verb::Allocate, Some(held)) => match held.client.lease() {
                Some(lease) => answer(&mut stream, &Answer::from_lease(lease)),
                None => held.waiting.push(stream),
            },
            (Verb::Allocate, None) => self.allocate(ask, stream),
            (Verb::Check, held) => {
                let lease = held.and_then(|held| held.client.lease());
                let outcome = lease.map_or_else(
                    || Answer::Failed(format!("the DHCP daemon holds no lease for {name}")),
                    Answer::from_lease,
                );
                answer(&mut stream, &outcome);
            }
            (Verb::Release, _) => {
                self.with_held(&name, |service, held| {
                    answer_all(
                        held,
                        &Answer::Failed("the container was deleted".to_owned()),
                    );
                    if !held.ask.names_itself() {
                        service.release(held);
                    }
                    false
                });
                answer(&mut stream, &Answer::Done(None));
            }
        }
    }

    fn allocate(&mut self, ask: Ask, mut stream: UnixStream) {
        match self.start(ask) {
            Ok((mut held, actions)) => {
                held.waiting.push(stream);
                let name = held.ask.client.clone();
                self.leases.insert(name.clone(), held);
                self.with_held(&name, |service, held| service.carry_out(held, actions));
            }
            Err(reason) => answer(&mut stream, &Answer::Failed(reason)),
        }
    }

    fn start(&self, mut ask: Ask) -> Result<(Held, Vec<Action>), String> {
        let interface = self.interface(&ask, None);
        let interface = interface.map_err(|error| error.to_string())?;
        interface.set_up(true)?;
        // All links of a parent have its hardware address: what is sent to that one goes by an address that is not there yet.
        ask.broadcast |= interface.is_ipvlan();
        let (mac, netns) = (interface.mac()?, interface.netns());
        self.host.record(&ask.client, &Event::Searching);
        let (client, actions) = Client::start(self.config(&ask, mac), now());
        let mut held = Held::new(ask, client, netns, mac);
        held.index = Some(interface.index());
        Ok((held, actions))
    }

    /// Gives a lease back. The server lets a lease expire of which it does not hear.
    fn release(&self, held: &mut Held) {
        let Some(outgoing) = held.client.release() else {
            return;
        };
        let sent = match held
            .socket
            .take()
            .map_or_else(|| self.open_socket(held), Ok)
        {
            Ok(socket) => socket.send(&outgoing).map_err(|error| error.to_string()),
            // DEL may come after the pod.
            Err(_) => send_routed(&outgoing),
        };
        self.record_release(held, &outgoing, sent);
    }

    /// Gives the lease of a pod back that no longer exists. A client with an identifier of its own may come back under it, and gets its
    /// address again if the server still knows the lease.
    fn abandon(&self, held: &mut Held) {
        let Some(address) = lease_of(&held.client).map(Lease::address) else {
            return;
        };
        self.record(held, &Event::Orphaned(address));
        let others = self.leases.values().filter_map(|held| held.client.lease());
        let is_used = others.map(Lease::address).any(|other| other == address);
        if held.ask.names_itself() || is_used {
            return;
        }
        if let Some(outgoing) = held.client.release() {
            let sent = send_routed(&outgoing);
            self.record_release(held, &outgoing, sent);
        }
    }

    fn record_release(&self, held: &Held, outgoing: &Outgoing, sent: Result<(), String>) {
        match sent {
            Ok(()) => self.record(held, &Event::Released(outgoing.source)),
            Err(reason) => self.trouble(held, &format!("cannot release the lease: {reason}")),
        }
    }

    fn record(&self, held: &Held, event: &Event<'_>) {
        self.host.record(&held.ask.client, event);
    }

    fn trouble(&self, held: &Held, text: &str) {
        self.record(held, &Event::Trouble(text));
    }
}

/// Returns the lease of a client, also one that it has lost.
fn lease_of(client: &Client) -> Option<&Lease> {
    client.lease().or_else(|| client.lost())
}

/// Sends a message from this process's network namespace: servers recognise a lease by client and address, not by the sender.
fn send_routed(outgoing: &Outgoing) -> Result<(), String> {
    let send = || -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let server = (outgoing.destination, SERVER_PORT);
        socket.send_to(&outgoing.message.encode(), server)?;
        Ok(())
    };
    send().map_err(|error| error.to_string())
}

/// Returns the words of the reference where it has some; the log has what helps.
fn in_short(failure: &Failure) -> String {
    match failure {
        Failure::NoLease(_) => "no more tries".to_owned(),
        other => other.to_string(),
    }
}

impl Caller {
    /// Returns the request once it is complete.
    fn read(&mut self) -> io::Result<Option<Ask>> {
        // What was read before an error stays.
        let left = REQUEST_LIMIT.saturating_sub(self.bytes.len() as u64);
        match (&self.stream).take(left).read_to_end(&mut self.bytes) {
            Ok(_) => Ok(Some(serde_json::from_slice(&self.bytes)?)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Err(_) if now() >= self.ends => Err(io::ErrorKind::TimedOut.into()),
            Err(_) => Ok(None),
        }
    }
}

/// Lets a timer end at this time; without one it never does.
fn set_timer(timer: &OwnedFd, end: Option<Duration>) -> io::Result<()> {
    // Zero would stop it.
    let end = end.map_or(Duration::ZERO, |end| end.max(Duration::from_nanos(1)));
    let value = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(end)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &value)?;
    Ok(())
}

/// Writes the answer, which fits into the socket's buffer. A plugin that has ended does not read it; its container will be deleted.
fn answer(stream: &mut UnixStream, answer: &Answer) {
    let bytes = serde_json::to_vec(answer).expect("an answer always serialises");
    let _ = stream.write_all(&bytes);
}

fn answer_all(held: &mut Held, outcome: &Answer) {
    for mut stream in held.waiting.drain(..) {
        answer(&mut stream, outcome);
    }
}

/// The time since the kernel was started, with the time that the machine slept.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u64::from_ne_bytes(bytes),
        Err(_) => u64::try_from(now().as_nanos()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::Shutdown;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;
    use crate::options::code;
    use crate::{Kind, Message};

    /// A host whose only namespace is that of the test.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Recorder {
        /// Returns what was recorded since the last call, sorted.
        fn take(&self) -> Vec<String> {
            let mut events = std::mem::take(&mut *self.0.lock().unwrap());
            events.sort();
            events
        }
    }

    impl Host for Recorder {
        fn open_namespace(&self, path: &str) -> io::Result<OwnedFd> {
            match path {
                "own" => Ok(File::open("/proc/self/ns/net")?.into()),
                "unreadable" => Err(io::ErrorKind::PermissionDenied.into()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }

        fn record(&self, client: &str, event: &Event<'_>) {
            self.0.lock().unwrap().push(format!("{client} {event}"));
        }

        fn set_held(&self, leases: usize) {
            self.0.lock().unwrap().push(format!("{leases} held"));
        }
    }

    fn ask(verb: Verb, client: &str, netns: &str) -> Ask {
        Ask {
            verb,
            client: client.to_owned(),
            netns: netns.to_owned(),
            ifname: "lo".to_owned(),
            provide: Vec::new(),
            request: vec![3, 1],
            broadcast: false,
        }
    }

    /// A lease of 127.9.0.`number`, whose server is this machine.
    fn stored(client: &str, netns: &str, number: u8) -> Stored {
        let mut ack = Message::new(Kind::Ack, 7, [2, 0, 0, 0, 0, 1]);
        ack.your_address = [127, 9, 0, number].into();
        ack.options
            .set(code::SUBNET_MASK, [255, 255, 255, 0])
            .set(code::SERVER_IDENTIFIER, [127, 0, 0, 1]);
        let lease = Lease {
            ack,
            began: now(),
            server_mac: [2, 0, 0, 0, 0, 2],
        };
        let own = File::open("/proc/self/ns/net").unwrap();
        let netns_identity = Namespace::new(own.into()).unwrap().identity;
        let ask = ask(Verb::Allocate, client, netns);
        Stored::new(&ask, netns_identity, lease.ack.mac, &lease)
    }

    fn resume(dir: &Path, host: &Recorder) -> Service<Recorder> {
        Service::resume(Options::default(), Store::new(dir), host.clone()).unwrap()
    }

    #[test]
    fn leases_of_deleted_pods_are_given_back_at_the_start() {
        let (dir, host) = (tempfile::tempdir().unwrap(), Recorder::default());
        let store = Store::new(dir.path());
        let mut named = stored("named", "gone", 4);
        named.ask.provide = vec![(code::CLIENT_IDENTIFIER, "web-0".to_owned())];
        for stored in [
            stored("alive", "own", 1),
            stored("deleted", "gone", 2),
            stored("unknown", "unreadable", 3),
            named,
            // Its address was granted again.
            stored("former", "gone", 1),
        ] {
            store.keep(stored).unwrap();
        }
        let service = resume(dir.path(), &host);
        let expected = [
            "alive holds the lease of 127.9.0.1",
            "deleted no longer exists, and had the lease of 127.9.0.2",
            "deleted releases the lease of 127.9.0.2",
            "former no longer exists, and had the lease of 127.9.0.1",
            "named no longer exists, and had the lease of 127.9.0.4",
            "unknown holds the lease of 127.9.0.3",
        ];
        assert_eq!(host.take(), expected);
        assert_eq!(service.leases.len(), 2);
        assert_eq!(store.all().unwrap().len(), 2);
    }

    #[test]
    fn lease_of_a_client_that_names_itself_stays_at_the_server() {
        let (dir, host) = (tempfile::tempdir().unwrap(), Recorder::default());
        let store = Store::new(dir.path());
        let mut named = stored("named", "own", 1);
        named.ask.provide = vec![(code::CLIENT_IDENTIFIER, "web-0".to_owned())];
        store.keep(named).unwrap();
        store.keep(stored("other", "own", 2)).unwrap();
        let mut service = resume(dir.path(), &host);
        host.take();
        for client in ["named", "other"] {
            let (stream, plugin) = UnixStream::pair().unwrap();
            service.dispatch(ask(Verb::Release, client, "own"), stream);
            let answer: Answer = serde_json::from_reader(plugin).unwrap();
            assert_eq!(answer, Answer::Done(None));
        }
        assert_eq!(host.take(), ["other releases the lease of 127.9.0.2"]);
        assert!(service.leases.is_empty() && store.all().unwrap().is_empty());
    }

    #[test]
    fn lease_of_a_renamed_interface_is_renewed() {
        let (dir, host) = (tempfile::tempdir().unwrap(), Recorder::default());
        let mut service = resume(dir.path(), &host);
        // The interface had this name when the lease began; its index is that of lo.
        for (client, index) in [("renamed", Some(1)), ("deleted", None)] {
            let mut stored = stored(client, "own", 1);
            stored.ask.ifname = "none0".to_owned();
            stored.ifindex = index;
            service.store.keep(stored).unwrap();
        }
        service = Service::resume(Options::default(), service.store, host.clone()).unwrap();
        let held = |client: &str| &service.leases[client];
        assert!(service.is_worth_another_try(held("renamed")));
        assert!(!service.is_worth_another_try(held("deleted")));
    }

    #[test]
    fn leases_of_an_earlier_boot_are_given_back() {
        let (dir, host) = (tempfile::tempdir().unwrap(), Recorder::default());
        Store::new(dir.path()).keep(stored("a", "own", 1)).unwrap();
        let file = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        let mut value: serde_json::Value =
            serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
        value["boot"] = "another".into();
        fs::write(file.path(), value.to_string()).unwrap();
        let service = resume(dir.path(), &host);
        let expected = [
            "a no longer exists, and had the lease of 127.9.0.1",
            "a releases the lease of 127.9.0.1",
        ];
        assert_eq!(host.take(), expected);
        assert!(service.leases.is_empty());
        assert!(service.store.all().unwrap().is_empty());
    }

    #[test]
    fn requests_are_served_until_the_end_and_the_next_service_goes_on() {
        let (dir, host) = (tempfile::tempdir().unwrap(), Recorder::default());
        let store = Store::new(dir.path().join("leases"));
        store.keep(stored("alive", "own", 1)).unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let call = |ask: &Ask| -> Answer {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&serde_json::to_vec(ask).unwrap()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            serde_json::from_reader(stream).unwrap()
        };
        let address = |answer: Answer| match answer {
            Answer::Done(grant) => grant.map(|grant| grant.address),
            Answer::Failed(error) => panic!("{error}"),
        };
        for release in [false, true] {
            let service = resume(&dir.path().join("leases"), &host);
            thread::scope(|scope| {
                let (stop, end) = io::pipe().unwrap();
                let listener = &listener;
                let running = scope.spawn(move || service.run(listener, stop));
                // It never writes its request.
                let mut idle = UnixStream::connect(&path).unwrap();
                idle.set_nonblocking(true).unwrap();
                for verb in [Verb::Check, Verb::Allocate] {
                    let answer = call(&ask(verb, "alive", "own"));
                    assert_eq!(address(answer).as_deref(), Some("127.9.0.1/24"));
                }
                if release {
                    assert_eq!(address(call(&ask(Verb::Release, "alive", "own"))), None);
                    assert_eq!(address(call(&ask(Verb::Release, "alive", "own"))), None);
                }
                let missing = call(&ask(Verb::Check, "other", "own"));
                let text = "the DHCP daemon holds no lease for other";
                assert_eq!(missing, Answer::Failed(text.to_owned()));
                let refused = call(&ask(Verb::Allocate, "other", "gone"));
                assert!(matches!(refused, Answer::Failed(_)), "{refused:?}");
                let idle_answer = idle.read(&mut [0]).map_err(|error| error.kind());
                assert_eq!(
                    idle_answer,
                    Err(io::ErrorKind::WouldBlock),
                    "the others waited for it"
                );
                drop(end);
                running.join().unwrap().unwrap();
            });
            let events = host.take();
            let has = |text: &str| events.iter().any(|event| event == text);
            assert!(has("alive holds the lease of 127.9.0.1"), "{events:?}");
            assert!(has("1 held") && has("0 held") == release, "{events:?}");
            let given_back = has("alive releases the lease of 127.9.0.1");
            assert_eq!(given_back, release, "{events:?}");
        }
        assert!(store.all().unwrap().is_empty());
    }
}
