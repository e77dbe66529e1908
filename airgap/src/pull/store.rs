//! The store of fetched blobs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use archive::{
    digest::{Digest, sha256},
    durable,
};

use super::Error;

/// Blobs by their digest, in a directory that several images and releases share.
pub struct Store {
    pub(super) dir: PathBuf,
}

impl Store {
    /// Uses a directory, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("blobs/sha256").join(digest.hex())
    }

    /// Returns a blob, or `None` when it is absent or damaged.
    pub(super) fn get(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(digest)).ok()?;
        (sha256(&bytes) == *digest).then_some(bytes)
    }

    pub(super) fn make(&self) -> Result<(), Error> {
        let dir = self.dir.join("blobs/sha256");
        fs::create_dir_all(&dir).map_err(io_error(&dir))
    }

    pub(super) fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(digest);
        let part = path.with_extension("part");
        fs::write(&part, bytes)
            .and_then(|()| durable::rename(&part, &path))
            .map_err(io_error(&path))
    }
}

pub(super) fn io_error(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |source| Error::Io {
        path: path.to_owned(),
        source,
    }
}
