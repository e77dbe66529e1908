//! Decides which request runs next: a plain data structure without clock, thread or lock, so that its rules can be tested alone.
//!
//! Each lane has slots of its own, so that CHECK and STATUS never wait behind ADD and DEL. Within a lane, namespaces take turns, and within a
//! namespace entries run in the order of arrival. No namespace and no verb ever gets the last quarter of a lane's slots, so that plugins
//! that hang for one of them leave room for others. Only one entry of a container runs at a time, in the order of arrival.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The part of the queue in which an entry waits and runs.
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

/// The properties of a request that decide about its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lane: Lane,
    /// The pod's namespace; empty for requests about no pod.
    pub(crate) namespace: String,
    pub(crate) verb: &'static str,
    /// The container that no other entry may use meanwhile.
    pub(crate) container: Option<String>,
}

/// The most entries at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Running ADDs and DELs.
    pub(crate) changes: usize,
    /// Running CHECKs and GCs.
    pub(crate) checks: usize,
    /// Running STATUSes.
    pub(crate) statuses: usize,
    /// Waiting entries of all lanes.
    pub(crate) waiting: usize,
}

impl Limits {
    fn slots(&self, lane: Lane) -> usize {
        match lane {
            Lane::Change => self.changes,
            Lane::Check => self.checks,
            Lane::Status => self.statuses,
        }
        .max(1)
    }

    /// The most slots of a lane that one namespace, or one verb, may use at once.
    fn share(&self, lane: Lane) -> usize {
        let slots = self.slots(lane);
        match slots {
            1 => 1,
            _ => slots - (slots / 4).max(1),
        }
    }
}

/// An entry's number; later entries have higher ones.
pub(crate) type Id = u64;

/// Waiting and running entries.
#[derive(Debug)]
pub(crate) struct FairQueue {
    limits: Limits,
    next: Id,
    waiting: BTreeMap<Lane, Waiting>,
    waiting_count: usize,
    working: HashMap<Id, Entry>,
}

/// The waiting entries of one lane.
#[derive(Debug, Default)]
struct Waiting {
    /// The namespaces with entries; the first one has the next turn.
    turns: VecDeque<String>,
    entries: HashMap<String, VecDeque<(Id, Entry)>>,
}

