//! Checks the documents of a release from its files alone: each is about a program, image or archive that is there, and what an image or archive consists of is in its list.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use archive::{digest::sha256, lists, tar::Kind, verify::Image};
use serde_json::Value;

use super::{Checkout, Standard, file, images::entries_of};
use crate::{
    arch::Arch,
    description::Release,
    image,
    sbom::{
        self, DIR, ENDING, Item, LICENCE, Listing, NOTICES, VEX, cyclonedx, image_name, image_stem,
        path,
    },
    tree::Tree,
    workstation::Workstation,
};

/// The lists of a release by the paths of their documents without endings.
type Lists = BTreeMap<String, Listing>;

/// Checks the documents and licences. A release of another commit may have fewer of them; one of this checkout has them all.
pub(super) fn check(
    tree: &Tree,
    release: &Release,
    arches: &[Arch],
    images: &[Image],
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let lists = read_all(tree)?;
    for (stem, list) in &lists {
        check_subject(tree, images, &lists, stem, list).with_context(|| stem.clone())?;
    }
    if let Standard::Checkout(checkout) = standard {
        check_derived(tree, release, checkout)?;
    }
    check_vex(tree, release)?;
    check_licences(tree, images, &lists)?;
    if let Standard::Checkout(checkout) = standard {
        check_complete(release, arches, checkout, &lists)?;
        for workstation in Workstation::all_in(tree) {
            file(
                tree,
                &path(&sbom::stem(workstation.name(), &workstation.program())),
            )?;
        }
        check_locked(&lists, checkout)?;
    }
    let own = [LICENCE, NOTICES].map(str::to_owned).into_iter();
    claimed.extend(own.filter(|path| tree.get(path).is_some()));
    claimed.extend(tree.below(DIR).map(|(path, _)| format!("{DIR}{path}")));
    Ok(())
}

fn read_all(tree: &Tree) -> anyhow::Result<Lists> {
    let mut lists = Lists::new();
    for (path, file) in tree.below(DIR) {
        let path = format!("{DIR}{path}");
        if path == VEX {
            continue;
        }
        let stem = path.strip_suffix(ENDING);
        let stem = stem.with_context(|| format!("{path} is not part of a release"))?;
        let context = || format!("{path} is damaged");
        let document: Value = serde_json::from_slice(&file.bytes).with_context(context)?;
        let list = cyclonedx::read(&document).with_context(context)?;
        lists.insert(stem.to_owned(), list);
    }
    Ok(lists)
}

/// Checks that a list has the digest of its subject, and all that its subject consists of.
fn check_subject(
    tree: &Tree,
    images: &[Image],
    lists: &Lists,
    stem: &str,
    list: &Listing,
) -> anyhow::Result<()> {
    let place = stem.strip_prefix(DIR).and_then(|rest| rest.split_once('/'));
    let (arch, subject) = place.context("it is in no directory of an architecture")?;
    let program = tree.get(&format!("bin/{arch}/{subject}"));
    let archive = tree.get(&format!("airgap/{subject}"));
    let manifest_digest = |image: &Image| {
        let platforms = image.platforms.iter();
        let mut platforms = platforms.filter(|one| one.platform.architecture == arch);
        platforms.next().map(|platform| platform.manifest.digest)
    };
    let mut needed: Vec<&Listing> = Vec::new();
    let digest = if let Some(program) = program {
        sha256(program)
    } else if let Some(archive) = archive {
        for image in images {
            let manifest = manifest_digest(image).map(|digest| digest.hex());
            ensure!(
                list.items.iter().any(|item| item.sha256 == manifest),
                "it has no {}",
                image.reference
            );
            needed.extend(lists.get(&image_stem(arch, &image.reference)));
        }
        sha256(archive)
    } else {
        let mut found = images.iter();
        let name = subject.strip_prefix("image-");
        let image = found.find(|image| name == Some(image_name(&image.reference)));
        let image = image.context("the release has no such program, image or archive")?;
        for name in programs_of(tree, image, arch)? {
            let stem = sbom::stem(arch, &name);
            let program = lists.get(&stem);
            needed.push(program.with_context(|| format!("{stem} is missing"))?);
        }
        manifest_digest(image).with_context(|| format!("{} is not for {arch}", image.reference))?
    };
    ensure!(
        list.subject.sha256.as_ref() == Some(&digest.hex()),
        "it is about another file than the one of this release"
    );
    ensure!(!list.items.is_empty(), "it lists nothing");
    for part in needed {
        for item in part.items.iter().chain([&part.subject]) {
            let is_listed = list.items.iter().any(|one| {
                one.purl == item.purl && one.sha256 == item.sha256 && one.name == item.name
            });
            ensure!(
                is_listed,
                "it does not list {}, which {} has",
                item.name,
                part.subject.name
            );
        }
    }
    Ok(())
}

