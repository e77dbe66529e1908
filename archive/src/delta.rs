//! The format of deltas between two releases' archives, and the check of a delta without the archive that it is applied to.
//!
//! A delta is an archive of its own: its description first, then the new archive's index, the list of all images, new blobs as they are,
//! changed layers as differences, and the program for operators, whole or as a difference. What a difference makes is known only when it is applied.
//!
//! A delta to a signed release also has that release's checksum file and its signature. They say what the delta has to make, byte by byte, so
//! whoever has the key knows before anything is applied that no part of it is of anybody else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    digest::{Digest, sha256},
    layout::blob_path,
    lists,
    oci::{self, Index, Manifest},
    tar::{Entry, Kind},
};

/// The description in a delta.
pub const FILE: &str = "delta.json";
/// The index of the new archive.
pub const INDEX: &str = "index.json";
/// The list of the new release's images with the digests that a registry has for them, also in a release's airgap directory.
pub const LIST: &str = lists::ALL_DIGESTS;
/// The directory of differences.
pub const PATCHES: &str = "patches/";
/// The program for operators, or its difference to the former one.
pub const PROGRAM: &str = "program";
/// The checksum file of the new release for the architecture, where its owner signed it.
pub const SUMS: &str = "sha256sum.txt";
/// The signature over [`SUMS`].
pub const SIGNATURE: &str = "sha256sum.txt.sig";
/// The version of the format without signed checksums.
pub const SCHEMA: u32 = 2;
/// The version of the format with signed checksums, which earlier programs do not read.
const SIGNED: u32 = 3;
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
    /// The signed checksums of what the delta makes. Who signed them is for the caller to check.
    pub signed: Option<SignedSums>,
}

/// The checksum file of a release for one architecture, with the signature of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedSums {
    /// The text of the checksum file.
    pub sums: String,
    /// The signature in base64.
    pub signature: Vec<u8>,
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
    /// The signed checksums are of something else.
    #[error("{SUMS} in the delta has another digest for {0} than what the delta makes")]
    Signed(String),
    /// The signed checksums are in another form.
    #[error("{SUMS} in the delta names other files than the delta makes")]
    SignedFiles,
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
        .filter(|found| [WITHOUT_PROGRAM, SCHEMA, SIGNED].contains(&found.schema))
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
    for image in &index.manifests {
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
        let platform = image.platform.as_ref().ok_or_else(damaged)?;
        architectures.insert(platform.architecture.clone());
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
    let (Some(architecture), None) = (architectures.next(), architectures.next()) else {
        return Err(damaged());
    };
    let signed = if description.schema == SIGNED {
        let expected = checksums(&description, &architecture, &index, &list);
        Some(signed_sums(delta, &expected)?)
    } else {
        None
    };
    Ok(Content {
        architecture,
        images,
        list,
        signed,
    })
}

/// Returns a delta with the signed checksums of the release that it makes; fails when they are those of another one.
pub fn with_signature(delta: &[Entry], signed: &SignedSums) -> Result<Vec<Entry>, Error> {
    let mut description = description(delta)?;
    description.schema = SIGNED;
    let mut entries = vec![Entry::file(FILE, 0o644, oci::to_bytes(&description))];
    entries.extend(delta.iter().filter(|entry| entry.path != FILE).cloned());
    entries.push(Entry::file(SUMS, 0o644, signed.sums.as_bytes()));
    entries.push(Entry::file(SIGNATURE, 0o644, signed.signature.as_slice()));
    check(&entries)?;
    Ok(entries)
}

/// Returns the checksums of all files that the new release has for the architecture.
fn checksums(
    description: &Delta,
    architecture: &str,
    index: &Index,
    list: &str,
) -> BTreeMap<String, Digest> {
    let texts = lists::texts(architecture, &index.manifests, list);
    let texts = texts.into_iter();
    let mut sums: BTreeMap<_, _> = texts
        .map(|(name, text)| (name, sha256(text.as_bytes())))
        .collect();
    let [zst, gz] = lists::archives(architecture);
    sums.insert(zst, description.full.zst);
    sums.insert(gz, description.full.gz);
    let program = description.program;
    sums.extend(program.map(|program| (lists::program_name(architecture), program.digest)));
    sums
}

/// Returns the signed checksums in a delta, which must be exactly these.
fn signed_sums(delta: &[Entry], expected: &BTreeMap<String, Digest>) -> Result<SignedSums, Error> {
    let text = String::from_utf8_lossy(file(delta, SUMS)?).into_owned();
    let signature = file(delta, SIGNATURE)?.to_owned();
    let found = lists::parse_sums(&text).ok_or_else(|| Error::Part(SUMS.to_owned()))?;
    let other = found
        .iter()
        .find(|(name, digest)| expected.get(name).is_some_and(|known| known != digest));
    if let Some((name, _)) = other {
        return Err(Error::Signed(name.clone()));
    }
    if !found.iter().map(|(name, _)| name).eq(expected.keys()) {
        return Err(Error::SignedFiles);
    }
    Ok(SignedSums {
        sums: text,
        signature,
    })
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
            continue;
        }
        let is_named = match path {
            FILE | INDEX | LIST => true,
            PROGRAM => description.program.is_some_and(|one| one.is_in_delta()),
            SUMS | SIGNATURE => description.schema == SIGNED,
            _ => {
                matches!(digest(PATCHES), Some(Ok(digest)) if description.patches.contains_key(&digest))
            }
        };
        if !is_named {
            return Err(Error::Foreign(path.to_owned()));
        }
    }
    Ok(found)
}
