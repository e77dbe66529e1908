//! CPU time of processes from a control group of their own, and memory from `/proc`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{node::cgroup, sh};

/// A control group that accounts the CPU time of a process and of all its children.
pub(crate) struct Account(PathBuf);

impl Account {
    /// Creates the group and moves a process into it; children that the process starts later are in it, too.
    pub(crate) fn of(name: &str, pid: u32) -> anyhow::Result<Self> {
        let account = Self::empty(name)?;
        enter(&account.0, pid)?;
        Ok(account)
    }

    /// Creates the group without a process.
    pub(crate) fn empty(name: &str) -> anyhow::Result<Self> {
        let group = cgroup::cpu_accounting()?.join(format!("multus-e2e-bench-{name}"));
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        Ok(Self(group))
    }

    pub(crate) fn group(&self) -> &Path {
        &self.0
    }

    /// Returns the CPU seconds of its processes so far.
    pub(crate) fn seconds(&self) -> anyhow::Result<f64> {
        seconds(&self.0)
    }

    /// Returns the sum of a number over its processes.
    pub(crate) fn sum(&self, of: impl Fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
        let path = self.0.join("cgroup.procs");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut total = 0;
        for pid in text.lines() {
            let pid = pid.parse()?;
            match of(pid) {
                Ok(bytes) => total += bytes,
                // The process may have ended meanwhile.
                Err(_) if !Path::new("/proc").join(pid.to_string()).exists() => (),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // A group can be removed after its last process has left. When this process is in it, it moves itself out.
        let own = std::process::id().to_string();
        let is_in = fs::read_to_string(self.0.join("cgroup.procs"))
            .is_ok_and(|pids| pids.lines().any(|pid| pid == own));
        if is_in && let Some(root) = self.0.parent() {
            let _ = fs::write(root.join("cgroup.procs"), own);
        }
        let _ = sh::until(10, "a control group is removed", || {
            Ok(fs::remove_dir(&self.0)?)
        });
    }
}

/// Moves a process into a group, this one if `pid` is 0.
pub(crate) fn enter(group: &Path, pid: u32) -> anyhow::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
        .with_context(|| format!("cannot put process {pid} into {}", group.display()))
}

/// Returns the CPU seconds of a group's processes so far, for both versions of control groups.
pub(crate) fn seconds(group: &Path) -> anyhow::Result<f64> {
    let read = |name: &str| {
        let path = group.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    if group.join("cpuacct.usage").exists() {
        return nanoseconds(&read("cpuacct.usage")?);
    }
    microseconds(&read("cpu.stat")?)
}

#[expect(clippy::cast_precision_loss, reason = "a run is shorter than 2^52 ns")]
fn nanoseconds(text: &str) -> anyhow::Result<f64> {
    Ok(text.trim().parse::<u64>()? as f64 / 1e9)
}

#[expect(clippy::cast_precision_loss, reason = "a run is shorter than 2^52 µs")]
fn microseconds(text: &str) -> anyhow::Result<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    Ok(line.context("cpu.stat has no usage_usec")?.parse::<u64>()? as f64 / 1e6)
}

/// Returns the present memory of a process in bytes, with its share of shared pages (PSS).
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    kilobytes(&text, "Pss:").with_context(|| format!("{path} has no Pss"))
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_give_seconds() {
        assert!((nanoseconds("1500000000\n").unwrap() - 1.5).abs() < 1e-9);
        let stat = "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n";
        assert!((microseconds(stat).unwrap() - 2.5).abs() < 1e-9);
        assert!(microseconds("user_usec 1\n").is_err());
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            kilobytes("Rss:\t 9 kB\nPss:\t    12 kB\n", "Pss:"),
            Some(12 << 10)
        );
        assert_eq!(kilobytes("Rss:  4 kB\n", "Pss:"), None);
    }
}
