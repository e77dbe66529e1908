//! Interfaces and default routes in a container's network namespace, which the calling thread enters and leaves again.
//!
//! A thread that stayed would keep all interfaces of a deleted pod alive.

use std::{
    fs::File,
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use netlink::{
    Socket,
    link::Link,
    route::{self, AddRoute, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, RTN_UNICAST},
};
use node::root::Root;
use plan::Family;
use rustix::{
    fs::fstat,
    net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tokio::io::unix::AsyncFd;
use tracing::error;

use crate::{
    engine::{DefaultRoute, Interfaces, LinkProbe},
    host::{
        dir_watch,
        exec::{RuntimeExec, open_netns},
    },
};

type Route = route::Route<(IpAddr, u8)>;
type WholeRoute = route::WholeRoute<(IpAddr, u8)>;

/// Inspects and changes real network namespaces.
#[derive(Debug)]
pub struct NetnsProbe {
    root: Arc<Root>,
    exec: Arc<RuntimeExec>,
    own: OnceLock<Namespace>,
}

impl NetnsProbe {
    /// Creates a probe that resolves namespace paths like the runtime of `exec`.
    pub fn new(root: Arc<Root>, exec: Arc<RuntimeExec>) -> Self {
        Self {
            root,
            exec,
            own: OnceLock::new(),
        }
    }
}

/// The links of a network namespace.
#[derive(Debug, Default)]
pub struct NodeLinks {
    /// All of them.
    pub all: Vec<Link>,
    /// The index of the link that the default route takes.
    pub of_default_route: Option<u32>,
}

impl NodeLinks {
    /// Reads the links of this process's network namespace, which is the node's, as plugins see them.
    pub fn read() -> io::Result<Self> {
        let mut socket = Socket::open(None)?;
        let links = socket.dump(Link::list)?;
        let mut of_default_route = None;
        for family in Family::ALL {
            let routes = default_routes(&mut socket, family)?;
            let link = routes.into_iter().find_map(|whole| whole.route.link);
            of_default_route = of_default_route.or(link);
        }
        Ok(Self {
            all: links.iter().filter_map(|body| Link::parse(body)).collect(),
            of_default_route,
        })
    }
}

/// A watch of the links and routes of the node.
#[derive(Debug)]
pub(crate) struct LinkWatch(AsyncFd<OwnedFd>);

impl LinkWatch {
    /// Begins in this process's network namespace.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(dir_watch::register(netlink::changes_of_links()?)?))
    }

    /// Returns once something has changed since the watch began.
    pub(crate) async fn changed(&self) {
        // An error of the watch, such as too many changes, counts as one.
        let _ = self.0.readable().await;
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
        let netns = open_netns(&self.root, &self.exec.context(), netns)?;
        let own = if let Some(own) = self.own.get() {
            own
        } else {
            let own = Namespace::current()?;
            self.own.get_or_init(|| own)
        };
        let _inside = own.leave_for(&netns)?;
        act()
    }
}

/// A socket opened inside the namespace. It stays in that namespace, so any thread can use it.
struct NetnsInterfaces(OwnedFd);

impl Interfaces for NetnsInterfaces {
    fn contains(&self, ifname: &str) -> io::Result<bool> {
        Ok(index(&self.0, ifname)?.is_some())
    }
}

/// The network namespace of this process.
#[derive(Debug)]
struct Namespace {
    file: OwnedFd,
    identity: (u64, u64),
}

impl Namespace {
    fn current() -> io::Result<Self> {
        let file = OwnedFd::from(File::open("/proc/self/ns/net")?);
        let identity = identity(&file)?;
        Ok(Self { file, identity })
    }

    /// Moves this thread to another namespace until the guard is dropped. Returns `None` if it is there already, since `setns` needs a
    /// privilege even then.
    fn leave_for(&self, netns: &OwnedFd) -> io::Result<Option<Elsewhere<'_>>> {
        if identity(netns)? == self.identity {
            return Ok(None);
        }
        // The kernel checks the same privileges on the way back, so a thread that could not return never leaves.
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
            error!(%error, "a thread cannot return from a pod's network namespace: the daemon aborts");
            // The next work of this thread would happen in the pod.
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

/// Opens a socket to query the interfaces of this thread's namespace.
fn interface_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Returns the index of an interface, or `None` if it does not exist.
fn index(socket: &OwnedFd, ifname: &str) -> io::Result<Option<u32>> {
    match netdevice::name_to_index(socket, ifname) {
        Ok(index) => Ok(Some(index)),
        Err(rustix::io::Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deletes all default routes of the family but the wanted ones, and adds those that are missing.
fn replace_default_routes(family: Family, routes: &[DefaultRoute]) -> io::Result<()> {
    let interfaces = interface_socket()?;
    let wanted = routes
        .iter()
        .map(|route| match index(&interfaces, &route.ifname)? {
            Some(interface) => Ok(default_route(family, interface, route)),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no such interface in the pod",
            )),
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mut socket = Socket::open(None)?;
    let found = default_routes(&mut socket, family)?;
    let is_it = |found: &WholeRoute, wanted: &Route| {
        (found.route.link, found.route.gateway) == (wanted.link, wanted.gateway)
    };
    for other in &found {
        if !wanted.iter().any(|one| is_it(other, one)) {
            socket.request(other.delete())?;
        }
    }
    for one in &wanted {
        if !found.iter().any(|found| is_it(found, one)) {
            socket.request(one.add(AddRoute::Ecmp))?;
        }
    }
    Ok(())
}

/// Returns the default route of a family through an interface.
fn default_route(family: Family, interface: u32, route: &DefaultRoute) -> Route {
    Route {
        gateway: route.gateway,
        scope: match route.gateway {
            Some(_) => RT_SCOPE_UNIVERSE,
            None => RT_SCOPE_LINK,
        },
        priority: route.metric,
        ..Route::new((unspecified(family), 0), interface)
    }
}

/// Lists the default routes of a family in the main table.
fn default_routes(socket: &mut Socket, family: Family) -> io::Result<Vec<WholeRoute>> {
    let family = route::family(unspecified(family));
    let bodies = socket.dump(|| WholeRoute::list(family))?;
    let routes = bodies.iter().filter_map(|body| WholeRoute::parse(body));
    let is_default = |whole: &WholeRoute| {
        let Route {
            destination: (_, length),
            table,
            kind,
            ..
        } = whole.route;
        (length, table, kind) == (0, RT_TABLE_MAIN, RTN_UNICAST)
    };
    Ok(routes.filter(is_default).collect())
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::exec::ExecContext;

    fn probe() -> NetnsProbe {
        let root = Arc::new(Root::open("/").unwrap());
        let exec = RuntimeExec::new(Arc::clone(&root), ExecContext::default());
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
    fn file_that_is_not_a_namespace_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(probe().interfaces(path).is_err());
    }

    #[test]
    fn kernel_lists_default_routes() {
        let mut socket = Socket::open(None).unwrap();
        for family in Family::ALL {
            for WholeRoute { route, .. } in default_routes(&mut socket, family).unwrap() {
                assert!(route.link.is_some() || route.gateway.is_none(), "{route:?}");
            }
        }
    }

    #[test]
    fn links_of_the_node_are_read() {
        let links = NodeLinks::read().unwrap();
        let loopback = links.all.iter().find(|link| link.is_named("lo")).unwrap();
        assert!(!loopback.is_ethernet());
        let has = |index| links.all.iter().any(|link| link.index == index);
        assert!(links.of_default_route.is_none_or(has));
    }

    #[test]
    fn default_route_without_a_gateway_is_on_the_link() {
        let wanted = |gateway: Option<IpAddr>| DefaultRoute {
            ifname: "net1".into(),
            gateway,
            metric: 7,
        };
        let route = default_route(Family::V6, 3, &wanted(None));
        assert_eq!((route.scope, route.priority), (RT_SCOPE_LINK, 7));
        assert_eq!(route.destination, ("::".parse().unwrap(), 0));
        let route = default_route(Family::V4, 3, &wanted(Some([10, 0, 0, 1].into())));
        assert_eq!(route.scope, RT_SCOPE_UNIVERSE);
    }

    #[test]
    fn missing_interface_is_an_error() {
        let route = DefaultRoute {
            ifname: "no-such-link".into(),
            gateway: None,
            metric: 0,
        };
        let error = replace_default_routes(Family::V4, &[route]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
