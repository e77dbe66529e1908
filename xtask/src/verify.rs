//! Verifies a release from its files alone: that they agree with each other, and not only with the checksums.
//!
//! Each check claims the files that it has verified; a file that no check claims is no part of a release. A change is found even when
//! `SHA256SUMS` and `release.json` were rewritten to match it.

mod charts;
mod images;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::Path};

use airgap::lists;
use anyhow::{Context as _, bail, ensure};
use archive::digest::sha256;

use crate::{
    arch::Arch,
    release::{self, Origin, Release},
    tree::Tree,
};

/// Verifies the release in a directory; `pages` are the manual pages and completions that it must have.
pub(crate) fn dir(dir: &Path, pages: &Tree) -> anyhow::Result<Release> {
    // Checked before anything is read, since a directory that is not a release may be very large.
    ensure!(
        dir.join(release::SUMS).is_file(),
        "{} has no {}, so it is not a release: name a directory that `cargo xtask dist` made",
        dir.display(),
        release::SUMS
    );
    Tree::read(dir)
        .and_then(|tree| check(&tree, pages))
        .with_context(|| {
            format!(
                "{} is not a sound release, copy it or make it again",
                dir.display()
            )
        })
}

fn check(tree: &Tree, pages: &Tree) -> anyhow::Result<Release> {
    check_sums(tree)?;
    let release = Release::parse(file(tree, release::FILE)?)
        .with_context(|| format!("{} is damaged", release::FILE))?;
    check_files(&release, tree)?;
    let arches = architectures(&release)?;
    let mut claimed = BTreeSet::from([release::FILE.to_owned(), release::SUMS.to_owned()]);
    let images = images::check(tree, &arches, &mut claimed)?;
    let charts = charts::check(tree, &release, &arches, &mut claimed)?;
    for (path, page) in &pages.0 {
        claim_same(tree, &mut claimed, path.clone(), &page.bytes, "its program")?;
    }
    if let Some(path) = tree.0.keys().find(|path| !claimed.contains(*path)) {
        bail!("{path} is no part of a release");
    }
    let origin = Origin {
        version: release.version.clone(),
        commit: release.commit.clone(),
        epoch: release.epoch,
        toolchain: release.toolchain.clone(),
        architectures: arches,
    };
    let expected = Release::of(origin, tree, &images, charts);
    ensure!(
        release.images == expected.images,
        "{}: its digests of images are not those of oci/",
        release::FILE
    );
    ensure!(
        release.charts == expected.charts,
        "{}: its digests of charts are not those of charts/",
        release::FILE
    );
    ensure!(
        release == expected,
        "{}: its budgets or files are not those of this release",
        release::FILE
    );
    release.check_budgets()?;
    Ok(release)
}

/// Checks that `SHA256SUMS` has every other file, with its hash, and nothing else.
pub(crate) fn check_sums(tree: &Tree) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(file(tree, release::SUMS)?);
    let sums = lists::parse_sums(&text).with_context(|| format!("{} is damaged", release::SUMS))?;
    for (path, digest) in &sums {
        let found = sha256(file(tree, path)?);
        ensure!(
            found == *digest,
            "{path}: its sha256 is {}, {} says {}",
            found.hex(),
            release::SUMS,
            digest.hex()
        );
    }
    let listed: BTreeSet<_> = sums.iter().map(|(path, _)| path.as_str()).collect();
    let unlisted = tree
        .0
        .keys()
        .find(|path| *path != release::SUMS && !listed.contains(path.as_str()));
    match unlisted {
        Some(path) => bail!("{path} is not in {}", release::SUMS),
        None => Ok(()),
    }
}

fn check_files(release: &Release, tree: &Tree) -> anyhow::Result<()> {
    let real = release::files(tree);
    for file in &release.files {
        let found = real.iter().find(|real| real.path == file.path);
        let found = found.with_context(|| format!("{} is missing", file.path))?;
        ensure!(
            found == file,
            "{}: {} describes another file",
            file.path,
            release::FILE
        );
    }
    match real.iter().find(|real| !release.files.contains(real)) {
        Some(file) => bail!("{} is not in {}", file.path, release::FILE),
        None => Ok(()),
    }
}

fn architectures(release: &Release) -> anyhow::Result<Vec<Arch>> {
    let names = release.architectures.iter();
    let arches: Option<Vec<_>> = names.map(|name| Arch::parse(name)).collect();
    let arches = arches
        .filter(|arches| !arches.is_empty() && arches.windows(2).all(|pair| pair[0] < pair[1]));
    arches.with_context(|| format!("{}: its architectures are damaged", release::FILE))
}

/// Returns the bytes of a file that must be there.
fn file<'a>(tree: &'a Tree, path: &str) -> anyhow::Result<&'a [u8]> {
    tree.get(path).with_context(|| format!("{path} is missing"))
}

/// Claims a file that must have exactly these bytes, which follow from `source`.
fn claim_same(
    tree: &Tree,
    claimed: &mut BTreeSet<String>,
    path: String,
    expected: &[u8],
    source: &str,
) -> anyhow::Result<()> {
    ensure!(
        file(tree, &path)? == expected,
        "{path} does not follow from {source}"
    );
    claimed.insert(path);
    Ok(())
}
