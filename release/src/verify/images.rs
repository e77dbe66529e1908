//! Verifies the OCI layout, the programs in its layers, and the archives made from it.

use std::{collections::BTreeSet, iter, path::Path};

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::sha256,
    image_archive,
    layout::{Layout, blob_path},
    lists,
    read::{self, Limits},
    tar::{Entry, Kind},
    verify::{Image, Layer, MAX_UNPACKED, PlatformImage, unpack},
};
use cmdline::counted;

use super::{Standard, claim_same, file};
use crate::{
    arch::Arch, bundle, description::Release, elf, source, tree::Tree, workstation::Workstation,
};

const LIMITS: Limits = Limits {
    entries: 10_000,
    total: MAX_UNPACKED,
    links: true,
};

/// Checks `bin/`, `oci/` and `airgap/`.
pub(super) fn check(
    tree: &Tree,
    release: &Release,
    arches: &[Arch],
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<Image>> {
    let files = tree.below("oci/");
    let files = files.map(|(path, file)| (path.to_owned(), file.bytes.clone()));
    let layout = Layout::from_files(files).context("oci")?;
    let images = archive::verify::images(&layout).context("oci")?;
    claimed.extend(tree.below("oci/").map(|(path, _)| format!("oci/{path}")));
    check_programs(tree, arches, standard, claimed)?;
    check_names(&images, release)?;
    for image in &images {
        let found = image.platforms.iter().map(|one| &one.platform.architecture);
        let expected = arches.iter().map(|arch| arch.name());
        ensure!(
            found.eq(expected),
            "{}: its platforms are not the architectures of the release",
            image.reference
        );
        for (platform, arch) in image.platforms.iter().zip(arches) {
            ensure!(
                platform.platform == arch.platform(),
                "{}: its platforms are not the architectures of the release",
                image.reference
            );
            check_layers(tree, *arch, platform)
                .with_context(|| format!("{} for {}", image.reference, arch.name()))?;
        }
    }
    if !standard.is_checkout() {
        check_other_lists(tree, &images, claimed)?;
    }
    for arch in arches {
        check_airgap(tree, &layout, arch.name(), standard, claimed)?;
    }
    Ok(images)
}

/// Checks that the release has the image that its charts run, and no other.
fn check_names(images: &[Image], release: &Release) -> anyhow::Result<()> {
    let expected = release.settings().image();
    for image in images {
        ensure!(
            image.reference == expected,
            "oci has {}, the image of this release is {expected}",
            image.reference
        );
    }
    ensure!(!images.is_empty(), "oci has no {expected}");
    Ok(())
}

/// Checks the image lists of another commit, which may have other names and forms: each line names an image in `oci/`, with its digest where it has one.
fn check_other_lists(
    tree: &Tree,
    images: &[Image],
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    for (name, found) in tree.below("airgap/") {
        let is_list = Path::new(name).extension() == Some("txt".as_ref());
        if !is_list || name.starts_with("sha256sum-") {
            continue;
        }
        let text = String::from_utf8_lossy(&found.bytes);
        for line in text.lines() {
            let (reference, digest) = line.split_once('@').unwrap_or((line, ""));
            let image = images.iter().find(|image| image.reference == reference);
            let is_known = image.is_some_and(|image| {
                let manifests = image.platforms.iter().map(|one| one.manifest.digest);
                digest.is_empty()
                    || iter::once(image.digest)
                        .chain(manifests)
                        .any(|one| one.to_string() == digest)
            });
            ensure!(is_known, "airgap/{name} does not follow from oci/: {line}");
        }
        claimed.insert(format!("airgap/{name}"));
    }
    Ok(())
}

fn check_programs(
    tree: &Tree,
    arches: &[Arch],
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    for arch in arches {
        let prefix = format!("bin/{}/", arch.name());
        let names: Vec<_> = match standard {
            Standard::Checkout(checkout) => checkout.programs.clone(),
            Standard::Description => tree.below(&prefix).map(|(name, _)| name).collect(),
        };
        for name in names {
            let path = format!("bin/{}/{name}", arch.name());
            elf::check_static(file(tree, &path)?, *arch).with_context(|| path.clone())?;
            claimed.insert(path);
        }
    }
    for workstation in Workstation::all_in(tree) {
        let path = workstation.path();
        workstation
            .check(file(tree, &path)?)
            .with_context(|| path.clone())?;
        claimed.insert(path);
    }
    Ok(())
}

/// Returns the entries of a verified layer of `oci/`.
pub(super) fn entries_of(tree: &Tree, layer: &Layer) -> anyhow::Result<Vec<Entry>> {
    let blob = file(tree, &format!("oci/{}", blob_path(&layer.blob.digest)))?;
    Ok(read::entries(&unpack(layer, blob)?, &LIMITS)?)
}

/// Checks that every program in a layer is the one in `bin/`.
fn check_layers(tree: &Tree, arch: Arch, platform: &PlatformImage) -> anyhow::Result<()> {
    let mut programs = 0;
    for layer in &platform.layers {
        for entry in entries_of(tree, layer)? {
            let Kind::File(bytes) = &entry.kind else {
                continue;
            };
            if entry.mode & 0o111 == 0 {
                continue;
            }
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            let path = format!("bin/{}/{name}", arch.name());
            ensure!(
                file(tree, &path)? == bytes,
                "/{} in its layer is not {path}",
                entry.path
            );
            programs += 1;
        }
    }
    ensure!(programs > 0, "no program in its layers");
    Ok(())
}

fn check_airgap(
    tree: &Tree,
    layout: &Layout,
    arch: &str,
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let slice = bundle::slice(layout, arch)?;
    let expected = image_archive::entries(&slice)?;
    let name = lists::archive_name(arch);
    let path = format!("airgap/{name}");
    let bytes = file(tree, &path)?;
    check_archive(bytes, &expected).with_context(|| path.clone())?;
    let mut sums = vec![(name, sha256(bytes))];
    claimed.insert(path);
    let program = lists::program_name(arch);
    let path = format!("airgap/{program}");
    if standard.is_checkout() || tree.get(&path).is_some() {
        let program_path = format!("bin/{arch}/{}", source::PROGRAM);
        let bytes = file(tree, &program_path)?;
        claim_same(tree, claimed, path, bytes, &program_path)?;
        sums.push((program, sha256(bytes)));
    }
    let path = format!("airgap/{}", lists::sums_name(arch));
    if !standard.is_checkout() {
        return check_other_sums(tree, path, claimed);
    }
    let all_digests = lists::digests(&layout.images);
    for (name, text) in lists::texts(arch, &slice.images, &all_digests) {
        let path = format!("airgap/{name}");
        claim_same(tree, claimed, path, text.as_bytes(), "oci/")?;
        sums.push((name, sha256(text.as_bytes())));
    }
    let sums = lists::sums(sums.iter().map(|(name, digest)| (name.as_str(), *digest)));
    claim_same(
        tree,
        claimed,
        path,
        sums.as_bytes(),
        "the files that it names",
    )
}

/// Checks the checksums of another commit, which may cover other files of `airgap/`.
fn check_other_sums(
    tree: &Tree,
    path: String,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(file(tree, &path)?);
    let sums = lists::parse_sums(&text).with_context(|| format!("{path} is damaged"))?;
    for (name, digest) in sums {
        ensure!(
            sha256(file(tree, &format!("airgap/{name}"))?) == digest,
            "{path} does not follow from the files that it names: {name} differs"
        );
    }
    claimed.insert(path);
    Ok(())
}

/// Checks that an archive holds exactly the files of the layout, in the order that importers need, and nothing between or after them.
fn check_archive(tar: &[u8], expected: &[Entry]) -> anyhow::Result<()> {
    let found = read::entries(tar, &LIMITS)?;
    for (found, expected) in found.iter().zip(expected) {
        if found != expected {
            bail!(
                "entry {} is not what oci/ holds as {}",
                found.path,
                expected.path
            );
        }
    }
    ensure!(
        found.len() == expected.len(),
        "{}, oci/ makes {}",
        counted(found.len(), "entry"),
        expected.len()
    );
    ensure!(
        tar == archive::tar::write_in_order(expected)?,
        "it has bytes outside of its entries"
    );
    Ok(())
}
