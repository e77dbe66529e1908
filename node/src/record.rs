//! The record of files that multus-rs wrote into directories of others, with the hashes that distinguish them from others' files.
//!
//! An entry is written before its file, so that a crash between the two leaves no unknown file.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::root::{Root, RootError};

const MAX_RECORD: u64 = 1 << 20;

/// A record, for one writer at a time.
#[derive(Debug)]
pub struct Record<'a> {
    root: &'a Root,
    path: &'a Path,
    files: Vec<RecordedFile>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    schema: u32,
    files: Vec<RecordedFile>,
}

/// The SHA-256 of a content in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash(String);

impl Hash {
    /// Returns the hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from(Sha256::new_with_prefix(bytes))
    }
}

impl From<Sha256> for Hash {
    fn from(hasher: Sha256) -> Self {
        let mut text = String::new();
        for byte in hasher.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }
}

/// An entry of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The hashes of its content, and of the one that was about to replace it.
    sha256: Vec<Hash>,
}

impl RecordedFile {
    /// Returns whether multus-rs wrote a content with this hash.
    pub fn is(&self, hash: &Hash) -> bool {
        self.sha256.contains(hash)
    }
}

impl<'a> Record<'a> {
    /// Reads the record at `path`. One that cannot be read is empty: then no file counts as written by multus-rs, and none is touched.
    pub fn read(root: &'a Root, path: &'a Path) -> Self {
        let read = root.read(path, MAX_RECORD).ok();
        let content: Option<Content> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let files = content.unwrap_or_default().files;
        Self { root, path, files }
    }

    /// Returns all entries.
    pub fn files(&self) -> &[RecordedFile] {
        &self.files
    }

    /// Returns the entry of a path.
    pub fn find(&self, path: &Path) -> Option<&RecordedFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Sets the entry of a path to these hashes, and writes the record.
    pub fn set(&mut self, path: &Path, contents: &[&Hash]) -> Result<(), RootError> {
        let mut sha256: Vec<Hash> = contents.iter().copied().cloned().collect();
        sha256.dedup();
        let entry = RecordedFile {
            path: path.to_owned(),
            sha256,
        };
        match self.files.iter().position(|file| file.path == path) {
            Some(index) if self.files[index] == entry => return Ok(()),
            Some(index) => self.files[index] = entry,
            None => self.files.push(entry),
        }
        self.write()
    }

    /// Keeps only these entries. A record without entries is removed.
    pub fn retain(&mut self, keep: impl FnMut(&RecordedFile) -> bool) -> Result<(), RootError> {
        let before = self.files.len();
        self.files.retain(keep);
        if self.files.is_empty() {
            self.root.remove(self.path).map(drop)
        } else if self.files.len() < before {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&self) -> Result<(), RootError> {
        if let Some(dir) = self.path.parent() {
            self.root.make_dirs(dir, 0o755)?;
        }
        let content = Content {
            schema: 1,
            files: self.files.clone(),
        };
        let bytes = serde_json::to_vec(&content).expect("paths of a root are text");
        self.root.write_atomic(self.path, &bytes, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/var/lib/own/record.json";

    #[test]
    fn record_is_persistent_and_removed_with_its_last_entry() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Path::new(PATH);
        let mut record = Record::read(&root, path);
        let [old, new, b] = [b"old".as_slice(), b"new", b"b"].map(Hash::of);
        record.set(Path::new("/a"), &[&old, &new]).unwrap();
        record.set(Path::new("/b"), &[&b, &b]).unwrap();
        let mut record = Record::read(&root, path);
        let a = record.find(Path::new("/a")).unwrap();
        assert!(a.is(&old) && a.is(&new) && !a.is(&b));
        assert_eq!(record.files().len(), 2);
        record.retain(|file| file.path == Path::new("/b")).unwrap();
        assert!(Record::read(&root, path).find(Path::new("/a")).is_none());
        record.retain(|_| false).unwrap();
        assert!(!root.exists(PATH));
    }

    #[test]
    fn damaged_record_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/var/lib/own", 0o755).unwrap();
        root.write_atomic(PATH, b"{\"schema\":1,\"fi", 0o600)
            .unwrap();
        let mut record = Record::read(&root, Path::new(PATH));
        assert!(record.files().is_empty());
        record.set(Path::new("/a"), &[&Hash::of(b"a")]).unwrap();
        assert_eq!(Record::read(&root, Path::new(PATH)).files().len(), 1);
    }
}
