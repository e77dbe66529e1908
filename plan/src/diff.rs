//! Compares the networks of a running pod with those that its annotation requests now, in a function over values.
//!
//! A network that the annotation still requests stays untouched. New networks are attached before others are detached, so that a failure to
//! attach one costs the pod none. Only a network that conflicts with a new one, by definition or by interface, is detached before it.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

/// A network that a pod has because its annotation requested it.
#[derive(Debug, Clone)]
pub struct Current {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
    /// What the annotation requested besides the names; `None` if that was not recorded.
    pub annotation_keys: Option<Map<String, Value>>,
    /// Whether all of its plugins are known to have succeeded.
    pub is_complete: bool,
}

/// A network that the annotation requests.
#[derive(Debug, Clone)]
pub struct Desired {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface, if the annotation names one.
    pub interface: Option<String>,
    /// What the annotation requests besides the names.
    pub annotation_keys: Map<String, Value>,
}

/// The changes to make, in order, as positions in the two lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Requested networks that conflict with none: attached first.
    pub add: Vec<usize>,
    /// Present networks that conflict with requested ones: detached next.
    pub remove_conflicting: Vec<usize>,
    /// Requested networks that conflicted with them: attached next.
    pub add_conflicting: Vec<usize>,
    /// Present networks that are no longer requested: detached last.
    pub remove: Vec<usize>,
    /// Networks that stay: the present one and the requested one.
    pub kept: Vec<(usize, usize)>,
}

impl Diff {
    /// Returns whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.add,
            &self.remove_conflicting,
            &self.add_conflicting,
            &self.remove,
        ];
        lists.iter().all(|list| list.is_empty())
    }
}

/// Compares the networks of a pod with those that its annotation requests.
pub fn diff(current: &[Current], desired: &[Desired]) -> Diff {
    let named: HashSet<&str> = desired
        .iter()
        .filter_map(|one| one.interface.as_deref())
        .collect();
    // The present networks that no request has kept so far, by name.
    let mut free: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, one) in current.iter().enumerate() {
        free.entry(&one.network).or_default().push(index);
    }
    let mut kept: Vec<(usize, usize)> = Vec::new();
    let mut new: BTreeSet<usize> = (0..desired.len()).collect();
    // Requests that name an interface choose first; those that name none may keep any of the others.
    for is_named in [true, false] {
        for (request, wanted) in desired.iter().enumerate() {
            if wanted.interface.is_some() == is_named
                && let Some(free) = free.get_mut(wanted.network.as_str())
                && let Some(at) = free.iter().position(|index| {
                    let present = &current[*index];
                    let is_others = !is_named && named.contains(present.ifname.as_str());
                    !is_others && satisfies(present, wanted)
                })
            {
                kept.push((free.remove(at), request));
                new.remove(&request);
            }
        }
    }
    let old: BTreeSet<usize> = free.into_values().flatten().collect();
    let old_networks: HashSet<&str> = old.iter().map(|at| &*current[*at].network).collect();
    let old_ifnames: HashSet<&str> = old.iter().map(|at| &*current[*at].ifname).collect();
    let new_networks: HashSet<&str> = new.iter().map(|at| &*desired[*at].network).collect();
    let new_ifnames: HashSet<&str> = new
        .iter()
        .filter_map(|at| desired[*at].interface.as_deref())
        .collect();
    let (add_conflicting, add) = new.into_iter().partition(|at| {
        let ifname = desired[*at].interface.as_deref();
        old_networks.contains(&*desired[*at].network)
            || ifname.is_some_and(|ifname| old_ifnames.contains(ifname))
    });
    let (remove_conflicting, remove) = old.into_iter().partition(|at| {
        new_networks.contains(&*current[*at].network) || new_ifnames.contains(&*current[*at].ifname)
    });
    Diff {
        add,
        remove_conflicting,
        add_conflicting,
        remove,
        kept,
    }
}

fn satisfies(current: &Current, desired: &Desired) -> bool {
    let ifname = desired.interface.as_ref();
    let keys = current.annotation_keys.as_ref();
    current.is_complete
        && current.network == desired.network
        && ifname.is_none_or(|ifname| *ifname == current.ifname)
        && keys.is_none_or(|keys| *keys == desired.annotation_keys)
}

