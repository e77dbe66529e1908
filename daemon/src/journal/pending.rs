//! The queue of journal entries: it decides which entry is next and when a failed one is retried. Callers pass the time, so it reads no clock.
//!
//! Few entries are replayed at once. One whose plugins hang gives its place back after a short time, as in the request queue; then only the
//! maximum counts it. A namespace has half of that, and so have retries, so that DELs which hang again and again keep no other waiting.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{backoff::doubled, state::PodRef};

/// The pause after the first failure. Each further pause is twice as long.
const MIN_BACKOFF: Duration = Duration::from_secs(5);
/// The longest pause, before jitter. Retries do not end: the runtime was told that the DEL is done, so nothing else repeats it.
const MAX_BACKOFF: Duration = Duration::from_mins(2);

/// The entries that are replayed at once. The request queue has slots for other requests next to them.
const AT_ONCE: usize = 3;
/// A replay counts as one of them for this time.
const PLACE_TIME: Duration = Duration::from_secs(3);
/// The most running replays.
const MOST: usize = 12;

/// Device and inode of an entry's file. They differ when the entry is written again.
pub(crate) type Identity = Option<(u64, u64)>;

/// The container and the pod that an entry is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The container ID; empty if the entry cannot be read.
    pub(crate) container: String,
    /// The pod, if the entry names one.
    pub(crate) pod: Option<PodRef>,
}

impl Subject {
    /// Returns whether both are about one container, or about pods of one name: the earlier container may hold what the later needs.
    fn concerns(&self, other: &Self) -> bool {
        let name = |subject: &Self| {
            let pod = subject.pod.as_ref();
            pod.map(|pod| (pod.namespace.clone(), pod.name.clone()))
        };
        (!self.container.is_empty() && self.container == other.container)
            || (self.pod.is_some() && name(self) == name(other))
    }
}

/// The entries of the journal.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
struct Entry {
    subject: Subject,
    identity: Identity,
    stage: Stage,
    failures: u32,
    /// Whether an ADD waits for it.
    is_urgent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Due(Instant),
    /// Since this time.
    Running(Instant),
}

impl Entry {
    /// Returns whether ADDs wait for the entry: they do not wait for one that was tried.
    fn is_untried(&self) -> bool {
        self.failures == 0
    }

    fn running_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running(since) => Some(since),
            Stage::Due(_) => None,
        }
    }

    fn is_running(&self) -> bool {
        self.running_since().is_some()
    }

    fn namespace(&self) -> &str {
        let pod = self.subject.pod.as_ref();
        pod.map_or("", |pod| &pod.namespace)
    }
}

impl Pending {
    /// Adds an entry of the journal. An entry that is known already stays unchanged.
    pub(crate) fn put(
        &mut self,
        path: PathBuf,
        identity: Identity,
        subject: Subject,
        now: Instant,
    ) {
        let known = self.0.get(&path);
        if known.is_none_or(|known| known.identity != identity && !known.is_running()) {
            let entry = Entry {
                subject,
                identity,
                stage: Stage::Due(now),
                failures: 0,
                is_urgent: false,
            };
            self.0.insert(path, entry);
        }
    }

    /// Returns whether this file, by name and identity, is known.
    pub(crate) fn knows(&self, path: &Path, identity: Identity) -> bool {
        let known = self.0.get(path);
        known.is_some_and(|known| known.identity == identity || known.is_running())
    }

    /// Forgets the entries that are no longer in the journal, since another daemon replayed them.
    pub(crate) fn keep(&mut self, exists: impl Fn(&Path) -> bool) {
        self.0
            .retain(|path, entry| entry.is_running() || exists(path));
    }

