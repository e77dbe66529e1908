//! Compares the networks of a running pod with those that its annotation requests now, in a function over values.
//!
//! A network that the annotation still requests stays untouched. New networks are attached before others are detached, so that a failure to
//! attach one costs the pod none. Only a network that conflicts with a new one, by definition or by interface, is detached before it.

use serde_json::{Map, Value};

/// A network that a pod has because its annotation requested it.
#[derive(Debug, Clone)]
pub struct Has {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
    /// What the annotation requested besides the names; `None` if that was not recorded.
    pub wishes: Option<Map<String, Value>>,
    /// Whether all of its plugins are known to have succeeded.
    pub is_whole: bool,
}

/// A network that the annotation requests.
#[derive(Debug, Clone)]
pub struct Wants {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface, if the annotation names one.
    pub interface: Option<String>,
    /// What the annotation requests besides the names.
    pub wishes: Map<String, Value>,
}

/// The changes to make, in order, as positions in the two lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Requested networks that conflict with none: attached first.
    pub first: Vec<usize>,
    /// Present networks that conflict with requested ones: detached next.
    pub out: Vec<usize>,
    /// Requested networks that conflicted with them: attached next.
    pub replacing: Vec<usize>,
    /// Present networks that are no longer requested: detached last.
    pub last: Vec<usize>,
    /// Networks that stay: the present one and the requested one.
    pub kept: Vec<(usize, usize)>,
}

impl Changes {
    /// Returns whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.first, &self.out, &self.replacing, &self.last];
        lists.iter().all(|list| list.is_empty())
    }
}

/// Compares the networks of a pod with those that its annotation requests.
pub fn changes(has: &[Has], wants: &[Wants]) -> Changes {
    let mut kept: Vec<(usize, usize)> = Vec::new();
    // Requests that name an interface choose first; those that name none may keep any of the others.
    for named in [true, false] {
        for (wanted, wish) in wants.iter().enumerate() {
            let is_free = |index: usize| kept.iter().all(|(there, _)| *there != index);
            let is_named =
                |ifname: &str| wants.iter().any(|w| w.interface.as_deref() == Some(ifname));
            let mut fitting = (0..has.len()).filter(|at| {
                let is_others = !named && is_named(&has[*at].ifname);
                is_free(*at) && !is_others && satisfies(&has[*at], wish)
            });
            if wish.interface.is_some() == named
                && let Some(there) = fitting.next()
            {
                kept.push((there, wanted));
            }
        }
    }
    let is_kept = |index: &usize| kept.iter().any(|(there, _)| there == index);
    let is_met = |index: &usize| kept.iter().any(|(_, wanted)| wanted == index);
    let gone: Vec<usize> = (0..has.len()).filter(|index| !is_kept(index)).collect();
    let new: Vec<usize> = (0..wants.len()).filter(|index| !is_met(index)).collect();
    let collide = |gone: usize, new: usize| {
        has[gone].network == wants[new].network
            || wants[new].interface.as_ref() == Some(&has[gone].ifname)
    };
    let (replacing, first) = new
        .iter()
        .partition(|new| gone.iter().any(|gone| collide(*gone, **new)));
    let (out, last) = gone
        .iter()
        .partition(|gone| new.iter().any(|new| collide(**gone, *new)));
    Changes {
        first,
        out,
        replacing,
        last,
        kept,
    }
}