/// Returns the interface for a network that names none: the first free one, counted as an ADD counts.
pub fn free_name(is_taken: impl Fn(&str) -> bool) -> String {
    let mut names = (1_u32..).map(|number| format!("net{number}"));
    names
        .find(|name| !is_taken(name))
        .expect("there are more names than interfaces")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parses `network@interface`, with `!` before an incomplete network, `?` after one without recorded requests, and `+` before a MAC
    /// address.
    fn current(text: &str) -> Current {
        let (text, is_complete) = match text.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let (text, known) = match text.strip_suffix('?') {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let desired = desired(text);
        Current {
            network: desired.network,
            ifname: desired.interface.unwrap(),
            annotation_keys: known.then_some(desired.annotation_keys),
            is_complete,
        }
    }

    fn desired(text: &str) -> Desired {
        let (text, mac) = text.split_once('+').unwrap_or((text, ""));
        let (network, interface) = text.split_once('@').unwrap_or((text, ""));
        let mut annotation_keys = Map::new();
        if !mac.is_empty() {
            annotation_keys.insert("mac".to_owned(), json!(mac));
        }
        Desired {
            network: network.to_owned(),
            interface: Some(interface.to_owned()).filter(|name| !name.is_empty()),
            annotation_keys,
        }
    }

    /// Checks the positions in `add | remove_conflicting | add_conflicting | remove`.
    #[track_caller]
    fn check(present: &[&str], wanted: &[&str], expected: &str) {
        let present: Vec<_> = present.iter().map(|text| current(text)).collect();
        let wanted: Vec<_> = wanted.iter().map(|text| desired(text)).collect();
        let found = diff(&present, &wanted);
        let join = |list: &[usize]| {
            let positions: Vec<_> = list.iter().map(ToString::to_string).collect();
            positions.join(" ")
        };
        let text = [
            &found.add,
            &found.remove_conflicting,
            &found.add_conflicting,
            &found.remove,
        ]
        .map(|l| join(l));
        assert_eq!(text.join("|"), expected);
    }

    #[test]
    fn satisfied_requests_change_nothing() {
        check(&[], &[], "|||");
        check(&["a@net1", "b@net2"], &["a", "b"], "|||");
        check(&["a@net1", "b@net2"], &["b", "a"], "|||");
        check(&["a@net1", "a@net2"], &["a@net2", "a"], "|||");
        check(&["a@net1", "a@net2"], &["a", "a@net1"], "|||");
        check(&["a@net1"], &["a", "b@net1"], "|0|0 1|");
        check(&["a@net1+x?"], &["a+y"], "|||");
    }

    #[test]
    fn new_networks_are_attached_before_others_are_detached() {
        check(&[], &["a", "b"], "0 1|||");
        check(&["a@net1"], &[], "|||0");
        check(&["a@net1"], &["b"], "0|||0");
        check(&["a@net1", "b@net2"], &["b"], "|||0");
        check(&["a@net1"], &["a", "a"], "1|||");
    }

    #[test]
    fn conflicting_networks_are_detached_before_their_replacement() {
        check(&["a@net1"], &["a+x"], "|0|0|");
        check(&["a@net1+x"], &["a"], "|0|0|");
        check(&["a@net1"], &["a@one"], "|0|0|");
        check(&["a@net1"], &["b@net1"], "|0|0|");
        check(&["a@net1", "c@net2"], &["b@net1", "d"], "1|0|0|1");
    }

    #[test]
    fn many_requests_are_compared_in_one_pass() {
        let wanted: Vec<_> = (0..100_000).map(|_| desired("a")).collect();
        let present: Vec<_> = (1..=64).map(|n| current(&format!("a@net{n}"))).collect();
        let found = diff(&present, &wanted);
        assert_eq!((found.kept.len(), found.add.len()), (64, 100_000 - 64));
        let started = std::time::Instant::now();
        diff(&[current("b@net1")], &wanted);
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn incomplete_networks_are_replaced() {
        check(&["!a@net1"], &["a"], "|0|0|");
        check(&["!a@net1"], &[], "|||0");
        check(&["!a@net1", "a@net2"], &["a"], "|||0");
    }

    #[test]
    fn applied_changes_leave_nothing_to_change() {
        let networks = ["a", "b"];
        let interfaces = ["", "@net1", "@net2", "@one"];
        let keys = ["", "+x"];
        let all: Vec<String> = networks
            .iter()
            .flat_map(|n| interfaces.iter().map(move |i| format!("{n}{i}")))
            .flat_map(|text| keys.iter().map(move |w| format!("{text}{w}")))
            .collect();
        let mut cases = 0;
        for (one, two, three) in (0..all.len())
            .flat_map(|a| (0..all.len()).map(move |b| (a, b)))
            .flat_map(|(a, b)| (0..all.len()).map(move |c| (a, b, c)))
        {
            let wanted = [desired(&all[one]), desired(&all[two])];
            if wanted[0].interface.is_some() && wanted[0].interface == wanted[1].interface {
                continue;
            }
            let mut present = Vec::new();
            apply(&mut present, &[desired(&all[three])]);
            apply(&mut present, &wanted);
            assert!(diff(&present, &wanted).is_empty(), "{present:?} {wanted:?}");
            assert_eq!(present.len(), 2);
            cases += 1;
        }
        assert!(cases > 3000, "{cases}");
    }

    fn apply(present: &mut Vec<Current>, wanted: &[Desired]) {
        let diff = diff(present, wanted);
        let removed: Vec<usize> = diff
            .remove_conflicting
            .iter()
            .chain(&diff.remove)
            .copied()
            .collect();
        let attach = |present: &mut Vec<Option<Current>>, index: usize| {
            let desired = &wanted[index];
            let name = desired.interface.clone().unwrap_or_else(|| {
                free_name(|name| {
                    let is_used = present.iter().flatten().any(|one| one.ifname == name);
                    is_used
                        || wanted
                            .iter()
                            .any(|one| one.interface.as_deref() == Some(name))
                })
            });
            let is_free = present.iter().flatten().all(|one| one.ifname != name);
            assert!(is_free, "{name} twice");
            present.push(Some(Current {
                network: desired.network.clone(),
                ifname: name,
                annotation_keys: Some(desired.annotation_keys.clone()),
                is_complete: true,
            }));
        };
        let mut list: Vec<Option<Current>> = present.drain(..).map(Some).collect();
        for index in &diff.add {
            attach(&mut list, *index);
        }
        for index in &diff.remove_conflicting {
            list[*index] = None;
        }
        for index in &diff.add_conflicting {
            attach(&mut list, *index);
        }
        for index in removed {
            list[index] = None;
        }
        present.extend(list.into_iter().flatten());
    }
}
