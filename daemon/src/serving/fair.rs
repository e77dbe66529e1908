//! Who may work next: a plain data structure without clock, thread or lock, so that its rules can be tried by themselves.
//!
//! Each lane has places of its own, so that questions never wait behind changes. In a lane namespaces take turns, and in a namespace
//! the first comes first. No namespace and no verb ever has the last quarter of a lane's places, so that plugins that hang for one
//! of them leave room for others. Of one container only one entry works at a time, in the order in which they came.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Where an entry waits and works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// ADD and DEL.
    Change,
    /// CHECK and GC.
    Check,
    /// STATUS.
    Status,
}

impl Lane {
    /// The lane's name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Check => "check",
            Self::Status => "status",
        }
    }
}

/// What is known of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its lane.
    pub(crate) lane: Lane,
    /// The pod's namespace; empty for what is about no pod.
    pub(crate) namespace: String,
    /// Its verb.
    pub(crate) verb: &'static str,
    /// The container that it needs for itself.
    pub(crate) container: Option<String>,
}

/// How much there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// ADDs and DELs at work.
    pub(crate) changes: usize,
    /// CHECKs and GCs at work.
    pub(crate) checks: usize,
    /// STATUSes at work.
    pub(crate) statuses: usize,
    /// Entries that wait, in all lanes.
    pub(crate) waiting: usize,
}

impl Limits {
    fn places(&self, lane: Lane) -> usize {
        match lane {
            Lane::Change => self.changes,
            Lane::Check => self.checks,
            Lane::Status => self.statuses,
        }
        .max(1)
    }

    /// The most of a lane's places that one namespace, or one verb, has at once.
    fn share(&self, lane: Lane) -> usize {
        let places = self.places(lane);
        match places {
            1 => 1,
            _ => places - (places / 4).max(1),
        }
    }
}

/// An entry's number; later ones are higher.
pub(crate) type Id = u64;

/// Entries that wait, and those at work.
#[derive(Debug)]
pub(crate) struct Fair {
    limits: Limits,
    next: Id,
    waiting: BTreeMap<Lane, Waiting>,
    waiting_count: usize,
    working: HashMap<Id, Entry>,
}

/// The waiting entries of one lane.
#[derive(Debug, Default)]
struct Waiting {
    /// Namespaces with entries; the first has the next turn.
    turns: VecDeque<String>,
    entries: HashMap<String, VecDeque<(Id, Entry)>>,
}

impl Fair {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            working: HashMap::new(),
        }
    }

    /// Adds an entry; `None` when there are too many already.
    pub(crate) fn join(&mut self, entry: Entry) -> Option<Id> {
        if self.waiting_count >= self.limits.waiting {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.waiting_count += 1;
        let lane = self.waiting.entry(entry.lane).or_default();
        let of_namespace = lane.entries.entry(entry.namespace.clone()).or_default();
        if of_namespace.is_empty() {
            lane.turns.push_back(entry.namespace.clone());
        }
        of_namespace.push_back((id, entry));
        Some(id)
    }

    /// Takes an entry out, whether it waits or works.
    pub(crate) fn leave(&mut self, id: Id) {
        if self.working.remove(&id).is_some() {
            return;
        }
        for lane in self.waiting.values_mut() {
            if lane.remove(id) {
                self.waiting_count -= 1;
                return;
            }
        }
    }

    /// The entries that begin now.
    pub(crate) fn start(&mut self) -> Vec<Id> {
        let mut started = Vec::new();
        let lanes: Vec<Lane> = self.waiting.keys().copied().collect();
        for lane in lanes {
            while let Some((id, entry)) = self.take(lane) {
                self.waiting_count -= 1;
                self.working.insert(id, entry);
                started.push(id);
            }
        }
        started
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_count
    }

    /// How many are at work.
    pub(crate) fn at_work(&self) -> usize {
        self.working.len()
    }

    /// The next entry of a lane, of the first namespace in turn that has one which may begin.
    fn take(&mut self, lane: Lane) -> Option<(Id, Entry)> {
        let limits = self.limits;
        let working = || self.working.values().filter(|entry| entry.lane == lane);
        if working().count() >= limits.places(lane) {
            return None;
        }
        let share = limits.share(lane);
        let may_begin = |entry: &Entry| {
            working().filter(|one| one.verb == entry.verb).count() < share
                && working()
                    .filter(|one| one.namespace == entry.namespace)
                    .count()
                    < share
                && !self.has_at_work(entry.container.as_deref())
        };
        let waiting = self.waiting.get(&lane)?;
        let mut turns = waiting.turns.iter().enumerate();
        let (turn, position) = turns.find_map(|(turn, namespace)| {
            // A DEL does not pass the ADD that it undoes.
            let mut passed = HashSet::new();
            let mut entries = waiting.entries[namespace].iter();
            let position = entries.position(|(_, entry)| {
                let is_first = match entry.container.as_deref() {
                    Some(container) => passed.insert(container),
                    None => true,
                };
                is_first && may_begin(entry)
            })?;
            Some((turn, position))
        })?;
        self.waiting.get_mut(&lane)?.take(turn, position)
    }

    fn has_at_work(&self, container: Option<&str>) -> bool {
        container.is_some_and(|id| {
            let mut working = self.working.values();
            working.any(|entry| entry.container.as_deref() == Some(id))
        })
    }
}

