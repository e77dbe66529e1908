//! A TCP proxy between the daemon and its API server that can refuse, be silent or slow, or change between those.
//!
//! It forwards bytes unchanged, so TLS is between daemon and API server.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::node::{Node, thread::spawn_server};

/// The port of the proxy on the node's loopback, and that of the API server.
pub(crate) const PORT: u16 = 7443;
const SERVER: u16 = 6443;
/// Longest time until a changed condition takes effect.
const TICK: Duration = Duration::from_millis(20);
/// Time between two changes while flapping.
const PHASE: Duration = Duration::from_millis(300);
/// How long bytes of a client that has given up are on their way at most. Its kernel would send them no longer.
const LATEST: Duration = Duration::from_secs(25);
/// Delay of each byte while slow.
const BYTE_DELAY: Duration = Duration::from_millis(1);

/// The condition of the connection to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Open,
    /// The port is closed, and connections are broken.
    Refusing,
    /// Connections are accepted, and no byte is forwarded.
    Silent,
    /// Each byte is delayed.
    Slow,
    /// Open and refusing in turn.
    Flapping,
}

/// All conditions.
pub(crate) const CONDITIONS: [Condition; 5] = [
    Condition::Refusing,
    Condition::Silent,
    Condition::Slow,
    Condition::Flapping,
    Condition::Open,
];

/// The proxy; its threads end with the test.
pub(crate) struct TcpProxy(Arc<Shared>);

struct Shared {
    server: Ipv4Addr,
    condition: Mutex<(Condition, Instant)>,
    changed: Condvar,
}

impl TcpProxy {
    /// Listens on the loopback of the node that has the API server.
    pub(crate) fn start(node: &Node) -> anyhow::Result<Self> {
        Self::start_to(node, Ipv4Addr::LOCALHOST)
    }

    /// Listens on the node's loopback; the API server is at this address.
    pub(crate) fn start_to(node: &Node, server: Ipv4Addr) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            server,
            condition: Mutex::new((Condition::Open, Instant::now())),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let address = format!("port {PORT}");
        spawn_server(node, &address, listen, move |listener| {
            accept(&own, listener);
        })?;
        Ok(Self(shared))
    }

    pub(crate) fn set(&self, condition: Condition) {
        *self.0.lock() = (condition, Instant::now());
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Returns the present condition, which is never `Flapping`.
    fn now(&self) -> Condition {
        match *self.lock() {
            (Condition::Flapping, since)
                if (since.elapsed().as_millis() / PHASE.as_millis()).is_multiple_of(2) =>
            {
                Condition::Refusing
            }
            (Condition::Flapping, _) => Condition::Open,
            (condition, _) => condition,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Condition, Instant)> {
        self.condition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the condition, at most a tick.
    fn pause(&self) {
        drop(self.changed.wait_timeout(self.lock(), TICK));
    }
}

fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept(shared: &Arc<Shared>, listener: TcpListener) {
    let mut listener = Some(listener);
    loop {
        if shared.now() == Condition::Refusing {
            listener = None;
        } else if listener.is_none() {
            listener = listen().ok();
        }
        match listener.as_ref().map(TcpListener::accept) {
            Some(Ok((stream, _))) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || {
                    // Breaking connections is the purpose of this proxy.
                    let _ = connect(&shared, stream);
                });
            }
            _ => shared.pause(),
        }
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect((shared.server, SERVER))?;
    // Otherwise the second part of a request waits for the acknowledgement of the first one.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to, own) = (server.try_clone()?, client.try_clone()?, Arc::clone(shared));
    thread::spawn(move || pump(&own, from, to));
    pump(shared, client, server);
    Ok(())
}

/// Forwards bytes in one direction until either side closes or the condition is `Refusing`.
fn pump(shared: &Shared, mut from: TcpStream, mut to: TcpStream) {
    let _ = carry(shared, &mut from, &mut to);
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn carry(shared: &Shared, from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    from.set_read_timeout(Some(TICK))?;
    let mut buffer = [0; 1 << 14];
    let mut has_forwarded = false;
    let mut closed = None;
    loop {
        match shared.now() {
            Condition::Refusing => return Ok(()),
            // Bytes that a client has sent before it gave up arrive late.
            Condition::Silent if has_forwarded => {
                if is_too_late(from, &mut closed)? {
                    return Ok(());
                }
                shared.pause();
                continue;
            }
            // Without a handshake it has sent no request, and such connections would become more as long as the silence lasts.
            Condition::Silent if has_closed(from)? => return Ok(()),
            Condition::Silent => continue,
            _ => {}
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        has_forwarded = true;
        let mut left = &buffer[..count];
        while let Some((first, rest)) = left.split_first() {
            match shared.now() {
                Condition::Refusing => return Ok(()),
                Condition::Silent if is_too_late(from, &mut closed)? => return Ok(()),
                Condition::Silent => shared.pause(),
                Condition::Slow => {
                    thread::sleep(BYTE_DELAY);
                    to.write_all(&[*first])?;
                    left = rest;
                }
                _ => {
                    to.write_all(left)?;
                    left = &[];
                }
            }
        }
    }
}

/// Returns whether a stream has had its end, which was first seen when `closed` says, for longer than bytes are on their way.
fn is_too_late(stream: &TcpStream, closed: &mut Option<Instant>) -> io::Result<bool> {
    Ok(has_closed(stream)? && closed.get_or_insert_with(Instant::now).elapsed() > LATEST)
}

/// Waits for the end of a stream whose bytes are not read, at most a tick. Returns whether it has come.
fn has_closed(stream: &TcpStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let tick = Timespec::try_from(TICK).expect("a tick is short");
    poll(&mut fds, Some(&tick))?;
    Ok(!fds[0].revents().is_empty())
}
