//! Threads of the test in the network namespace of a node.

use std::{
    fs::File,
    io,
    os::fd::AsFd as _,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Node;

/// Runs `act` on a new thread in the node's network namespace. Threads that `act` starts are in it, too.
pub(crate) fn spawn_in<T: Send + 'static>(
    node: &Node,
    act: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<JoinHandle<anyhow::Result<T>>> {
    let namespace = File::open(node.path("/proc/1/ns/net"))
        .with_context(|| format!("cannot open the network namespace of {}", node.name))?;
    Ok(thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the node's network namespace")?;
        act()
    }))
}

/// Starts a server of the test in the node's network namespace: `listen` and `serve` run on one thread, because a socket belongs to
/// the namespace that its thread is in. Returns when `listen` has succeeded or failed; the thread ends with the test.
pub(crate) fn spawn_server<L>(
    node: &Node,
    address: &str,
    listen: impl FnOnce() -> io::Result<L> + Send + 'static,
    serve: impl FnOnce(L) + Send + 'static,
) -> anyhow::Result<()> {
    let (outcome, listening) = mpsc::channel();
    spawn_in(node, move || {
        match listen() {
            Ok(listener) => {
                let _ = outcome.send(Ok(()));
                serve(listener);
            }
            Err(error) => drop(outcome.send(Err(error))),
        }
        Ok(())
    })?;
    listening
        .recv()
        .context("the thread of the server ended")?
        .with_context(|| format!("cannot listen on {address} of {}", node.name))
}
