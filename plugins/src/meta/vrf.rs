//! vrf: puts the interface of the plugin before it into a VRF of the container, a routing table of its own. The VRF is made for its
//! first interface and deleted with its last one.

use std::time::{Duration, Instant};

use cni::CniResult;
use cni::version::{SUPPORTED, Version};

use crate::call::Call;
use crate::config::vrf::Config;
use crate::error::{Context, Result, bail, failure};
use crate::ip::Cidr;
use crate::kernel::address::Address;
use crate::kernel::link::{Link, NewLink};
use crate::kernel::netns::{Namespace, OpenError};
use crate::kernel::route::{AddRoute, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN, Route};
use crate::kernel::{Errno, Message, Netlink};

/// Chained plugins have a previous result to hand on since 0.3.1.
pub(crate) const VERSIONS: &[Version] = SUPPORTED.split_at(3).1;

const KIND: &str = "vrf";
const IFLA_VRF_TABLE: u16 = 1;
/// The tables that the kernel has already: default, main, local.
const KERNEL_TABLES: std::ops::RangeInclusive<u32> = 253..=255;
/// The gateway is on the link, whatever the addresses say. The other flags are the kernel's own.
const RTNH_F_ONLINK: u32 = 4;

/// How long the kernel may take to make the route of an address.
const ROUTE_LIMIT: Duration = Duration::from_millis(2500);
/// The kernel sends the notice of a route to whoever listened before, so the routes are read again after this time.
const ROUTE_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Vrf {
    name: String,
    index: u32,
    table: u32,
}

impl Vrf {
    /// Returns the VRF that the link is.
    fn of(link: &Link) -> Result<Self> {
        if link.kind != KIND {
            bail!("Netlink {} is not a VRF", link.name);
        }
        Ok(Self {
            name: link.name.clone(),
            index: link.index,
            table: table(link).unwrap_or_default(),
        })
    }

    /// Returns the VRF of this name, or `None` when there is no such link.
    fn find(netlink: &mut Netlink, name: &str) -> Result<Option<Self>> {
        match netlink.link_by_name(name) {
            Ok(link) => Self::of(&link).map(Some),
            Err(Errno::ENODEV) => Ok(None),
            Err(error) => Err(failure!("{error}")),
        }
    }

    /// Returns the names of its interfaces.
    fn interfaces<'a>(&self, links: &'a [Link]) -> Vec<&'a str> {
        links
            .iter()
            .filter(|link| link.master == Some(self.index))
            .map(|link| link.name.as_str())
            .collect()
    }
}

/// Returns the routing table of a VRF; other links have none.
fn table(link: &Link) -> Option<u32> {
    let value = link.data(IFLA_VRF_TABLE).filter(|_| link.kind == KIND)?;
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the first table that no VRF has.
fn free_table(links: &[Link]) -> Result<u32> {
    let taken: Vec<_> = links.iter().filter_map(table).collect();
    (1..u32::MAX)
        .find(|table| !taken.contains(table) && !KERNEL_TABLES.contains(table))
        .ok_or_else(|| failure!("findFreeRoutingTableID: Failed to find an available routing id"))
}

fn request(name: &str, table: u32) -> Message {
    let link = NewLink {
        name,
        kind: KIND,
        ..NewLink::default()
    };
    link.message(|data| {
        data.put_u32(IFLA_VRF_TABLE, table);
    })
}

/// Returns the routes of an interface that the kernel deletes when the interface joins a VRF, as they are to be in its table: those to
/// what is on the link first, since gateways may be there. What the kernel made for an IPv4 address comes back with it.
fn routes_in_table(routes: &[Route], interface: u32, table: u32) -> Vec<Route> {
    let mut moved: Vec<_> = routes
        .iter()
        .filter(|route| route.link == Some(interface) && route.table == RT_TABLE_MAIN)
        .filter(|route| route.scope == RT_SCOPE_UNIVERSE || !route.is_kernels())
        .map(|route| Route {
            table,
            flags: route.flags & RTNH_F_ONLINK,
            ..route.clone()
        })
        .collect();
    moved.sort_by_key(|route| std::cmp::Reverse(route.scope));
    moved
}

/// Returns the global IPv6 addresses that an interface had and no longer has: unless a sysctl says otherwise, it loses them when it goes
/// down, as it does on its way into a VRF.
fn lost_addresses(before: &[Address], after: &[Address]) -> Vec<Address> {
    before
        .iter()
        .filter(|address| address.cidr.address.is_ipv6() && address.scope == RT_SCOPE_UNIVERSE)
        .filter(|address| !after.iter().any(|other| other.cidr == address.cidr))
        .cloned()
        .collect()
}

fn load(call: &Call) -> Result<(Config, Option<CniResult>)> {
    Ok((Config::load(call)?, call.prev_result()?))
}

fn open(call: &Call) -> Result<Netlink> {
    Netlink::open_in(&Namespace::open(&call.netns)?)
}

/// Puts the interface into the VRF, which is made when it is missing. The previous result passes through unchanged.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let (config, result) = load(call)?;
    let result = result.ok_or_else(|| failure!("missing prevResult from earlier plugin"))?;
    open(call)
        .and_then(|mut netlink| join(&mut netlink, &config, &call.ifname))
        .context(|| "cmdAdd failed".to_owned())?;
    Ok(result)
}

