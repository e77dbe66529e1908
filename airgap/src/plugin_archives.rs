//! `plugins/`: the CNI plugins of each architecture as an archive, for people who want them without Multus. It is unpacked into the
//! directory of the runtime: the program, a link for each plugin, and the licences.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use api::plugins::{NAMES, PROGRAM};
use archive::{
    gzip,
    read::{self, Limits},
    tar::{self, Entry, Kind},
};

use crate::{
    arch::{Arch, Binaries},
    sbom::{LICENCE, NOTICES},
    tree::Tree,
};

/// The most bytes that are unpacked.
const MAX_UNPACKED: u64 = 64 << 20;
const LIMITS: Limits = Limits {
    entries: 1000,
    total: MAX_UNPACKED,
    links: true,
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
        tree.add(path(*arch, version), pack(program, licences)?);
    }
    Ok(tree)
}

fn path(arch: Arch, version: &str) -> String {
    format!("plugins/cni-plugins-linux-{}-v{version}.tgz", arch.name())
}

fn pack(program: &[u8], licences: &BTreeMap<String, String>) -> anyhow::Result<Vec<u8>> {
    let links = NAMES.iter().map(|name| Entry::link(*name, PROGRAM));
    let licences = licences.iter();
    let licences = licences.map(|(name, text)| Entry::file(name, 0o644, text.as_bytes()));
    let entries: Vec<_> = links
        .chain(licences)
        .chain([Entry::file(PROGRAM, 0o755, program)])
        .collect();
    Ok(gzip::compress(&tar::write(&entries)?))
}

/// Checks the archives of a release against its programs. A release without any is one from before there were plugins.
pub fn check(
    tree: &Tree,
    version: &str,
    arches: &[Arch],
    is_checkout: bool,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    if !is_checkout && tree.below("plugins/").next().is_none() {
        return Ok(());
    }
    for arch in arches {
        let path = path(*arch, version);
        let archive = tree
            .get(&path)
            .with_context(|| format!("{path} is missing"))?;
        let bin = format!("bin/{}/{PROGRAM}", arch.name());
        let program = tree
            .get(&bin)
            .with_context(|| format!("{bin} is missing"))?;
        let names = check_archive(archive, program, tree).with_context(|| path.clone())?;
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

/// Returns the names of the plugins. The licences are those of the release, which may be from before there were any.
fn check_archive(archive: &[u8], program: &[u8], tree: &Tree) -> anyhow::Result<Vec<String>> {
    let unpacked = gzip::decompress(archive, MAX_UNPACKED)?;
    let (mut names, mut has_program) = (Vec::new(), false);
    let mut licences = Vec::new();
    for entry in read::entries(&unpacked, &LIMITS)? {
        match &entry.kind {
            Kind::Link(target) if target == PROGRAM => names.push(entry.path),
            Kind::File(bytes) if entry.path == PROGRAM => {
                ensure!(bytes == program, "its program is not the one in bin/");
                ensure!(
                    entry.mode == 0o755,
                    "the mode of its program is {:o}",
                    entry.mode
                );
                has_program = true;
            }
            Kind::File(bytes) if [LICENCE, NOTICES].contains(&entry.path.as_str()) => {
                let found = tree.get(&entry.path);
                ensure!(
                    found == Some(bytes),
                    "its {} is not that of the release",
                    entry.path
                );
                licences.push(entry.path);
            }
            _ => bail!("{} does not belong there", entry.path),
        }
    }
    ensure!(has_program, "it has no {PROGRAM}");
    for name in [LICENCE, NOTICES] {
        ensure!(
            tree.get(name).is_none() || licences.iter().any(|one| one == name),
            "it has no {name}"
        );
    }
    Ok(names)
}
