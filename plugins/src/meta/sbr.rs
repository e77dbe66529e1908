//! sbr: source based routing. Packets from an address of the interface use a routing table of their own, in which the interface's
//! routes are; the main table loses them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni::CniResult;
use cni::types::IpConfig;

use crate::attachment::{Container, cidr, interface_of};
use crate::call::Call;
use crate::config::sbr::Config;
use crate::error::{Context, Result, bail, failure};
use crate::ip::{self, Cidr};
use crate::kernel::netns::Namespace;
use crate::kernel::route::{AddRoute, RT_TABLE_MAIN, Route, WholeRoute};
use crate::kernel::rule::Rule;
use crate::kernel::{Errno, Netlink};
use crate::protocol::open_netns_if_present;

/// The first table that is taken when it is free.
const FIRST_TABLE: u32 = 100;

/// An address of the interface with its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source {
    cidr: Cidr,
    gateway: Option<IpAddr>,
}

impl Source {
    fn parse(config: &IpConfig) -> Result<Self> {
        let gateway = ip::parse_optional(&config.gateway);
        let gateway = gateway.context(|| "invalid gateway".to_owned())?;
        let cidr = cidr(config)?;
        Ok(Self { cidr, gateway })
    }

    /// Returns whether packets from this address need the route: one of its network, or one that names neither source nor gateway.
    fn uses(&self, route: &Route) -> bool {
        let is_near = |address: Option<IpAddr>| address.is_some_and(|at| self.cidr.contains(at));
        is_near(route.source)
            || is_near(route.gateway)
            || (route.source.is_none() && route.gateway.is_none())
    }
}

/// Returns the addresses of a result that belong to the interface, or to none that is known.
fn sources(result: &CniResult, ifname: &str) -> Result<Vec<Source>> {
    let is_elsewhere = |config: &&IpConfig| {
        let interface = interface_of(config, result);
        interface.is_some_and(|interface| interface.name != ifname)
    };
    let own = result.ips.iter().filter(|config| !is_elsewhere(config));
    own.map(Source::parse).collect()
}

/// Returns the first table from `candidate` on that no rule names and no route is in.
fn free_table(taken: &[u32], candidate: u32) -> u32 {
    (candidate..=u32::MAX)
        .find(|table| !taken.contains(table))
        .unwrap_or(candidate)
}

/// Opens the container's namespace and waits for other calls that change its routing.
fn lock(namespace: Namespace) -> Result<Container> {
    namespace
        .lock()
        .context(|| "failed to lock the container's netns".to_owned())?;
    let netlink = Netlink::open_in(&namespace)?;
    Ok(Container { namespace, netlink })
}

/// Makes a rule for each address, and moves the interface's routes unless the configuration names a table.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config: Config = call.config()?;
    let result = call
        .prev_result()?
        .ok_or_else(|| failure!("This plugin must be called as chained plugin"))?;
    if result.ips.is_empty() {
        bail!("No IP addresses supplied on interface: {}", call.ifname);
    }
    let sources = sources(&result, &call.ifname)?;
    let mut container = lock(Namespace::open(&call.netns)?)?;
    let mut changes = Changes::default();
    let outcome = match config.table {
        Some(table) => add_rules(&mut container.netlink, &sources, table, &mut changes),
        None => move_routes(&mut container.netlink, &sources, &call.ifname, &mut changes),
    };
    if outcome.is_err() {
        changes.undo(&mut container.netlink);
    }
    outcome.map(|()| result)
}

/// The changes of an unfinished ADD, which its failure takes back.
#[derive(Default)]
struct Changes {
    rules: Vec<(IpAddr, u32)>,
    gateways: Vec<Route>,
    copies: Vec<(WholeRoute, u32)>,
    deleted: Vec<WholeRoute>,
}

impl Changes {
    /// Takes the changes back, as far as the kernel lets them; the error that is reported is the first one.
    fn undo(self, netlink: &mut Netlink) {
        for route in self.deleted.iter().rev() {
            let _ = netlink.copy_route(route, RT_TABLE_MAIN);
        }
        for (route, table) in self.copies.iter().rev() {
            let _ = netlink.delete_copy(route, *table);
        }
        for route in self.gateways.iter().rev() {
            let _ = netlink.delete_route(route);
        }
        for (source, table) in self.rules.into_iter().rev() {
            let _ = netlink.delete_rule_of(source, table);
        }
    }
}

fn add_rules(
    netlink: &mut Netlink,
    sources: &[Source],
    table: u32,
    changes: &mut Changes,
) -> Result<()> {
    for source in sources {
        netlink
            .add_rule(source.cidr.address, table)
            .context(|| "failed to add rule".to_owned())?;
        changes.rules.push((source.cidr.address, table));
    }
    Ok(())
}