/// Returns the names of the programs in the layers of an image.
fn programs_of(tree: &Tree, image: &Image, arch: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (path, mode, _) in files_of(tree, image, arch)? {
        if mode & 0o111 != 0 {
            names.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
        }
    }
    Ok(names)
}

/// Returns path, mode and content of the files in the layers of an image.
fn files_of(tree: &Tree, image: &Image, arch: &str) -> anyhow::Result<Vec<(String, u32, Vec<u8>)>> {
    let mut files = Vec::new();
    let platforms = image.platforms.iter();
    for platform in platforms.filter(|one| one.platform.architecture == arch) {
        for layer in &platform.layers {
            for entry in entries_of(tree, layer)? {
                if let Kind::File(bytes) = entry.kind {
                    files.push((entry.path, entry.mode, bytes));
                }
            }
        }
    }
    Ok(files)
}

/// Checks the documents that follow from the checkout alone.
fn check_derived(tree: &Tree, release: &Release, checkout: &Checkout) -> anyhow::Result<()> {
    ensure!(
        file(tree, VEX)? == (checkout.vex)(release)?,
        "{VEX} does not follow from xtask/vex.toml"
    );
    ensure!(
        tree.get(LICENCE) == Some(checkout.licence.as_bytes()),
        "{LICENCE} is not that of this checkout"
    );
    file(tree, NOTICES)?;
    Ok(())
}

fn check_vex(tree: &Tree, release: &Release) -> anyhow::Result<()> {
    let Some(bytes) = tree.get(VEX) else {
        return Ok(());
    };
    let document: Value =
        serde_json::from_slice(bytes).with_context(|| format!("{VEX} is damaged"))?;
    ensure!(
        document["metadata"]["component"]["version"] == *release.version,
        "{VEX} is about another release"
    );
    Ok(())
}

/// Checks that the notices name every crate that is linked into a program, and that images have the files of the release.
fn check_licences(tree: &Tree, images: &[Image], lists: &Lists) -> anyhow::Result<()> {
    if let Some(notices) = tree.get(NOTICES) {
        let notices = String::from_utf8_lossy(notices);
        let titles: BTreeSet<&str> = notices.lines().collect();
        for item in lists.values().flat_map(|list| &list.items) {
            let version = item.version.as_deref().unwrap_or_default();
            let title = format!("{} {version}", item.name);
            let is_linked_crate = is_of_registry(item) && !item.is_build_only;
            ensure!(
                !is_linked_crate || titles.contains(title.as_str()),
                "{NOTICES} has no licence of {title}"
            );
        }
    }
    for image in images {
        for platform in &image.platforms {
            let files = files_of(tree, image, &platform.platform.architecture)?;
            for name in [LICENCE, NOTICES] {
                let path = format!("{}/{name}", image::DOCUMENTS);
                let path = path.trim_start_matches('/');
                let found = files.iter().find(|(one, _, _)| one == path);
                let found = found.map(|(_, _, bytes)| bytes.as_slice());
                ensure!(
                    found == tree.get(name),
                    "{} for {}: its /{path} is not {name} of the release",
                    image.reference,
                    platform.platform.architecture
                );
            }
        }
    }
    Ok(())
}

fn is_of_registry(item: &Item) -> bool {
    let purl = item.purl.as_deref();
    purl.is_some_and(|purl| purl.starts_with("pkg:cargo/"))
}

/// Checks that everything of this release has its list.
fn check_complete(
    release: &Release,
    arches: &[Arch],
    checkout: &Checkout,
    lists: &Lists,
) -> anyhow::Result<()> {
    for arch in arches {
        let arch = arch.name();
        let programs = checkout.programs.iter().map(|name| sbom::stem(arch, name));
        let archive = sbom::stem(arch, &lists::archive_name(arch));
        let images = release.images.iter();
        let images = images.map(|image| image_stem(arch, &image.reference));
        for stem in programs.chain([archive]).chain(images) {
            ensure!(lists.contains_key(&stem), "{} is missing", path(&stem));
        }
    }
    Ok(())
}

/// Checks that every crate is one of the lock, with its checksum.
fn check_locked(lists: &Lists, checkout: &Checkout) -> anyhow::Result<()> {
    let locked = (checkout.crates)()?;
    for (stem, list) in lists {
        for item in list.items.iter().filter(|item| is_of_registry(item)) {
            let version = item.version.clone().unwrap_or_default();
            let id = (item.name.clone(), version);
            let checksum = locked.get(&id);
            ensure!(
                checksum.is_some() && checksum == item.sha256.as_ref(),
                "{stem} lists {} {}, which is not that of Cargo.lock",
                id.0,
                id.1
            );
        }
    }
    Ok(())
}