    /// Takes the next entry that is due, if there is a place: one that an ADD waits for, else one that was not tried, else the one that has
    /// been due longest.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(PathBuf, Subject)> {
        if self.next_place(now).is_some() {
            return None;
        }
        let due = self.waiting().filter(|(_, _, due)| *due <= now);
        let order =
            due.map(|(path, entry, due)| (!entry.is_urgent, !entry.is_untried(), due, path));
        let (.., path) = order.min()?;
        let path = path.clone();
        let entry = self.0.get_mut(&path)?;
        entry.stage = Stage::Running(now);
        Some((path, entry.subject.clone()))
    }

    /// Returns the time at which the next entry may begin. The end of a replay may let one begin earlier.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let due = self.waiting().map(|(.., due)| due).min()?;
        Some(self.next_place(now).map_or(due, |place| place.max(due)))
    }

    /// Returns the time at which a replay gives its place back, if all places are taken.
    fn next_place(&self, now: Instant) -> Option<Instant> {
        let since = self.0.values().filter_map(Entry::running_since);
        let ends = since.map(|since| since + PLACE_TIME);
        let ends: Vec<Instant> = ends.filter(|end| *end > now).collect();
        ends.iter().min().copied().filter(|_| ends.len() >= AT_ONCE)
    }

    /// The entries that wait and may begin beside those that run, and when they are due.
    fn waiting(&self) -> impl Iterator<Item = (&PathBuf, &Entry, Instant)> {
        let running: Vec<&Entry> = self.0.values().filter(|one| one.is_running()).collect();
        let retries = running.iter().filter(|one| !one.is_untried()).count();
        let is_full = running.len() >= MOST;
        self.0.iter().filter_map(move |(path, entry)| {
            let Stage::Due(due) = entry.stage else {
                return None;
            };
            let same_namespace = running
                .iter()
                .filter(|one| one.namespace() == entry.namespace());
            let may_begin = !is_full
                && (entry.is_untried() || retries < MOST / 2)
                && same_namespace.count() < MOST / 2;
            may_begin.then_some((path, entry, due))
        })
    }

    /// Removes a replayed entry.
    pub(crate) fn done(&mut self, path: &Path) {
        self.0.remove(path);
    }

    /// Schedules the retry of a failed entry, and returns whether this is its first failure. `jitter`, between 0 and 1, keeps entries and
    /// nodes from retrying in step.
    pub(crate) fn failed(&mut self, path: &Path, now: Instant, jitter: f64) -> bool {
        let Some(entry) = self.0.get_mut(path) else {
            return false;
        };
        entry.failures = entry.failures.saturating_add(1);
        entry.is_urgent = false;
        // Jitter varies the pause from three quarters to five quarters.
        let backoff = doubled(entry.failures, MIN_BACKOFF, MAX_BACKOFF);
        entry.stage = Stage::Due(now + backoff.mul_f64(0.75 + jitter / 2.0));
        entry.failures == 1
    }

    /// Returns whether an ADD for this container and pod has to wait.
    pub(crate) fn holds_up(&self, add: &Subject) -> bool {
        let mut entries = self.0.values();
        entries.any(|entry| entry.is_untried() && entry.subject.concerns(add))
    }

    /// Moves the entries that an ADD for this container and pod waits for to the front. Returns whether the order changed.
    pub(crate) fn hurry(&mut self, add: &Subject) -> bool {
        let mut changed = false;
        for entry in self.0.values_mut() {
            if entry.is_untried() && !entry.is_urgent && entry.subject.concerns(add) {
                entry.is_urgent = true;
                changed = true;
            }
        }
        changed
    }

    /// Returns whether any entry has not been tried yet.
    pub(crate) fn has_untried(&self) -> bool {
        self.0.values().any(Entry::is_untried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(container: &str, pod: &str) -> Subject {
        Subject {
            container: container.to_owned(),
            pod: (!pod.is_empty()).then(|| PodRef {
                namespace: "shop".to_owned(),
                name: pod.to_owned(),
                uid: String::new(),
            }),
        }
    }

    fn put(pending: &mut Pending, name: &str, subject: Subject, now: Instant) {
        pending.put(name.into(), Some((0, 1)), subject, now);
    }

    #[test]
    fn add_waits_for_entries_of_its_container_or_pod_and_moves_them_to_the_front() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", subject("c1", "cart"), now);
        put(&mut pending, "b", subject("c2", ""), now);
        put(&mut pending, "c", subject("c3", "till"), now);
        assert!(!pending.holds_up(&subject("c9", "other")));
        assert!(!pending.holds_up(&subject("c9", "")));
        assert!(pending.holds_up(&subject("c2", "other")));
        assert!(pending.hurry(&subject("c2", "other")));
        assert!(!pending.hurry(&subject("c2", "other")));
        assert_eq!(pending.take(now).unwrap().0, Path::new("b"));
        assert!(pending.hurry(&subject("c9", "till")));
        assert_eq!(pending.take(now).unwrap().0, Path::new("c"));
        assert!(
            pending.holds_up(&subject("c9", "till")),
            "its replay is running"
        );
        pending.failed(Path::new("c"), now, 0.5);
        assert!(!pending.holds_up(&subject("c9", "till")));
        pending.done(Path::new("b"));
        assert!(!pending.holds_up(&subject("c2", "")));
        assert!(pending.has_untried());
        pending.take(now).unwrap();
        pending.done(Path::new("a"));
        assert!(!pending.has_untried());
    }

    #[test]
    fn backoff_doubles_and_retries_do_not_end() {
        let (mut pending, mut now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", subject("c1", ""), now);
        let path = Path::new("a");
        let mut pauses = Vec::new();
        // About a day.
        for attempt in 0..720 {
            assert!(pending.take(now).is_some(), "attempt {attempt}");
            assert_eq!(pending.failed(path, now, 0.5), attempt == 0);
            assert_eq!(pending.take(now), None, "it waits for its backoff");
            let next = pending.next(now).unwrap();
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses[..6], [5, 10, 20, 40, 80, 120]);
        assert!(pauses[6..].iter().all(|pause| *pause == 120));
        // An entry that is written again starts from the beginning.
        let now = now.checked_sub(Duration::from_secs(1)).unwrap();
        pending.put(path.into(), Some((0, 1)), subject("c1", ""), now);
        assert_eq!(pending.take(now), None);
        pending.put(path.into(), Some((0, 2)), subject("c1", ""), now);
        assert!(pending.take(now).is_some());
    }

    fn subject_in(namespace: &str, container: usize) -> Subject {
        let mut subject = subject(&container.to_string(), "cart");
        subject.pod.as_mut().unwrap().namespace = namespace.to_owned();
        subject
    }

    #[test]
    fn untried_entry_comes_before_retries_that_have_been_due_longer() {
        let (mut pending, start) = (Pending::default(), Instant::now());
        put(&mut pending, "a", subject("c1", ""), start);
        pending.take(start).unwrap();
        pending.failed(Path::new("a"), start, 0.5);
        let now = start + Duration::from_mins(1);
        put(&mut pending, "b", subject("c2", ""), now);
        assert_eq!(pending.take(now).unwrap().0, Path::new("b"));
        assert_eq!(pending.take(now).unwrap().0, Path::new("a"));
    }

    /// Takes entries for as long as any begins, and returns the namespaces of those that began.
    fn begin(pending: &mut Pending, now: &mut Instant) -> Vec<String> {
        let mut begun = Vec::new();
        while let Some(next) = pending.next(*now) {
            *now = next.max(*now);
            let (_, subject) = pending.take(*now).expect("it is due and has a place");
            begun.push(subject.pod.unwrap().namespace);
        }
        begun
    }

    #[test]
    fn replays_that_hang_give_their_places_back_and_leave_some_to_other_namespaces() {
        let (mut pending, mut now) = (Pending::default(), Instant::now());
        for number in 0..30 {
            let name = format!("a{number:02}");
            put(&mut pending, &name, subject_in("a", number), now);
        }
        let first = std::iter::from_fn(|| pending.take(now)).count();
        assert_eq!(first, AT_ONCE);
        assert_eq!(pending.next(now), Some(now + PLACE_TIME));
        let begun = begin(&mut pending, &mut now);
        assert_eq!(first + begun.len(), MOST / 2);
        for number in 30..50 {
            let name = format!("b{number}");
            put(&mut pending, &name, subject_in("b", number), now);
        }
        assert_eq!(begin(&mut pending, &mut now), ["b"; MOST / 2]);
        assert_eq!(pending.next(now), None, "the end of one is awaited");
        pending.done(Path::new("a00"));
        assert_eq!(begin(&mut pending, &mut now), ["a"]);
    }

    #[test]
    fn retries_of_many_namespaces_leave_places_to_untried_entries() {
        let (mut pending, mut now) = (Pending::default(), Instant::now());
        for number in 0..20 {
            let name = format!("a{number:02}");
            put(&mut pending, &name, subject_in(&name, number), now);
        }
        for number in 0..20 {
            let (path, _) = pending.take(now).unwrap();
            pending.failed(&path, now, 0.5);
            assert_eq!(pending.has_untried(), number < 19);
        }
        assert_eq!(begin(&mut pending, &mut now).len(), MOST / 2);
        put(&mut pending, "late", subject_in("late", 99), now);
        assert_eq!(begin(&mut pending, &mut now), ["late"]);
    }

    #[test]
    fn jitter_varies_the_backoff_by_a_quarter() {
        for (jitter, expected) in [(0.0, 3750), (1.0, 6250)] {
            let (mut pending, now) = (Pending::default(), Instant::now());
            put(&mut pending, "a", subject("c1", ""), now);
            pending.take(now).unwrap();
            pending.failed(Path::new("a"), now, jitter);
            assert_eq!((pending.next(now).unwrap() - now).as_millis(), expected);
        }
    }

    #[test]
    fn entry_that_another_daemon_replayed_is_forgotten() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", subject("c1", ""), now);
        put(&mut pending, "b", subject("c2", ""), now);
        pending.keep(|path| path == Path::new("b"));
        assert_eq!(pending.take(now).unwrap().0, Path::new("b"));
        pending.keep(|_| false);
        assert!(pending.failed(Path::new("b"), now, 0.5));
    }
}
