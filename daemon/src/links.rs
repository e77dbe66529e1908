//! Interfaces and default routes in a container's network namespace, on a thread that enters it and ends there.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use node::root::Root;
use rustix::{
    fs::{fstat, stat},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
        socket_with,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{
    engine::{DefaultRoute, LinkProbe},
    exec::{RuntimeExec, open_netns},
    netlink::{self, Found},
    plan::Family,
};

/// The kernel's answers come in pieces of half this size at most.
const DATAGRAM: usize = 64 << 10;
/// How often routes that change meanwhile are listed.
const LISTINGS: u32 = 10;

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
        let ifname = ifname.to_owned();
        self.inside(netns, move || Ok(index(&ifname)?.is_some()))
    }

    fn set_default_routes(
        &self,
        netns: &str,
        family: Family,
        routes: &[DefaultRoute],
    ) -> io::Result<()> {
        let routes = routes.to_vec();
        self.inside(netns, move || replace_default_routes(family, &routes))
    }
}

impl NetnsProbe {
    /// Does something in the namespace.
    fn inside<T: Send + 'static>(
        &self,
        netns: &str,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let netns = open_netns(&self.root, &self.exec.place(), netns)?;
        let thread = thread::Builder::new()
            .name("link-probe".into())
            .spawn(move || {
                enter(&netns)?;
                act()
            })?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the probing thread ended early")))
    }
}

/// Moves this thread. Moving takes a right that being there does not.
fn enter(netns: &OwnedFd) -> io::Result<()> {
    if !is_current(netns)? {
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    Ok(())
}

/// The index of an interface, if there is one of that name.
fn index(ifname: &str) -> io::Result<Option<u32>> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match netdevice::name_to_index(&socket, ifname) {
        Ok(index) => Ok(Some(index)),
        Err(rustix::io::Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes all default routes of the family away but those that are wanted, and makes what is not there.
fn replace_default_routes(family: Family, routes: &[DefaultRoute]) -> io::Result<()> {
    let wanted = routes
        .iter()
        .map(|route| match index(&route.ifname)? {
            Some(interface) => Ok((interface, route)),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no such interface in the pod",
            )),
        })
        .collect::<io::Result<Vec<_>>>()?;
    let socket = netlink_socket()?;
    let found = default_routes(&socket, family)?;
    let is_it = |found: &Found, (interface, route): &(u32, &DefaultRoute)| {
        found.interface == Some(*interface) && found.gateway == route.gateway
    };
    for other in &found {
        if !wanted.iter().any(|one| is_it(other, one)) {
            ask(&socket, &netlink::delete(other))?;
        }
    }
    for one in &wanted {
        if !found.iter().any(|found| is_it(found, one)) {
            let (interface, route) = one;
            ask(
                &socket,
                &netlink::add(family, *interface, route.gateway, route.metric),
            )?;
        }
    }
    Ok(())
}

/// The default routes of a family, listed again while they change.
fn default_routes(socket: &OwnedFd, family: Family) -> io::Result<Vec<Found>> {
    for _ in 0..LISTINGS {
        let answer = ask(socket, &netlink::list(family))?;
        if !answer.is_interrupted {
            return Ok(answer.found);
        }
    }
    Err(io::Error::other(
        "routes change faster than they can be listed",
    ))
}

fn netlink_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        None,
    )?)
}

/// Sends one message and reads the answer to its end.
fn ask(socket: &OwnedFd, message: &[u8]) -> io::Result<netlink::Answer> {
    send(socket, message, SendFlags::empty())?;
    let mut whole = netlink::Answer::default();
    let mut buffer = vec![0; DATAGRAM];
    while !whole.is_last {
        let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let part = netlink::read(&buffer[..length])?;
        whole.found.extend(part.found);
        whole.is_last = part.is_last;
        whole.is_interrupted |= part.is_interrupted;
    }
    Ok(whole)
}

/// Whether this thread is in the namespace already.
fn is_current(netns: &OwnedFd) -> io::Result<bool> {
    let (theirs, own) = (fstat(netns)?, stat("/proc/thread-self/ns/net")?);
    Ok((theirs.st_dev, theirs.st_ino) == (own.st_dev, own.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> OwnedFd {
        std::fs::File::open("/proc/self/ns/net").unwrap().into()
    }

    #[test]
    fn the_own_namespace_takes_no_right_to_look_into() {
        enter(&own()).unwrap();
        assert!(index("lo").unwrap().is_some());
        assert!(index("no-such-link").unwrap().is_none());
    }

    #[test]
    fn what_is_no_namespace_is_an_error() {
        let file = tempfile::tempfile().unwrap().into();
        enter(&file).unwrap_err();
    }

    #[test]
    fn routes_are_listed_by_the_kernel() {
        let socket = netlink_socket().unwrap();
        for family in Family::ALL {
            for found in default_routes(&socket, family).unwrap() {
                assert!(
                    found.interface.is_some() || found.gateway.is_none(),
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_told() {
        let route = DefaultRoute {
            ifname: "no-such-link".into(),
            gateway: None,
            metric: 0,
        };
        let error = replace_default_routes(Family::V4, &[route]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
