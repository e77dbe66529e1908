//! A bad way to the registry: it says that it is busy, and then breaks off in the middle of what is long.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::mpsc,
    thread,
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::fixture::REGISTRY;
use crate::node::Node;

/// Where it listens, on the node alone.
pub(super) const WAY: &str = "127.0.0.1:5001";
/// The first connections get no further than this.
const BUSY: usize = 2;
/// So many of the next break off.
const CUT: usize = 3;
/// After so many bytes.
const PIECE: usize = 200_000;

/// Listens until the test ends.
pub(super) fn start(node: &Node) -> anyhow::Result<()> {
    let namespace = File::open(node.path("/proc/1/ns/net")).context("the node's network")?;
    let (ready, started) = mpsc::channel();
    thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        let listener = move_into_link_name_space(namespace.as_fd(), kind)
            .map_err(io::Error::from)
            .and_then(|()| TcpListener::bind(WAY));
        match listener {
            Ok(listener) => {
                drop(ready.send(Ok(())));
                serve(&listener);
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    let outcome = started.recv().context("the way ended")?;
    outcome.with_context(|| format!("cannot listen on {WAY}"))
}

fn serve(listener: &TcpListener) {
    let (mut busy, cut) = (BUSY, std::sync::Arc::new(std::sync::Mutex::new(CUT)));
    for client in listener.incoming().map_while(Result::ok) {
        if busy > 0 {
            busy -= 1;
            drop(refuse(client));
            continue;
        }
        let cut = std::sync::Arc::clone(&cut);
        // Threads are in the network of the one that starts them.
        thread::spawn(move || drop(pass(&client, &cut)));
    }
}

fn refuse(mut client: TcpStream) -> io::Result<()> {
    let mut request = [0; 4096];
    let _ = client.read(&mut request)?;
    client.write_all(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    )
}

fn pass(client: &TcpStream, cut: &std::sync::Mutex<usize>) -> io::Result<()> {
    let server = TcpStream::connect(REGISTRY)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (&server, client);
    let (mut buffer, mut sent) = (vec![0; 16 << 10], 0);
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return to.shutdown(Shutdown::Both);
        }
        to.write_all(&buffer[..len])?;
        sent += len;
        if sent > PIECE {
            let mut left = cut.lock().map_err(|_| io::Error::other("a thread died"))?;
            if *left > 0 {
                *left -= 1;
                server.shutdown(Shutdown::Both)?;
                return to.shutdown(Shutdown::Both);
            }
        }
    }
}
