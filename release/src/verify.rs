//! Verifies a release from its files alone: that they agree with each other, and not only with the checksums.
//!
//! Each check claims the files that it has verified; a file that no check claims is not part of a release. A change is found even when
//! `SHA256SUMS` and `release.json` were rewritten to match it.

mod charts;
mod images;
mod inside;
mod trusted_key;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, FileType},
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::{digest::sha256, lists, medium, verify::Image};

use crate::{
    arch::Arch,
    description::{self, Budget, Origin, Release},
    exports::{self, Exported},
    kubectl_archives, parts, plugin_archives,
    signatures::{self, Report, Trust},
    tree::Tree,
};

/// The parts of a release that follow from a checkout and not from the release's other files.
pub struct Checkout {
    /// The manual pages and completions.
    pub pages: Tree,
    /// The names of the programs of each architecture.
    pub programs: Vec<&'static str>,
    /// Returns everything that has a limit.
    pub budgets: fn(&[Arch], &Tree, &[Image]) -> Vec<Budget>,
    /// The text of the licence.
    pub licence: &'static str,
    /// Returns the document about advisories that do not apply to a release.
    pub vex: fn(&Release) -> anyhow::Result<Vec<u8>>,
    /// Returns the crates that `Cargo.lock` has from the registry.
    pub crates: fn() -> anyhow::Result<Checksums>,
}

/// The sha256 of crates, in hex, by their names and versions.
pub type Checksums = BTreeMap<(String, String), String>;

/// The standard by which a release is judged, in addition to its own description, `release.json`.
#[derive(Clone, Copy)]
pub enum Standard<'a> {
    /// This checkout made it: what this program derives, and the checkout's own parts, must be in it as they are here.
    Checkout(&'a Checkout),
    /// Another commit made it, which may derive other files, lists and limits: `release.json` and the files must agree with each other.
    Description,
}

impl Standard<'_> {
    fn is_checkout(self) -> bool {
        matches!(self, Self::Checkout(_))
    }
}

/// A release that is sound, and whose signatures by the given keys count.
#[derive(Debug)]
pub struct Verified {
    pub release: Release,
    pub report: Report,
}

/// Reads the release in a directory: its files, and its signatures.
pub fn read(dir: &Path) -> anyhow::Result<(Tree, Tree)> {
    ensure!(
        dir.exists(),
        "{} does not exist: name the directory of a release",
        dir.display()
    );
    // Checked before anything is read, since a directory that is not a release may be very large.
    ensure!(
        dir.join(description::SUMS).is_file(),
        "{} has no {}, so it is not a release: name the directory of one",
        dir.display(),
        description::SUMS
    );
    let mut files = Tree::read_medium(dir, signatures::LIMIT)
        .with_context(|| format!("{} is not a sound release", dir.display()))?;
    let empty = empty_dir(dir, medium::is_of_file_system);
    if let Some(empty) = empty.with_context(|| format!("cannot read {}", dir.display()))? {
        bail!(
            "{} is not a sound release: {} is an empty directory, which no release has: remove it, or copy the release again",
            dir.display(),
            empty.strip_prefix(dir).unwrap_or(&empty).display()
        );
    }
    let signatures = signatures::take(&mut files);
    Ok((files, signatures))
}

/// Returns the first directory without an entry, by its name. Entries of `dir` itself for which `is_ignored` is true are left out.
fn empty_dir(dir: &Path, is_ignored: fn(&OsStr, FileType) -> bool) -> io::Result<Option<PathBuf>> {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    if entries.is_empty() {
        return Ok(Some(dir.to_owned()));
    }
    let mut dirs = Vec::new();
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() && !is_ignored(&entry.file_name(), kind) {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    for dir in dirs {
        if let Some(empty) = empty_dir(&dir, |_, _| false)? {
            return Ok(Some(empty));
        }
    }
    Ok(None)
}

/// Verifies the release in a directory, by the standard that `choose` returns for its description; signatures need a key of the user.
pub fn dir<'a>(
    dir: &Path,
    trust: &Trust,
    choose: impl FnOnce(&Release) -> Standard<'a>,
) -> anyhow::Result<Verified> {
    let unsound = || {
        format!(
            "{} is not a sound release, copy it or make it again",
            dir.display()
        )
    };
    let untrusted = || format!("{} is not to be trusted", dir.display());
    let (files, signatures) = read(dir)?;
    // Before anything else is believed.
    signatures::check_sums(&files, &signatures, trust).with_context(untrusted)?;
    let release = check(&files, choose).with_context(unsound)?;
    let report = signatures::check(&files, &signatures, &release, trust);
    let report = report.with_context(untrusted)?;
    Ok(Verified { release, report })
}

