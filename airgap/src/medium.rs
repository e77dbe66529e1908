//! The files of `airgap/` for one architecture: archives, lists, and the checksum file that names every other one.
//!
//! A release and an applied delta write the same files, so that each medium passes the same checks.

use std::collections::BTreeMap;

use anyhow::ensure;
use archive::{digest::sha256, layout::Layout, tar::Entry};

use crate::{
    bundle,
    delta::{self, Archive},
    lists, pack,
    tree::Tree,
    ui, zstd,
};

/// Returns the files for all these architectures, by their path on the medium.
pub fn tree(layout: &Layout, architectures: &[&str]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let all_digests = lists::digests(layout);
    for architecture in architectures {
        let part = bundle::slice(layout, architecture)?;
        let archive = delta::archive(&part)?;
        for (name, bytes) in files(architecture, &part, archive, &all_digests) {
            tree.add(name, bytes);
        }
    }
    Ok(tree)
}

/// Returns the deltas from one layout to another and their checksums, which [`crate::commands::apply`] reads.
pub fn deltas(base: &Layout, new: &Layout, architectures: &[&str]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    // The digests of indexes, which no slice has, for the lists that are made of the delta.
    let all_digests = Entry::file(lists::ALL_DIGESTS, 0o644, lists::digests(new));
    for architecture in architectures {
        let slice = |layout: &Layout| bundle::slice(layout, architecture);
        let (old, new) = (slice(base)?, slice(new)?);
        ensure!(
            old != new,
            "nothing is new for {architecture}: --base is this release"
        );
        let mut entries = delta::make(&old, &new)?;
        entries.push(all_digests.clone());
        let (bytes, packed) = pack::bytes(&entries, zstd::ARCHIVE)?;
        let name = lists::delta_name(architecture);
        ui::note(&format!("{name}: {} bytes", bytes.len()));
        let sums = lists::sums([(name.as_str(), packed.digest)]);
        tree.add(lists::sums_name(architecture), sums);
        tree.add(name, bytes);
    }
    Ok(tree)
}

/// Returns the files by their path on the medium, made from an architecture's slice, its archive and the text of [`lists::ALL_DIGESTS`].
///
/// Lists that do not depend on the architecture are the same for each, and each checksum file names them.
pub fn files(
    architecture: &str,
    part: &Layout,
    archive: Archive,
    all_digests: &str,
) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let tags = lists::references(part);
    for list in lists::tag_lists(architecture) {
        files.insert(list, tags.clone().into_bytes());
    }
    let all_digests = all_digests.to_owned().into_bytes();
    files.insert(lists::ALL_DIGESTS.to_owned(), all_digests);
    let digests = lists::digests(part).into_bytes();
    files.insert(lists::digest_list(architecture), digests);
    let mut sums: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)))
        .collect();
    let [zst, gz] = lists::archives(architecture);
    sums.push((zst.clone(), archive.full.zst));
    sums.push((gz.clone(), archive.full.gz));
    files.insert(zst, archive.zst);
    files.insert(gz, archive.gz);
    let sums = lists::sums(sums.iter().map(|(name, digest)| (name.as_str(), *digest)));
    files.insert(lists::sums_name(architecture), sums.into_bytes());
    files
}
