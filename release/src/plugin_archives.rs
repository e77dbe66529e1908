//! `plugins/`: the CNI plugins of each architecture as an archive, for people who want them without Multus. It is unpacked into the
//! directory of the runtime: the program, a link for each plugin, and the licences.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use api::plugins::{NAMES, PROGRAM};

use crate::{
    arch::{Arch, Binaries},
    program_archive,
    tree::Tree,
};

/// Returns the archives under their paths in a release.
pub fn tree(
    version: &str,
    programs: &BTreeMap<Arch, Binaries>,
    licences: &BTreeMap<String, String>,
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for (arch, programs) in programs {
        let program = programs
            .get(PROGRAM)
            .with_context(|| format!("{PROGRAM} was not built for {}", arch.name()))?;
        let archive = program_archive::pack(PROGRAM, program, NAMES, licences)?;
        tree.add(path(*arch, version), archive);
    }
    Ok(tree)
}

fn path(arch: Arch, version: &str) -> String {
    format!("plugins/cni-plugins-linux-{}-v{version}.tgz", arch.name())
}

/// Checks the archives of a release against its programs.
pub fn check(
    tree: &Tree,
    version: &str,
    arches: &[Arch],
    is_checkout: bool,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    for arch in arches {
        let path = path(*arch, version);
        let archive = tree
            .get(&path)
            .with_context(|| format!("{path} is missing"))?;
        let bin = format!("bin/{}/{PROGRAM}", arch.name());
        let program = tree
            .get(&bin)
            .with_context(|| format!("{bin} is missing"))?;
        let names = program_archive::check(archive, PROGRAM, program, tree);
        let names = names.with_context(|| path.clone())?;
        ensure!(
            !is_checkout || names == NAMES,
            "{path} has the plugins {}, this checkout has {}",
            names.join(", "),
            NAMES.join(", ")
        );
        claimed.insert(path);
    }
    Ok(())
}
