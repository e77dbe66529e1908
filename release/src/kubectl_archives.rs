//! `krew/`: the kubectl plugin for each machine of an operator as an archive with the licences, and the manifest by which krew installs
//! it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use archive::digest::{Digest, sha256};

pub use crate::workstation::PROGRAM;
use crate::{arch::Arch, program_archive, tree::Tree, workstation::Workstation};

/// The directory of the archives in a release.
pub const DIR: &str = "krew/";
/// The manifest, which krew wants under the name of the plugin.
pub const MANIFEST: &str = "krew/multus.yaml";
/// The address below which a forge has the files of a release.
const DOWNLOADS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/releases/download");

/// A machine that the plugin is built for, with names as Go and krew have them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    os: &'static str,
    arch: &'static str,
    /// The path of the program in a release.
    path: String,
    /// The name of the program.
    program: String,
}

impl From<Arch> for Machine {
    fn from(arch: Arch) -> Self {
        Self {
            os: "linux",
            arch: arch.name(),
            path: format!("bin/{}/{PROGRAM}", arch.name()),
            program: PROGRAM.to_owned(),
        }
    }
}

impl From<Workstation> for Machine {
    fn from(workstation: Workstation) -> Self {
        let (os, arch) = workstation.os_and_arch();
        Self {
            os,
            arch,
            path: workstation.path(),
            program: workstation.program(),
        }
    }
}

impl Machine {
    /// Returns the machines of a release with these architectures: its nodes, and the workstations that it has the plugin for.
    fn all_in(release: &Tree, arches: &[Arch]) -> Vec<Self> {
        let nodes = arches.iter().map(|&arch| Self::from(arch));
        nodes
            .chain(Workstation::all_in(release).map(Self::from))
            .collect()
    }

    /// Returns the program in a release.
    fn program<'a>(&self, release: &'a Tree) -> anyhow::Result<&'a [u8]> {
        let bytes = release.get(&self.path);
        bytes.with_context(|| format!("{} is missing", self.path))
    }

    /// Returns the name of its archive.
    fn archive(&self, version: &str) -> String {
        format!("{PROGRAM}-v{version}-{}-{}.tar.gz", self.os, self.arch)
    }
}

/// Returns everything below `krew/`, made from the programs in `bin/` and the licences by name.
pub fn tree(
    version: &str,
    arches: &[Arch],
    release: &Tree,
    licences: &BTreeMap<String, String>,
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let mut digests = Vec::new();
    for machine in Machine::all_in(release, arches) {
        let program = machine.program(release)?;
        let archive = program_archive::pack(&machine.program, program, &[], licences)?;
        let digest = sha256(&archive);
        tree.add(format!("{DIR}{}", machine.archive(version)), archive);
        digests.push((machine, digest));
    }
    tree.add(MANIFEST, manifest(version, &digests));
    Ok(tree)
}

/// Returns the manifest for archives with these digests.
fn manifest(version: &str, archives: &[(Machine, Digest)]) -> String {
    let platforms = archives.iter().map(|(machine, digest)| {
        format!(
            "    - selector:\n        matchLabels:\n          os: {}\n          arch: {}\n      uri: {DOWNLOADS}/v{version}/{}\n      sha256: {}\n      bin: {}\n",
            machine.os,
            machine.arch,
            machine.archive(version),
            digest.hex(),
            machine.program
        )
    });
    format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\n\
         kind: Plugin\n\
         metadata:\n  name: multus\n\
         spec:\n  version: v{version}\n  homepage: {}\n  \
         shortDescription: Show, diagnose and validate the networks of pods\n  \
         description: |\n    \
         Shows the networks that a pod has, says what keeps a pod from its networks and what helps, validates\n    \
         definitions and pods before they are applied, and reports what an installation of Multus would change.\n  \
         platforms:\n{}",
        env!("CARGO_PKG_REPOSITORY"),
        platforms.collect::<String>()
    )
}

/// Checks the archives of a release against its programs, and the manifest against the archives.
pub fn check(
    tree: &Tree,
    version: &str,
    arches: &[Arch],
    is_checkout: bool,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let file = |path: &str| {
        let bytes = tree.get(path);
        bytes.with_context(|| format!("{path} is missing"))
    };
    let mut digests = Vec::new();
    for machine in Machine::all_in(tree, arches) {
        let path = format!("{DIR}{}", machine.archive(version));
        let archive = file(&path)?;
        check_archive(archive, &machine, tree).with_context(|| path.clone())?;
        digests.push((machine, sha256(archive)));
        claimed.insert(path);
    }
    let found = String::from_utf8_lossy(file(MANIFEST)?);
    let follows = if is_checkout {
        found == manifest(version, &digests)
    } else {
        let mut digests = digests.iter();
        digests.all(|(_, digest)| found.contains(&digest.hex()))
    };
    ensure!(follows, "{MANIFEST} does not follow from the archives");
    claimed.insert(MANIFEST.to_owned());
    Ok(())
}

