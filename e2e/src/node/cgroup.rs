//! Control groups of a node, beside those of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::sh;

/// Where control groups are mounted; version 1 has a folder per controller, version 2 none.
const CGROUPS: &str = "/sys/fs/cgroup";

/// A node's share of the machine's control groups; two kubelets under one root would end each other's pods.
pub(crate) struct Cgroup {
    /// The same in every hierarchy.
    pub(crate) name: String,
}

impl Cgroup {
    /// Makes an empty group in every hierarchy.
    pub(crate) fn new(node: &str) -> anyhow::Result<Self> {
        let cgroup = Self {
            name: format!("multus-e2e-{node}"),
        };
        for root in roots()? {
            let own = root.join(&cgroup.name);
            fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
            // An empty set of processors admits no process in version 1.
            for set in ["cpuset.cpus", "cpuset.mems"] {
                if root.join(set).exists() {
                    fs::write(own.join(set), fs::read(root.join(set))?)?;
                }
            }
        }
        Ok(cgroup)
    }

    /// The group in the hierarchy of version 2.
    pub(crate) fn unified(&self) -> anyhow::Result<PathBuf> {
        let is_unified = |root: &PathBuf| root.join("cgroup.controllers").exists();
        let root = roots()?.into_iter().find(is_unified);
        let root = root.with_context(|| format!("{CGROUPS} has no control groups of version 2"))?;
        Ok(root.join(&self.name))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let folders =
            || Ok::<_, anyhow::Error>(roots()?.into_iter().map(|root| root.join(&self.name)));
        // The node's processes are being ended; a group can go when its last has gone.
        let _ = sh::until(20, "control groups go", || {
            for folder in folders()? {
                remove(&folder)?;
            }
            Ok(())
        });
    }
}

/// Removes a group and those in it.
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
        // Links are second names of a folder.
        if entry.file_type()?.is_dir() {
            roots.push(entry.path());
        }
    }
    Ok(roots)
}

/// The hierarchy that counts the time of processors.
pub(crate) fn counting() -> anyhow::Result<PathBuf> {
    let counts = |root: &PathBuf| {
        root.join("cpuacct.usage").exists() || root.join("cgroup.controllers").exists()
    };
    let mut roots = roots()?;
    // In a mixture the hierarchy of version 2 is there as well, and counts, too.
    roots.sort_by_key(|root| !root.join("cpuacct.usage").exists());
    let found = roots.into_iter().find(counts);
    found.with_context(|| format!("nothing in {CGROUPS} counts the time of processors"))
}
