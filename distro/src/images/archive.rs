//! The content of one archive: the names of its images, and the check of every byte against the digests.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::{
    layout::Layout,
    oci::{self, Index},
    read::{Limits, entries},
    tar::Entry,
    verify,
};
use node::root::Root;
use ruzstd::decoding::StreamingDecoder;

use super::{ArchiveDir, arch, archive_dir::CheckedFile};
use crate::assets::IMAGES;

/// Far more than an index with every image that ever was in a release.
const MAX_INDEX: u64 = 4 << 20;
/// The limits of an archive, since nodes have little memory.
const LIMITS: Limits = Limits {
    entries: 10_000,
    total: MAX_TOTAL,
    links: false,
};
const MAX_TOTAL: u64 = 1 << 30;
const MAX_LAYER: u64 = 1 << 30;

/// Returns the references in an archive, read from its first entries alone.
pub(crate) fn references(root: &Root, path: &Path) -> anyhow::Result<Vec<String>> {
    let damaged = || format!("{} is damaged: install it again", path.display());
    let file = root.open_file(path)?;
    let mut tar = tar::Archive::new(plain(path, file).with_context(damaged)?);
    for entry in tar.entries().with_context(damaged)? {
        let entry = entry.with_context(damaged)?;
        if entry.path().with_context(damaged)? != Path::new("index.json") {
            continue;
        }
        let mut bytes = Vec::new();
        entry
            .take(MAX_INDEX)
            .read_to_end(&mut bytes)
            .with_context(damaged)?;
        let index: Index = oci::from_bytes(&bytes).with_context(damaged)?;
        let names = index.manifests.iter().filter_map(|image| {
            let name = image.annotations.get(oci::REF_NAME)?;
            Some(name.clone())
        });
        return Ok(names.collect());
    }
    bail!("{} holds no images: install it again", path.display())
}

/// Follows every digest in the archives, and fails unless they hold all images of the charts for this node's architecture.
///
/// Every list must name the same images. Returns the images, each with the archive that it is in.
pub(crate) fn verify_archives(
    source: &ArchiveDir,
    archives: &[CheckedFile],
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for archive in archives {
        let path = source.path(&archive.name);
        let names = images_for_this_node(&path)?;
        found.extend(names.into_iter().map(|name| (name, path.clone())));
    }
    for image in IMAGES {
        let is_there = found.iter().any(|(name, _)| name == image);
        let names = archives.iter().map(|archive| archive.name.as_str());
        ensure!(
            is_there,
            "{} for {} lacks {image}: take archive and program from the same release",
            names.collect::<Vec<_>>().join(" and "),
            arch()
        );
    }
    for (path, text) in source.lists(arch())? {
        let without_digest = |line| str::split_once(line, '@').map_or(line, |(name, _)| name);
        let listed: BTreeSet<_> = text.lines().map(without_digest).collect();
        let names: BTreeSet<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(
            listed == names,
            "{} does not list the images of the archive: copy the release's directory again",
            path.display()
        );
    }
    Ok(found)
}

/// Verifies an archive and returns its images, all of which must be for this node's architecture.
pub(crate) fn images_for_this_node(path: &Path) -> anyhow::Result<Vec<String>> {
    let images = check(path)?.into_iter().map(|(name, arches)| {
        ensure!(
            arches.iter().any(|one| one == arch()),
            "{} holds {name} for {}, this node is {}",
            path.display(),
            arches.join(" and "),
            arch()
        );
        Ok(name)
    });
    images.collect()
}

/// Follows every digest in an archive; returns its images, each with its architectures.
fn check(path: &Path) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let damaged = || format!("{} is damaged", path.display());
    let layout = Layout::from_entries(read(path)?).with_context(damaged)?;
    let images = verify::images(&layout, &unpack).with_context(damaged)?;
    let platforms = |image: &verify::Image| {
        let platforms = image.platforms.iter();
        platforms
            .map(|one| one.platform.architecture.clone())
            .collect()
    };
    Ok(images
        .iter()
        .map(|image| (image.reference.clone(), platforms(image)))
        .collect())
}

fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let damaged = || format!("{} is damaged", path.display());
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::new();
    plain(path, file)
        .and_then(|plain| plain.take(MAX_TOTAL).read_to_end(&mut bytes))
        .with_context(damaged)?;
    entries(&bytes, &LIMITS).with_context(damaged)
}

fn plain(path: &Path, mut file: File) -> io::Result<Box<dyn Read>> {
    if path.extension().is_some_and(|ending| ending == "zst") {
        let decoder = StreamingDecoder::new(file).map_err(io::Error::other)?;
        return Ok(Box::new(decoder));
    }
    // An archive in gzip form is small enough to be read at once.
    let mut packed = Vec::new();
    file.read_to_end(&mut packed)?;
    let bytes = archive::gzip::decompress(&packed, MAX_TOTAL).map_err(io::Error::other)?;
    Ok(Box::new(io::Cursor::new(bytes)))
}

fn unpack(media_type: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    match media_type.rsplit(['+', '.']).next() {
        Some("gzip") => {
            archive::gzip::decompress(bytes, MAX_LAYER).map_err(|error| error.to_string())
        }
        Some("zstd") => {
            let mut plain = Vec::new();
            let decoder = StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
            decoder
                .take(MAX_LAYER)
                .read_to_end(&mut plain)
                .map_err(|error| error.to_string())?;
            Ok(plain)
        }
        Some("tar") => Ok(bytes.to_vec()),
        _ => Err(format!("the media type {media_type} is unknown")),
    }
}