fn check_archive(archive: &[u8], machine: &Machine, tree: &Tree) -> anyhow::Result<()> {
    let program = machine.program(tree)?;
    let links = program_archive::check(archive, &machine.program, program, tree)?;
    match links.first() {
        Some(link) => bail!("{link} does not belong there"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use archive::{
        gzip,
        tar::{self, Entry},
    };
    use serde_yaml::Value;

    use super::*;
    use crate::sbom::{LICENCE, NOTICES};

    const ARCHES: [Arch; 2] = [Arch::Amd64, Arch::Arm];
    const AMD64: &str = "krew/kubectl-multus-v9.8.7-linux-amd64.tar.gz";

    /// Returns a release with programs, licences and what follows from them.
    fn release() -> Tree {
        let mut release = Tree::default();
        let licences = BTreeMap::from([LICENCE, NOTICES].map(|name| (name.into(), name.into())));
        for (name, text) in &licences {
            let (name, text): (&String, &String) = (name, text);
            release.add(name, text.as_bytes());
        }
        for arch in ARCHES {
            let path = format!("bin/{}/{PROGRAM}", arch.name());
            release.add_program(path, arch.name().into());
        }
        release.add_program(Workstation::WindowsAmd64.path(), b"windows".into());
        let tree = tree("9.8.7", &ARCHES, &release, &licences).unwrap();
        release.extend(tree);
        release
    }

    fn outcome(release: &Tree, is_checkout: bool) -> Result<BTreeSet<String>, String> {
        let mut claimed = BTreeSet::new();
        let outcome = check(release, "9.8.7", &ARCHES, is_checkout, &mut claimed);
        outcome.map_err(|error| format!("{error:#}"))?;
        Ok(claimed)
    }

    #[test]
    fn manifest_has_the_digest_of_every_archive() {
        let release = release();
        let manifest: Value = serde_yaml::from_slice(release.get(MANIFEST).unwrap()).unwrap();
        assert_eq!(manifest["metadata"]["name"], "multus");
        assert_eq!(manifest["spec"]["version"], "v9.8.7");
        let platforms = manifest["spec"]["platforms"].as_sequence().unwrap();
        let expected = [
            ("linux", "amd64", "kubectl-multus"),
            ("linux", "arm", "kubectl-multus"),
            ("windows", "amd64", "kubectl-multus.exe"),
        ];
        assert_eq!(platforms.len(), expected.len());
        for (platform, (os, arch, program)) in platforms.iter().zip(expected) {
            let labels = &platform["selector"]["matchLabels"];
            assert_eq!(labels["os"], os);
            assert_eq!(labels["arch"], arch);
            assert_eq!(platform["bin"], program);
            let uri = platform["uri"].as_str().unwrap();
            assert!(uri.contains("/releases/download/v9.8.7/"), "{uri}");
            let file = uri.rsplit('/').next().unwrap();
            let archive = release.get(&format!("{DIR}{file}")).unwrap();
            assert_eq!(platform["sha256"], sha256(archive).hex());
        }
        let description = manifest["spec"]["shortDescription"].as_str().unwrap();
        assert!(description.len() < 51, "krew cuts it off: {description}");
    }

    #[test]
    fn other_archives_and_manifests_are_refused_by_name() {
        let sound = release();
        for is_checkout in [true, false] {
            assert_eq!(outcome(&sound, is_checkout).unwrap().len(), 4);
            let refused = |change: &dyn Fn(&mut Tree), expected: &str| {
                let mut harmed = sound.clone();
                change(&mut harmed);
                let error = outcome(&harmed, is_checkout).unwrap_err();
                assert!(error.contains(expected), "{error}");
            };
            let replace = |entries: &[Entry]| gzip::compress(&tar::write(entries).unwrap());
            let program = |bytes: &str, mode| Entry::file(PROGRAM, mode, bytes);
            let licences = [LICENCE, NOTICES].map(|name| Entry::file(name, 0o644, name));
            let with = |more: &[Entry]| replace(&[&licences[..], more].concat());
            refused(
                &|tree| drop(tree.0.remove(AMD64)),
                "amd64.tar.gz is missing",
            );
            refused(
                &|tree| tree.add(AMD64, with(&[program("evil", 0o755)])),
                "its kubectl-multus is not that of the release",
            );
            refused(
                &|tree| tree.add(AMD64, with(&[program("amd64", 0o644)])),
                "the mode of its kubectl-multus is 644",
            );
            refused(
                &|tree| tree.add(AMD64, with(&[])),
                "it has no kubectl-multus",
            );
            refused(
                &|tree| tree.add(AMD64, replace(&[program("amd64", 0o755)])),
                "it has no LICENSE",
            );
            for extra in [Entry::file("more", 0o644, ""), Entry::link("more", PROGRAM)] {
                refused(
                    &|tree| tree.add(AMD64, with(&[program("amd64", 0o755), extra.clone()])),
                    "more does not belong there",
                );
            }
            refused(
                &|tree| tree.add(MANIFEST, manifest("9.8.7", &[])),
                "krew/multus.yaml does not follow from the archives",
            );
        }
    }
}
