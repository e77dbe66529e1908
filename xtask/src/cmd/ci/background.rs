//! A program that runs in the background at the lowest priority, while the suites run.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Lowers the priority of the session too, since niceness counts only within a session on kernels with `CONFIG_SCHED_AUTOGROUP`.
const LOWEST_PRIORITY: &str =
    r#"{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@""#;

/// A program in a session of its own; on drop it is ended, with all that it started.
pub(super) struct Background {
    child: Child,
    /// Its output, which must not mix with the lines of the suites.
    log: PathBuf,
}

impl Background {
    /// Starts a program whose output goes to a file.
    pub(super) fn start(log: &Path, program: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new("setsid")
            .args(["sh", "-c", LOWEST_PRIORITY, "sh"])
            .arg(program)
            .args(args)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start setsid of util-linux")?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Waits for its end and returns its output.
    pub(super) fn wait(mut self) -> anyhow::Result<String> {
        let status = self.child.wait()?;
        let output = fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        if !status.success() {
            bail!("{status}: {}", output.trim());
        }
        Ok(output)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // After its end the process ID may belong to another process.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(number) = i32::try_from(self.child.id())
            && let Some(group) = Pid::from_raw(number)
        {
            // It may not have become the leader of a group yet.
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
    fn output_is_returned_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let run = |script: &str| {
            Background::start(&log, Path::new("sh"), &["-c", script])
                .unwrap()
                .wait()
        };
        let output = run("cat /proc/self/autogroup 2>&-; nice").unwrap();
        assert!(
            output.ends_with("nice 19\n19\n") || output == "19\n",
            "{output}"
        );
        let error = run("echo badly >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("badly") && error.contains('3'), "{error}");
    }

    #[test]
    fn drop_ends_the_program_and_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "sleep 600 & echo $!; wait";
        let background = Background::start(&log, Path::new("sh"), &["-c", script]).unwrap();
        let number = loop {
            let output = fs::read_to_string(&log).unwrap();
            if let Some(number) = output.strip_suffix('\n') {
                break number.to_owned();
            }
            thread::yield_now();
        };
        drop(background);
        let end = Instant::now() + Duration::from_secs(20);
        let is_running = || {
            let state = fs::read_to_string(format!("/proc/{number}/stat"));
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        while is_running() {
            assert!(Instant::now() < end, "it still runs");
            thread::yield_now();
        }
    }
}
