//! An OCI image layout as a value: its index and its blobs by digest. Reading checks every digest; the caller writes the files.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    digest::{Digest, ParseError, sha256},
    oci::{self, Descriptor, Index},
    tar::{Entry, Kind},
};

/// The content of the file `oci-layout`.
pub const MARKER: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// The largest file that is read, blob or JSON.
const MAX_FILE: u64 = 256 << 20;

/// A complete image layout in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The descriptors that `index.json` lists.
    pub images: Vec<Descriptor>,
    /// Every blob by its digest.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
}

/// The reasons why files are not a valid layout.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A required file is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// The specification knows no such file, or it is not a regular file.
    #[error("{0} does not belong in an image layout")]
    Unexpected(String),
    /// A file is larger than 256 MiB.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(String),
    /// The file `oci-layout` names another version.
    #[error("oci-layout is not of version 1.0.0")]
    Version,
    /// `index.json` does not parse.
    #[error("index.json is damaged")]
    Index(#[source] serde_json::Error),
    /// A blob's file name is not a digest.
    #[error("the name of blob {name} is not a digest")]
    Name {
        /// The file name.
        name: String,
        /// The error of parsing it as a digest.
        #[source]
        source: ParseError,
    },
    /// A blob's bytes have another digest than its file name.
    #[error("blob {name} has the digest {found}")]
    Digest {
        /// The digest in its file name.
        name: Digest,
        /// The digest of its bytes.
        found: Digest,
    },
}

impl Layout {
    /// Adds a blob and returns its descriptor.
    pub fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let descriptor = Descriptor::of(media_type, &bytes);
        self.blobs.insert(descriptor.digest, bytes);
        descriptor
    }

    /// Returns path and content of every file of the layout: marker and index first, then the blobs in order of their digests.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = oci::to_bytes(&Index::of(self.images.clone()));
        let blobs = self
            .blobs
            .iter()
            .map(|(digest, bytes)| (blob_path(digest), bytes.clone()));
        [
            ("oci-layout".to_owned(), MARKER.to_vec()),
            ("index.json".to_owned(), index),
        ]
        .into_iter()
        .chain(blobs)
        .collect()
    }

    /// Makes a layout from its files; the file name of every blob must be its digest.
    pub fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, Error> {
        let (mut marker, mut index, mut blobs) = (None, None, BTreeMap::new());
        for (path, bytes) in files {
            match (path.as_str(), path.strip_prefix("blobs/sha256/")) {
                ("oci-layout", _) => marker = Some(bytes),
                ("index.json", _) => index = Some(bytes),
                (_, Some(hex)) => {
                    let name = Digest::from_hex(hex).map_err(|source| Error::Name {
                        name: hex.to_owned(),
                        source,
                    })?;
                    let found = sha256(&bytes);
                    if found != name {
                        return Err(Error::Digest { name, found });
                    }
                    blobs.insert(name, bytes);
                }
                _ => return Err(Error::Unexpected(path)),
            }
        }
        let missing = |name: &str| Error::Missing(name.to_owned());
        if marker.ok_or_else(|| missing("oci-layout"))? != MARKER {
            return Err(Error::Version);
        }
        let index = index.ok_or_else(|| missing("index.json"))?;
        let index: Index = oci::from_bytes(&index).map_err(Error::Index)?;
        Ok(Self {
            images: index.manifests,
            blobs,
        })
    }

    /// Makes a layout from the entries of an archive; `manifest.json`, which is there for docker, is ignored.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Self, Error> {
        let files = entries.into_iter().filter_map(|entry| match entry.kind {
            Kind::File(bytes) if entry.path != "manifest.json" => Some(Ok((entry.path, bytes))),
            Kind::File(_) | Kind::Dir => None,
            Kind::Link(_) => Some(Err(Error::Unexpected(entry.path))),
        });
        Self::from_files(files.collect::<Result<Vec<_>, _>>()?)
    }

    /// Reads the layout in a directory.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let mut files = Vec::new();
        for name in ["oci-layout", "index.json"] {
            files.push((name.to_owned(), read_file(&dir.join(name), name)?));
        }
        let blobs = dir.join("blobs/sha256");
        let io_error = |source| Error::Io {
            path: blobs.clone(),
            source,
        };
        for entry in fs::read_dir(&blobs).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            let name = format!("blobs/sha256/{}", entry.file_name().to_string_lossy());
            files.push((name.clone(), read_file(&entry.path(), &name)?));
        }
        Self::from_files(files)
    }
}

/// Returns the path of a blob in a layout.
pub fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn read_file(path: &Path, name: &str) -> Result<Vec<u8>, Error> {
    let io_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::Missing(name.to_owned()),
        _ => Error::Io {
            path: path.to_owned(),
            source,
        },
    };
    let metadata = fs::symlink_metadata(path).map_err(io_error)?;
    if !metadata.is_file() {
        return Err(Error::Unexpected(name.to_owned()));
    }
    if metadata.len() > MAX_FILE {
        return Err(Error::TooLarge(name.to_owned()));
    }
    fs::read(path).map_err(io_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Layout {
        let mut layout = Layout::default();
        let image = layout.add(oci::MANIFEST, b"{}".to_vec());
        layout.images.push(image.named("r/i:v1"));
        layout
    }

    fn write(dir: &Path, layout: &Layout) {
        for (path, bytes) in layout.files() {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    #[test]
    fn a_written_directory_reads_back_equal() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &sample());
        assert_eq!(Layout::read(dir.path()).unwrap(), sample());
    }

    #[test]
    fn damaged_layouts_are_refused() {
        let blob = blob_path(&sha256(b"{}"));
        let check = |damage: &dyn Fn(&Path), expected: &str| {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &sample());
            damage(dir.path());
            let error = Layout::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            &|dir| fs::write(dir.join(&blob), "{").unwrap(),
            "has the digest",
        );
        check(
            &|dir| fs::write(dir.join("blobs/sha256/x"), "").unwrap(),
            "the name of blob x is not a digest",
        );
        check(
            &|dir| fs::remove_file(dir.join("index.json")).unwrap(),
            "index.json is missing",
        );
        check(
            &|dir| fs::write(dir.join("index.json"), "{").unwrap(),
            "index.json is damaged",
        );
        check(
            &|dir| fs::write(dir.join("oci-layout"), "{}").unwrap(),
            "not of version 1.0.0",
        );
        check(
            &|dir| {
                let link = dir.join("blobs/sha256/l");
                std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
            },
            "does not belong",
        );
    }
}
