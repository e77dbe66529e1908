//! The routes that a node advertises: those of its user, and those of its pods. Functions over values.
//!
//! `k3s-killall.sh` empties the list of advertised routes, whoever made them. So the record remembers both kinds.

use serde::{Deserialize, Serialize};

use crate::Prefix;

/// The routes of this node as they were advertised last; it outlives a boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Remembered {
    /// The routes of pods, which this program advertised. Before a change they are those before and after it.
    pub ours: Vec<Prefix>,
    /// The routes that the user advertised.
    pub of_user: Vec<Prefix>,
}

/// The routes that are to be advertised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The record to keep before anything changes, so that no crash makes a route of ours the user's.
    pub before: Remembered,
    /// The record to keep afterwards.
    pub after: Remembered,
    /// The complete list, unless it is advertised already.
    pub advertise: Option<Vec<Prefix>>,
    /// Remembered routes that something else has withdrawn, and that come back.
    pub restored: Vec<Prefix>,
    /// Subnets that are not those of this node's pods any more.
    pub withdrawn: Vec<Prefix>,
}

/// Decides from what is advertised, what is remembered, the user's routes in the settings, and the subnets of this node's pods; these
/// are unknown until flannel runs.
pub fn decide(
    advertised: &[Prefix],
    remembered: &Remembered,
    configured: &[Prefix],
    subnets: Option<&[Prefix]>,
) -> Wanted {
    let ours = unique(subnets.unwrap_or(&remembered.ours));
    let known = unique(remembered.ours.iter().chain(&ours));
    let is_wiped = advertised.is_empty() && !remembered.ours.is_empty();
    let of_user = if is_wiped {
        without(&remembered.of_user, &ours)
    } else {
        without(&unique(advertised), &known)
    };
    let of_user = without(&unique(of_user.iter().chain(configured)), &ours);
    let all = unique(of_user.iter().chain(&ours));
    let has_changed = unique(advertised) != all || advertised.len() != all.len();
    let mut restored = unique(remembered.ours.iter().chain(&remembered.of_user));
    restored.retain(|route| all.contains(route) && !advertised.contains(route));
    let withdrawn = without(&unique(&remembered.ours), &all);
    Wanted {
        restored,
        withdrawn,
        before: Remembered {
            ours: known,
            of_user: of_user.clone(),
        },
        after: Remembered { ours, of_user },
        advertise: has_changed.then_some(all),
    }
}

