//! Looking for an interface in a container's network namespace, on a thread that enters it and ends there.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use node::root::Root;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{
    engine::LinkProbe,
    exec::{RuntimeExec, open_netns},
};

/// Looks into real namespaces.
#[derive(Debug)]
pub struct NetnsProbe {
    root: Arc<Root>,
    exec: Arc<RuntimeExec>,
}

impl NetnsProbe {
    /// Resolves namespace paths as the runtime of `exec` does.
    pub fn new(root: Arc<Root>, exec: Arc<RuntimeExec>) -> Self {
        Self { root, exec }
    }
}

impl LinkProbe for NetnsProbe {
    fn link_exists(&self, netns: &str, ifname: &str) -> io::Result<bool> {
        let netns = open_netns(&self.root, &self.exec.place(), netns)?;
        let ifname = ifname.to_owned();
        let probe = thread::Builder::new()
            .name("link-probe".into())
            .spawn(move || look(&netns, &ifname))?;
        probe
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the probing thread ended early")))
    }
}

fn look(netns: &OwnedFd, ifname: &str) -> io::Result<bool> {
    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match netdevice::name_to_index(&socket, ifname) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