fn move_routes(
    netlink: &mut Netlink,
    sources: &[Source],
    ifname: &str,
    changes: &mut Changes,
) -> Result<()> {
    let rules = netlink
        .policy_rules()
        .context(|| "Failed to list all rules".to_owned())?;
    let all = netlink
        .whole_routes()
        .context(|| "Failed to list all routes".to_owned())?;
    let mut taken: Vec<_> = rules.iter().map(|rule| rule.table).collect();
    taken.extend(all.iter().map(|whole| whole.route.table));
    let link = crate::attachment::link_by_name(netlink, ifname)
        .context(|| format!("Cannot find network interface {ifname}"))?;
    let own: Vec<_> = all
        .into_iter()
        .filter(|WholeRoute { route, .. }| {
            route.table == RT_TABLE_MAIN && route.link == Some(link.index) && !route.is_cached()
        })
        .collect();
    let mut table = FIRST_TABLE;
    for source in sources {
        table = free_table(&taken, table);
        netlink
            .add_rule(source.cidr.address, table)
            .context(|| "Failed to add rule".to_owned())?;
        changes.rules.push((source.cidr.address, table));
        // An earlier plugin may have removed the default route from the main table, so it is not among those to copy.
        if let Some(gateway) = source.gateway {
            let route = Route {
                gateway: Some(gateway),
                table,
                ..Route::new(anywhere(source.cidr.address), link.index)
            };
            netlink
                .add_route(&route, AddRoute::New)
                .context(|| format!("Failed to add default route to {gateway}"))?;
            changes.gateways.push(route);
        }
        for whole in own.iter().filter(|whole| source.uses(&whole.route)) {
            netlink
                .copy_route(whole, table)
                .context(|| "Failed to readd route".to_owned())?;
            changes.copies.push((whole.clone(), table));
        }
        table += 1;
    }
    // Not before all copies are made: the gateways of later addresses may be reached through routes of the main table.
    for whole in own {
        match netlink.delete_copy(&whole, RT_TABLE_MAIN) {
            Ok(()) => changes.deleted.push(whole),
            Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context(|| "Failed to delete route".to_owned()),
        }
    }
    Ok(())
}

/// Returns the destination of the default route of an address' family.
fn anywhere(address: IpAddr) -> Cidr {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Cidr::new(any, 0)
}

/// Deletes the rules of the interface's addresses. Its routes go with it. Without the interface, the previous result says which
/// addresses it had.
pub(crate) fn del(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let Some(namespace) = open_netns_if_present(&call.netns)? else {
        return Ok(());
    };
    let mut container = lock(namespace)?;
    let netlink = &mut container.netlink;
    let addresses: Vec<IpAddr> = match netlink.link_by_name(&call.ifname) {
        Ok(link) => {
            let addresses = netlink
                .addresses(link.index)
                .context(|| "Failed to list all addrs".to_owned())?;
            addresses
                .iter()
                .map(|address| address.cidr.address)
                .collect()
        }
        Err(Errno::ENODEV) => match call.prev_result() {
            Ok(Some(result)) => sources(&result, &call.ifname)
                .unwrap_or_default()
                .iter()
                .map(|source| source.cidr.address)
                .collect(),
            _ => Vec::new(),
        },
        Err(error) => {
            return Err(error).context(|| format!("Failed to get link {}", call.ifname));
        }
    };
    let rules = netlink
        .policy_rules()
        .context(|| "Failed to list all rules to tidy".to_owned())?;
    let mut outcome = Ok(());
    for rule in rules_of(&rules, &addresses, config.table) {
        match netlink.delete_rule(rule) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => outcome = Err(error).context(|| "Failed to delete rule".to_owned()),
        }
    }
    outcome
}

/// Returns the rules for one of the addresses; with a table, only those that name it.
fn rules_of<'a>(
    rules: &'a [Rule],
    addresses: &'a [IpAddr],
    table: Option<u32>,
) -> impl Iterator<Item = &'a Rule> {
    rules.iter().filter(move |rule| {
        let is_own = rule
            .source
            .is_some_and(|source| addresses.contains(&source.address));
        is_own && table.is_none_or(|table| rule.table == table)
    })
}

/// Fails unless each address has its rule.
pub(crate) fn check(call: &Call) -> Result<()> {
    let config: Config = call.config()?;
    let Some(result) = call.prev_result()? else {
        return Ok(());
    };
    let mut container = lock(Namespace::open(&call.netns)?)?;
    let rules = container
        .netlink
        .policy_rules()
        .context(|| "Failed to list all rules".to_owned())?;
    for source in sources(&result, &call.ifname)? {
        let address = source.cidr.address;
        if rules_of(&rules, &[address], config.table).next().is_none() {
            bail!("no rule for packets from {address}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cni::types::Interface;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn table_is_the_first_that_is_free() {
        for (taken, candidate, expected) in [
            (&[254, 255][..], 100, 100),
            (&[100, 101, 103], 100, 102),
            (&[100, 101, 103], 103, 104),
        ] {
            assert_eq!(free_table(taken, candidate), expected);
        }
    }

    #[test]
    fn addresses_of_other_interfaces_are_left_out() {
        let config = |address: &str, interface| IpConfig {
            address: address.to_owned(),
            interface,
            gateway: String::new(),
        };
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            ..Interface::default()
        };
        let result = CniResult {
            interfaces: vec![interface("net1"), interface("other")],
            ips: vec![
                config("10.0.0.1/24", Some(0)),
                config("10.0.0.2/24", Some(1)),
                config("10.0.0.3/24", None),
                config("10.0.0.4/24", Some(7)),
            ],
            ..CniResult::default()
        };
        let sources = sources(&result, "net1").unwrap();
        let shown: Vec<_> = sources
            .iter()
            .map(|source| source.cidr.to_string())
            .collect();
        assert_eq!(shown, ["10.0.0.1/24", "10.0.0.3/24", "10.0.0.4/24"]);
    }

    #[test]
    fn address_uses_routes_of_its_network_and_general_ones() {
        let source = Source {
            cidr: "10.0.0.5/24".parse().unwrap(),
            gateway: None,
        };
        let check = |of: Option<&str>, gateway: Option<&str>, expected| {
            let route = Route {
                source: of.map(address),
                gateway: gateway.map(address),
                ..Route::new("10.9.0.0/16".parse().unwrap(), 2)
            };
            assert_eq!(source.uses(&route), expected, "{route:?}");
        };
        check(Some("10.0.0.5"), None, true);
        check(None, Some("10.0.0.1"), true);
        check(None, None, true);
        check(Some("10.0.1.5"), None, false);
        check(None, Some("fe80::1"), false);
    }
}
