//! The format of deltas between two releases' archives, and the check of a delta without the archive that it is applied to.
//!
//! A delta is an archive of its own: its description first, then the new archive's index, the list of all images, new blobs as they are,
//! changed layers as differences, and the program for operators, whole or as a difference. What a difference makes is known only when it is applied.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    digest::{Digest, sha256},
    layout::blob_path,
    oci::{self, Index, Manifest},
    tar::{Entry, Kind},
};

/// The description in a delta.
pub const FILE: &str = "delta.json";
/// The index of the new archive.
pub const INDEX: &str = "index.json";
/// The list of the new release's images with the digests that a registry has for them, also in a release's airgap directory.
pub const LIST: &str = "multus-images-digests.txt";
/// The directory of differences.
pub const PATCHES: &str = "patches/";
/// The program for operators, or its difference to the former one.
pub const PROGRAM: &str = "program";
/// The version of the format.
pub const SCHEMA: u32 = 2;
/// The former version, which has no program.
const WITHOUT_PROGRAM: u32 = 1;

/// The description of a delta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Delta {
    /// The version of the format.
    pub schema: u32,
    /// Hash of the uncompressed base archive.
    pub base: Digest,
    /// The hashes of the rebuilt archive.
    pub full: ArchiveDigests,
    /// Blobs that are taken from the base.
    pub kept: Vec<Digest>,
    /// Blob → layer of the base from which its difference was made.
    pub patches: BTreeMap<Digest, Digest>,
    /// The program for operators next to the new archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// The program for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Program {
    /// The hash of the program.
    pub digest: Digest,
    /// The hash of the former one, where the delta has the difference to it; the same hash where it has nothing, as it did not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
}

impl Program {
    fn is_in_delta(&self) -> bool {
        self.base != Some(self.digest)
    }
}

/// The hashes of an archive in each of its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ArchiveDigests {
    /// Uncompressed.
    pub tar: Digest,
    /// As `.tar.zst`.
    pub zst: Digest,
    /// As `.tar.gz`.
    pub gz: Digest,
}

/// An image that a delta makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The full reference.
    pub reference: String,
    /// The digest of its manifest.
    pub digest: Digest,
}

/// The images and architecture that a sound delta serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The Go name of the architecture.
    pub architecture: String,
    /// The images of the archive that it makes.
    pub images: Vec<Image>,
    /// The text of [`LIST`].
    pub list: String,
}

/// Why a delta cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no description that this program reads.
    #[error("this is not a delta: {FILE} is missing, damaged or of another version")]
    NoDelta,
    /// A part is missing or has other bytes.
    #[error("{0} is missing in the delta, or damaged")]
    Part(String),
    /// The description does not name a part.
    #[error("{0} does not belong in the delta")]
    Foreign(String),
    /// The list has other images than the index.
    #[error("{LIST} in the delta does not list its images")]
    List,
}

/// Returns the bytes of a part.
pub fn file<'a>(delta: &'a [Entry], path: &str) -> Result<&'a [u8], Error> {
    let found = delta.iter().find_map(|entry| match &entry.kind {
        Kind::File(bytes) if entry.path == path => Some(bytes.as_slice()),
        _ => None,
    });
    found.ok_or_else(|| Error::Part(path.to_owned()))
}

/// Returns the description of a delta.
pub fn description(delta: &[Entry]) -> Result<Delta, Error> {
    let bytes = file(delta, FILE).map_err(|_| Error::NoDelta)?;
    let found = oci::from_bytes::<Delta>(bytes).ok();
    found
        .filter(|found| [WITHOUT_PROGRAM, SCHEMA].contains(&found.schema))
        .ok_or(Error::NoDelta)
}

/// Returns the index of the archive that a delta makes.
pub fn index(delta: &[Entry]) -> Result<Index, Error> {
    let damaged = |_| Error::Part(INDEX.to_owned());
    oci::from_bytes(file(delta, INDEX)?).map_err(damaged)
}

/// Checks that a delta has every part that its images need beyond the base, no other, and a list of the same images.
pub fn check(delta: &[Entry]) -> Result<Content, Error> {
    let description = description(delta)?;
    let index = index(delta)?;
    let list = String::from_utf8(file(delta, LIST)?.to_vec());
    let list = list.map_err(|_| Error::Part(LIST.to_owned()))?;
    let blobs = blobs(delta, &description)?;
    for digest in description.patches.keys() {
        file(delta, &format!("{PATCHES}{}", digest.hex()))?;
    }
    if let Some(program) = description.program
        && program.is_in_delta()
    {
        let bytes = file(delta, PROGRAM)?;
        if program.base.is_none() && sha256(bytes) != program.digest {
            return Err(Error::Part(PROGRAM.to_owned()));
        }
    }
    let ensure_known = |digest: &Digest| {
        let is_known = blobs.contains_key(digest)
            || description.kept.contains(digest)
            || description.patches.contains_key(digest);
        is_known
            .then_some(())
            .ok_or_else(|| Error::Part(blob_path(digest)))
    };
    let damaged = || Error::Part(INDEX.to_owned());
    let mut images = Vec::new();
    let mut architectures = BTreeSet::new();
    for image in index.manifests {
        ensure_known(&image.digest)?;
        if let Some(bytes) = blobs.get(&image.digest) {
            let manifest: Manifest = oci::from_bytes(bytes).map_err(|_| damaged())?;
            for part in manifest.layers.iter().chain([&manifest.config]) {
                ensure_known(&part.digest)?;
            }
        }
        let reference = image.annotations.get(oci::REF_NAME);
        images.push(Image {
            reference: reference.ok_or_else(damaged)?.clone(),
            digest: image.digest,
        });
        architectures.insert(image.platform.ok_or_else(damaged)?.architecture);
    }
    let listed: BTreeSet<&str> = list
        .lines()
        .map(|line| line.split_once('@').map_or(line, |(name, _)| name))
        .collect();
    let named: BTreeSet<&str> = images.iter().map(|image| &*image.reference).collect();
    if listed != named {
        return Err(Error::List);
    }
    let mut architectures = architectures.into_iter();
    match (architectures.next(), architectures.next()) {
        (Some(architecture), None) => Ok(Content {
            architecture,
            images,
            list,
        }),
        _ => Err(damaged()),
    }
}

/// Returns the blobs in a delta, each with the digest in its name; refuses what its description does not name.
fn blobs<'a>(delta: &'a [Entry], description: &Delta) -> Result<BTreeMap<Digest, &'a [u8]>, Error> {
    let mut found = BTreeMap::new();
    for entry in delta {
        let path = entry.path.as_str();
        let digest = |prefix| path.strip_prefix(prefix).map(Digest::from_hex);
        let Kind::File(bytes) = &entry.kind else {
            return Err(Error::Foreign(path.to_owned()));
        };
        if let Some(Ok(digest)) = digest("blobs/sha256/") {
            if sha256(bytes) != digest {
                return Err(Error::Part(path.to_owned()));
            }
            found.insert(digest, bytes.as_slice());
        } else if let Some(Ok(digest)) = digest(PATCHES)
            && description.patches.contains_key(&digest)
        {
        } else if path == PROGRAM && description.program.is_some_and(|one| one.is_in_delta()) {
        } else if ![FILE, INDEX, LIST].contains(&path) {
            return Err(Error::Foreign(path.to_owned()));
        }
    }
    Ok(found)
}
