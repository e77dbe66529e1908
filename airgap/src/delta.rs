//! Deltas from one release's archive to the next: new blobs as they are, changed layers as differences.
//!
//! The full archive is rebuilt bit by bit, because packing is a function of the images alone; the delta has the hashes of both archives to
//! prove it. Its format is that of [`archive::delta`].

use std::collections::BTreeMap;

use archive::{
    delta::{self as format, ArchiveDigests, Delta, FILE, INDEX, PATCHES, PROGRAM, SCHEMA},
    digest::{Digest, sha256},
    gzip,
    layout::{Layout, blob_path},
    oci::{self, Index, Manifest},
    tar::{self, Entry, Kind},
};

use crate::{bundle, pack, zstd};

/// The largest layer, uncompressed.
const MAX_LAYER: u64 = 256 << 20;
/// The largest program.
const MAX_PROGRAM: u64 = 64 << 20;

/// Why a delta cannot be made or applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Bundle(#[from] bundle::Error),
    #[error(transparent)]
    Pack(#[from] pack::Error),
    #[error("cannot compare layer {digest} with {base}")]
    Compare {
        digest: Digest,
        base: Digest,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot compare the program with the former one")]
    Program(#[source] std::io::Error),
    #[error(transparent)]
    Delta(#[from] format::Error),
    #[error("the delta is for the archive {expected}, this one is {found}")]
    Base { expected: Digest, found: Digest },
    #[error("the delta makes {found}, not {expected}: packed by another version of this program?")]
    Result { expected: Digest, found: Digest },
}

/// An archive in both compressed forms, and its hashes.
pub struct Archive {
    /// As `.tar.zst`.
    pub zst: Vec<u8>,
    /// As `.tar.gz`.
    pub gz: Vec<u8>,
    /// The hashes of all its forms.
    pub full: ArchiveDigests,
}

/// The program for operators next to an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub digest: Digest,
    /// `None` where the former program is missing, from which it could be made.
    pub bytes: Option<Vec<u8>>,
}

impl Program {
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            digest: sha256(bytes),
            bytes: Some(bytes.to_owned()),
        }
    }
}

/// The programs for operators of a former release and of the new one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Programs<'a> {
    pub former: Option<&'a [u8]>,
    pub new: Option<&'a [u8]>,
}

/// Packs a slice of a layout.
pub fn archive(part: &Layout) -> Result<Archive, Error> {
    let entries = bundle::entries(part)?;
    let tar = tar::write_in_order(&entries).map_err(bundle::Error::from)?;
    let (zst, packed) = pack::bytes(&entries, zstd::ARCHIVE)?;
    let gz = gzip::compress(&tar);
    let full = ArchiveDigests {
        tar: sha256(&tar),
        zst: packed.digest,
        gz: sha256(&gz),
    };
    Ok(Archive { zst, gz, full })
}

/// Returns the entries of the delta between two slices.
pub fn make(base: &Layout, new: &Layout, programs: Programs<'_>) -> Result<Vec<Entry>, Error> {
    let base_tar = bundle::archive(base)?;
    let old = layers(base);
    let mut description = Delta {
        schema: SCHEMA,
        base: sha256(&base_tar),
        full: archive(new)?.full,
        kept: Vec::new(),
        patches: BTreeMap::new(),
        program: None,
    };
    let new_layers = layers(new);
    let (mut blobs, mut patches) = (Vec::new(), Vec::new());
    for (digest, bytes) in &new.blobs {
        if base.blobs.contains_key(digest) {
            description.kept.push(*digest);
            continue;
        }
        let new_layer = new_layers.iter().find(|(_, layer)| *layer == digest);
        let former = new_layer.and_then(|(position, _)| old.get(position));
        let patch = match former {
            Some(former) => difference(base, former, (digest, bytes))?,
            None => None,
        };
        match (patch, former) {
            (Some(patch), Some(former)) => {
                description.patches.insert(*digest, *former);
                patches.push(Entry::file(
                    format!("{PATCHES}{}", digest.hex()),
                    0o644,
                    patch,
                ));
            }
            _ => blobs.push(Entry::file(blob_path(digest), 0o644, bytes.clone())),
        }
    }
    let mut program = Vec::new();
    if let Some(new) = programs.new {
        let digest = sha256(new);
        let base = programs.former.map(sha256);
        description.program = Some(format::Program { digest, base });
        let bytes = match programs.former {
            Some(former) if former == new => None,
            Some(former) => Some(zstd::patch(former, new).map_err(Error::Program)?),
            None => Some(new.to_owned()),
        };
        program.extend(bytes.map(|bytes| Entry::file(PROGRAM, 0o644, bytes)));
    }
    let index = oci::to_bytes(&Index::of(new.images.clone()));
    let head = [
        Entry::file(FILE, 0o644, oci::to_bytes(&description)),
        Entry::file(INDEX, 0o644, index),
    ];
    Ok([head.to_vec(), blobs, patches, program].concat())
}