impl Waiting {
    /// Takes the entry at a position of the namespace at a turn, which then comes last.
    fn take(&mut self, turn: usize, position: usize) -> Option<(Id, Entry)> {
        let namespace = self.turns.remove(turn)?;
        let entries = self.entries.get_mut(&namespace)?;
        let taken = entries.remove(position);
        if entries.is_empty() {
            self.entries.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        taken
    }

    fn remove(&mut self, id: Id) -> bool {
        let found = self.entries.iter().find_map(|(namespace, entries)| {
            let position = entries.iter().position(|(one, _)| *one == id)?;
            Some((namespace.clone(), position))
        });
        let Some((namespace, position)) = found else {
            return false;
        };
        if let Some(entries) = self.entries.get_mut(&namespace) {
            entries.remove(position);
            if entries.is_empty() {
                self.entries.remove(&namespace);
                self.turns.retain(|one| *one != namespace);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        changes: 4,
        checks: 2,
        statuses: 1,
        waiting: 100,
    };

    fn add(namespace: &str, container: &str) -> Entry {
        Entry {
            lane: Lane::Change,
            namespace: namespace.to_owned(),
            verb: "ADD",
            container: Some(container.to_owned()),
        }
    }

    fn del(namespace: &str, container: &str) -> Entry {
        Entry {
            verb: "DEL",
            ..add(namespace, container)
        }
    }

    fn join(fair: &mut Fair, entry: Entry) -> Id {
        fair.join(entry).expect("there is room")
    }

    #[test]
    fn one_namespace_and_one_verb_leave_the_last_places_to_others() {
        let mut fair = Fair::new(LIMITS);
        for number in 0..10 {
            join(&mut fair, add("a", &format!("a{number}")));
        }
        assert_eq!(fair.start(), [0, 1, 2]);
        let other = join(&mut fair, add("b", "b0"));
        let of_the_same = join(&mut fair, del("a", "x"));
        assert_eq!(
            fair.start(),
            [0; 0],
            "ADDs of b share the verb, DELs of a the namespace"
        );
        let both = join(&mut fair, del("b", "b1"));
        assert_eq!(fair.start(), [both]);
        fair.leave(0);
        assert_eq!(fair.start(), [3], "b has just had its turn");
        fair.leave(1);
        assert_eq!(fair.start(), [other]);
        assert_eq!(fair.waiting(), 7);
        fair.leave(2);
        fair.leave(both);
        assert_eq!(fair.start(), [4, of_the_same]);
    }

    #[test]
    fn namespaces_take_turns_and_the_first_of_each_comes_first() {
        let mut fair = Fair::new(Limits {
            changes: 1,
            ..LIMITS
        });
        for namespace in ["a", "a", "a", "b", "c", "c"] {
            let container = format!("{}", fair.next);
            join(&mut fair, add(namespace, &container));
        }
        let mut order = Vec::new();
        while let [id] = fair.start()[..] {
            order.push(id);
            fair.leave(id);
        }
        assert_eq!(order, [0, 3, 4, 1, 5, 2]);
    }

    #[test]
    fn a_container_is_worked_on_by_one_and_in_order() {
        let mut fair = Fair::new(LIMITS);
        let first = join(&mut fair, add("a", "c1"));
        let second = join(&mut fair, del("a", "c1"));
        let third = join(&mut fair, add("a", "c2"));
        let check = Entry {
            lane: Lane::Check,
            verb: "CHECK",
            ..add("a", "c1")
        };
        let check = join(&mut fair, check);
        assert_eq!(fair.start(), [first, third]);
        fair.leave(first);
        assert_eq!(fair.start(), [second]);
        fair.leave(second);
        assert_eq!(fair.start(), [check]);
    }

    #[test]
    fn a_del_waits_for_the_add_before_it_even_when_adds_have_no_place() {
        let mut fair = Fair::new(LIMITS);
        for number in 0..3 {
            join(&mut fair, add("a", &format!("a{number}")));
        }
        fair.start();
        join(&mut fair, add("b", "c1"));
        let del = join(&mut fair, del("b", "c1"));
        assert_eq!(fair.start(), [0; 0]);
        fair.leave(3);
        assert_eq!(fair.start(), [del], "the ADD's caller has gone");
    }

    #[test]
    fn questions_have_places_of_their_own() {
        let mut fair = Fair::new(LIMITS);
        for number in 0..20 {
            join(&mut fair, add(&number.to_string(), &number.to_string()));
        }
        fair.start();
        let status = Entry {
            lane: Lane::Status,
            namespace: String::new(),
            verb: "STATUS",
            container: None,
        };
        let status = join(&mut fair, status);
        assert_eq!(fair.start(), [status]);
    }

    #[test]
    fn too_many_are_refused() {
        let mut fair = Fair::new(Limits {
            waiting: 2,
            ..LIMITS
        });
        join(&mut fair, add("a", "a"));
        join(&mut fair, add("a", "b"));
        assert_eq!(fair.join(add("a", "c")), None);
        fair.leave(0);
        assert_eq!(fair.join(add("a", "c")), Some(2));
    }

    /// One step of whoever uses the queue.
    #[derive(Debug, Clone)]
    enum Step {
        Join {
            lane: Lane,
            namespace: u8,
            verb: bool,
            container: u8,
        },
        /// One of those that are there, counted from the oldest.
        Leave(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let lane = prop_oneof![Just(Lane::Change), Just(Lane::Check), Just(Lane::Status)];
        let join = (lane, 0..4_u8, any::<bool>(), 0..6_u8).prop_map(
            |(lane, namespace, verb, container)| Step::Join {
                lane,
                namespace,
                verb,
                container,
            },
        );
        let step = prop_oneof![3 => join, 2 => (0..16_usize).prop_map(Step::Leave)];
        prop::collection::vec(step, 0..120)
    }

    fn entry(lane: Lane, namespace: u8, verb: bool, container: u8) -> Entry {
        Entry {
            lane,
            namespace: namespace.to_string(),
            verb: if verb { "ADD" } else { "DEL" },
            container: (container > 0).then(|| container.to_string()),
        }
    }

    proptest! {
        /// Nobody is lost or served twice, limits hold, containers are in order, and all who stay are served in the end.
        #[test]
        fn whatever_comes_and_goes(steps in steps(), changes in 1..6_usize, waiting in 1..40_usize) {
            let limits = Limits { changes, waiting, ..LIMITS };
            let mut fair = Fair::new(limits);
            let mut there: BTreeMap<Id, Entry> = BTreeMap::new();
            let mut started: Vec<Id> = Vec::new();
            let finish = std::iter::repeat_n(Step::Leave(0), 200);
            for step in steps.into_iter().chain(finish) {
                match step {
                    Step::Join { lane, namespace, verb, container } => {
                        let entry = entry(lane, namespace, verb, container);
                        let full = fair.waiting() >= waiting;
                        let id = fair.join(entry.clone());
                        prop_assert_eq!(id.is_none(), full);
                        if let Some(id) = id {
                            there.insert(id, entry);
                        }
                    }
                    // The oldest at work ends, or the caller of any that waits goes.
                    Step::Leave(0) => {
                        if let Some(id) = started.iter().find(|id| there.contains_key(id)) {
                            fair.leave(*id);
                            there.remove(id);
                        }
                    }
                    Step::Leave(number) => {
                        if let Some(id) = there.keys().nth(number).copied() {
                            fair.leave(id);
                            there.remove(&id);
                        }
                    }
                }
                for id in fair.start() {
                    prop_assert!(!started.contains(&id), "{} twice", id);
                    let mine = &there[&id];
                    let earlier = |(one, other): (&Id, &Entry)| {
                        *one < id && !started.contains(one) && other.lane == mine.lane
                            && other.namespace == mine.namespace && mine.container.is_some()
                            && other.container == mine.container
                    };
                    prop_assert!(!there.iter().any(earlier), "{} passed one of its container", id);
                    started.push(id);
                }
                let working: Vec<&Entry> = there.iter().filter(|(id, _)| started.contains(id)).map(|(_, e)| e).collect();
                for lane in [Lane::Change, Lane::Check, Lane::Status] {
                    let count = working.iter().filter(|entry| entry.lane == lane).count();
                    prop_assert!(count <= limits.places(lane));
                }
                for (index, one) in working.iter().enumerate() {
                    prop_assert!(one.container.is_none() || working[..index].iter().all(|other| other.container != one.container));
                }
                prop_assert_eq!(fair.waiting(), there.len() - working.len());
            }
            prop_assert!(there.is_empty(), "never served: {:?}", there);
        }
    }
}