impl FairQueue {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            working: HashMap::new(),
        }
    }

    /// Adds an entry, or returns `None` when too many wait already.
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

    /// Removes an entry, whether it waits or runs.
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

    /// Returns the entries that begin now.
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

    pub(crate) fn waiting(&self) -> usize {
        self.waiting_count
    }

    pub(crate) fn running(&self) -> usize {
        self.working.len()
    }

    /// Takes the next entry of a lane: of the first namespace in turn with an entry that may begin.
    fn take(&mut self, lane: Lane) -> Option<(Id, Entry)> {
        let limits = self.limits;
        let working = || self.working.values().filter(|entry| entry.lane == lane);
        if working().count() >= limits.slots(lane) {
            return None;
        }
        let share = limits.share(lane);
        let may_begin = |entry: &Entry| {
            working().filter(|one| one.verb == entry.verb).count() < share
                && working()
                    .filter(|one| one.namespace == entry.namespace)
                    .count()
                    < share
                && !self.has_running(entry.container.as_deref())
        };
        let waiting = self.waiting.get(&lane)?;
        let mut turns = waiting.turns.iter().enumerate();
        let (turn, position) = turns.find_map(|(turn, namespace)| {
            // A DEL does not overtake the ADD that it undoes.
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

    fn has_running(&self, container: Option<&str>) -> bool {
        container.is_some_and(|id| {
            let mut working = self.working.values();
            working.any(|entry| entry.container.as_deref() == Some(id))
        })
    }
}

impl Waiting {
    /// Takes the entry at `position` of the namespace at `turn`, which then goes to the end of the turns.
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

    fn join(fair: &mut FairQueue, entry: Entry) -> Id {
        fair.join(entry).expect("the queue has room")
    }

    #[test]
    fn last_slots_are_denied_to_a_busy_namespace_and_a_busy_verb() {
        let mut fair = FairQueue::new(LIMITS);
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
    fn namespaces_take_turns_in_order_of_arrival() {
        let mut fair = FairQueue::new(Limits {
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
    fn requests_of_one_container_run_one_at_a_time_in_order() {
        let mut fair = FairQueue::new(LIMITS);
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
    fn del_waits_for_an_earlier_add_that_has_no_slot() {
        let mut fair = FairQueue::new(LIMITS);
        for number in 0..3 {
            join(&mut fair, add("a", &format!("a{number}")));
        }
        fair.start();
        join(&mut fair, add("b", "c1"));
        let del = join(&mut fair, del("b", "c1"));
        assert_eq!(fair.start(), [0; 0]);
        fair.leave(3);
        assert_eq!(fair.start(), [del], "the ADD's client disconnected");
    }

    #[test]
    fn status_has_slots_of_its_own() {
        let mut fair = FairQueue::new(LIMITS);
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
    fn full_queue_refuses_entries() {
        let mut fair = FairQueue::new(Limits {
            waiting: 2,
            ..LIMITS
        });
        join(&mut fair, add("a", "a"));
        join(&mut fair, add("a", "b"));
        assert_eq!(fair.join(add("a", "c")), None);
        fair.leave(0);
        assert_eq!(fair.join(add("a", "c")), Some(2));
    }

    /// One operation on the queue.
    #[derive(Debug, Clone)]
    enum Step {
        Join {
            lane: Lane,
            namespace: u8,
            verb: bool,
            container: u8,
        },
        /// Removes an entry, counted from the oldest.
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
        /// No entry is lost or started twice, limits hold, entries of a container start in order, and all that stay start in the end.
        #[test]
        fn invariants_hold_for_any_sequence(steps in steps(), changes in 1..6_usize, waiting in 1..40_usize) {
            let limits = Limits { changes, waiting, ..LIMITS };
            let mut fair = FairQueue::new(limits);
            let mut present: BTreeMap<Id, Entry> = BTreeMap::new();
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
                            present.insert(id, entry);
                        }
                    }
                    // The oldest running entry ends, or the client of any waiting one disconnects.
                    Step::Leave(0) => {
                        if let Some(id) = started.iter().find(|id| present.contains_key(id)) {
                            fair.leave(*id);
                            present.remove(id);
                        }
                    }
                    Step::Leave(number) => {
                        if let Some(id) = present.keys().nth(number).copied() {
                            fair.leave(id);
                            present.remove(&id);
                        }
                    }
                }
                for id in fair.start() {
                    prop_assert!(!started.contains(&id), "{} twice", id);
                    let mine = &present[&id];
                    let earlier = |(one, other): (&Id, &Entry)| {
                        *one < id && !started.contains(one) && other.lane == mine.lane
                            && other.namespace == mine.namespace && mine.container.is_some()
                            && other.container == mine.container
                    };
                    prop_assert!(!present.iter().any(earlier), "{} passed one of its container", id);
                    started.push(id);
                }
                let working: Vec<&Entry> = present.iter().filter(|(id, _)| started.contains(id)).map(|(_, e)| e).collect();
                for lane in [Lane::Change, Lane::Check, Lane::Status] {
                    let count = working.iter().filter(|entry| entry.lane == lane).count();
                    prop_assert!(count <= limits.slots(lane));
                }
                for (index, one) in working.iter().enumerate() {
                    prop_assert!(one.container.is_none() || working[..index].iter().all(|other| other.container != one.container));
                }
                prop_assert_eq!(fair.waiting(), present.len() - working.len());
            }
            prop_assert!(present.is_empty(), "never served: {:?}", present);
        }
    }
}
