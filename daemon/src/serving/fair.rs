//! Decides which request runs next: a plain data structure without clock, thread or lock, so that its rules can be tested by themselves.
//!
//! Each lane has slots of its own, so that CHECK and STATUS never wait behind ADD and DEL. Within a lane, namespaces take turns, and within a
//! namespace entries run in the order of arrival. A namespace gets half of a lane's slots and a verb three quarters, so that plugins that
//! hang for one namespace leave room for the same verb of others. An entry that has run for long waits more than it works: it gives its slot
//! back, so that plugins that hang delay others for that time at most. Then only the lane's maximum counts it, by the same shares. A
//! namespace that runs hardly anything may go beyond that: a network whose plugin hangs, and which many namespaces use, delays no other.
//! Only one entry of a container runs at a time, in the order of arrival.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

/// The most running entries of a lane, for each of its slots.
pub(super) const MOST_PER_SLOT: usize = 4;
/// The most running entries of a lane with those of namespaces that run hardly anything, for each of its slots.
pub(super) const UTMOST_PER_SLOT: usize = 2 * MOST_PER_SLOT;

/// The part of the queue in which an entry waits and runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// ADD and DEL.
    Change,
    /// CHECK and GC.
    Check,
    Status,
    /// Reconciliations of running pods.
    HotPlug,
}

impl Lane {
    /// The lane's name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Check => "check",
            Self::Status => "status",
            Self::HotPlug => "hot-plug",
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

/// The slots of each lane, and how they are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Slots for ADDs and DELs.
    pub(crate) changes: usize,
    /// Slots for CHECKs and GCs.
    pub(crate) checks: usize,
    /// Slots for STATUSes.
    pub(crate) statuses: usize,
    /// Slots for reconciliations of running pods.
    pub(crate) hot_plugs: usize,
    /// The most waiting entries of all lanes.
    pub(crate) waiting: usize,
    /// An entry gives its slot back when it has run for this time.
    pub(crate) slot_time: Duration,
}

impl Limits {
    fn slots(&self, lane: Lane) -> usize {
        match lane {
            Lane::Change => self.changes,
            Lane::Check => self.checks,
            Lane::Status => self.statuses,
            Lane::HotPlug => self.hot_plugs,
        }
        .max(1)
    }
}

/// A namespace that runs fewer entries than this may go beyond the maximum.
const HARDLY_ANY: usize = 2;

/// Returns whether one more entry may run next to these with so many slots: a namespace gets half of them, and a verb three quarters.
fn fits<'a>(entry: &Entry, slots: usize, running: impl Iterator<Item = &'a Entry> + Clone) -> bool {
    let same_verb = running.clone().filter(|one| one.verb == entry.verb);
    let same_namespace = running
        .clone()
        .filter(|one| one.namespace == entry.namespace);
    running.count() < slots
        && same_verb.count() < (slots - (slots / 4).max(1)).max(1)
        && same_namespace.count() < (slots / 2).max(1)
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
    working: HashMap<Id, Running>,
}

#[derive(Debug)]
struct Running {
    entry: Entry,
    since: Instant,
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
        let same_namespace = lane.entries.entry(entry.namespace.clone()).or_default();
        if same_namespace.is_empty() {
            lane.turns.push_back(entry.namespace.clone());
        }
        same_namespace.push_back((id, entry));
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
    pub(crate) fn start(&mut self, now: Instant) -> Vec<Id> {
        let mut started = Vec::new();
        let lanes: Vec<Lane> = self.waiting.keys().copied().collect();
        for lane in lanes {
            while let Some((id, entry)) = self.take(lane, now) {
                self.waiting_count -= 1;
                self.working.insert(id, Running { entry, since: now });
                started.push(id);
            }
        }
        started
    }

    /// Returns the time at which the next running entry gives its slot back, whether it runs already or begins later; waiting entries may
    /// begin then.
    pub(crate) fn next_free_slot(&self, now: Instant) -> Instant {
        let slot_time = self.limits.slot_time;
        let ends = self.working.values().map(|one| one.since + slot_time);
        ends.filter(|end| *end > now)
            .min()
            .unwrap_or(now + slot_time)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting_count
    }

