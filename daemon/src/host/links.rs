//! Interfaces and default routes in a container's network namespace, which the calling thread enters and leaves again.
//!
//! A thread that stayed would keep all interfaces of a pod that is gone.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use node::root::Root;
use plan::Family;
use rustix::{
    fs::fstat,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
        socket_with,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tracing::error;

use crate::{
    engine::{DefaultRoute, Interfaces, LinkProbe},
    host::{
        exec::{RuntimeExec, open_netns},
        netlink::{self, Found},
    },
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
    own: OnceLock<Namespace>,
}

impl NetnsProbe {
    /// Resolves namespace paths as the runtime of `exec` does.
    pub fn new(root: Arc<Root>, exec: Arc<RuntimeExec>) -> Self {
        Self {
            root,
            exec,
            own: OnceLock::new(),
        }
    }
}

impl LinkProbe for NetnsProbe {
    fn interfaces(&self, netns: &str) -> io::Result<Box<dyn Interfaces>> {
        let socket = self.inside(netns, interface_socket)?;
        Ok(Box::new(NetnsInterfaces(socket)))
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
    /// Runs `act` with this thread inside the namespace.
    fn inside<T>(&self, netns: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let netns = open_netns(&self.root, &self.exec.place(), netns)?;
        let own = if let Some(own) = self.own.get() {
            own
        } else {
            let own = Namespace::of_process()?;
            self.own.get_or_init(|| own)
        };
        let _inside = own.leave_for(&netns)?;
        act()
    }
}

/// A socket that was opened inside the namespace. A socket stays in its namespace, so any thread can use it.
struct NetnsInterfaces(OwnedFd);

impl Interfaces for NetnsInterfaces {
    fn contains(&self, ifname: &str) -> io::Result<bool> {
        Ok(index(&self.0, ifname)?.is_some())
    }
}

/// The network namespace that this process is in.
#[derive(Debug)]
struct Namespace {
    file: OwnedFd,
    identity: (u64, u64),
}

impl Namespace {
    fn of_process() -> io::Result<Self> {
        let file = OwnedFd::from(File::open("/proc/self/ns/net")?);
        let identity = identity(&file)?;
        Ok(Self { file, identity })
    }

    /// Moves this thread to another namespace until the guard is dropped; `None` where it is there already, since moving takes a
    /// right that being there does not.
    fn leave_for(&self, netns: &OwnedFd) -> io::Result<Option<Elsewhere<'_>>> {
        if identity(netns)? == self.identity {
            return Ok(None);
        }
        // The kernel checks the same rights on the way back, so a thread that could not return never leaves.
        enter(&self.file)?;
        enter(netns)?;
        Ok(Some(Elsewhere { own: self }))
    }
}

/// Returns the thread to the process's namespace when dropped, a panic included.
struct Elsewhere<'a> {
    own: &'a Namespace,
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        if let Err(error) = enter(&self.own.file) {
            error!(%error, "a thread cannot return from a pod's network namespace, so the daemon ends");
            // What this thread did next would happen in the pod.
            std::process::abort();
        }
    }
}

fn enter(namespace: &OwnedFd) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens a socket for questions about the interfaces of this thread's namespace.
fn interface_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The index of an interface, if there is one of that name.
fn index(socket: &OwnedFd, ifname: &str) -> io::Result<Option<u32>> {
    match netdevice::name_to_index(socket, ifname) {
        Ok(index) => Ok(Some(index)),
        Err(rustix::io::Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes all default routes of the family away but those that are wanted, and makes what is not there.
fn replace_default_routes(family: Family, routes: &[DefaultRoute]) -> io::Result<()> {
    let interfaces = interface_socket()?;
    let wanted = routes
        .iter()
        .map(|route| match index(&interfaces, &route.ifname)? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::Place;

    fn probe() -> NetnsProbe {
        let root = Arc::new(Root::open("/").unwrap());
        let exec = RuntimeExec::new(Arc::clone(&root), Place::default());
        NetnsProbe::new(root, Arc::new(exec))
    }

    #[test]
    fn own_namespace_needs_no_privilege() {
        let probe = probe();
        let netns = "/proc/self/ns/net";
        let interfaces = probe.interfaces(netns).unwrap();
        assert!(interfaces.contains("lo").unwrap());
        assert!(!interfaces.contains("no-such-link").unwrap());
    }

    #[test]
    fn file_that_is_no_namespace_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(probe().interfaces(path).is_err());
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
