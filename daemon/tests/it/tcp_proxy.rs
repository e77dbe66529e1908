//! A TCP proxy between daemon and API server whose connections can go dead: no more bytes pass, and neither side gets an error.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Forwards connections until the process ends.
pub(crate) struct TcpProxy {
    address: SocketAddr,
    /// Connections before this one are dead.
    alive_from: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
}

impl TcpProxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            alive_from: Arc::default(),
            made: Arc::default(),
        };
        let (alive_from, made) = (Arc::clone(&proxy.alive_from), Arc::clone(&proxy.made));
        thread::spawn(move || {
            for here in listener.incoming() {
                let number = made.fetch_add(1, Ordering::SeqCst);
                let (here, there) = (here.unwrap(), TcpStream::connect(server).unwrap());
                for (from, to) in [(&here, &there), (&there, &here)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let alive_from = Arc::clone(&alive_from);
                    thread::spawn(move || {
                        pass(from, to, || number >= alive_from.load(Ordering::SeqCst));
                    });
                }
            }
        });
        proxy
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes all open connections dead; new ones work.
    pub(crate) fn go_dead(&self) {
        let made = self.made.load(Ordering::SeqCst);
        self.alive_from.store(made, Ordering::SeqCst);
    }
}

/// Forwards bytes; those of a dead connection are dropped.
fn pass(mut from: TcpStream, mut to: TcpStream, is_alive: impl Fn() -> bool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || is_alive() && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if is_alive() {
        let _ = to.shutdown(Shutdown::Write);
    }
}
