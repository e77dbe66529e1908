//! Checks which attachments a pod selects for its default routes: at most one gateway per family over all of its networks.
//! The final routes are decided later, when results are known.
//!
//! The network standard (1.3, 4.1.2.1.9) allows the key on one network only. Upstream accepts it on several, with one gateway per family
//! over all of them, and pods with one network per family rely on that. So every unambiguous selection is accepted, and the others, which
//! the standard would have us ignore, are refused: two gateways of one family, and an empty list together with any other list.

use std::net::IpAddr;

use super::{Attachment, Family, PlanError, Selection};

/// Refuses two gateways of one family, and a network that keeps its own default routes together with one that gets others.
pub(super) fn check(attachments: &[Attachment]) -> Result<(), PlanError> {
    let claims = attachments.iter().filter_map(|attachment| {
        let gateways = attachment.selection.as_ref()?.default_route.as_deref()?;
        Some((attachment.name.as_str(), gateways))
    });
    refuse(&claims.collect::<Vec<_>>())
}

/// Checks the same for the selections of a pod that already runs.
pub fn check_selections(selections: &[Selection]) -> Result<(), PlanError> {
    let claims = selections
        .iter()
        .filter_map(|one| Some((one.name.as_str(), one.default_route.as_deref()?)));
    refuse(&claims.collect::<Vec<_>>())
}

fn refuse(claims: &[(&str, &[IpAddr])]) -> Result<(), PlanError> {
    let names = |family: Option<Family>| {
        let matches = |gateway: &IpAddr| family.is_none_or(|family| Family::of(*gateway) == family);
        let mut names: Vec<_> = claims
            .iter()
            .filter(|(_, gateways)| family.is_none() || gateways.iter().any(matches))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        names.dedup();
        names
    };
    for family in Family::ALL {
        let all = claims.iter().flat_map(|(_, gateways)| *gateways);
        if all
            .filter(|gateway| Family::of(**gateway) == family)
            .count()
            > 1
        {
            return Err(PlanError::ManyGateways {
                family,
                networks: names(Some(family)),
            });
        }
    }
    if claims.len() > 1 && claims.iter().any(|(_, gateways)| gateways.is_empty()) {
        return Err(PlanError::DefaultRouteTwice {
            networks: names(None).join(" and "),
        });
    }
    Ok(())
}
