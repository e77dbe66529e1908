//! The record of executions: how many each target had on which commit, and on which sources.
//!
//! Executions count for as long as the sources of their target stay as they are: another commit may have the same.

use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::Context as _;
use archive::durable;
use serde::{Deserialize, Serialize};

const SCHEMA: u32 = 1;
/// A record that goes from night to night has at most this many runs of a target.
const MOST_RUNS: usize = 100;

/// The file, whose runs of one target on one commit are one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) schema: u32,
    pub(super) runs: Vec<Run>,
}

/// The runs of a target on a commit that found nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) target: String,
    pub(super) commit: String,
    pub(super) sources: String,
    pub(super) executions: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            runs: Vec::new(),
        }
    }
}

impl Record {
    /// Reads a record; a file that is not there is an empty one.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            bytes => bytes.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let record: Option<Self> = serde_json::from_slice(&bytes).ok();
        record
            .filter(|record| record.schema == SCHEMA)
            .with_context(|| format!("{} is damaged: remove it", path.display()))
    }

    /// Adds a run to the file; another process may do so at the same time.
    pub(super) fn add(path: &Path, run: Run) -> anyhow::Result<()> {
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            let lock = File::create(path.with_extension("lock"))?;
            lock.lock()?;
            let mut record = Self::read(path)?;
            record.count(run);
            record.write(path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Replaces the file.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let write = || {
            let temporary = path.with_extension("new");
            let mut text = serde_json::to_vec_pretty(self)?;
            text.push(b'\n');
            fs::write(&temporary, text)?;
            durable::rename(&temporary, path)?;
            anyhow::Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    fn count(&mut self, run: Run) {
        match self.same(&run) {
            Some(other) => other.executions += run.executions,
            None => self.push(run),
        }
    }

    /// Adds what another record has. Of runs that are in both the longer counts: one record may have begun as a copy of the other.
    pub(super) fn merge(&mut self, other: Self) {
        for run in other.runs {
            match self.same(&run) {
                Some(own) => own.executions = own.executions.max(run.executions),
                None => self.push(run),
            }
        }
    }

    /// Keeps the runs that fulfil the condition, in the order of their targets and commits.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Run) -> bool) {
        self.runs.retain(is_kept);
        self.runs
            .sort_by(|one, other| (&one.target, &one.commit).cmp(&(&other.target, &other.commit)));
    }

    fn same(&mut self, run: &Run) -> Option<&mut Run> {
        self.runs.iter_mut().find(|other| {
            (&other.target, &other.commit, &other.sources)
                == (&run.target, &run.commit, &run.sources)
        })
    }

    /// Adds a run; of the runs of its target the oldest ones are forgotten.
    fn push(&mut self, run: Run) {
        let of_target = self.runs.iter().filter(|other| other.target == run.target);
        if of_target.count() >= MOST_RUNS
            && let Some(oldest) = self
                .runs
                .iter()
                .position(|other| other.target == run.target)
        {
            self.runs.remove(oldest);
        }
        self.runs.push(run);
    }

    /// Returns how many executions a target had on these sources, on whatever commits.
    pub(super) fn executions(&self, target: &str, sources: &str) -> u64 {
        let runs = self.runs.iter();
        runs.filter(|run| run.target == target && run.sources == sources)
            .map(|run| run.executions)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(target: &str, commit: &str, sources: &str, executions: u64) -> Run {
        Run {
            target: target.to_owned(),
            commit: commit.to_owned(),
            sources: sources.to_owned(),
            executions,
        }
    }

    #[test]
    fn executions_count_on_the_same_sources_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/fuzz.json");
        assert_eq!(Record::read(&path).unwrap(), Record::default());
        for (target, commit, sources, executions) in [
            ("a", "1", "x", 10),
            ("a", "1", "x", 5),
            ("a", "2", "x", 3),
            ("a", "3", "y", 100),
            ("b", "1", "x", 1000),
        ] {
            Record::add(&path, run(target, commit, sources, executions)).unwrap();
        }
        let record = Record::read(&path).unwrap();
        assert_eq!(record.runs.len(), 4);
        assert_eq!(record.executions("a", "x"), 18);
        assert_eq!(record.executions("a", "z"), 0);
    }

    #[test]
    fn runs_in_both_records_count_once() {
        let record = |runs: &[Run]| Record {
            runs: runs.to_vec(),
            ..Record::default()
        };
        let mut own = record(&[run("a", "1", "x", 10), run("b", "1", "x", 1)]);
        own.merge(record(&[
            run("a", "1", "x", 12),
            run("a", "2", "x", 5),
            run("b", "1", "x", 0),
        ]));
        assert_eq!(own.executions("a", "x"), 17);
        assert_eq!(own.executions("b", "x"), 1);
    }

    #[test]
    fn oldest_runs_of_a_target_are_forgotten() {
        let mut record = Record::default();
        record.count(run("b", "1", "x", 1));
        for commit in 0..=MOST_RUNS {
            record.count(run("a", &commit.to_string(), "x", 1));
        }
        assert_eq!(record.executions("a", "x"), MOST_RUNS as u64);
        assert_eq!(record.executions("b", "x"), 1);
        assert!(record.runs.iter().all(|run| run.commit != "0"));
    }

    #[test]
    fn damaged_record_is_no_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fuzz.json");
        for text in ["", "{}", r#"{"schema":2,"runs":[]}"#] {
            fs::write(&path, text).unwrap();
            let error = Record::read(&path).unwrap_err().to_string();
            assert!(error.ends_with("is damaged: remove it"), "{error}");
        }
    }
}
