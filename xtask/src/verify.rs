//! Verifying a release from its files alone: what they say about each other, not only what the sums say about them.
//!
//! Each check claims the files it has looked at; a file that nothing claims is no part of a release. So a change is
//! found although `SHA256SUMS` and `release.json` were rewritten to match it.

mod charts;
mod explain;
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
    shipped,
    tree::Tree,
};

pub(crate) use self::explain::difference;

/// Verifies the release in a folder.
pub(crate) fn folder(dir: &Path) -> anyhow::Result<Release> {
    // Before anything is read: a folder that is no release may be very large.
    ensure!(
        dir.join(release::SUMS).is_file(),
        "{} holds no {}, so it is no release: name a folder that `cargo xtask dist` made",
        dir.display(),
        release::SUMS
    );
    Tree::read(dir)
        .and_then(|tree| check(&tree))
        .with_context(|| {
            format!(
                "{} is not a sound release, copy it or make it again",
                dir.display()
            )
        })
}

/// Verifies a release.
pub(crate) fn check(tree: &Tree) -> anyhow::Result<Release> {
    sums_hold(tree)?;
    let release = Release::parse(part(tree, release::FILE)?)
        .with_context(|| format!("{} is damaged", release::FILE))?;
    files_hold(&release, tree)?;
    let arches = architectures(&release)?;
    let mut claimed = BTreeSet::from([release::FILE.to_owned(), release::SUMS.to_owned()]);
    let followed = images::check(tree, &arches, &mut claimed)?;
    let charts = charts::check(tree, &release, &arches, &mut claimed)?;
    for (path, page) in shipped::tree().0 {
        same(tree, &mut claimed, path, &page.bytes, "its program")?;
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
    let expected = Release::of(origin, tree, &followed, charts);
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
    release.budgets_hold()?;
    Ok(release)
}

/// Every other file stands in `SHA256SUMS`, with its hash, and nothing else does.
pub(crate) fn sums_hold(tree: &Tree) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(part(tree, release::SUMS)?);
    let sums = lists::parse_sums(&text).with_context(|| format!("{} is damaged", release::SUMS))?;
    for (path, digest) in &sums {
        let found = sha256(part(tree, path)?);
        ensure!(
            found == *digest,
            "{path}: its sha256 is {}, {} says {}",
            found.hex(),
            release::SUMS,
            digest.hex()
        );
    }
    let listed: BTreeSet<_> = sums.iter().map(|(path, _)| path.as_str()).collect();
    let stray = tree
        .0
        .keys()
        .find(|path| *path != release::SUMS && !listed.contains(path.as_str()));
    match stray {
        Some(path) => bail!("{path} does not stand in {}", release::SUMS),
        None => Ok(()),
    }
}

fn files_hold(release: &Release, tree: &Tree) -> anyhow::Result<()> {
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
        Some(file) => bail!("{} does not stand in {}", file.path, release::FILE),
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

/// A file that must be there.
fn part<'a>(tree: &'a Tree, path: &str) -> anyhow::Result<&'a [u8]> {
    tree.get(path).with_context(|| format!("{path} is missing"))
}

/// A file that must be there with exactly these bytes.
fn same(
    tree: &Tree,
    claimed: &mut BTreeSet<String>,
    path: String,
    expected: &[u8],
    of: &str,
) -> anyhow::Result<()> {
    ensure!(
        part(tree, &path)? == expected,
        "{path} does not follow from {of}"
    );
    claimed.insert(path);
    Ok(())
}