    /// Takes the next entry of a lane: of the first namespace in turn with an entry that may begin.
    fn take(&mut self, lane: Lane, now: Instant) -> Option<(Id, Entry)> {
        let slots = self.limits.slots(lane);
        let most = slots.saturating_mul(MOST_PER_SLOT);
        let utmost = slots.saturating_mul(UTMOST_PER_SLOT);
        let same_lane = self.working.values().filter(|one| one.entry.lane == lane);
        let has_slot = |one: &&Running| now < one.since + self.limits.slot_time;
        let with_slot = same_lane.clone().filter(has_slot).map(|one| &one.entry);
        let running = same_lane.map(|one| &one.entry);
        if with_slot.clone().count() >= slots || running.clone().count() >= utmost {
            return None;
        }
        let runs_hardly_any = |entry: &Entry| {
            let mut same_namespace = running
                .clone()
                .filter(|one| one.namespace == entry.namespace);
            same_namespace.nth(HARDLY_ANY - 1).is_none()
        };
        let may_begin = |entry: &Entry| {
            fits(entry, slots, with_slot.clone())
                && (fits(entry, most, running.clone())
                    || (runs_hardly_any(entry) && fits(entry, utmost, running.clone())))
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
            working.any(|one| one.entry.container.as_deref() == Some(id))
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
        hot_plugs: 2,
        waiting: 100,
        slot_time: Duration::from_secs(3),
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
    fn busy_namespace_leaves_slots_for_the_same_verb_of_others_and_a_busy_verb_for_other_verbs() {
        let (mut fair, now) = (FairQueue::new(LIMITS), Instant::now());
        let adds = [0; 10].map(|_| {
            let container = format!("a{}", fair.next);
            join(&mut fair, add("a", &container))
        });
        assert_eq!(fair.start(now), adds[..2]);
        let other = join(&mut fair, add("b", "b0"));
        let same_namespace = join(&mut fair, del("a", "x"));
        assert_eq!(fair.start(now), [other]);
        let same_verb = join(&mut fair, add("c", "c0"));
        let neither = join(&mut fair, del("d", "d0"));
        assert_eq!(fair.start(now), [neither]);
        fair.leave(other);
        assert_eq!(fair.start(now), [same_verb]);
        assert_eq!(fair.waiting(), 9);
        fair.leave(adds[0]);
        assert_eq!(fair.start(now), [adds[2]]);
        for id in &adds {
            fair.leave(*id);
        }
        assert_eq!(fair.start(now), [same_namespace]);
    }

    #[test]
    fn entry_that_runs_for_long_gives_its_slot_back_up_to_a_maximum() {
        let (mut fair, mut now) = (FairQueue::new(LIMITS), Instant::now());
        let join_add = |fair: &mut FairQueue, namespace: &str| {
            let container = format!("{}", fair.next);
            join(fair, add(namespace, &container))
        };
        for _ in 0..20 {
            join_add(&mut fair, "a");
        }
        let mut running = 0;
        // Half of the slots begin each time, up to half of the maximum.
        for expected in [2, 4, 6, 8, 8] {
            running += fair.start(now).len();
            assert_eq!(running, expected);
            let next = fair.next_free_slot(now);
            assert_eq!(next, now + LIMITS.slot_time);
            let before = next.checked_sub(Duration::from_millis(1)).unwrap();
            assert_eq!(fair.start(before), [0; 0]);
            now = next;
        }
        let other = join_add(&mut fair, "b");
        assert_eq!(fair.start(now), [other]);
    }

    /// A network whose plugin hangs, and which pods of several namespaces use.
    #[test]
    fn namespace_that_runs_hardly_anything_begins_beyond_the_maximum() {
        let (mut fair, mut now) = (FairQueue::new(LIMITS), Instant::now());
        let join_add = |fair: &mut FairQueue, namespace: &str| {
            let container = format!("{}", fair.next);
            join(fair, add(namespace, &container))
        };
        for namespace in ["a", "b", "c"] {
            for _ in 0..20 {
                join_add(&mut fair, namespace);
            }
        }
        for _ in 0..20 {
            fair.start(now);
            now += LIMITS.slot_time;
        }
        let hanging = fair.working.len();
        assert_eq!(hanging, LIMITS.changes * MOST_PER_SLOT * 3 / 4);
        let [first, second, third] = [0; 3].map(|_| join_add(&mut fair, "d"));
        assert_eq!(fair.start(now), [first, second]);
        fair.leave(first);
        assert_eq!(fair.start(now), [third]);
        // Even so there is an end.
        for number in 0..40 {
            join_add(&mut fair, &format!("of-{number}"));
        }
        for _ in 0..100 {
            now += LIMITS.slot_time;
            fair.start(now);
        }
        assert_eq!(fair.working.len(), LIMITS.changes * UTMOST_PER_SLOT * 3 / 4);
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
        while let [id] = fair.start(Instant::now())[..] {
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
        assert_eq!(fair.start(Instant::now()), [first, third]);
        fair.leave(first);
        assert_eq!(fair.start(Instant::now()), [second]);
        fair.leave(second);
        assert_eq!(fair.start(Instant::now()), [check]);
    }

    #[test]
    fn del_waits_for_an_earlier_add_that_has_no_slot() {
        let mut fair = FairQueue::new(LIMITS);
        for namespace in ["a", "c", "d"] {
            join(&mut fair, add(namespace, namespace));
        }
        fair.start(Instant::now());
        join(&mut fair, add("b", "c1"));
        let del = join(&mut fair, del("b", "c1"));
        assert_eq!(fair.start(Instant::now()), [0; 0]);
        fair.leave(3);
        assert_eq!(
            fair.start(Instant::now()),
            [del],
            "the ADD's client disconnected"
        );
    }

    #[test]
    fn status_has_slots_of_its_own() {
        let mut fair = FairQueue::new(LIMITS);
        for number in 0..20 {
            join(&mut fair, add(&number.to_string(), &number.to_string()));
        }
        fair.start(Instant::now());
        let status = Entry {
            lane: Lane::Status,
            namespace: String::new(),
            verb: "STATUS",
            container: None,
        };
        let status = join(&mut fair, status);
        assert_eq!(fair.start(Instant::now()), [status]);
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

    const LANES: [Lane; 4] = [Lane::Change, Lane::Check, Lane::Status, Lane::HotPlug];

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
        /// Lets milliseconds pass.
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let lane = prop::sample::select(&LANES[..]);
        let join = (lane, 0..4_u8, any::<bool>(), 0..6_u8).prop_map(
            |(lane, namespace, verb, container)| Step::Join {
                lane,
                namespace,
                verb,
                container,
            },
        );
        let leave = (0..16_usize).prop_map(Step::Leave);
        let step = prop_oneof![6 => join, 4 => leave, 1 => (0..5000_u64).prop_map(Step::Wait)];
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
            let mut started: Vec<(Id, Instant)> = Vec::new();
            let mut now = Instant::now();
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
                        let mut ids = started.iter().map(|(id, _)| id);
                        if let Some(id) = ids.find(|id| present.contains_key(id)) {
                            fair.leave(*id);
                            present.remove(id);
                        }
                    }
                    Step::Wait(milliseconds) => now += Duration::from_millis(milliseconds),
                    Step::Leave(number) => {
                        if let Some(id) = present.keys().nth(number).copied() {
                            fair.leave(id);
                            present.remove(&id);
                        }
                    }
                }
                let is_started = |started: &[(Id, Instant)], id: Id| started.iter().any(|(one, _)| *one == id);
                for id in fair.start(now) {
                    prop_assert!(!is_started(&started, id), "{} twice", id);
                    let mine = &present[&id];
                    let earlier = |(one, other): (&Id, &Entry)| {
                        *one < id && !is_started(&started, *one) && other.lane == mine.lane
                            && other.namespace == mine.namespace && mine.container.is_some()
                            && other.container == mine.container
                    };
                    prop_assert!(!present.iter().any(earlier), "{} passed one of its container", id);
                    started.push((id, now));
                }
                let working = started.iter().filter_map(|(id, since)| Some((present.get(id)?, *since)));
                let working: Vec<(&Entry, Instant)> = working.collect();
                for lane in LANES {
                    let same_lane = working.iter().filter(|(entry, _)| entry.lane == lane);
                    let with_slot = same_lane.clone().filter(|(_, since)| now < *since + limits.slot_time);
                    prop_assert!(with_slot.count() <= limits.slots(lane));
                    prop_assert!(same_lane.count() <= limits.slots(lane) * UTMOST_PER_SLOT);
                }
                for (index, (one, _)) in working.iter().enumerate() {
                    prop_assert!(one.container.is_none() || working[..index].iter().all(|(other, _)| other.container != one.container));
                }
                prop_assert_eq!(fair.waiting(), present.len() - working.len());
            }
            prop_assert!(present.is_empty(), "never served: {:?}", present);
        }
    }
}
