//! A program beside the levels, in the time that they leave.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Where a kernel weighs sessions against each other (`CONFIG_SCHED_AUTOGROUP`), niceness counts within one alone.
const AFTER_EVERYBODY: &str =
    r#"{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@""#;

/// It runs, in a session of its own and after everybody else; dropped, it is ended with all that it started.
pub(super) struct Beside {
    child: Child,
    /// What it says, so that it does not come between the levels' lines.
    words: PathBuf,
}

impl Beside {
    /// Starts a program; what it says goes to a file.
    pub(super) fn start(words: &Path, program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let file =
            File::create(words).with_context(|| format!("cannot write {}", words.display()))?;
        let child = Command::new("setsid")
            .args(["sh", "-c", AFTER_EVERYBODY, "sh"])
            .arg(program)
            .args(arguments)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start setsid of util-linux")?;
        Ok(Self {
            child,
            words: words.to_owned(),
        })
    }

    /// Waits for its end and gives what it said.
    pub(super) fn end(mut self) -> anyhow::Result<String> {
        let status = self.child.wait()?;
        let words = fs::read_to_string(&self.words)
            .with_context(|| format!("cannot read {}", self.words.display()))?;
        if !status.success() {
            bail!("{status}: {}", words.trim());
        }
        Ok(words)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Known to have ended: its number may be another's by now.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(number) = i32::try_from(self.child.id())
            && let Some(group) = Pid::from_raw(number)
        {
            // It may not have become a group yet.
            let _ = kill_process_group(group, Signal::TERM);
            let _ = kill_process(group, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn what_was_said_comes_with_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let words = dir.path().join("words");
        let run = |script: &str| {
            Beside::start(&words, Path::new("sh"), &["-c", script])
                .unwrap()
                .end()
        };
        let said = run("cat /proc/self/autogroup 2>&-; nice").unwrap();
        assert!(said.ends_with("nice 19\n19\n") || said == "19\n", "{said}");
        let error = run("echo badly >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("badly") && error.contains('3'), "{error}");
    }

    #[test]
    fn dropped_it_is_ended_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let words = dir.path().join("words");
        let script = "sleep 600 & echo $!; wait";
        let beside = Beside::start(&words, Path::new("sh"), &["-c", script]).unwrap();
        let number = loop {
            let said = fs::read_to_string(&words).unwrap();
            if let Some(number) = said.strip_suffix('\n') {
                break number.to_owned();
            }
            thread::yield_now();
        };
        drop(beside);
        let end = Instant::now() + Duration::from_secs(20);
        let is_there = || {
            let state = fs::read_to_string(format!("/proc/{number}/stat"));
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        while is_there() {
            assert!(Instant::now() < end, "it still runs");
            thread::yield_now();
        }
    }
}
