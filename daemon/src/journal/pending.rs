//! Which entry of the journal is next, and when one that failed is tried again: a plain data structure that is told the time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::state::PodRef;

/// The pause after the first failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// No pause is longer, but for its share of chance.
const LAST_PAUSE: Duration = Duration::from_mins(2);
/// So long after its first failure an entry is given up until the next start.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// Device and inode of an entry's file: one that is written again is another.
pub(crate) type Identity = Option<(u64, u64)>;

/// Whom an entry is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// The container; empty where the entry cannot be read.
    pub(crate) container: String,
    /// Its pod, where it has one.
    pub(crate) pod: Option<PodRef>,
}

impl About {
    /// Whether both are about one container, or about pods of one name: the earlier one may hold what the later one needs.
    fn concerns(&self, other: &Self) -> bool {
        let name = |about: &Self| {
            let pod = about.pod.as_ref();
            pod.map(|pod| (pod.namespace.clone(), pod.name.clone()))
        };
        (!self.container.is_empty() && self.container == other.container)
            || (self.pod.is_some() && name(self) == name(other))
    }
}

/// What comes of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the first one; there will be others.
    First,
    /// It is tried again.
    Again,
    /// It is not tried any more.
    GivenUp,
}

/// The entries of the journal.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
struct Entry {
    about: About,
    identity: Identity,
    stage: Stage,
    failures: u32,
    failing_since: Option<Instant>,
    /// An ADD waits for it.
    is_urgent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Due(Instant),
    Running,
    GivenUp,
}

impl Entry {
    /// Whether ADDs wait for it: an entry that was tried once holds nobody up.
    fn is_untried(&self) -> bool {
        self.failures == 0
    }
}

impl Pending {
    /// The journal holds this entry; one that is known already stays as it is.
    pub(crate) fn put(&mut self, path: PathBuf, identity: Identity, about: About, now: Instant) {
        let known = self.0.get(&path);
        if known.is_none_or(|known| known.identity != identity && known.stage != Stage::Running) {
            let entry = Entry {
                about,
                identity,
                stage: Stage::Due(now),
                failures: 0,
                failing_since: None,
                is_urgent: false,
            };
            self.0.insert(path, entry);
        }
    }

    /// Whether this very file is known.
    pub(crate) fn knows(&self, path: &Path, identity: Identity) -> bool {
        let known = self.0.get(path);
        known.is_some_and(|known| known.identity == identity || known.stage == Stage::Running)
    }

