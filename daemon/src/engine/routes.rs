//! The default routes of a pod whose annotation says which of its networks has them: what each family's is decided by the
//! results, set in the kernel, and told in results and their cache, so that all of them agree.

use std::net::IpAddr;

use cni::chain;
use cni::types::{CniError, CniResult, Route};

use super::add::failed;
use super::attached::Attached;
use super::invocation::Call;
use super::{DefaultRoute, Engine};
use crate::plan::Family;
use crate::state::{Delegate, State};

/// What a family's default route is to be, and whose.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    /// Position of the network.
    index: usize,
    route: DefaultRoute,
}

impl Engine {
    /// Makes the default routes those that were asked for. Nothing is touched where none were.
    pub(super) fn settle_routes(
        &self,
        call: &Call<'_>,
        state: &State,
        attached: &mut [Attached],
    ) -> Result<(), CniError> {
        let delegates = &state.delegates;
        let Some(index) = delegates
            .iter()
            .position(|delegate| delegate.requested.default_route.is_some())
        else {
            return Ok(());
        };
        let told = |index: usize, cause| failed(&state.pod, &delegates[index], cause);
        let decisions = decide(delegates, attached)
            .map_err(|text| told(index, CniError::new(CniError::INVALID_NETWORK_CONFIG, text)))?;
        let netns = call.request.netns.as_deref().unwrap_or_default();
        for Decision { index, route } in &decisions {
            self.links
                .set_default_route(netns, route)
                .map_err(|error| {
                    let (family, ifname) = (route.family, &route.ifname);
                    let text = format!(
                        "{family} default route{} on {ifname}: {error}; name a gateway in a subnet of {ifname}",
                        via(route.gateway)
                    );
                    told(*index, CniError::new(CniError::IO_FAILURE, text))
                })?;
        }
        for (index, attached) in attached.iter_mut().enumerate() {
            let before = attached.result.clone();
            for decision in &decisions {
                tell(decision, index, &mut attached.result);
            }
            if attached.result != before {
                let delegate = &delegates[index];
                let invocation = call.invocation(delegate, attached.master);
                chain::remember(&delegate.config, &invocation, &attached.result)
                    .map_err(|error| told(index, error.to_cni()))?;
            }
        }
        Ok(())
    }
}

/// The default route of each family that someone asked for. A network with an empty list keeps what its own plugins said.
fn decide(delegates: &[Delegate], attached: &[Attached]) -> Result<Vec<Decision>, String> {
    let mut decisions = Vec::new();
    for (index, delegate) in delegates.iter().enumerate() {
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
            route: DefaultRoute {
                family,
                ifname: delegate.ifname.to_string(),
                gateway,
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
        .find(|route| family.is_default(&route.dst))?;
    let of_addresses = result.ips.iter().map(|ip| ip.gateway.as_str());
    let gateway = [route.gw.as_str()]
        .into_iter()
        .chain(of_addresses)
        .filter_map(|text| text.parse().ok())
        .find(|gateway| Family::of(*gateway) == family);
    Some((family, gateway))
}

/// Writes a decision into the result of the network at `index`: the route is there, and nowhere else.
fn tell(decision: &Decision, index: usize, result: &mut CniResult) {
    let route = &decision.route;
    let first = result
        .routes
        .iter()
        .position(|one| route.family.is_default(&one.dst));
    let kept = first.map(|first| result.routes[first].clone());
    result
        .routes
        .retain(|one| !route.family.is_default(&one.dst));
    if index != decision.index {
        return;
    }
    let gateway = route.gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_default();
    let told = match kept {
        Some(kept) if kept.gw == gateway => kept,
        _ => Route {
            dst: match route.family {
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