fn join(netlink: &mut Netlink, config: &Config, ifname: &str) -> Result<()> {
    if let Some(vrf) = Vrf::find(netlink, &config.name)? {
        if config.table != 0 && config.table != vrf.table {
            bail!(
                "VRF {} already exist with different routing table {}",
                vrf.name,
                vrf.table
            );
        }
        return add_interface(netlink, &vrf, ifname);
    }
    let vrf = create(netlink, config)?;
    let added = add_interface(netlink, &vrf, ifname);
    if added.is_err() {
        // The error that is reported is the first one.
        let _ = netlink.delete_link(vrf.index);
    }
    added
}

/// Creates a VRF and brings it up.
fn create(netlink: &mut Netlink, config: &Config) -> Result<Vrf> {
    let name = config.name.as_str();
    let table = if config.table == 0 {
        let links = netlink
            .links()
            .context(|| "createVRF: Failed to find links".to_owned())?;
        free_table(&links)?
    } else {
        config.table
    };
    netlink
        .request(request(name, table))
        .context(|| format!("could not add VRF {name}"))?;
    let up = netlink
        .link_by_name(name)
        .and_then(|link| netlink.set_up(link.index).map(|()| link.index));
    match up {
        Ok(index) => Ok(Vrf {
            name: name.to_owned(),
            index,
            table,
        }),
        Err(error) => {
            if let Ok(link) = netlink.link_by_name(name) {
                let _ = netlink.delete_link(link.index);
            }
            Err(error).context(|| format!("could not set link up for VRF {name}"))
        }
    }
}

/// Makes the interface a port of the VRF, with the addresses and routes that it had.
fn add_interface(netlink: &mut Netlink, vrf: &Vrf, ifname: &str) -> Result<()> {
    let link = netlink
        .link_by_name(ifname)
        .map_err(|_| failure!("could not get link by name {ifname}"))?;
    if let Some(master) = link.master {
        let master = netlink.link_by_index(master).context(|| {
            format!("interface {ifname} has already a master set, could not retrieve the name")
        })?;
        bail!(
            "interface {ifname} has already a master set: {}",
            master.name
        );
    }
    let before = addresses(netlink, &link, "before")?;
    let routes = netlink
        .routes()
        .map_err(|_| failure!("failed getting all routes for {ifname}"))?;
    let routes = routes_in_table(&routes, link.index, vrf.table);
    netlink
        .set_master(link.index, vrf.index)
        .context(|| format!("could not set vrf {} as master of {ifname}", vrf.name))?;
    let restored = restore(netlink, vrf, &link, &before, &routes);
    if restored.is_err() {
        // The error that is reported is the first one.
        let _ = netlink.set_master(link.index, 0);
    }
    restored
}

