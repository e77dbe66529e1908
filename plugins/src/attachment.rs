//! What the plugins that make an interface share: giving it the result of its IPAM plugin, comparing it with a result for CHECK,
//! taking it away.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cni::CniResult;
use cni::types::{Interface, IpConfig, Route as ResultRoute};

use crate::error::{Context, Result, bail, failure};
use crate::ip::{self, Cidr};
use crate::kernel::address::{IFA_F_DADFAILED, IFA_F_TENTATIVE};
use crate::kernel::link::{IFF_RUNNING, Link};
use crate::kernel::netns::Namespace;
use crate::kernel::route::{AddRoute, Route};
use crate::kernel::{Errno, Netlink, sysctl};
use crate::protocol::{open_netns, open_netns_if_present};

/// How long the carrier may take; duplicate address detection may take as long again.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// The kernel sends no notice when detection ends, so the addresses are read again after this time.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

/// The container's network namespace with a socket in it.
pub(crate) struct Container {
    /// The namespace, for work that has no netlink: sysctls.
    pub(crate) namespace: Namespace,
    /// A socket in the namespace.
    pub(crate) netlink: Netlink,
}

impl Container {
    /// Opens the container's namespace and a socket in it.
    pub(crate) fn open(path: &str) -> Result<Self> {
        Self::with(open_netns(path)?)
    }

    /// Opens it for DEL: `None` when the path is empty or the namespace is gone, so that its links are gone too.
    pub(crate) fn open_if_present(path: &str) -> Result<Option<Self>> {
        open_netns_if_present(path)?.map(Self::with).transpose()
    }

    fn with(namespace: Namespace) -> Result<Self> {
        Self::enter(namespace, || Ok(()))
    }

    /// Opens a socket in a namespace after `work`, which runs there: one entry serves both.
    pub(crate) fn enter(namespace: Namespace, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        let open = || {
            work()?;
            Netlink::open()
        };
        let netlink = namespace
            .enter(open)
            .context(|| "failed to enter the container's netns".to_owned())??;
        Ok(Self { namespace, netlink })
    }

    pub(crate) fn link(&mut self, name: &str) -> Result<Link> {
        link_by_name(&mut self.netlink, name)
    }

