//! The default routes of a pod whose annotation says which of its networks has them: what each family's is decided by the
//! results, set in the kernel, and told in results and their cache, so that all of them agree. What others had is kept in the
//! state, and theirs again once nobody asks any more.

mod back;

use std::net::IpAddr;

use cni::chain;
use cni::env::IfName;
use cni::types::{CniError, CniResult, Route};
use plan::{Attached, Family};

use super::failure::failed;
use super::invocation::Call;
use super::{DefaultRoute, Engine};
use crate::state::{Delegate, State, Store};

pub(super) use back::owed;

/// The main table, where it is named.
const MAIN_TABLE: i64 = 254;

/// What a family's default route is to be, and whose.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    /// Position of the network.
    index: usize,
    family: Family,
    route: DefaultRoute,
}

impl Engine {
    /// Makes the default routes those that were asked for; who is about to leave asks for none any more. Nothing is touched where
    /// none were. What others lose is recorded first.
    pub(super) fn settle_routes(
        &self,
        call: &Call<'_>,
        state: &mut State,
        attached: &mut [Attached],
        leaving: &[IfName],
        store: &Store,
    ) -> Result<(), CniError> {
        let asks = |delegate: &Delegate| {
            delegate.requested.default_route.is_some() && !leaving.contains(&delegate.ifname)
        };
        let Some(first) = state.delegates.iter().position(asks) else {
            return Ok(());
        };
        let decisions = decide(&state.delegates, attached, leaving).map_err(|text| {
            let cause = CniError::new(CniError::INVALID_NETWORK_CONFIG, text);
            failed(&state.pod, &state.delegates[first], cause)
        })?;
        if displace(&decisions, &mut state.delegates, attached) {
            store.record(state)?;
        }
        let (delegates, netns) = (&state.delegates, netns(call));
        for Decision {
            index,
            family,
            route,
        } in &decisions
        {
            let set = self
                .links
                .set_default_routes(netns, *family, std::slice::from_ref(route));
            set.map_err(|error| {
                let ifname = &route.ifname;
                let text = format!(
                    "{family} default route{} on {ifname}: {error}; name a gateway in a subnet of {ifname}",
                    via(route.gateway)
                );
                let cause = CniError::new(CniError::IO_FAILURE, text);
                failed(&state.pod, &delegates[*index], cause)
            })?;
        }
        for (index, attached) in attached.iter_mut().enumerate() {
            let before = attached.result.clone();
            for decision in &decisions {
                tell(decision, index, &mut attached.result);
            }
            if attached.result != before {
                Self::remember_routes(call, state, index, attached)?;
            }
        }
        Ok(())
    }

    /// The result of a network as it is now, for CHECK and DEL.
    fn remember_routes(
        call: &Call<'_>,
        state: &State,
        index: usize,
        attached: &Attached,
    ) -> Result<(), CniError> {
        let delegate = &state.delegates[index];
        let invocation = call.invocation(delegate, attached.master);
        chain::remember(&delegate.config, &invocation, &attached.result)
            .map_err(|error| failed(&state.pod, delegate, error.to_cni()))
    }
}

fn netns<'a>(call: &Call<'a>) -> &'a str {
    call.request.netns.as_deref().unwrap_or_default()
}

/// Keeps what networks are about to lose; whether there is anything that was not kept already.
fn displace(decisions: &[Decision], delegates: &mut [Delegate], attached: &[Attached]) -> bool {
    let mut is_new = false;
    for Decision { index, family, .. } in decisions {
        for (other, delegate) in delegates.iter_mut().enumerate() {
            let is_kept = delegate
                .displaced
                .iter()
                .any(|one| is_default(*family, one));
            if other == *index || is_kept {
                continue;
            }
            let routes = attached[other].result.routes.iter();
            let lost = routes.filter(|one| is_default(*family, one)).cloned();
            let before = delegate.displaced.len();
            delegate.displaced.extend(lost);
            is_new |= delegate.displaced.len() > before;
        }
    }
    is_new
}

/// Whether this is a default route of the family in the table that counts for everybody.
fn is_default(family: Family, route: &Route) -> bool {
    family.is_default(&route.dst) && route.table.is_none_or(|table| table == MAIN_TABLE)
}

/// The default route of each family that someone asked for. A network with an empty list keeps what its own plugins said.
fn decide(
    delegates: &[Delegate],
    attached: &[Attached],
    leaving: &[IfName],
) -> Result<Vec<Decision>, String> {
    let mut decisions = Vec::new();
    for (index, delegate) in delegates.iter().enumerate() {
        if leaving.contains(&delegate.ifname) {
            continue;
        }
        let Some(gateways) = &delegate.requested.default_route else {
            continue;
        };
        let result = &attached[index].result;
        let routes: Vec<_> = if gateways.is_empty() {
            Family::ALL
                .into_iter()
                .filter_map(|family| own_route(result, family))
                .collect()
        } else {
            gateways
                .iter()
                .map(|gateway| (Family::of(*gateway), Some(*gateway)))
                .collect()
        };
        if routes.is_empty() {
            return Err(format!(
                "\"default-route\": [] keeps the default route of network {}, but its plugins gave none: name a gateway in the list",
                delegate.name
            ));
        }
        decisions.extend(routes.into_iter().map(|(family, gateway)| Decision {
            index,
            family,
            route: DefaultRoute {
                ifname: delegate.ifname.to_string(),
                gateway,
                metric: 0,
            },
        }));
    }
    Ok(decisions)
}

/// The family, if the result has a default route of it, and the gateway; a route to a link has none. One that names none has that
/// of the address, as the reference plugins take it.
fn own_route(result: &CniResult, family: Family) -> Option<(Family, Option<IpAddr>)> {
    let route = result
        .routes
        .iter()
        .find(|route| is_default(family, route))?;
    Some((family, gateway(family, route, result)))
}

/// Where a route of a result leads to.
fn gateway(family: Family, route: &Route, result: &CniResult) -> Option<IpAddr> {
    let of_addresses = result.ips.iter().map(|ip| ip.gateway.as_str());
    [route.gw.as_str()]
        .into_iter()
        .chain(of_addresses)
        .filter_map(|text| text.parse().ok())
        .find(|gateway| Family::of(*gateway) == family)
}

/// Writes a decision into the result of the network at `index`: the route is there, and nowhere else.
fn tell(decision: &Decision, index: usize, result: &mut CniResult) {
    let (family, route) = (decision.family, &decision.route);
    let first = result.routes.iter().position(|one| is_default(family, one));
    let kept = first.map(|first| result.routes[first].clone());
    result.routes.retain(|one| !is_default(family, one));
    if index != decision.index {
        return;
    }
    let gateway = route.gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_default();
    let told = match kept {
        Some(kept) if kept.gw == gateway => kept,
        _ => Route {
            dst: match family {
                Family::V4 => "0.0.0.0/0",
                Family::V6 => "::/0",
            }
            .to_owned(),
            gw: gateway,
            ..Route::default()
        },
    };
    let place = first.unwrap_or(result.routes.len());
    result.routes.insert(place.min(result.routes.len()), told);
}

fn via(gateway: Option<IpAddr>) -> String {
    gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"))
}