/// Verifies the files of a release, without its signatures, by the standard that `choose` returns for its description.
pub fn check<'a>(
    tree: &Tree,
    choose: impl FnOnce(&Release) -> Standard<'a>,
) -> anyhow::Result<Release> {
    let release = check_described(tree)?;
    let standard = choose(&release);
    let arches = architectures(&release)?;
    let mut claimed = BTreeSet::from([description::FILE.to_owned(), description::SUMS.to_owned()]);
    let images = images::check(tree, &release, &arches, standard, &mut claimed)?;
    let charts = charts::check(tree, &release, &arches, standard, &mut claimed)?;
    trusted_key::check(tree, &release, &arches)?;
    inside::check(tree, &release, &arches, &images, standard, &mut claimed)?;
    plugin_archives::check(
        tree,
        &release.version,
        &arches,
        standard.is_checkout(),
        &mut claimed,
    )?;
    kubectl_archives::check(
        tree,
        &release.version,
        &arches,
        standard.is_checkout(),
        &mut claimed,
    )?;
    let names: Vec<_> = images
        .iter()
        .map(|image| image.reference.as_str())
        .collect();
    let exported = Exported {
        version: &release.version,
        arches: &arches,
        images: &names,
        charts: &charts,
    };
    exports::check(tree, &exported, standard.is_checkout(), &mut claimed)?;
    match standard {
        Standard::Checkout(checkout) => {
            for (path, page) in &checkout.pages.0 {
                claim_same(tree, &mut claimed, path.clone(), &page.bytes, "its program")?;
            }
        }
        Standard::Description => {
            let is_page =
                |path: &&String| path.starts_with("man/") || path.starts_with("completions/");
            claimed.extend(tree.0.keys().filter(is_page).cloned());
        }
    }
    claimed.insert(parts::README.to_owned());
    if let Some(path) = tree.0.keys().find(|path| !claimed.contains(*path)) {
        bail!("{path} is not part of a release");
    }
    let origin = Origin {
        version: release.version.clone(),
        commit: release.commit.clone(),
        epoch: release.epoch,
        toolchain: release.toolchain.clone(),
        trusted_key: release.trusted_key,
        build: release.build.clone(),
        architectures: arches,
        image_prefix: release.image_prefix.clone(),
    };
    let budgets = match standard {
        Standard::Checkout(checkout) => (checkout.budgets)(&origin.architectures, tree, &images),
        Standard::Description => {
            check_sizes(&release, tree)?;
            release.budgets.clone()
        }
    };
    let expected = Release::of(origin, tree, &images, charts, budgets);
    ensure!(
        release.images == expected.images,
        "{}: its digests of images are not those of oci/",
        description::FILE
    );
    ensure!(
        release.charts == expected.charts,
        "{}: its digests of charts are not those of charts/",
        description::FILE
    );
    ensure!(
        release == expected,
        "{}: its budgets or files are not those of this release",
        description::FILE
    );
    release.check_budgets()?;
    if standard.is_checkout() {
        ensure!(
            file(tree, parts::README)? == parts::readme(&release, tree).as_bytes(),
            "{} does not follow from the files of the release",
            parts::README
        );
    }
    Ok(release)
}

/// Checks that the two describing files have every other file but signatures, with its hash and mode, and nothing else.
pub fn check_described(tree: &Tree) -> anyhow::Result<Release> {
    check_sums(tree)?;
    let release = Release::parse(file(tree, description::FILE)?)
        .with_context(|| format!("{} is damaged", description::FILE))?;
    check_files(&release, tree)?;
    Ok(release)
}

/// Checks that `SHA256SUMS` has every other file, with its hash, and nothing else.
fn check_sums(tree: &Tree) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(file(tree, description::SUMS)?);
    let sums =
        lists::parse_sums(&text).with_context(|| format!("{} is damaged", description::SUMS))?;
    for (path, digest) in &sums {
        let found = sha256(file(tree, path)?);
        ensure!(
            found == *digest,
            "{path}: its sha256 is {}, {} says {}",
            found.hex(),
            description::SUMS,
            digest.hex()
        );
    }
    let listed: BTreeSet<_> = sums.iter().map(|(path, _)| path.as_str()).collect();
    let unlisted = tree
        .0
        .keys()
        .find(|path| *path != description::SUMS && !listed.contains(path.as_str()));
    match unlisted {
        Some(path) => bail!("{path} is not in {}", description::SUMS),
        None => Ok(()),
    }
}

/// Checks the sizes of files that have limits, by the release's own limits.
fn check_sizes(release: &Release, tree: &Tree) -> anyhow::Result<()> {
    for budget in &release.budgets {
        let Some(bytes) = tree.get(&budget.what) else {
            continue;
        };
        ensure!(
            bytes.len() as u64 == budget.size,
            "{}: its budgets or files are not those of this release",
            description::FILE
        );
    }
    Ok(())
}

fn check_files(release: &Release, tree: &Tree) -> anyhow::Result<()> {
    let real = description::files(tree);
    for file in &release.files {
        let found = real.iter().find(|real| real.path == file.path);
        let found = found.with_context(|| format!("{} is missing", file.path))?;
        ensure!(
            found.mode == file.mode,
            "{}: its mode is {}, {} says {}: the copy lost its modes, restore them with \
             `find DIR -type f -exec chmod 644 {{}} +; chmod 755 DIR/bin/*/* DIR/airgap/multus-airgap-a*`, or copy with tar, `cp -p` or `rsync -p`",
            file.path,
            found.mode,
            description::FILE,
            file.mode
        );
        ensure!(
            found == file,
            "{}: {} describes another file",
            file.path,
            description::FILE
        );
    }
    match real.iter().find(|real| !release.files.contains(real)) {
        Some(file) => bail!("{} is not in {}", file.path, description::FILE),
        None => Ok(()),
    }
}

fn architectures(release: &Release) -> anyhow::Result<Vec<Arch>> {
    let names = release.architectures.iter();
    let arches: Option<Vec<_>> = names.map(|name| Arch::parse(name)).collect();
    let arches = arches
        .filter(|arches| !arches.is_empty() && arches.windows(2).all(|pair| pair[0] < pair[1]));
    arches.with_context(|| format!("{}: its architectures are damaged", description::FILE))
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