    /// Runs `work` in the namespace.
    pub(crate) fn enter_netns<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.namespace
            .enter(work)
            .context(|| "failed to enter the container's netns".to_owned())
    }

    /// Gives an interface the addresses and routes of a result and brings it up. Every address of the result must belong to it.
    pub(crate) fn configure(&mut self, ifname: &str, result: &CniResult) -> Result<()> {
        let assignment = Assignment::of(ifname, result)?;
        if assignment.has_ipv6() {
            self.enter_netns(|| assignment.prepare())??;
        }
        let link = self
            .netlink
            .link_by_name(ifname)
            .context(|| format!("failed to lookup {ifname:?}"))?;
        self.assign(&link, &assignment)
    }

    /// Gives a link what is assigned to it and brings it up; [`Assignment::prepare`] comes first.
    pub(crate) fn assign(&mut self, link: &Link, assignment: &Assignment<'_>) -> Result<()> {
        let ifname = assignment.ifname;
        for cidr in &assignment.addresses {
            self.netlink
                .add_address(link.index, *cidr)
                .context(|| format!("failed to add IP addr {cidr} to {ifname:?}"))?;
        }
        self.netlink
            .set_up(link.index)
            .context(|| format!("failed to set {ifname:?} UP"))?;
        if assignment.gateways.v6.is_some() {
            settle_addresses(&mut self.netlink, link)
                .context(|| format!("failed to settle addresses for {ifname:?}"))?;
        }
        for route in assignment.routes {
            self.add_route(link, route, &assignment.gateways)?;
        }
        Ok(())
    }

    fn add_route(&mut self, link: &Link, route: &ResultRoute, gateways: &Gateways) -> Result<()> {
        let destination: Cidr = route.dst.parse().context(|| "invalid route".to_owned())?;
        let gateway = if route.gw.is_empty() {
            gateways.for_family(destination.address)
        } else {
            Some(ip::parse(&route.gw).context(|| "invalid route".to_owned())?)
        };
        let request = Route {
            gateway,
            priority: unsigned(route.priority),
            mtu: unsigned(route.mtu),
            advmss: unsigned(route.advmss),
            table: route
                .table
                .map_or(crate::kernel::route::RT_TABLE_MAIN, unsigned),
            scope: route
                .scope
                .and_then(|scope| u8::try_from(scope).ok())
                .unwrap_or_default(),
            ..Route::new(destination, link.index)
        };
        self.netlink.add_route(&request, AddRoute::Ecmp).context(|| {
            let via = gateway.map_or_else(|| "<nil>".to_owned(), |gateway| gateway.to_string());
            format!(
                "failed to add route '{{{} {}}} via {via} dev {} metric {} (Scope: {}, Table: {})'",
                destination.address,
                destination.mask_text(),
                link.name,
                request.priority,
                scope_name(request.scope),
                route.table.unwrap_or_default()
            )
        })
    }

    /// Deletes the link of this name; `None` means that there was none.
    pub(crate) fn delete_link(&mut self, name: &str) -> Result<Option<Link>> {
        delete_link(&mut self.netlink, name)
    }

    /// Fails unless the interface has every address of a result, with the route that the kernel makes for each.
    pub(crate) fn check_addresses(&mut self, ifname: &str, ips: &[IpConfig]) -> Result<()> {
        if ips.is_empty() {
            return Ok(());
        }
        let link = self
            .netlink
            .link_by_name(ifname)
            .map_err(|_| failure!("Cannot find container link {ifname}"))?;
        let present = self
            .netlink
            .addresses(link.index)
            .context(|| "Cannot obtain List of IP Addresses".to_owned())?;
        let routes = self
            .netlink
            .routes()
            .context(|| "Cannot obtain the routes".to_owned())?;
        for config in ips {
            let cidr = cidr(config)?;
            if !present.iter().any(|address| address.cidr == cidr) {
                bail!("Failed to match addr {cidr} on interface {ifname}");
            }
            if !routes
                .iter()
                .any(|route| route.destination == cidr.network())
            {
                let gateway = match config.gateway.as_str() {
                    "" => "<nil>",
                    gateway => gateway,
                };
                bail!("Failed to find Gateway {gateway} for interface {ifname}");
            }
        }
        Ok(())
    }

    /// Fails unless the container has every route of a result.
    pub(crate) fn check_routes(&mut self, expected: &[ResultRoute]) -> Result<()> {
        if expected.is_empty() {
            return Ok(());
        }
        let routes = self
            .netlink
            .routes()
            .context(|| "Cannot obtain the routes".to_owned())?;
        for route in expected {
            let destination: Cidr = route.dst.parse().context(|| "invalid route".to_owned())?;
            let gateway = ip::parse_optional(&route.gw).context(|| "invalid route".to_owned())?;
            let is_there = routes.iter().any(|route| {
                route.destination == destination.network()
                    // The gateway of a default route is not compared: a later plugin may have moved it.
                    && (destination.length == 0 || gateway.is_none() || route.gateway == gateway)
            });
            if !is_there {
                bail!(
                    "Expected Route {destination} via {} not found in routing table",
                    route.gw
                );
            }
        }
        Ok(())
    }
}

/// The part of a result that concerns one interface.
pub(crate) struct Assignment<'a> {
    ifname: &'a str,
    addresses: Vec<Cidr>,
    gateways: Gateways,
    routes: &'a [ResultRoute],
}

impl<'a> Assignment<'a> {
    /// Reads a result, whose addresses must all belong to the interface.
    pub(crate) fn of(ifname: &'a str, result: &'a CniResult) -> Result<Self> {
        if result.interfaces.is_empty() {
            bail!("no interfaces to configure");
        }
        let mut gateways = Gateways::default();
        let mut addresses = Vec::new();
        for config in &result.ips {
            if config.interface.is_none() {
                continue;
            }
            let interface = interface_of(config, result);
            if interface.is_none_or(|interface| interface.name != ifname) {
                bail!(
                    "failed to add IP addr {} to {ifname:?}: invalid interface index",
                    config.address
                );
            }
            addresses.push(cidr(config)?);
            gateways.note(config)?;
        }
        Ok(Self {
            ifname,
            addresses,
            gateways,
            routes: &result.routes,
        })
    }

    fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|cidr| cidr.address.is_ipv6())
    }

    /// Lets loopback and the interface have IPv6 addresses if there are any, and keep them while the interface is down. The thread
    /// must be in the container's namespace.
    pub(crate) fn prepare(&self) -> Result<()> {
        if !self.has_ipv6() {
            return Ok(());
        }
        let ifname = self.ifname;
        for name in ["lo", ifname] {
            let parameter = format!("net/ipv6/conf/{name}/disable_ipv6");
            // A kernel without IPv6 has no such parameter; the address will be refused with the kernel's reason.
            if sysctl::read(&parameter).is_ok_and(|value| value != "0") {
                sysctl::write(&parameter, "0").context(|| {
                    format!("failed to enable IPv6 for interface {name:?} ({parameter})")
                })?;
            }
        }
        let parameter = format!("net/ipv6/conf/{ifname}/keep_addr_on_down");
        sysctl::write(&parameter, "1")
            .context(|| format!("failed to enable keep_addr_on_down for interface {ifname:?}"))
    }
}