/// Returns the layers by repository and position, by which the layers of two releases correspond.
fn layers(part: &Layout) -> BTreeMap<(String, usize), Digest> {
    let mut found = BTreeMap::new();
    for image in &part.images {
        let name = image.annotations.get(oci::REF_NAME).cloned();
        let name = name.unwrap_or_default();
        let name = name
            .rsplit_once(':')
            .map_or(name.as_str(), |(name, _)| name);
        let manifest = part.blobs.get(&image.digest);
        let manifest = manifest.and_then(|bytes| oci::from_bytes::<Manifest>(bytes).ok());
        for (position, layer) in manifest.iter().flat_map(|one| &one.layers).enumerate() {
            found.insert((name.to_owned(), position), layer.digest);
        }
    }
    found
}

/// Returns the difference of two layers, or `None` when it is not smaller or the new layer cannot be rebuilt from it.
fn difference(
    base: &Layout,
    former: &Digest,
    (digest, packed): (&Digest, &[u8]),
) -> Result<Option<Vec<u8>>, Error> {
    let unpack = |bytes: &[u8]| zstd::decompress(bytes, MAX_LAYER).ok();
    let old = base.blobs.get(former).and_then(|bytes| unpack(bytes));
    let (Some(old), Some(new)) = (old, unpack(packed)) else {
        return Ok(None);
    };
    let compare = |source| Error::Compare {
        digest: *digest,
        base: *former,
        source,
    };
    if zstd::compress(&new, zstd::LAYER).map_err(compare)? != packed {
        return Ok(None);
    }
    let patch = zstd::patch(&old, &new).map_err(compare)?;
    Ok((patch.len() < packed.len()).then_some(patch))
}

/// Rebuilds the full archive, and the slice in it, from the slice in the base archive and the entries of a delta.
pub fn apply(base: &Layout, delta: &[Entry]) -> Result<(Layout, Archive), Error> {
    let description = format::description(delta)?;
    let found = sha256(&bundle::archive(base)?);
    same(description.base, found).map_err(|(expected, found)| Error::Base { expected, found })?;
    let index = format::index(delta)?;
    let mut full = Layout {
        images: index.manifests,
        blobs: BTreeMap::new(),
    };
    let of_base = |digest: &Digest| {
        let found = base.blobs.get(digest);
        found.ok_or_else(|| format::Error::Part(blob_path(digest)))
    };
    for digest in &description.kept {
        full.blobs.insert(*digest, of_base(digest)?.clone());
    }
    for (digest, former) in &description.patches {
        let path = format!("{PATCHES}{}", digest.hex());
        let damaged = || format::Error::Part(path.clone());
        let old = zstd::decompress(of_base(former)?, MAX_LAYER).map_err(|_| damaged())?;
        let new =
            zstd::apply(&old, format::file(delta, &path)?, MAX_LAYER).map_err(|_| damaged())?;
        let packed = zstd::compress(&new, zstd::LAYER).map_err(pack::Error::from)?;
        full.blobs.insert(*digest, packed);
    }
    for entry in delta {
        let hex = entry.path.strip_prefix("blobs/sha256/");
        if let (Some(Ok(digest)), Kind::File(bytes)) = (hex.map(Digest::from_hex), &entry.kind) {
            full.blobs.insert(digest, bytes.clone());
        }
    }
    for (digest, bytes) in &full.blobs {
        same(*digest, sha256(bytes)).map_err(|_| format::Error::Part(blob_path(digest)))?;
    }
    let archive = archive(&full)?;
    for (expected, found) in [
        (description.full.tar, archive.full.tar),
        (description.full.zst, archive.full.zst),
        (description.full.gz, archive.full.gz),
    ] {
        same(expected, found).map_err(|(expected, found)| Error::Result { expected, found })?;
    }
    Ok((full, archive))
}

/// Returns the program that a delta makes of the former one; one that it only has the difference to needs the former one.
pub fn program(delta: &[Entry], former: Option<&[u8]>) -> Result<Option<Program>, Error> {
    let Some(program) = format::description(delta)?.program else {
        return Ok(None);
    };
    let damaged = || format::Error::Part(PROGRAM.to_owned());
    let digest = program.digest;
    let former = former.filter(|bytes| Some(sha256(bytes)) == program.base);
    let bytes = match (program.base, former) {
        (None, _) => format::file(delta, PROGRAM)?.to_owned(),
        (Some(_), None) => {
            return Ok(Some(Program {
                digest,
                bytes: None,
            }));
        }
        (Some(base), Some(former)) if base == digest => former.to_owned(),
        (Some(_), Some(former)) => {
            let patch = format::file(delta, PROGRAM)?;
            zstd::apply(former, patch, MAX_PROGRAM).map_err(|_| damaged())?
        }
    };
    same(digest, sha256(&bytes)).map_err(|_| damaged())?;
    Ok(Some(Program {
        digest,
        bytes: Some(bytes),
    }))
}

