//! Looks for keys in the arguments and environments of all processes of this machine, for as long as the suite runs.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::ensure;

use crate::sh;

/// The pause between two looks: a process that lives longer than a look is seen.
const PAUSE: Duration = Duration::from_millis(5);

/// A thread that looks for words that no process may show.
pub(super) struct KeyWatch {
    found: Arc<Mutex<BTreeSet<Sighting>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    keys: Vec<String>,
    probe: String,
}

/// A process that shows a word.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sighting {
    word: String,
    process: String,
    file: &'static str,
}

impl KeyWatch {
    /// Starts to look for the keys, and for a word that the suite shows itself.
    pub(super) fn start(keys: &[String], probe: String) -> Self {
        let words = [keys, std::slice::from_ref(&probe)].concat();
        let found = Arc::new(Mutex::new(BTreeSet::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let thread = {
            let (found, ends) = (Arc::clone(&found), Arc::clone(&ends));
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let seen = look(Path::new("/proc"), &words);
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(seen);
                    thread::sleep(PAUSE);
                }
            })
        };
        Self {
            found,
            ends,
            thread: Some(thread),
            keys: keys.to_vec(),
            probe,
        }
    }

    /// Fails unless the watch sees a process that shows the probe in its environment, and another one that has it as an argument.
    pub(super) fn sees_a_probe(&self) -> anyhow::Result<()> {
        for (file, in_environment) in [("cmdline", false), ("environ", true)] {
            let mut shows = std::process::Command::new("sleep");
            shows.arg("20");
            if in_environment {
                shows.env("PROBE", &self.probe);
            } else {
                shows = std::process::Command::new("sh");
                shows.args(["-c", "sleep 20; true", &self.probe]);
            }
            let mut process = shows.spawn()?;
            let seen = sh::until(15, "the watch sees a process that shows a word", || {
                let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                let is_it = |one: &Sighting| one.word == self.probe && one.file == file;
                ensure!(found.iter().any(is_it), "it has seen none in {file}");
                Ok(())
            });
            process.kill()?;
            process.wait()?;
            seen?;
        }
        Ok(())
    }

    /// Fails if a process has shown a key, or a log of the suite has it.
    pub(super) fn end(mut self, logs: &Path) -> anyhow::Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            ensure!(thread.join().is_ok(), "the watch has failed");
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<_> = found
            .iter()
            .filter(|one| self.keys.contains(&one.word))
            .map(|one| format!("{} of {}", one.file, one.process))
            .collect();
        ensure!(keys.is_empty(), "a key was in {}", keys.join(", "));
        for log in fs::read_dir(logs)? {
            let path = log?.path();
            let text = fs::read(&path)?;
            let has = |key: &String| contains(&text, key.as_bytes());
            ensure!(!self.keys.iter().any(has), "a key is in {}", path.display());
        }
        Ok(())
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Returns the processes that show one of the words now.
fn look(proc: &Path, words: &[String]) -> BTreeSet<Sighting> {
    let mut found = BTreeSet::new();
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    for process in entries.map(|entry| entry.path()) {
        for file in ["cmdline", "environ"] {
            // A process may end while it is read, and threads of the kernel have neither.
            let Ok(text) = fs::read(process.join(file)) else {
                continue;
            };
            for word in words.iter().filter(|word| contains(&text, word.as_bytes())) {
                let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                found.insert(Sighting {
                    word: word.clone(),
                    process: name.trim().to_owned(),
                    file,
                });
            }
        }
    }
    found
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}
