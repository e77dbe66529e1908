//! A proxy in front of the registry that answers 503 at first, and then cuts connections in the middle of long answers.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::fixture::REGISTRY;
use crate::node::{Node, thread::spawn_server};

/// Its address on the node's loopback.
pub(super) const ADDRESS: &str = "127.0.0.1:5001";
/// Number of connections that are answered 503, before all others.
const REFUSED: usize = 2;
/// Number of later connections that are cut.
const CUT: usize = 3;
/// Bytes of a response after which a connection is cut.
const CUT_AFTER: usize = 200_000;

pub(super) fn start(node: &Node) -> anyhow::Result<()> {
    spawn_server(
        node,
        ADDRESS,
        || TcpListener::bind(ADDRESS),
        |listener| serve(&listener),
    )
}

fn serve(listener: &TcpListener) {
    let (mut to_refuse, to_cut) = (REFUSED, Arc::new(Mutex::new(CUT)));
    for client in listener.incoming().map_while(Result::ok) {
        if to_refuse > 0 {
            to_refuse -= 1;
            drop(refuse(client));
            continue;
        }
        let cut = Arc::clone(&to_cut);
        // The new thread is in the node's network namespace, as this one is.
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

fn pass(client: &TcpStream, to_cut: &Mutex<usize>) -> io::Result<()> {
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
        if sent > CUT_AFTER {
            let mut left = to_cut
                .lock()
                .map_err(|_| io::Error::other("a thread died"))?;
            if *left > 0 {
                *left -= 1;
                server.shutdown(Shutdown::Both)?;
                return to.shutdown(Shutdown::Both);
            }
        }
    }
}
