//! Checks a directory of archives on its way to nodes, and names the file that is wrong.
//!
//! Checksums are checked first, and are not trusted: an archive must be sound in itself, of the architecture in its name, hold the images
//! of its list, and have exactly the entries that this project writes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use archive::{
    digest::{Digest, sha256},
    gzip,
    layout::{self, Layout},
    oci,
    read::{self, Limits},
    tar::Entry,
    verify,
};

use crate::{arch::Arch, bundle, elf, lists, zstd};

/// Largest layer or archive that is unpacked.
pub const MAX_UNPACKED: u64 = 1 << 30;

const LIMITS: Limits = Limits {
    entries: 100_000,
    total: MAX_UNPACKED,
    links: false,
};

/// An image in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The full reference.
    pub reference: String,
    /// The digest of its manifest.
    pub digest: Digest,
}

/// The sound archives of one architecture.
#[derive(Debug)]
pub struct SoundArchives {
    /// The Go name.
    pub architecture: String,
    pub archives: Vec<String>,
    /// The name of the program for operators, which may be left out.
    pub program: Option<String>,
    pub images: Vec<Image>,
}

/// The first fault, with the file that has it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no sha256sum-<architecture>.txt: copy it too")]
    NoSums,
    /// No checksum file names the file.
    #[error("{0} does not belong there: no checksum file names it")]
    Foreign(String),
    #[error("{0} is damaged: copy it again")]
    Damaged(String),
    #[error("{0} is missing: copy it too")]
    Missing(String),
    #[error("{name} is not the file that {sums} names: copy it again")]
    Sum { name: String, sums: String },
    #[error("{name}: {reason}")]
    Archive { name: String, reason: String },
    #[error("{name}")]
    Images {
        name: String,
        #[source]
        source: Box<verify::Error>,
    },
    #[error("{name}")]
    Layout {
        name: String,
        #[source]
        source: Box<layout::Error>,
    },
    #[error("{name} holds {reference} for {found}: it was renamed or swapped")]
    Architecture {
        name: String,
        reference: String,
        /// The image's architecture.
        found: String,
    },
    #[error("{name}: entry {entry} does not follow from its images")]
    Entry {
        name: String,
        /// The first entry that differs.
        entry: String,
    },
    #[error("{name}: {reason}")]
    Program { name: String, reason: String },
    #[error("{list} does not list the images of {archive}")]
    List { list: String, archive: String },
    #[error("{0} and {1} have different content")]
    Differ(String, String),
}

