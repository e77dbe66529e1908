//! Checks the documents of a release from its files alone: each is about a program, image or archive that is there, both formats list the
//! same, and what an image or archive consists of is in its list.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::sha256,
    read::{self, Limits},
    tar::Kind,
    verify::Image,
};
use serde_json::Value;

use super::{
    DIR, Header, Inventory, Item, LICENCE, LICENCE_TEXT, Listing, NOTICES, Subjects, VEX,
    cyclonedx, graph, image_name, paths, spdx, vex,
};
use crate::{arch::Arch, programs, release::Release, sets, tree::Tree};

/// The lock that this program was built with, by which it verifies releases of its own commit.
const LOCK: &str = include_str!("../../../Cargo.lock");

const LIMITS: Limits = Limits {
    entries: 10_000,
    total: airgap::check::MAX_UNPACKED,
    links: true,
};

/// The lists of a release by the paths of their documents without endings.
type Lists = BTreeMap<String, Listing>;

/// Checks the documents and licences. A release of another commit may have fewer of them; one of this checkout has them all.
pub(crate) fn check(
    tree: &Tree,
    release: &Release,
    arches: &[Arch],
    images: &[Image],
    is_checkout: bool,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let lists = read_all(tree)?;
    for (stem, list) in &lists {
        check_subject(tree, images, &lists, stem, list).with_context(|| stem.clone())?;
    }
    check_vex(tree, release, is_checkout)?;
    check_licences(tree, images, &lists, is_checkout)?;
    if is_checkout {
        check_complete(release, arches, &lists)?;
        check_locked(&lists)?;
    }
    let own = [LICENCE, NOTICES].map(str::to_owned).into_iter();
    claimed.extend(own.filter(|path| tree.get(path).is_some()));
    claimed.extend(tree.below(DIR).map(|(path, _)| format!("{DIR}{path}")));
    Ok(())
}

/// Compares the documents of a release of this commit with the crates that cargo resolves now.
pub(crate) fn check_graph(inventory: &Inventory, release: &Release) -> anyhow::Result<()> {
    let names = release.architectures.iter();
    let arches: Vec<_> = names.filter_map(|name| Arch::parse(name)).collect();
    let documents = super::documents(inventory, &Subjects::of(release, &arches))?;
    for (path, file) in &documents.0 {
        let found = release.files.iter().find(|one| one.path == *path);
        let found = found.with_context(|| format!("{path} is missing"))?;
        ensure!(
            found.sha256 == sha256(&file.bytes).hex(),
            "{path} does not follow from the crates of this checkout"
        );
    }
    Ok(())
}

fn read_all(tree: &Tree) -> anyhow::Result<Lists> {
    let mut lists = Lists::new();
    for (path, _) in tree.below(DIR) {
        let path = format!("{DIR}{path}");
        if path == VEX {
            continue;
        }
        let stem = [".cdx.json", ".spdx.json"]
            .iter()
            .find_map(|ending| path.strip_suffix(ending));
        let stem = stem.with_context(|| format!("{path} is no part of a release"))?;
        if !lists.contains_key(stem) {
            lists.insert(stem.to_owned(), read_both(tree, stem)?);
        }
    }
    Ok(lists)
}

