//! What we wrote into directories that belong to others, with the hashes that tell it from their files.
//!
//! A record is written before the file that it tells of, so that a crash between the two leaves nothing unknown.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::root::{Root, RootError};

const MAX_RECORD: u64 = 1 << 20;

/// The files of one kind that are ours. One writer at a time.
#[derive(Debug)]
pub struct Record<'a> {
    root: &'a Root,
    at: &'a Path,
    files: Vec<Written>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    schema: u32,
    files: Vec<Written>,
}

/// The hash of a content, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash(String);

impl Hash {
    /// That of these bytes.
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

/// A file of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Where it is.
    pub path: PathBuf,
    /// Its content: what is there, and what was about to replace it.
    sha256: Vec<Hash>,
}

impl Written {
    /// Whether this is what we wrote.
    pub fn is(&self, hash: &Hash) -> bool {
        self.sha256.contains(hash)
    }
}

impl<'a> Record<'a> {
    /// Reads the record at `at`. One that does not read is empty: then nothing counts as ours, and nothing is touched.
    pub fn read(root: &'a Root, at: &'a Path) -> Self {
        let read = root.read(at, MAX_RECORD).ok();
        let content: Option<Content> = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let files = content.unwrap_or_default().files;
        Self { root, at, files }
    }

    /// Everything that is ours.
    pub fn files(&self) -> &[Written] {
        &self.files
    }

    /// What is known of a path.
    pub fn find(&self, path: &Path) -> Option<&Written> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Notes that the path has one of these contents, and keeps the note.
    pub fn remember(&mut self, path: &Path, contents: &[&Hash]) -> Result<(), RootError> {
        let mut sha256: Vec<Hash> = contents.iter().copied().cloned().collect();
        sha256.dedup();
        let written = Written {
            path: path.to_owned(),
            sha256,
        };
        match self.files.iter().position(|file| file.path == path) {
            Some(at) if self.files[at] == written => return Ok(()),
            Some(at) => self.files[at] = written,
            None => self.files.push(written),
        }
        self.write()
    }

    /// Keeps only these notes; without any there is no record.
    pub fn retain(&mut self, keep: impl FnMut(&Written) -> bool) -> Result<(), RootError> {
        let before = self.files.len();
        self.files.retain(keep);
        if self.files.is_empty() {
            self.root.remove(self.at).map(drop)
        } else if self.files.len() < before {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&self) -> Result<(), RootError> {
        if let Some(dir) = self.at.parent() {
            self.root.make_dirs(dir, 0o755)?;
        }
        let content = Content {
            schema: 1,
            files: self.files.clone(),
        };
        let bytes = serde_json::to_vec(&content).expect("paths of a root are text");
        self.root.write_atomic(self.at, &bytes, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "/var/lib/own/record.json";

    #[test]
    fn it_outlives_its_writer_and_goes_with_its_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let at = Path::new(AT);
        let mut record = Record::read(&root, at);
        let [old, new, b] = [b"old".as_slice(), b"new", b"b"].map(Hash::of);
        record.remember(Path::new("/a"), &[&old, &new]).unwrap();
        record.remember(Path::new("/b"), &[&b, &b]).unwrap();
        let mut record = Record::read(&root, at);
        let a = record.find(Path::new("/a")).unwrap();
        assert!(a.is(&old) && a.is(&new) && !a.is(&b));
        assert_eq!(record.files().len(), 2);
        record.retain(|file| file.path == Path::new("/b")).unwrap();
        assert!(Record::read(&root, at).find(Path::new("/a")).is_none());
        record.retain(|_| false).unwrap();
        assert!(!root.exists(AT));
    }

    #[test]
    fn one_that_does_not_read_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/var/lib/own", 0o755).unwrap();
        root.write_atomic(AT, b"{\"schema\":1,\"fi", 0o600).unwrap();
        let mut record = Record::read(&root, Path::new(AT));
        assert!(record.files().is_empty());
        record
            .remember(Path::new("/a"), &[&Hash::of(b"a")])
            .unwrap();
        assert_eq!(Record::read(&root, Path::new(AT)).files().len(), 1);
    }
}
