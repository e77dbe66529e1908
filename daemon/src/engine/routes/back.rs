//! Default routes that networks have lost to another one: they are theirs again when no network of the pod asks for the family any
//! more, so that a pod whose networks change ends up with the routes of a pod that never asked.

use cni::types::{CniError, CniResult, Route};
use plan::Family;

use super::{gateway, is_default, netns, own_route};
use crate::engine::invocation::Call;
use crate::engine::{DefaultRoute, Engine};
use crate::state::{Delegate, State, Store};
use plan::Attached;

/// The families whose default routes are to be given back; `result` knows what the network at a position gave.
pub(in crate::engine) fn owed(
    delegates: &[Delegate],
    result: impl Fn(usize) -> Option<CniResult>,
) -> Vec<Family> {
    let is_lost = |family: &Family| {
        let mut displaced = delegates.iter().flat_map(|delegate| &delegate.displaced);
        displaced.any(|route| is_default(*family, route))
    };
    let asks = |family: Family, (index, delegate): (usize, &Delegate)| match &delegate
        .requested
        .default_route
    {
        None => false,
        // Its own is what it asks for. One of which nothing is known might have any.
        Some(gateways) if gateways.is_empty() => {
            result(index).is_none_or(|result| own_route(&result, family).is_some())
        }
        Some(gateways) => gateways.iter().any(|one| Family::of(*one) == family),
    };
    let mut families = Vec::from(Family::ALL);
    families.retain(is_lost);
    families.retain(|family| !delegates.iter().enumerate().any(|one| asks(*family, one)));
    families
}

impl Engine {
    /// Gives them back, and writes down that they are.
    pub(in crate::engine) fn give_routes_back(
        &self,
        call: &Call<'_>,
        state: &mut State,
        attached: &mut [Attached],
        store: &Store,
    ) -> Result<(), CniError> {
        let position = |attached: &[Attached], delegate: &Delegate| {
            let mut all = attached.iter();
            all.position(|one| one.ifname == delegate.ifname.as_str())
        };
        let families = owed(&state.delegates, |index| {
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
            let set = self.links.set_default_routes(netns(call), family, &routes);
            set.map_err(|error| {
                let text = format!(
                    "the {family} default route cannot be given back to {}: {error}; it is tried again, or make the pod anew",
                    state.delegates[0].name
                );
                let pod = &state.pod;
                let cause = CniError::new(CniError::IO_FAILURE, text);
                cause.context(&format!("[{}/{}]", pod.namespace, pod.name))
            })?;
            for (index, delegate) in state.delegates.iter().enumerate() {
                let mut lost = lost(delegate);
                if let (Some(at), false) = (position(attached, delegate), lost.is_empty()) {
                    let result = &mut attached[at].result;
                    result.routes.retain(|one| !is_default(family, one));
                    lost.append(&mut result.routes);
                    result.routes = lost;
                    Self::remember_routes(call, state, index, &attached[at])?;
                }
            }
            for delegate in &mut state.delegates {
                delegate.displaced.retain(|one| !is_default(family, one));
            }
            store.record(state)?;
        }
        Ok(())
    }
}
