//! The default routes of a pod whose annotation requests them for one of its networks. Each family's route is decided from the
//! results, set in the kernel, and written into the results and their cache, so that all of them agree. The state keeps the default
//! routes that other networks lose, and they are restored when no network of the pod requests the family's any longer.

use std::net::IpAddr;

use api::cause::Cause;
use cni::chain;
use cni::env::IfName;
use cni::types::{CniError, CniResult, Route};
use plan::{Attached, Family};

use super::failure::{Failure, add_failed, failed};
use super::invocation::DelegateContext;
use super::{DefaultRoute, Engine};
use crate::state::{Delegate, State, Store};

/// The number of the main routing table.
const MAIN_TABLE: i64 = 254;

/// The default route that a family is to have, and the network that has it.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    /// The position of the network.
    index: usize,
    family: Family,
    route: DefaultRoute,
}

impl Engine {
    /// Sets the default routes that the networks request, without requests of networks that are `leaving`. Without any request it
    /// changes nothing. Routes that other networks lose are recorded before the kernel is changed.
    pub(super) fn apply_default_routes(
        &self,
        context: &DelegateContext<'_>,
        state: &mut State,
        attached: &mut [Attached],
        leaving: &[IfName],
        store: &Store,
    ) -> Result<(), Failure> {
        let requests_route = |delegate: &Delegate| {
            delegate.requested.default_route.is_some() && !leaving.contains(&delegate.ifname)
        };
        let Some(first) = state.delegates.iter().position(requests_route) else {
            return Ok(());
        };
        let decisions = decide(&state.delegates, attached, leaving).map_err(|text| {
            let error = CniError::new(CniError::INVALID_NETWORK_CONFIG, text);
            let failure = Failure::new(Cause::NetworksConflict, error);
            failed(&state.pod, &state.delegates[first], failure)
        })?;
        if displace(&decisions, &mut state.delegates, attached) {
            store.record(state)?;
        }
        let (delegates, netns) = (&state.delegates, netns(context));
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
                    "{family} default route{} on {ifname}: {error}",
                    via(route.gateway)
                );
                let error = CniError::new(CniError::IO_FAILURE, text);
                let failure = Failure {
                    hint: format!("name a gateway in a subnet of {ifname}"),
                    ..Failure::new(Cause::NetworksConflict, error)
                };
                failed(&state.pod, &delegates[*index], failure)
            })?;
        }
        for (index, attached) in attached.iter_mut().enumerate() {
            let before = attached.result.clone();
            for decision in &decisions {
                write_into_result(decision, index, &mut attached.result);
            }
            if attached.result != before {
                Self::cache_routes(context, state, index, attached)?;
            }
        }
        Ok(())
    }

    /// Restores lost default routes where they are due, in the kernel and in the cached results, and records that they are restored.
    pub(super) fn restore_default_routes(
        &self,
        context: &DelegateContext<'_>,
        state: &mut State,
        attached: &mut [Attached],
        store: &Store,
    ) -> Result<(), Failure> {
        let position = |attached: &[Attached], delegate: &Delegate| {
            let mut all = attached.iter();
            all.position(|one| one.ifname == delegate.ifname.as_str())
        };
        let families = families_to_restore(&state.delegates, |index| {
            let at = position(attached, &state.delegates[index])?;
            Some(attached[at].result.clone())
        });
        let none = CniResult::default();
        for family in families {
            let lost = |delegate: &Delegate| -> Vec<Route> {
                let lost = delegate.displaced.iter();
                lost.filter(|one| is_default(family, one))
                    .cloned()
                    .collect()
            };
            let mut routes = Vec::new();
            for delegate in &state.delegates {
                let at = position(attached, delegate);
                let result = at.map_or(&none, |at| &attached[at].result);
                routes.extend(lost(delegate).iter().map(|route| DefaultRoute {
                    ifname: delegate.ifname.to_string(),
                    gateway: gateway(family, route, result),
                    metric: u32::try_from(route.priority).unwrap_or_default(),
                }));
            }
            let set = self
                .links
                .set_default_routes(netns(context), family, &routes);
            set.map_err(|error| {
                let text = format!(
                    "cannot restore the {family} default route of {}: {error}",
                    state.delegates[0].name
                );
                let pod = &state.pod;
                Failure {
                    hint: "it is retried, or recreate the pod".to_owned(),
                    context: format!("[{}/{}]: ", pod.namespace, pod.name),
                    ..CniError::new(CniError::IO_FAILURE, text).into()
                }
            })?;
            for (index, delegate) in state.delegates.iter().enumerate() {
                let mut lost = lost(delegate);
                if let (Some(at), false) = (position(attached, delegate), lost.is_empty()) {
                    let result = &mut attached[at].result;
                    result.routes.retain(|one| !is_default(family, one));
                    lost.append(&mut result.routes);
                    result.routes = lost;
                    Self::cache_routes(context, state, index, &attached[at])?;
                }
            }
            for delegate in &mut state.delegates {
                delegate.displaced.retain(|one| !is_default(family, one));
            }
            store.record(state)?;
        }
        Ok(())
    }

    /// Stores the changed result of a network in the result cache, where CHECK and DEL read it.
    fn cache_routes(
        context: &DelegateContext<'_>,
        state: &State,
        index: usize,
        attached: &Attached,
    ) -> Result<(), Failure> {
        let delegate = &state.delegates[index];
        let invocation = context.invocation(delegate, attached.is_default);
        chain::cache_result(&delegate.config, &invocation, &attached.result)
            .map_err(|error| add_failed(&state.pod, delegate, &error))
    }
}