    /// Entries that are no longer in the journal are forgotten: another daemon has done them.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&Path) -> bool) {
        self.0
            .retain(|path, entry| entry.stage == Stage::Running || is_there(path));
    }

    /// The next entry to try, and whom it is about.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(PathBuf, About)> {
        let due = |entry: &Entry| match entry.stage {
            Stage::Due(due) if due <= now => Some((!entry.is_urgent, due)),
            _ => None,
        };
        let next = self
            .0
            .iter()
            .filter_map(|(path, entry)| Some((due(entry)?, path)));
        let (_, path) = next.min()?;
        let path = path.clone();
        let entry = self.0.get_mut(&path)?;
        entry.stage = Stage::Running;
        Some((path, entry.about.clone()))
    }

    /// When the next entry is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let due = |entry: &Entry| match entry.stage {
            Stage::Due(due) => Some(due),
            _ => None,
        };
        self.0.values().filter_map(due).min()
    }

    /// The entry is done and gone.
    pub(crate) fn done(&mut self, path: &Path) {
        self.0.remove(path);
    }

    /// The entry failed. `chance` between 0 and 1 keeps entries and nodes from failing in step.
    pub(crate) fn failed(&mut self, path: &Path, now: Instant, chance: f64) -> Verdict {
        let Some(entry) = self.0.get_mut(path) else {
            return Verdict::GivenUp;
        };
        let since = *entry.failing_since.get_or_insert(now);
        let pause = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(16));
        entry.failures += 1;
        entry.is_urgent = false;
        if now.saturating_duration_since(since) >= PATIENCE {
            entry.stage = Stage::GivenUp;
            return Verdict::GivenUp;
        }
        // From three quarters to five quarters.
        let pause = pause.min(LAST_PAUSE).mul_f64(0.75 + chance / 2.0);
        entry.stage = Stage::Due(now + pause);
        if entry.failures == 1 {
            Verdict::First
        } else {
            Verdict::Again
        }
    }

    /// Whether an ADD for this container and pod has to wait.
    pub(crate) fn holds_up(&self, add: &About) -> bool {
        let mut entries = self.0.values();
        entries.any(|entry| entry.is_untried() && entry.about.concerns(add))
    }

    /// What an ADD for this container and pod waits for comes first; whether that is news.
    pub(crate) fn hurry(&mut self, add: &About) -> bool {
        let mut is_news = false;
        for entry in self.0.values_mut() {
            if entry.is_untried() && !entry.is_urgent && entry.about.concerns(add) {
                entry.is_urgent = true;
                is_news = true;
            }
        }
        is_news
    }

    /// Whether some entry has not been tried yet.
    pub(crate) fn has_untried(&self) -> bool {
        self.0.values().any(Entry::is_untried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(container: &str, pod: &str) -> About {
        About {
            container: container.to_owned(),
            pod: (!pod.is_empty()).then(|| PodRef {
                namespace: "shop".to_owned(),
                name: pod.to_owned(),
                uid: String::new(),
            }),
        }
    }

    fn put(pending: &mut Pending, name: &str, about: About, now: Instant) {
        pending.put(name.into(), Some((0, 1)), about, now);
    }

    #[test]
    fn only_adds_of_the_same_container_or_pod_wait_and_what_they_wait_for_comes_first() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", about("c1", "cart"), now);
        put(&mut pending, "b", about("c2", ""), now);
        put(&mut pending, "c", about("c3", "till"), now);
        assert!(!pending.holds_up(&about("c9", "other")));
        assert!(!pending.holds_up(&about("c9", "")));
        assert!(pending.holds_up(&about("c2", "other")));
        assert!(pending.hurry(&about("c2", "other")));
        assert!(!pending.hurry(&about("c2", "other")));
        assert_eq!(pending.take(now).unwrap().0, Path::new("b"));
        assert!(pending.hurry(&about("c9", "till")));
        assert_eq!(pending.take(now).unwrap().0, Path::new("c"));
        assert!(pending.holds_up(&about("c9", "till")), "it is not over yet");
        pending.failed(Path::new("c"), now, 0.5);
        assert!(!pending.holds_up(&about("c9", "till")));
        pending.done(Path::new("b"));
        assert!(!pending.holds_up(&about("c2", "")));
        assert!(pending.has_untried());
        pending.take(now).unwrap();
        pending.done(Path::new("a"));
        assert!(!pending.has_untried());
    }

    #[test]
    fn failures_are_tried_again_later_and_later_and_end() {
        let (mut pending, mut now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", about("c1", ""), now);
        let (path, start) = (Path::new("a"), now);
        let (mut pauses, mut verdicts) = (Vec::new(), Vec::new());
        while let Some((_, _)) = pending.take(now) {
            verdicts.push(pending.failed(path, now, 0.5));
            assert_eq!(pending.take(now), None, "not at once");
            if let Some(next) = pending.next() {
                pauses.push((next - now).as_secs());
                now = next;
            }
        }
        assert_eq!(pauses[..6], [5, 10, 20, 40, 80, 120]);
        assert_eq!(verdicts[0], Verdict::First);
        assert_eq!(verdicts.last(), Some(&Verdict::GivenUp));
        let others = &verdicts[1..verdicts.len() - 1];
        assert!(others.iter().all(|one| *one == Verdict::Again));
        assert!(now - start >= PATIENCE && now - start < PATIENCE + 2 * LAST_PAUSE);
        // What is written again has its time again.
        pending.put(path.into(), Some((0, 1)), about("c1", ""), now);
        assert_eq!(pending.take(now), None);
        pending.put(path.into(), Some((0, 2)), about("c1", ""), now);
        assert!(pending.take(now).is_some());
    }

    #[test]
    fn chance_moves_a_pause_by_a_quarter() {
        for (chance, expected) in [(0.0, 3750), (1.0, 6250)] {
            let (mut pending, now) = (Pending::default(), Instant::now());
            put(&mut pending, "a", about("c1", ""), now);
            pending.take(now).unwrap();
            pending.failed(Path::new("a"), now, chance);
            assert_eq!((pending.next().unwrap() - now).as_millis(), expected);
        }
    }

    #[test]
    fn what_another_daemon_has_done_is_forgotten() {
        let (mut pending, now) = (Pending::default(), Instant::now());
        put(&mut pending, "a", about("c1", ""), now);
        put(&mut pending, "b", about("c2", ""), now);
        pending.keep(|path| path == Path::new("b"));
        assert_eq!(pending.take(now).unwrap().0, Path::new("b"));
        pending.keep(|_| false);
        assert_eq!(pending.failed(Path::new("b"), now, 0.5), Verdict::First);
    }
}
