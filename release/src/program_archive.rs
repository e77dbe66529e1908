//! The archive of one program, for people who want that program alone: the program, links to it under further names, and the licences of
//! the release.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use archive::{
    gzip,
    read::{self, Limits},
    tar::{self, Entry, Kind},
};

use crate::{
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

/// Returns the archive of a program under its name, with the licences by name.
pub(crate) fn pack(
    name: &str,
    program: &[u8],
    links: &[&str],
    licences: &BTreeMap<String, String>,
) -> anyhow::Result<Vec<u8>> {
    let links = links.iter().map(|link| Entry::link(*link, name));
    let licences = licences.iter();
    let licences = licences.map(|(name, text)| Entry::file(name, 0o644, text.as_bytes()));
    let program = Entry::file(name, 0o755, program);
    let entries: Vec<_> = links.chain(licences).chain([program]).collect();
    Ok(gzip::compress(&tar::write(&entries)?))
}

/// Fails unless an archive has this program, the licences of the release, and nothing else but links to the program; returns their names.
pub(crate) fn check(
    archive: &[u8],
    name: &str,
    program: &[u8],
    release: &Tree,
) -> anyhow::Result<Vec<String>> {
    let mut missing = BTreeSet::from([name, LICENCE, NOTICES]);
    let mut links = Vec::new();
    for entry in read::entries(&gzip::decompress(archive, MAX_UNPACKED)?, &LIMITS)? {
        let path = entry.path.as_str();
        let bytes = match &entry.kind {
            Kind::Link(target) if target == name => {
                links.push(path.to_owned());
                continue;
            }
            Kind::File(bytes) if missing.remove(path) => bytes,
            _ => bail!("{path} does not belong there"),
        };
        let (expected, mode) = if path == name {
            (Some(program), 0o755)
        } else {
            (release.get(path), 0o644)
        };
        ensure!(
            expected == Some(bytes),
            "its {path} is not that of the release"
        );
        ensure!(
            entry.mode == mode,
            "the mode of its {path} is {:o}",
            entry.mode
        );
    }
    match missing.first() {
        Some(name) => bail!("it has no {name}"),
        None => Ok(links),
    }
}