fn same(expected: Digest, found: Digest) -> Result<(), (Digest, Digest)> {
    if expected == found {
        Ok(())
    } else {
        Err((expected, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a slice with one image of one layer, and one that is the same in every release.
    fn slice(version: &str, content: &[u8]) -> Layout {
        let mut part = Layout::default();
        let pulled = ("docker.io/x/pulled:1", b"the same".as_slice());
        let built = (&*format!("docker.io/x/built:v{version}"), content);
        for (name, content) in [built, pulled] {
            let layer = tar::write(&[Entry::file("program", 0o755, content)]).unwrap();
            let config = part.add(oci::CONFIG, name.into());
            let layer = zstd::compress(&layer, zstd::LAYER).unwrap();
            let layer = part.add(oci::LAYER_ZSTD, layer);
            let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
            let manifest = part.add(oci::MANIFEST, manifest);
            part.images.push(manifest.named(name));
        }
        part
    }

    /// Returns a program that does not compress, and its next version.
    fn programs() -> [Vec<u8>; 2] {
        let mut state = 1_u64;
        let old: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(200_000)
        .collect();
        let mut new = old.clone();
        new.splice(100_000..100_000, *b"a little more");
        [old, new]
    }

    #[test]
    fn small_delta_rebuilds_the_full_archive_exactly() {
        let [old, new] = programs();
        let (old, new) = (slice("1", &old), slice("2", &new));
        let delta = make(&old, &new, Programs::default()).unwrap();
        let expected = archive(&new).unwrap();
        let (part, made) = apply(&old, &delta).unwrap();
        assert_eq!(part, new);
        assert!(made.zst == expected.zst && made.gz == expected.gz);
        let size = tar::size(&delta);
        assert!(size < 10_000, "{size} of {}", expected.zst.len());
        let names: Vec<_> = delta.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(&names[..2], [FILE, INDEX]);
        assert_eq!(
            names
                .iter()
                .filter(|name| name.starts_with(PATCHES))
                .count(),
            1
        );
    }

    #[test]
    fn delta_between_unrelated_releases_works() {
        let (old, new) = (slice("1", b"a"), slice("2", &programs()[0]));
        let delta = make(&Layout::default(), &new, Programs::default()).unwrap();
        let expected = archive(&new).unwrap().full;
        assert_eq!(apply(&Layout::default(), &delta).unwrap().1.full, expected);
        let error = apply(&old, &delta).err().unwrap().to_string();
        assert!(
            error.starts_with("the delta is for the archive sha256:"),
            "{error}"
        );
    }

    #[test]
    fn missing_or_damaged_part_is_named() {
        let [old, new] = programs();
        let (old, new) = (slice("1", &old), slice("2", &new));
        let delta = make(&old, &new, Programs::default()).unwrap();
        for at in 0..delta.len() {
            let mut less = delta.clone();
            let removed = less.remove(at);
            let error = apply(&old, &less).err().unwrap().to_string();
            let expected = if at == 0 {
                "this is not a delta"
            } else {
                &removed.path
            };
            // An absent blob is reported where the archive needs it.
            let is_blob = removed.path.starts_with("blobs/");
            assert!(error.contains(expected) || is_blob, "{expected}: {error}");
            let mut damaged = delta.clone();
            if let Kind::File(bytes) = &mut damaged[at].kind {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            assert!(apply(&old, &damaged).is_err(), "{}", removed.path);
        }
    }

    #[test]
    fn program_is_made_of_the_former_one_where_that_is_there() {
        let [old, new] = programs();
        let slices = (slice("1", b"a"), slice("2", b"b"));
        let delta = |former, new| {
            let programs = Programs { former, new };
            make(&slices.0, &slices.1, programs).unwrap()
        };
        let size = |delta: &[Entry]| tar::size(delta);
        let whole = delta(None, Some(&new[..]));
        let patch = delta(Some(&old[..]), Some(&new[..]));
        let same = delta(Some(&new[..]), Some(&new[..]));
        let none = delta(Some(&old[..]), None);
        assert!(size(&whole) > 200_000 && size(&patch) < 20_000 && size(&same) < 20_000);
        let made = Some(Program::of(&new));
        for (delta, former, expected) in [
            (&whole, None, &made),
            (&whole, Some(&old[..]), &made),
            (&patch, Some(&old[..]), &made),
            (&same, Some(&new[..]), &made),
            (&none, Some(&old[..]), &None),
        ] {
            assert!(program(delta, former).unwrap() == *expected);
        }
        // Without the former one, its place in the checksums is all that is known.
        for (delta, former) in [(&patch, None), (&patch, Some(&new[..])), (&same, None)] {
            let found = program(delta, former).unwrap().unwrap();
            assert_eq!((found.digest, found.bytes), (sha256(&new), None));
        }
        let mut damaged = patch.clone();
        let entry = damaged
            .iter_mut()
            .find(|entry| entry.path == PROGRAM)
            .unwrap();
        let Kind::File(bytes) = &mut entry.kind else {
            panic!("it is a file");
        };
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let error = program(&damaged, Some(&old)).unwrap_err().to_string();
        assert!(
            error.starts_with("program is missing in the delta"),
            "{error}"
        );
    }
}
