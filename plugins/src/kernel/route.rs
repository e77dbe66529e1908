//! Routes (`linux/rtnetlink.h`), with the prefixes of plugins.

use std::net::IpAddr;

use netlink::route::{self, AF_INET, AF_INET6};

use super::errno::Errno;
use super::socket::Netlink;
use crate::ip::Cidr;

pub(crate) use netlink::route::{
    AddRoute, RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_NOWHERE, RT_SCOPE_UNIVERSE, RT_TABLE_MAIN,
    RTPROT_UNSPEC,
};

pub(crate) type Route = route::Route<Cidr>;
/// A route with all that the kernel wrote of it.
pub(crate) type WholeRoute = route::WholeRoute<Cidr>;

/// The kernel takes a destination only without host bits.
impl From<Cidr> for (IpAddr, u8) {
    fn from(prefix: Cidr) -> Self {
        (prefix.network().address, prefix.length)
    }
}

impl From<(IpAddr, u8)> for Cidr {
    fn from((address, length): (IpAddr, u8)) -> Self {
        Self::new(address, length)
    }
}

impl Netlink {
    /// Adds a route to another table than its own, in place of one to the same destination.
    pub(crate) fn copy_route(&mut self, route: &WholeRoute, table: u32) -> Result<(), Errno> {
        self.request(route.copy_to(table))
    }

    pub(crate) fn delete_copy(&mut self, route: &WholeRoute, table: u32) -> Result<(), Errno> {
        self.request(route.delete_in(table))
    }

    /// Returns the routes of all tables and both families with everything that the kernel says of them.
    pub(crate) fn whole_routes(&mut self) -> Result<Vec<WholeRoute>, Errno> {
        let mut routes = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let bodies = self.dump(|| WholeRoute::list(family))?;
            routes.extend(bodies.iter().filter_map(|body| WholeRoute::parse(body)));
        }
        Ok(routes)
    }

    pub(crate) fn add_route(&mut self, route: &Route, how: AddRoute) -> Result<(), Errno> {
        self.request(route.add(how))
    }

    pub(crate) fn delete_route(&mut self, route: &Route) -> Result<(), Errno> {
        self.request(route.delete())
    }

    /// Returns the route that a packet to this address takes.
    pub(crate) fn route_to(&mut self, address: IpAddr) -> Result<Route, Errno> {
        let body = self.get(Route::to(address))?;
        Route::parse(&body).ok_or(Errno::ENOENT)
    }

    /// Returns the routes of all tables and both families.
    pub(crate) fn routes(&mut self) -> Result<Vec<Route>, Errno> {
        let routes = self.whole_routes()?;
        Ok(routes.into_iter().map(|whole| whole.route).collect())
    }
}
