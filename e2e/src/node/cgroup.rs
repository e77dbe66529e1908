//! Control groups of a node, next to those of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::sh;

/// The mount point of control groups; version 1 has a directory per controller below it, version 2 is mounted here.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The control group of a node: two kubelets under one root would kill each other's pods.
pub(crate) struct Cgroup {
    /// Its name, the same in every hierarchy.
    pub(crate) name: String,
}

impl Cgroup {
    /// Creates an empty group in every hierarchy.
    pub(crate) fn new(node: &str) -> anyhow::Result<Self> {
        let cgroup = Self {
            name: format!("multus-e2e-{node}"),
        };
        for root in roots()? {
            let own = root.join(&cgroup.name);
            fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
            // In version 1 no process can join a group whose set of processors is empty.
            for set in ["cpuset.cpus", "cpuset.mems"] {
                if root.join(set).exists() {
                    fs::write(own.join(set), fs::read(root.join(set))?)?;
                }
            }
        }
        Ok(cgroup)
    }

    /// Returns the group in the hierarchy of version 2.
    pub(crate) fn unified(&self) -> anyhow::Result<PathBuf> {
        let is_unified = |root: &PathBuf| root.join("cgroup.controllers").exists();
        let root = roots()?.into_iter().find(is_unified);
        let root = root.with_context(|| format!("{CGROUPS} has no control groups of version 2"))?;
        Ok(root.join(&self.name))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let directories =
            || Ok::<_, anyhow::Error>(roots()?.into_iter().map(|root| root.join(&self.name)));
        // The kernel is killing the node's processes; a group can be removed after its last process has ended.
        let _ = sh::until(20, "control groups are removed", || {
            for directory in directories()? {
                remove(&directory)?;
            }
            Ok(())
        });
    }
}

/// Removes a group and its children.
fn remove(group: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(group) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    Ok(fs::remove_dir(group)?)
}

fn roots() -> anyhow::Result<Vec<PathBuf>> {
    let base = Path::new(CGROUPS);
    if base.join("cgroup.controllers").exists() {
        return Ok(vec![base.to_owned()]);
    }
    let mut roots = Vec::new();
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        // Symbolic links are second names of a hierarchy.
        if entry.file_type()?.is_dir() {
            roots.push(entry.path());
        }
    }
    Ok(roots)
}

/// Returns the hierarchy that accounts CPU time.
pub(crate) fn cpu_accounting() -> anyhow::Result<PathBuf> {
    let counts = |root: &PathBuf| {
        root.join("cpuacct.usage").exists() || root.join("cgroup.controllers").exists()
    };
    let mut roots = roots()?;
    // A machine with both versions has the controller in version 1; its hierarchy of version 2 has a `cpu.stat`, too.
    roots.sort_by_key(|root| !root.join("cpuacct.usage").exists());
    let found = roots.into_iter().find(counts);
    found.with_context(|| format!("no hierarchy in {CGROUPS} accounts CPU time"))
}
