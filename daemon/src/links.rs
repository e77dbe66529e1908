//! Looking for an interface in a container's network namespace, on a thread that enters it and ends there.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use node::root::Root;
use rustix::{
    fs::{fstat, stat},
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
    // Moving takes a right that being there does not.
    if !is_current(netns)? {
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
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

/// Whether this thread is in the namespace already.
fn is_current(netns: &OwnedFd) -> io::Result<bool> {
    let (theirs, own) = (fstat(netns)?, stat("/proc/thread-self/ns/net")?);
    Ok((theirs.st_dev, theirs.st_ino) == (own.st_dev, own.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_takes_no_right_to_look_into() {
        let own = std::fs::File::open("/proc/self/ns/net").unwrap().into();
        assert!(look(&own, "lo").unwrap());
        assert!(!look(&own, "no-such-link").unwrap());
    }

    #[test]
    fn what_is_no_namespace_is_an_error() {
        let file = tempfile::tempfile().unwrap().into();
        look(&file, "lo").unwrap_err();
    }
}