fn satisfies(has: &Has, wanted: &Wants) -> bool {
    has.is_whole
        && has.network == wanted.network
        && wanted
            .interface
            .as_ref()
            .is_none_or(|name| *name == has.ifname)
        && has
            .wishes
            .as_ref()
            .is_none_or(|wishes| *wishes == wanted.wishes)
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
    fn has(text: &str) -> Has {
        let (text, is_whole) = match text.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let (text, known) = match text.strip_suffix('?') {
            Some(rest) => (rest, false),
            None => (text, true),
        };
        let wanted = wants(text);
        Has {
            network: wanted.network,
            ifname: wanted.interface.unwrap(),
            wishes: known.then_some(wanted.wishes),
            is_whole,
        }
    }

    fn wants(text: &str) -> Wants {
        let (text, mac) = text.split_once('+').unwrap_or((text, ""));
        let (network, interface) = text.split_once('@').unwrap_or((text, ""));
        let mut wishes = Map::new();
        if !mac.is_empty() {
            wishes.insert("mac".to_owned(), json!(mac));
        }
        Wants {
            network: network.to_owned(),
            interface: Some(interface.to_owned()).filter(|name| !name.is_empty()),
            wishes,
        }
    }

    /// Checks the positions in `first | out | replacing | last`.
    #[track_caller]
    fn check(there: &[&str], wanted: &[&str], expected: &str) {
        let there: Vec<_> = there.iter().map(|text| has(text)).collect();
        let wanted: Vec<_> = wanted.iter().map(|text| wants(text)).collect();
        let found = changes(&there, &wanted);
        let join = |list: &[usize]| {
            let positions: Vec<_> = list.iter().map(ToString::to_string).collect();
            positions.join(" ")
        };
        let text = [&found.first, &found.out, &found.replacing, &found.last].map(|l| join(l));
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
    fn incomplete_networks_are_replaced() {
        check(&["!a@net1"], &["a"], "|0|0|");
        check(&["!a@net1"], &[], "|||0");
        check(&["!a@net1", "a@net2"], &["a"], "|||0");
    }

    #[test]
    fn applied_changes_leave_nothing_to_change() {
        let networks = ["a", "b"];
        let interfaces = ["", "@net1", "@net2", "@one"];
        let wishes = ["", "+x"];
        let all: Vec<String> = networks
            .iter()
            .flat_map(|n| interfaces.iter().map(move |i| format!("{n}{i}")))
            .flat_map(|text| wishes.iter().map(move |w| format!("{text}{w}")))
            .collect();
        let mut cases = 0;
        for (one, two, three) in (0..all.len())
            .flat_map(|a| (0..all.len()).map(move |b| (a, b)))
            .flat_map(|(a, b)| (0..all.len()).map(move |c| (a, b, c)))
        {
            let wanted = [wants(&all[one]), wants(&all[two])];
            if wanted[0].interface.is_some() && wanted[0].interface == wanted[1].interface {
                continue;
            }
            let mut there = Vec::new();
            apply(&mut there, &[wants(&all[three])]);
            apply(&mut there, &wanted);
            assert!(changes(&there, &wanted).is_empty(), "{there:?} {wanted:?}");
            assert_eq!(there.len(), 2);
            cases += 1;
        }
        assert!(cases > 3000, "{cases}");
    }

    fn apply(there: &mut Vec<Has>, wanted: &[Wants]) {
        let todo = changes(there, wanted);
        let gone: Vec<usize> = todo.out.iter().chain(&todo.last).copied().collect();
        let attach = |there: &mut Vec<Option<Has>>, index: usize| {
            let wants = &wanted[index];
            let name = wants.interface.clone().unwrap_or_else(|| {
                free_name(|name| {
                    let has = there.iter().flatten().any(|has| has.ifname == name);
                    has || wanted.iter().any(|w| w.interface.as_deref() == Some(name))
                })
            });
            let is_free = there.iter().flatten().all(|has| has.ifname != name);
            assert!(is_free, "{name} twice");
            there.push(Some(Has {
                network: wants.network.clone(),
                ifname: name,
                wishes: Some(wants.wishes.clone()),
                is_whole: true,
            }));
        };
        let mut list: Vec<Option<Has>> = there.drain(..).map(Some).collect();
        for index in &todo.first {
            attach(&mut list, *index);
        }
        for index in &todo.out {
            list[*index] = None;
        }
        for index in &todo.replacing {
            attach(&mut list, *index);
        }
        for index in gone {
            list[index] = None;
        }
        there.extend(list.into_iter().flatten());
    }
}