/// Reads both documents about a subject, which must list the same.
fn read_both(tree: &Tree, stem: &str) -> anyhow::Result<Listing> {
    let [cyclonedx, spdx] = paths(stem);
    let parse = |path: &str| -> anyhow::Result<Value> {
        let bytes = tree
            .get(path)
            .with_context(|| format!("{path} is missing"))?;
        serde_json::from_slice(bytes).with_context(|| format!("{path} is damaged"))
    };
    let (one, other) = (parse(&cyclonedx)?, parse(&spdx)?);
    let one = cyclonedx::read(&one).with_context(|| format!("{cyclonedx} is damaged"))?;
    let other = spdx::read(&other).with_context(|| format!("{spdx} is damaged"))?;
    let items = |list: &Listing| -> BTreeSet<Item> {
        let subject = [list.subject.clone()];
        list.items.iter().cloned().chain(subject).collect()
    };
    let (left, right) = (items(&one), items(&other));
    if let Some(item) = left.symmetric_difference(&right).next() {
        bail!(
            "{cyclonedx} and {spdx} differ about {} {}",
            item.name,
            item.version.as_deref().unwrap_or_default()
        );
    }
    Ok(one)
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
    let of_arch = |image: &Image| {
        let platforms = image.platforms.iter();
        let mut platforms = platforms.filter(|one| one.platform.architecture == arch);
        platforms.next().map(|platform| platform.manifest.digest)
    };
    let mut needed: Vec<&Listing> = Vec::new();
    let digest = if let Some(program) = program {
        sha256(program)
    } else if let Some(archive) = archive {
        for image in images {
            let manifest = of_arch(image).map(|digest| digest.hex());
            ensure!(
                list.items.iter().any(|item| item.sha256 == manifest),
                "it has no {}",
                image.reference
            );
            if sets::is_own(&image.reference)? {
                let own = format!("{DIR}{arch}/image-{}", image_name(&image.reference));
                needed.extend(lists.get(&own));
            }
        }
        sha256(archive)
    } else {
        let mut found = images.iter();
        let image = found.find(|image| {
            let name = subject.strip_prefix("image-");
            name == Some(image_name(&image.reference))
                && sets::is_own(&image.reference).unwrap_or(true)
        });
        let image = image.context("the release has no such program, image or archive")?;
        for name in programs_of(image, arch)? {
            let stem = format!("{DIR}{arch}/{name}");
            let program = lists.get(&stem);
            needed.push(program.with_context(|| format!("{stem} is missing"))?);
        }
        of_arch(image).with_context(|| format!("{} is not for {arch}", image.reference))?
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
fn programs_of(image: &Image, arch: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (path, mode, _) in files_of(image, arch)? {
        if mode & 0o111 != 0 {
            names.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
        }
    }
    Ok(names)
}

/// Returns path, mode and content of the files in the layers of an image.
fn files_of(image: &Image, arch: &str) -> anyhow::Result<Vec<(String, u32, Vec<u8>)>> {
    let mut files = Vec::new();
    let platforms = image.platforms.iter();
    for platform in platforms.filter(|one| one.platform.architecture == arch) {
        for layer in &platform.layers {
            for entry in read::entries(&layer.tar, &LIMITS)? {
                if let Kind::File(bytes) = entry.kind {
                    files.push((entry.path, entry.mode, bytes));
                }
            }
        }
    }
    Ok(files)
}

fn check_vex(tree: &Tree, release: &Release, is_checkout: bool) -> anyhow::Result<()> {
    let Some(bytes) = tree.get(VEX) else {
        ensure!(!is_checkout, "{VEX} is missing");
        return Ok(());
    };
    let document: Value =
        serde_json::from_slice(bytes).with_context(|| format!("{VEX} is damaged"))?;
    ensure!(
        document["metadata"]["component"]["version"] == *release.version,
        "{VEX} is about another release"
    );
    if is_checkout {
        let header = Header {
            created: airgap::time::rfc3339(release.epoch),
            version: release.version.clone(),
        };
        ensure!(
            bytes == super::to_bytes(&vex::document(&header)?)?,
            "{VEX} does not follow from xtask/vex.toml"
        );
    }
    Ok(())
}

/// Checks that the notices name every crate that is linked into a program, and that images have the files of the release.
fn check_licences(
    tree: &Tree,
    images: &[Image],
    lists: &Lists,
    is_checkout: bool,
) -> anyhow::Result<()> {
    if is_checkout {
        ensure!(
            tree.get(LICENCE) == Some(LICENCE_TEXT.as_bytes()),
            "{LICENCE} is not that of this checkout"
        );
        ensure!(tree.get(NOTICES).is_some(), "{NOTICES} is missing");
    }
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
        if !sets::is_own(&image.reference)? {
            continue;
        }
        for platform in &image.platforms {
            let files = files_of(image, &platform.platform.architecture)?;
            for name in [LICENCE, NOTICES] {
                let path = format!("{}/{name}", airgap::image::DOCUMENTS);
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
fn check_complete(release: &Release, arches: &[Arch], lists: &Lists) -> anyhow::Result<()> {
    for arch in arches {
        let arch = arch.name();
        let programs = programs::names().map(str::to_owned);
        let archives = airgap::lists::archives(arch).into_iter();
        let own = release.images.iter().map(|image| image.reference.as_str());
        let own = own.filter(|name| sets::is_own(name).unwrap_or(true));
        let images = own.map(|name| format!("image-{}", image_name(name)));
        for subject in programs.chain(archives).chain(images) {
            let stem = format!("{DIR}{arch}/{subject}");
            let [path, _] = paths(&stem);
            ensure!(lists.contains_key(&stem), "{path} is missing");
        }
    }
    Ok(())
}

/// Checks that every crate is one of the lock, with its checksum.
fn check_locked(lists: &Lists) -> anyhow::Result<()> {
    let locked = graph::checksums(LOCK)?;
    for (stem, list) in lists {
        for item in list.items.iter().filter(|item| is_of_registry(item)) {
            let id = graph::CrateId {
                name: item.name.clone(),
                version: item.version.clone().unwrap_or_default(),
            };
            let checksum = locked.get(&id).cloned().flatten();
            ensure!(
                checksum.is_some() && checksum == item.sha256,
                "{stem} lists {} {}, which is not that of Cargo.lock",
                id.name,
                id.version
            );
        }
    }
    Ok(())
}