fn addresses(netlink: &mut Netlink, link: &Link, when: &str) -> Result<Vec<Address>> {
    netlink.addresses(link.index).context(|| {
        format!(
            "failed getting global ipv6 addresses {when} slaving interface: failed getting list of IP addresses for {}",
            link.name
        )
    })
}

/// Gives an interface the addresses back that it lost on its way into the VRF, and the routes in the VRF's table.
fn restore(
    netlink: &mut Netlink,
    vrf: &Vrf,
    link: &Link,
    before: &[Address],
    routes: &[Route],
) -> Result<()> {
    let after = addresses(netlink, link, "after")?;
    for address in lost_addresses(before, &after) {
        netlink.restore_address(&address).context(|| {
            format!(
                "could not restore address {} to {} @ {}",
                address.cidr, link.name, vrf.name
            )
        })?;
        await_route(netlink, vrf, link, address.cidr)?;
    }
    for route in routes {
        netlink.add_route(route, AddRoute::Replace).context(|| {
            let via = route
                .gateway
                .map_or_else(|| "<nil>".to_owned(), |gateway| gateway.to_string());
            format!("could not add route '{} via {via}'", route.destination)
        })?;
    }
    Ok(())
}

/// Waits until the VRF's table has the route of an address: the kernel refuses routes through a gateway before.
fn await_route(netlink: &mut Netlink, vrf: &Vrf, link: &Link, cidr: Cidr) -> Result<()> {
    let deadline = Instant::now() + ROUTE_LIMIT;
    loop {
        let routes = netlink.routes().context(|| {
            format!(
                "failed getting routes for {} table {} for dst {cidr}",
                link.name, vrf.table
            )
        })?;
        let is_there = routes.iter().any(|route| {
            route.destination == Cidr::host(cidr.address)
                && route.table == vrf.table
                && route.link == Some(link.index)
        });
        if is_there {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "failed getting local/host addresses for {} in table {} with dst {cidr}",
                link.name,
                vrf.table
            );
        }
        std::thread::sleep(ROUTE_INTERVAL);
    }
}

