//! Checks a directory of archives on its way to nodes, and names the file that is wrong.
//!
//! Checksums are checked first, and are not trusted: an archive must be sound in itself, of the architecture in its name, hold the images
//! of its list, and have exactly the entries that this project writes.

use std::collections::{BTreeMap, BTreeSet};

use archive::{
    digest::sha256,
    gzip,
    layout::{self, Layout},
    oci,
    read::{self, Limits},
    tar::Entry,
    verify::{self, Image},
};

use crate::{bundle, lists, zstd};

/// Largest layer or archive that is unpacked.
pub const MAX_UNPACKED: u64 = 1 << 30;

const LIMITS: Limits = Limits {
    entries: 100_000,
    total: MAX_UNPACKED,
    links: false,
};

/// The sound archives of one architecture.
#[derive(Debug)]
pub struct SoundArchives {
    /// The Go name.
    pub architecture: String,
    pub archives: Vec<String>,
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
    #[error("{0} is a delta: make the archives of it with `airgap apply`, which checks it")]
    Delta(String),
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
    if let [(name, _)] = &named[..]
        && name.starts_with("multus-airgap-delta-")
    {
        return Err(Error::Delta(name.clone()));
    }
    let all_lists = lists::names(architecture);
    let is_named = |list: &String| named.iter().any(|(name, _)| name == list);
    if !all_lists.iter().all(is_named) {
        return Err(damaged());
    }
    for (name, digest) in named {
        let is_list = all_lists.contains(&name);
        if !is_list && !lists::archives(architecture).contains(&name) {
            return Err(Error::Foreign(name));
        }
        match files.get(&name) {
            Some(bytes) if sha256(bytes) != digest => {
                let sums = sums.to_owned();
                return Err(Error::Sum { name, sums });
            }
            // One form of an archive is enough.
            None if is_list => return Err(Error::Missing(name)),
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
    match first {
        Some(_) => Ok(sound),
        None => Err(Error::Missing(zst)),
    }
}

/// Checks that every list has the images of the archive.
fn check_lists(
    files: &BTreeMap<String, Vec<u8>>,
    architecture: &str,
    part: &Layout,
    archive: &str,
) -> Result<(), Error> {
    let tags = lists::references(part);
    let text = |name: &str| String::from_utf8_lossy(files.get(name).map_or(&[], Vec::as_slice));
    let lists = lists::tag_lists(architecture).map(|list| (text(&list) == tags, list));
    let by_digest = lists::digest_list(architecture);
    let more = [
        (text(&by_digest) == lists::digests(part), by_digest),
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
    *images = verify::images(&part, &unpack).map_err(|source| Error::Images {
        name: name.to_owned(),
        source: Box::new(source),
    })?;
    for image in images {
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
    Ok(part)
}

/// Returns the entries of an archive in any of its forms.
pub fn read(name: &str, bytes: &[u8]) -> Result<Vec<Entry>, Error> {
    let tar = match bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => unzstd(bytes),
        [0x1f, 0x8b, ..] => gunzip(bytes),
        _ => return entries(name, bytes),
    };
    let tar = tar.map_err(|reason| Error::Archive {
        name: name.to_owned(),
        reason,
    })?;
    entries(name, &tar)
}

fn entries(name: &str, tar: &[u8]) -> Result<Vec<Entry>, Error> {
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
