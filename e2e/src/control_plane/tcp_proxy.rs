//! The way between the daemon and its API server: it can be shut, silent, slow, or now this and now that.
//!
//! Bytes pass as they are, so TLS is the two ends' own.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::node::{Node, thread::spawn_server};

/// Where the daemon finds its API server, and where that one is.
pub(crate) const PORT: u16 = 7443;
const SERVER: u16 = 6443;
/// How soon a change of the way is noticed.
const TICK: Duration = Duration::from_millis(20);
/// Of a flapping way.
const PHASE: Duration = Duration::from_millis(300);
/// What each byte of a slow way costs.
const LATE: Duration = Duration::from_millis(1);

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Open,
    /// Nobody listens, and connections break.
    Refusing,
    /// Connections are taken, and nothing passes.
    Silent,
    /// Byte by byte.
    Slow,
    /// Open and refusing by turns.
    Flapping,
}

/// The proxy; its threads end with the test.
pub(crate) struct TcpProxy(Arc<Shared>);

struct Shared {
    way: Mutex<(Condition, Instant)>,
    changed: Condvar,
}

impl TcpProxy {
    /// Listens on the node's loopback.
    pub(crate) fn start(node: &Node) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            way: Mutex::new((Condition::Open, Instant::now())),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let address = format!("port {PORT}");
        spawn_server(node, &address, listen, move |listener| {
            accept(&own, listener);
        })?;
        Ok(Self(shared))
    }

    /// From now on it is like this.
    pub(crate) fn set(&self, way: Condition) {
        *self.0.lock() = (way, Instant::now());
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// How it is at this moment: never flapping.
    fn now(&self) -> Condition {
        match *self.lock() {
            (Condition::Flapping, since)
                if (since.elapsed().as_millis() / PHASE.as_millis()).is_multiple_of(2) =>
            {
                Condition::Refusing
            }
            (Condition::Flapping, _) => Condition::Open,
            (way, _) => way,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Condition, Instant)> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or a tick.
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
                    // A connection that breaks is what this is about.
                    let _ = connect(&shared, stream);
                });
            }
            _ => shared.pause(),
        }
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, SERVER))?;
    let (from, to, own) = (server.try_clone()?, client.try_clone()?, Arc::clone(shared));
    thread::spawn(move || pump(&own, from, to));
    pump(shared, client, server);
    Ok(())
}

/// Carries bytes one way until either side or the way ends it.
fn pump(shared: &Shared, mut from: TcpStream, mut to: TcpStream) {
    let _ = carry(shared, &mut from, &mut to);
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn carry(shared: &Shared, from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    from.set_read_timeout(Some(TICK))?;
    let mut buffer = [0; 1 << 14];
    loop {
        match shared.now() {
            Condition::Refusing => return Ok(()),
            Condition::Silent => {
                shared.pause();
                continue;
            }
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
        let mut left = &buffer[..count];
        while let Some((first, rest)) = left.split_first() {
            match shared.now() {
                Condition::Refusing => return Ok(()),
                Condition::Silent => shared.pause(),
                Condition::Slow => {
                    thread::sleep(LATE);
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
