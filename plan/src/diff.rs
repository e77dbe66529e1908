//! What has to be done to a pod that runs, for it to have what its annotation asks for now: a function over values.
//!
//! What the annotation still asks for stays as it is. New networks come before others go, so that a network that cannot be had takes
//! none along; only where the two are about the same network or the same interface does the old one go first.

use serde_json::{Map, Value};

/// A network that a pod has because its annotation asked for it.
#[derive(Debug, Clone)]
pub struct Has {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface in the container.
    pub ifname: String,
    /// What was asked for besides; `None` when nobody remembers.
    pub wishes: Option<Map<String, Value>>,
    /// Whether it is there as a whole, as far as is known.
    pub is_whole: bool,
}

/// A network that the annotation asks for.
#[derive(Debug, Clone)]
pub struct Wants {
    /// `<namespace>/<definition>`.
    pub network: String,
    /// The interface, where it is named.
    pub interface: Option<String>,
    /// What is asked for besides.
    pub wishes: Map<String, Value>,
}

/// Positions in the two lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Wanted, and in nobody's way: attached first.
    pub first: Vec<usize>,
    /// There, and in the way of what is wanted: detached next.
    pub out: Vec<usize>,
    /// Wanted in its place: attached then.
    pub replacing: Vec<usize>,
    /// There and not wanted any more: detached last.
    pub last: Vec<usize>,
    /// There, and what is wanted of it.
    pub kept: Vec<(usize, usize)>,
}

impl Changes {
    /// Whether all is as it should be.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.first, &self.out, &self.replacing, &self.last];
        lists.iter().all(|list| list.is_empty())
    }
}

/// Compares what a pod has with what it wants.
pub fn changes(has: &[Has], wants: &[Wants]) -> Changes {
    let mut kept: Vec<(usize, usize)> = Vec::new();
    // Who names an interface has the first choice; who names none is content with any.
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

/// The interface of a network that names none: the first that nobody has, counted as an ADD counts.
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

    /// `network@interface`, `!` before one that is not whole, `?` after one of which nothing more is known, `+` and a wish.
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

    /// `first | out | replacing | last`, as positions.
    #[track_caller]
    fn check(there: &[&str], wanted: &[&str], expected: &str) {
        let there: Vec<_> = there.iter().map(|text| has(text)).collect();
        let wanted: Vec<_> = wanted.iter().map(|text| wants(text)).collect();
        let found = changes(&there, &wanted);
        let words = |list: &[usize]| {
            let words: Vec<_> = list.iter().map(ToString::to_string).collect();
            words.join(" ")
        };
        let text = [&found.first, &found.out, &found.replacing, &found.last].map(|l| words(l));
        assert_eq!(text.join("|"), expected);
    }

    #[test]
    fn nothing_changes_where_nothing_is_said() {
        check(&[], &[], "|||");
        check(&["a@net1", "b@net2"], &["a", "b"], "|||");
        check(&["a@net1", "b@net2"], &["b", "a"], "|||");
        check(&["a@net1", "a@net2"], &["a@net2", "a"], "|||");
        check(&["a@net1", "a@net2"], &["a", "a@net1"], "|||");
        check(&["a@net1"], &["a", "b@net1"], "|0|0 1|");
        check(&["a@net1+x?"], &["a+y"], "|||");
    }

    #[test]
    fn what_is_new_comes_before_others_go() {
        check(&[], &["a", "b"], "0 1|||");
        check(&["a@net1"], &[], "|||0");
        check(&["a@net1"], &["b"], "0|||0");
        check(&["a@net1", "b@net2"], &["b"], "|||0");
        check(&["a@net1"], &["a", "a"], "1|||");
    }

    #[test]
    fn what_is_in_the_way_goes_first() {
        check(&["a@net1"], &["a+x"], "|0|0|");
        check(&["a@net1+x"], &["a"], "|0|0|");
        check(&["a@net1"], &["a@one"], "|0|0|");
        check(&["a@net1"], &["b@net1"], "|0|0|");
        check(&["a@net1", "c@net2"], &["b@net1", "d"], "1|0|0|1");
    }

    #[test]
    fn what_is_not_whole_is_made_anew() {
        check(&["!a@net1"], &["a"], "|0|0|");
        check(&["!a@net1"], &[], "|||0");
        check(&["!a@net1", "a@net2"], &["a"], "|||0");
    }

    /// Whatever there is and whatever is wanted: once it is done, there is nothing left to do.
    #[test]
    fn doing_it_leaves_nothing_to_do() {
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
