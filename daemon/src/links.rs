//! Interfaces and default routes in a container's network namespace, on one thread that enters it and comes back.
//!
//! It must not stay: a thread in a namespace keeps all interfaces of a pod that is gone.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    thread,
};

use node::root::Root;
use rustix::{
    fs::fstat,
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

/// Something to do in a namespace.
type Job = Box<dyn FnOnce(&Namespace) -> io::Result<()> + Send>;

/// Looks into real namespaces.
#[derive(Debug)]
pub struct NetnsProbe {
    root: Arc<Root>,
    exec: Arc<RuntimeExec>,
    /// What the thread is given to do, once there is one.
    jobs: Mutex<Option<Sender<Job>>>,
}

impl NetnsProbe {
    /// Resolves namespace paths as the runtime of `exec` does.
    pub fn new(root: Arc<Root>, exec: Arc<RuntimeExec>) -> Self {
        Self {
            root,
            exec,
            jobs: Mutex::default(),
        }
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
        let (answer, outcome) = channel();
        let job: Job = Box::new(move |own| {
            let (back, done) = match own.enter(&netns) {
                Ok(true) => {
                    let done = act();
                    (own.come_back(), done)
                }
                Ok(false) => (Ok(()), act()),
                Err(error) => (Ok(()), Err(error)),
            };
            // Who has asked waits for the answer.
            let _ = answer.send(done);
            back
        });
        self.hand_over(job)?;
        outcome
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the probing thread ended early")))
    }

    /// Gives the thread something to do; starts one where none is left.
    fn hand_over(&self, mut job: Job) -> io::Result<()> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*jobs {
            match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(refused) => job = refused.0,
            }
        }
        let (sender, receiver) = channel::<Job>();
        let own = Namespace::own()?;
        thread::Builder::new()
            .name("link-probe".into())
            .spawn(move || {
                // A thread that cannot come back ends: nothing else may be done in a pod's namespace.
                receiver.into_iter().try_for_each(|job| job(&own))
            })?;
        // It waits for this one: it was started just now.
        let _ = sender.send(job);
        *jobs = Some(sender);
        Ok(())
    }
}

/// The network namespace that this process is in.
#[derive(Debug)]
struct Namespace {
    file: OwnedFd,
    identity: (u64, u64),
}

impl Namespace {
    fn own() -> io::Result<Self> {
        let file = OwnedFd::from(File::open("/proc/thread-self/ns/net")?);
        let identity = identity(&file)?;
        Ok(Self { file, identity })
    }

    /// Moves this thread, and returns whether it has to come back. Moving takes a right that being there does not.
    fn enter(&self, netns: &OwnedFd) -> io::Result<bool> {
        let is_elsewhere = identity(netns)? != self.identity;
        if is_elsewhere {
            move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        Ok(is_elsewhere)
    }

    fn come_back(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Place;

    fn probe() -> NetnsProbe {
        let root = Arc::new(Root::open("/").unwrap());
        let exec = RuntimeExec::new(Arc::clone(&root), Place::default());
        NetnsProbe::new(root, Arc::new(exec))
    }

    #[test]
    fn own_namespace_needs_no_privilege() {
        let probe = probe();
        let netns = "/proc/self/ns/net";
        assert!(probe.link_exists(netns, "lo").unwrap());
        assert!(!probe.link_exists(netns, "no-such-link").unwrap());
    }

    #[test]
    fn file_that_is_no_namespace_is_an_error_and_the_thread_goes_on() {
        let probe = probe();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        probe.link_exists(path, "lo").unwrap_err();
        assert!(probe.link_exists("/proc/self/ns/net", "lo").unwrap());
    }

    #[test]
    fn looks_after_a_panic_get_another_thread() {
        let probe = probe();
        let netns = "/proc/self/ns/net";
        let failed = probe.inside(netns, || -> io::Result<()> { panic!("for the test") });
        assert!(failed.unwrap_err().to_string().contains("ended early"));
        // Its end may be noticed a little later than its answer's.
        while probe.link_exists(netns, "lo").is_err() {
            thread::yield_now();
        }
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
