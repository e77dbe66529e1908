//! A wire between daemon and API server whose connections can go dead: nothing passes any more, and nobody is told.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Passes on what comes, until it is dropped with its process.
pub(crate) struct Wire {
    address: SocketAddr,
    /// Connections before this one are dead.
    alive_from: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            alive_from: Arc::default(),
            made: Arc::default(),
        };
        let (alive_from, made) = (Arc::clone(&wire.alive_from), Arc::clone(&wire.made));
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
        wire
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing passes on the connections that are open; new ones are well.
    pub(crate) fn go_dead(&self) {
        let made = self.made.load(Ordering::SeqCst);
        self.alive_from.store(made, Ordering::SeqCst);
    }
}

/// Passes bytes on; those of a dead connection vanish.
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