/// Returns the routes without repetitions, sorted.
fn unique<'a>(routes: impl IntoIterator<Item = &'a Prefix>) -> Vec<Prefix> {
    let mut routes: Vec<Prefix> = routes.into_iter().copied().collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

/// Returns those of the routes that are not among the others.
pub fn without(routes: &[Prefix], others: &[Prefix]) -> Vec<Prefix> {
    let mut routes = routes.to_vec();
    routes.retain(|route| !others.contains(route));
    routes
}

/// Returns the line for routes that come back.
pub fn restoration(restored: &[Prefix]) -> String {
    format!(
        "routes that were withdrawn, as by k3s-killall.sh, are advertised again: {}",
        list(restored)
    )
}

/// Returns the line for subnets of pods that took the place of others.
pub fn replacement(withdrawn: &[Prefix], ours: &[Prefix]) -> String {
    let now = if ours.is_empty() {
        "this node has no subnet of pods any more".to_owned()
    } else {
        format!("the subnet of this node's pods is {} now", list(ours))
    };
    format!("{now}: {} is withdrawn", list(withdrawn))
}

/// Returns routes as a list for people.
pub(crate) fn list(routes: &[Prefix]) -> String {
    let texts: Vec<String> = routes.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Returns what an administrator of the VPN has to do for routes that are not approved.
pub fn approval(pending: &[Prefix], node: &str) -> String {
    format!(
        "advertised, not approved: approve {} of node {node}",
        list(pending)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(text: &str) -> Vec<Prefix> {
        text.split_whitespace()
            .map(|text| text.parse().unwrap())
            .collect()
    }

    /// Applies one decision; returns the advertised list.
    fn apply(advertised: &str, ours: &str, of_user: &str, subnets: Option<&str>) -> String {
        let remembered = Remembered {
            ours: routes(ours),
            of_user: routes(of_user),
        };
        let subnets = subnets.map(routes);
        let wanted = decide(&routes(advertised), &remembered, &[], subnets.as_deref());
        let all = wanted.advertise.unwrap_or_else(|| routes(advertised));
        // A decision that was carried out changes nothing more.
        let again = decide(&all, &wanted.after, &[], subnets.as_deref());
        assert_eq!((again.advertise, &again.after), (None, &wanted.after));
        // The same holds after a crash before the second write.
        let crashed = decide(&all, &wanted.before, &[], subnets.as_deref());
        assert_eq!(crashed.after, wanted.after);
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join(" ")
    }

    #[test]
    fn routes_of_the_user_are_kept() {
        let own = Some("10.42.1.0/24");
        assert_eq!(apply("", "", "", own), "10.42.1.0/24");
        assert_eq!(
            apply("192.168.7.0/24", "", "", own),
            "10.42.1.0/24 192.168.7.0/24"
        );
        let both = "10.42.1.0/24 192.168.7.0/24";
        assert_eq!(apply(both, "10.42.1.0/24", "192.168.7.0/24", own), both);
        // The user adds one, and takes one back.
        let more = "10.42.1.0/24 10.9.0.0/16 192.168.7.0/24";
        assert_eq!(apply(more, "10.42.1.0/24", "192.168.7.0/24", own), more);
        assert_eq!(
            apply("10.42.1.0/24", "10.42.1.0/24", "192.168.7.0/24", own),
            "10.42.1.0/24"
        );
    }

    #[test]
    fn routes_of_the_settings_are_advertised_with_the_pods() {
        let remembered = Remembered::default();
        let own = routes("10.42.1.0/24");
        let wanted = decide(&[], &remembered, &routes("10.9.0.0/16"), Some(&own));
        assert_eq!(wanted.advertise, Some(routes("10.9.0.0/16 10.42.1.0/24")));
        assert_eq!(wanted.after.of_user, routes("10.9.0.0/16"));
        // Before flannel runs, and where it never does.
        let wanted = decide(&[], &remembered, &routes("10.9.0.0/16"), None);
        assert_eq!(wanted.advertise, Some(routes("10.9.0.0/16")));
    }

    #[test]
    fn former_subnet_is_withdrawn() {
        let before = "10.42.1.0/24 192.168.7.0/24";
        let now = Some("10.42.9.0/24");
        assert_eq!(
            apply(before, "10.42.1.0/24", "192.168.7.0/24", now),
            "10.42.9.0/24 192.168.7.0/24"
        );
        // Without a record it cannot be known as ours, and stays.
        assert_eq!(
            apply("10.42.1.0/24", "", "", now),
            "10.42.1.0/24 10.42.9.0/24"
        );
        // flannel with no subnets withdraws ours.
        assert_eq!(
            apply(before, "10.42.1.0/24", "", Some("")),
            "192.168.7.0/24"
        );
    }

    #[test]
    fn wiped_routes_come_back() {
        let (ours, of_user) = ("10.42.1.0/24", "192.168.7.0/24");
        let both = "10.42.1.0/24 192.168.7.0/24";
        assert_eq!(apply("", ours, of_user, Some(ours)), both);
        // At a boot, before flannel runs.
        assert_eq!(apply("", ours, of_user, None), both);
    }

    #[test]
    fn routes_that_come_back_or_are_replaced_are_named() {
        let check = |advertised: &str, subnets: &str, restored: &str, withdrawn: &str| {
            let remembered = Remembered {
                ours: routes("10.42.1.0/24"),
                of_user: routes("192.168.7.0/24"),
            };
            let wanted = decide(
                &routes(advertised),
                &remembered,
                &[],
                Some(&routes(subnets)),
            );
            assert_eq!(wanted.restored, routes(restored), "{advertised}");
            assert_eq!(wanted.withdrawn, routes(withdrawn), "{advertised}");
        };
        let (own, both) = ("10.42.1.0/24", "10.42.1.0/24 192.168.7.0/24");
        check(both, own, "", "");
        check("", own, both, "");
        check("192.168.7.0/24", own, own, "");
        // The user withdrew his own.
        check(own, own, "", "");
        check(both, "10.42.9.0/24", "", own);
        check("", "10.42.9.0/24", "192.168.7.0/24", own);
        // At the first start nothing is remembered.
        let first = decide(&[], &Remembered::default(), &[], Some(&routes(own)));
        assert_eq!((first.restored, first.withdrawn), (Vec::new(), Vec::new()));
        assert_eq!(
            replacement(&routes(own), &routes("10.42.9.0/24")),
            "the subnet of this node's pods is 10.42.9.0/24 now: 10.42.1.0/24 is withdrawn"
        );
    }

    #[test]
    fn repeated_routes_are_advertised_once() {
        let twice = "10.42.1.0/24 10.42.1.0/24";
        assert_eq!(
            apply(twice, "10.42.1.0/24", "", Some("10.42.1.0/24")),
            "10.42.1.0/24"
        );
        assert_eq!(
            apply("", "", "", Some("10.42.1.0/24 fd00:1::/64 10.42.1.0/24")),
            "10.42.1.0/24 fd00:1::/64"
        );
    }

    #[test]
    fn unapproved_routes_are_named_with_the_node() {
        assert_eq!(
            approval(&routes("10.42.1.0/24"), "a"),
            "advertised, not approved: approve 10.42.1.0/24 of node a"
        );
    }
}