/// The first gateway of each family, which routes without one take.
#[derive(Default)]
struct Gateways {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl Gateways {
    fn note(&mut self, config: &IpConfig) -> Result<()> {
        let gateway = ip::parse_optional(&config.gateway);
        match gateway.context(|| "invalid gateway".to_owned())? {
            Some(gateway) if gateway.is_ipv4() => self.v4 = self.v4.or(Some(gateway)),
            gateway => self.v6 = self.v6.or(gateway),
        }
        Ok(())
    }

    fn for_family(&self, address: IpAddr) -> Option<IpAddr> {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// Returns the interface of an entry of a result, if the result lists it.
pub(crate) fn interface_of<'a>(config: &IpConfig, result: &'a CniResult) -> Option<&'a Interface> {
    let index = usize::try_from(config.interface?).ok()?;
    result.interfaces.get(index)
}

/// Returns the address of an entry of a result.
pub(crate) fn cidr(config: &IpConfig) -> Result<Cidr> {
    config
        .address
        .parse()
        .context(|| "invalid address in the result".to_owned())
}

/// Waits until duplicate address detection has ended for all addresses of a link.
pub(crate) fn settle_addresses(netlink: &mut Netlink, link: &Link) -> Result<()> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let addresses = netlink
            .addresses(link.index)
            .context(|| "could not list addresses".to_owned())?;
        let failed = addresses
            .iter()
            .find(|address| address.flags & IFA_F_DADFAILED != 0);
        if let Some(address) = failed {
            bail!(
                "link {} has address {} in DADFAILED state",
                link.name,
                address.cidr.address
            );
        }
        let tentative = addresses
            .iter()
            .find(|address| address.flags & IFA_F_TENTATIVE != 0);
        let Some(tentative) = tentative else {
            return Ok(());
        };
        let now = Instant::now();
        if now >= deadline {
            let link_now = netlink.link_by_index(link.index);
            // Without a carrier the kernel never begins the detection, so time ends the wait without an error.
            if !link_now.is_ok_and(|link| link.flags & IFF_RUNNING != 0) {
                return Ok(());
            }
            if now >= deadline + SETTLE_LIMIT {
                bail!(
                    "link {} has address {} in tentative state after {} s",
                    link.name,
                    tentative.cidr.address,
                    2 * SETTLE_LIMIT.as_secs()
                );
            }
        }
        std::thread::sleep(SETTLE_INTERVAL);
    }
}

/// Returns the link of this name, with the error that the reference plugins print.
pub(crate) fn link_by_name(netlink: &mut Netlink, name: &str) -> Result<Link> {
    netlink.link_by_name(name).map_err(|error| {
        if error == Errno::ENODEV {
            failure!("Link not found")
        } else {
            failure!("{error}")
        }
    })
}

/// Deletes the link of this name; `None` means that there was none.
pub(crate) fn delete_link(netlink: &mut Netlink, name: &str) -> Result<Option<Link>> {
    let link = match netlink.link_by_name(name) {
        Ok(link) => link,
        Err(Errno::ENODEV) => return Ok(None),
        Err(error) => {
            bail!("failed to lookup {name:?}: {error}");
        }
    };
    remove_link(netlink, &link).map(|()| Some(link))
}

/// Deletes a link; one that is gone by now is fine.
pub(crate) fn remove_link(netlink: &mut Netlink, link: &Link) -> Result<()> {
    match netlink.delete_link(link.index) {
        Ok(()) | Err(Errno::ENODEV) => Ok(()),
        Err(error) => Err(failure!("failed to delete {:?}: {error}", link.name)),
    }
}

/// Returns the name of a route's scope in errors.
const fn scope_name(scope: u8) -> &'static str {
    match scope {
        0 => "universe",
        200 => "site",
        253 => "link",
        254 => "host",
        255 => "nowhere",
        _ => "unknown",
    }
}

/// Returns a name that no link has: the host's end of a pair, or a link on its way into a container.
pub(crate) fn random_veth_name() -> Result<String> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(Errno::from)
        .context(|| "failed to generate random veth name".to_owned())?;
    Ok(format!("veth{:08x}", u32::from_ne_bytes(bytes)))
}

fn unsigned(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