/// Takes the interface out of the VRF, and deletes the VRF when no interface is left in it.
pub(crate) fn del(call: &Call) -> Result<()> {
    let (config, _) = load(call)?;
    let mut netlink = match Namespace::open(&call.netns) {
        Ok(namespace) => Netlink::open_in(&namespace)?,
        Err(OpenError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Some(vrf) = Vrf::find(&mut netlink, &config.name)? else {
        return Ok(());
    };
    let links = |netlink: &mut Netlink| {
        netlink
            .links()
            .context(|| "getAssignedInterfaces: Failed to find links".to_owned())
    };
    let own = links(&mut netlink)?
        .into_iter()
        .find(|link| link.name == call.ifname && link.master == Some(vrf.index));
    if let Some(link) = own {
        netlink
            .set_master(link.index, 0)
            .map_err(|_| failure!("resetMaster: could reset master to {}", call.ifname))?;
    }
    if vrf.interfaces(&links(&mut netlink)?).is_empty() {
        match netlink.delete_link(vrf.index) {
            Ok(()) | Err(Errno::ENODEV) => {}
            Err(error) => bail!("{error}"),
        }
    }
    Ok(())
}

/// Fails unless the interface is in the VRF.
pub(crate) fn check(call: &Call) -> Result<()> {
    let (config, result) = load(call)?;
    if result.is_none() {
        bail!("missing prevResult from earlier plugin");
    }
    let mut netlink = open(call)?;
    let vrf = Vrf::find(&mut netlink, &config.name)?.ok_or_else(|| failure!("Link not found"))?;
    let links = netlink
        .links()
        .context(|| "getAssignedInterfaces: Failed to find links".to_owned())?;
    if vrf.interfaces(&links).contains(&call.ifname.as_str()) {
        return Ok(());
    }
    Err(failure!(
        "failed to find {} associated to vrf {}",
        call.ifname,
        vrf.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::link::requests::check_new_link;
    use crate::kernel::route::RT_SCOPE_LINK;

    #[test]
    fn request_has_the_attributes_of_the_reference() {
        check_new_link(
            request("vrf0", 1),
            "09000300 76726630 00000000  18001200 07000100 76726600 0c000200 08000100 01000000",
        );
        check_new_link(
            request("vrf0", 4000),
            "09000300 76726630 00000000  18001200 07000100 76726600 0c000200 08000100 a00f0000",
        );
    }

    fn vrf_link(name: &str, index: u32, table: u32) -> Link {
        let mut data = vec![8, 0, 1, 0];
        data.extend(table.to_ne_bytes());
        Link {
            name: name.to_owned(),
            index,
            kind: KIND.to_owned(),
            data,
            ..Link::default()
        }
    }

    fn port(name: &str, master: u32) -> Link {
        Link {
            name: name.to_owned(),
            master: Some(master),
            ..Link::default()
        }
    }

    #[test]
    fn lowest_table_that_is_free_is_taken() {
        // An attribute of another kind is not a table.
        let mut links = vec![Link {
            kind: "macvlan".to_owned(),
            ..vrf_link("m", 1, 1)
        }];
        assert_eq!(free_table(&links).unwrap(), 1);
        links.extend([vrf_link("a", 2, 2), vrf_link("b", 3, 1)]);
        assert_eq!(free_table(&links).unwrap(), 3);
        links.extend((3..253).map(|table| vrf_link("c", table + 10, table)));
        assert_eq!(free_table(&links).unwrap(), 256);
    }

    #[test]
    fn interfaces_are_those_with_the_vrf_as_master() {
        let link = vrf_link("red", 7, 9);
        let vrf = Vrf::of(&link).unwrap();
        assert_eq!(vrf.table, 9);
        let links = [port("net1", 7), port("net2", 8), link, port("net3", 7)];
        assert_eq!(vrf.interfaces(&links), ["net1", "net3"]);
        assert_eq!(
            Vrf::of(&port("br0", 1)).unwrap_err().msg,
            "Netlink br0 is not a VRF"
        );
    }

    #[test]
    fn routes_move_to_the_table() {
        let route = |destination: &str, link: u32| Route::new(destination.parse().unwrap(), link);
        let default = Route {
            gateway: Some([10, 0, 0, 1].into()),
            priority: 5,
            // RTNH_F_LINKDOWN is what the kernel says, not what it accepts.
            flags: 16 | RTNH_F_ONLINK,
            ..route("0.0.0.0/0", 3)
        };
        let on_link = Route {
            scope: RT_SCOPE_LINK,
            ..route("10.0.0.1/32", 3)
        };
        let routes = [
            default.clone(),
            Route {
                scope: RT_SCOPE_LINK,
                protocol: 2,
                ..route("10.0.0.0/24", 3)
            },
            on_link.clone(),
            route("10.9.0.0/16", 4),
            Route {
                table: 100,
                ..route("10.8.0.0/16", 3)
            },
            // IPv6 has no scopes.
            Route {
                protocol: 2,
                ..route("fd00::/64", 3)
            },
        ];
        assert_eq!(
            routes_in_table(&routes, 3, 1001),
            [
                Route {
                    table: 1001,
                    ..on_link
                },
                Route {
                    table: 1001,
                    flags: RTNH_F_ONLINK,
                    ..default
                },
                Route {
                    table: 1001,
                    protocol: 2,
                    ..route("fd00::/64", 3)
                },
            ]
        );
    }

    #[test]
    fn global_ipv6_addresses_that_are_missing_are_lost() {
        let address = |text: &str, scope: u8| Address {
            link: 3,
            cidr: text.parse().unwrap(),
            flags: 0x80,
            scope,
            lifetimes: None,
        };
        let before = [
            address("10.0.0.2/24", 0),
            address("fe80::1/64", 253),
            address("fd00::1/64", 0),
            address("fd00::2/64", 0),
        ];
        let after = [address("fd00::2/64", 0)];
        assert_eq!(lost_addresses(&before, &after), [address("fd00::1/64", 0)]);
    }
}