/// Checks the files of a directory, given by their names.
pub fn dir(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<SoundArchives>, Error> {
    let mut claimed = BTreeSet::new();
    let mut architectures = Vec::new();
    for name in files.keys() {
        let architecture = name
            .strip_prefix("sha256sum-")
            .and_then(|rest| rest.strip_suffix(".txt"));
        if let Some(architecture) = architecture {
            claimed.insert(name.clone());
            check_sums(files, name, architecture, &mut claimed)?;
            // Its signature, if it has one: who made it is another question.
            claimed.insert(format!("{name}{}", lists::SIGNATURE));
            architectures.push(architecture);
        }
    }
    if architectures.is_empty() {
        return Err(Error::NoSums);
    }
    if let Some(name) = files.keys().find(|name| !claimed.contains(*name)) {
        return Err(Error::Foreign(name.clone()));
    }
    let architectures = architectures.into_iter();
    architectures
        .map(|architecture| check_archives(files, architecture))
        .collect()
}

fn check_sums(
    files: &BTreeMap<String, Vec<u8>>,
    sums: &str,
    architecture: &str,
    claimed: &mut BTreeSet<String>,
) -> Result<(), Error> {
    let damaged = || Error::Damaged(sums.to_owned());
    let text = std::str::from_utf8(&files[sums]).map_err(|_| damaged())?;
    let named = lists::parse_sums(text).ok_or_else(damaged)?;
    let required = lists::names(architecture);
    let is_named = |file: &String| named.iter().any(|(name, _)| name == file);
    if !required.iter().all(is_named) {
        return Err(damaged());
    }
    for (name, digest) in named {
        let is_required = required.contains(&name);
        let may_be_absent = lists::archives(architecture).contains(&name)
            || name == lists::program_name(architecture);
        if !is_required && !may_be_absent {
            return Err(Error::Foreign(name));
        }
        match files.get(&name) {
            Some(bytes) if sha256(bytes) != digest => {
                let sums = sums.to_owned();
                return Err(Error::Sum { name, sums });
            }
            // One form of an archive is enough, and nodes need no program for operators.
            None if is_required => return Err(Error::Missing(name)),
            _ => {}
        }
        claimed.insert(name);
    }
    Ok(())
}

fn check_archives(
    files: &BTreeMap<String, Vec<u8>>,
    architecture: &str,
) -> Result<SoundArchives, Error> {
    let [zst, gz] = lists::archives(architecture);
    let mut first: Option<(String, Vec<u8>)> = None;
    let mut sound = SoundArchives {
        architecture: architecture.to_owned(),
        archives: Vec::new(),
        program: None,
        images: Vec::new(),
    };
    for (name, unpack) in [(&zst, unzstd as Unpack), (&gz, gunzip)] {
        let Some(bytes) = files.get(name) else {
            continue;
        };
        let tar = unpack(bytes).map_err(|reason| Error::Archive {
            name: name.clone(),
            reason,
        })?;
        match &first {
            Some((_, other)) if *other == tar => {}
            Some((other, _)) => return Err(Error::Differ(other.clone(), name.clone())),
            None => {
                let part = images(name, &tar, architecture, &mut sound.images)?;
                check_lists(files, architecture, &part, name)?;
                first = Some((name.clone(), tar));
            }
        }
        sound.archives.push(name.clone());
    }
    if first.is_none() {
        return Err(Error::Missing(zst));
    }
    sound.program = check_program(files, architecture)?;
    Ok(sound)
}

/// Checks that the program for operators, where there is one, is static and for its architecture.
fn check_program(
    files: &BTreeMap<String, Vec<u8>>,
    architecture: &str,
) -> Result<Option<String>, Error> {
    let name = lists::program_name(architecture);
    let (Some(bytes), Some(arch)) = (files.get(&name), Arch::parse(architecture)) else {
        return Ok(None);
    };
    match elf::check_static(bytes, arch) {
        Ok(()) => Ok(Some(name)),
        Err(error) => Err(Error::Program {
            name,
            reason: format!("{error:#}"),
        }),
    }
}

/// Checks that every list has the images of the archive.
fn check_lists(
    files: &BTreeMap<String, Vec<u8>>,
    architecture: &str,
    part: &Layout,
    archive: &str,
) -> Result<(), Error> {
    let tags = lists::references(&part.images);
    let text = |name: &str| String::from_utf8_lossy(files.get(name).map_or(&[], Vec::as_slice));
    let lists = lists::tag_lists(architecture).map(|list| (text(&list) == tags, list));
    let by_digest = lists::digest_list(architecture);
    let more = [
        (text(&by_digest) == lists::digests(&part.images), by_digest),
        (
            // The digests in it are those of indexes, which no archive holds.
            lists::without_digests(&text(lists::ALL_DIGESTS)) == tags,
            lists::ALL_DIGESTS.to_owned(),
        ),
    ];
    match lists.into_iter().chain(more).find(|(is_same, _)| !is_same) {
        Some((_, list)) => Err(Error::List {
            list,
            archive: archive.to_owned(),
        }),
        None => Ok(()),
    }
}

type Unpack = fn(&[u8]) -> Result<Vec<u8>, String>;

fn unzstd(bytes: &[u8]) -> Result<Vec<u8>, String> {
    zstd::decompress(bytes, MAX_UNPACKED).map_err(|error| error.to_string())
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    gzip::decompress(bytes, MAX_UNPACKED).map_err(|error| error.to_string())
}

/// Follows every digest in an archive.
fn images(
    name: &str,
    tar: &[u8],
    architecture: &str,
    images: &mut Vec<Image>,
) -> Result<Layout, Error> {
    let entries = entries(name, tar)?;
    let part = Layout::from_entries(entries.clone()).map_err(|source| Error::Layout {
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    let found = verify::images(&part, &unpack).map_err(|source| Error::Images {
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    for image in &found {
        let mut platforms = image.platforms.iter().map(|one| &one.platform);
        let other = platforms.find(|platform| platform.architecture != architecture);
        if let Some(platform) = other {
            return Err(Error::Architecture {
                name: name.to_owned(),
                reference: image.reference.clone(),
                found: platform.architecture.clone(),
            });
        }
    }
    check_entries(name, &entries, &part)?;
    *images = found
        .into_iter()
        .map(|image| Image {
            reference: image.reference,
            digest: image.digest,
        })
        .collect();
    Ok(part)
}

/// Returns the entries of an archive in any of its forms.
pub fn read(name: &str, bytes: &[u8]) -> Result<Vec<Entry>, Error> {
    entries(name, &unpacked(name, bytes)?)
}

/// Returns the bytes of an archive, uncompressed.
pub fn unpacked<'a>(name: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    let tar = match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => unzstd(bytes),
        [0x1f, 0x8b, ..] => gunzip(bytes),
        _ => return Ok(Cow::Borrowed(bytes)),
    };
    tar.map(Cow::Owned).map_err(|reason| Error::Archive {
        name: name.to_owned(),
        reason,
    })
}

/// Returns the entries of an uncompressed archive.
pub fn entries(name: &str, tar: &[u8]) -> Result<Vec<Entry>, Error> {
    read::entries(tar, &LIMITS).map_err(|error| Error::Archive {
        name: name.to_owned(),
        reason: error.to_string(),
    })
}

/// Checks that the archive has exactly the entries that this project writes for its images.
fn check_entries(name: &str, found: &[Entry], part: &Layout) -> Result<(), Error> {
    let expected = bundle::entries(part).map_err(|error| Error::Archive {
        name: name.to_owned(),
        reason: error.to_string(),
    })?;
    let mut pairs = found.iter().zip(&expected);
    let differing = pairs.find_map(|(found, expected)| (found != expected).then_some(found));
    let differing = differing.or_else(|| found.get(expected.len()));
    match differing {
        Some(entry) => Err(Error::Entry {
            name: name.to_owned(),
            entry: entry.path.clone(),
        }),
        None if found.len() < expected.len() => Err(Error::Entry {
            name: name.to_owned(),
            entry: expected[found.len()].path.clone(),
        }),
        None => Ok(()),
    }
}

/// Uncompresses a layer of any image.
pub fn unpack(media_type: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    match media_type {
        oci::LAYER_ZSTD => unzstd(bytes),
        oci::LAYER_GZIP | oci::DOCKER_LAYER => {
            gzip::decompress_members(bytes, MAX_UNPACKED).map_err(|error| error.to_string())
        }
        oci::LAYER => Ok(bytes.to_vec()),
        other => Err(format!("its media type {other} is not that of a layer")),
    }
}

#[cfg(test)]
mod tests;