fn netns<'a>(context: &DelegateContext<'a>) -> &'a str {
    context.request.netns.as_deref().unwrap_or_default()
}

/// Returns the families whose default routes are to be restored. `result` returns the result of the network at a position.
pub(super) fn families_to_restore(
    delegates: &[Delegate],
    result: impl Fn(usize) -> Option<CniResult>,
) -> Vec<Family> {
    let is_lost = |family: &Family| {
        let mut displaced = delegates.iter().flat_map(|delegate| &delegate.displaced);
        displaced.any(|route| is_default(*family, route))
    };
    let requests_route = |family: Family, (index, delegate): (usize, &Delegate)| match &delegate
        .requested
        .default_route
    {
        None => false,
        // An empty list requests the network's own default routes. A network whose result is unknown might have any.
        Some(gateways) if gateways.is_empty() => {
            result(index).is_none_or(|result| own_route(&result, family).is_some())
        }
        Some(gateways) => gateways.iter().any(|one| Family::of(*one) == family),
    };
    let mut families = Vec::from(Family::ALL);
    families.retain(is_lost);
    families.retain(|family| {
        !delegates
            .iter()
            .enumerate()
            .any(|one| requests_route(*family, one))
    });
    families
}

/// Adds to each delegate the default routes that its network is about to lose. Returns whether there were any that the delegates
/// did not hold already.
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

/// Returns whether this is a default route of the family in the main table.
fn is_default(family: Family, route: &Route) -> bool {
    family.is_default(&route.dst) && route.table.is_none_or(|table| table == MAIN_TABLE)
}

/// Decides the default route of each family that a network requests. A network whose request is an empty list keeps the default
/// routes of its own result.
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
                "\"default-route\": [] keeps the default route of network {}, but its plugins returned none: name a gateway in the list",
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

/// Returns the family and the gateway of the result's default route of that family. A route that names no gateway has that of the
/// address, as in the reference plugins; an on-link route has none.
fn own_route(result: &CniResult, family: Family) -> Option<(Family, Option<IpAddr>)> {
    let route = result
        .routes
        .iter()
        .find(|route| is_default(family, route))?;
    Some((family, gateway(family, route, result)))
}

fn gateway(family: Family, route: &Route, result: &CniResult) -> Option<IpAddr> {
    let address_gateways = result.ips.iter().map(|ip| ip.gateway.as_str());
    [route.gw.as_str()]
        .into_iter()
        .chain(address_gateways)
        .filter_map(|text| text.parse().ok())
        .find(|gateway| Family::of(*gateway) == family)
}

/// Writes a decision into the result of the network at `index`: the decided network's result gets the route, any other result
/// loses its default route of the family.
fn write_into_result(decision: &Decision, index: usize, result: &mut CniResult) {
    let (family, route) = (decision.family, &decision.route);
    let first = result.routes.iter().position(|one| is_default(family, one));
    let kept = first.map(|first| result.routes[first].clone());
    result.routes.retain(|one| !is_default(family, one));
    if index != decision.index {
        return;
    }
    let gateway = route.gateway.map(|gateway| gateway.to_string());
    let gateway = gateway.unwrap_or_default();
    let route = match kept {
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
    let at = first.unwrap_or(result.routes.len());
    result.routes.insert(at.min(result.routes.len()), route);
}

fn via(gateway: Option<IpAddr>) -> String {
    gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"))
}
