//! Putting our own files into directories that belong to others: only names that are free or ours, each as one step.

use std::{fmt::Write as _, path::Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::root::{Kind, Root, RootError};

/// What we installed, with the hashes that tell it from others' files.
pub const RECORD: &str = "/var/lib/multus/installed.json";
const MAX_FILE: u64 = 64 << 20;

/// What became of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file is new or was replaced.
    Installed,
    /// The same bytes were there.
    Unchanged,
}

/// A file could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file system refused.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Something is there that is not ours.
    #[error(
        "{path} is {what} that was not installed by multus-rs: move it away, or name another directory in config.cni_conf.binDir"
    )]
    Foreign {
        /// Where.
        path: String,
        /// What it is.
        what: &'static str,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    schema: u32,
    files: Vec<Installed>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Installed {
    path: String,
    sha256: Vec<String>,
}

/// Installs `bytes` as `<dir>/<name>`, mode 0755. The record is written before the file.
pub fn install(root: &Root, dir: &Path, name: &str, bytes: &[u8]) -> Result<Outcome, InstallError> {
    let path = dir.join(name);
    let mut record = read_record(root);
    let new = hash(bytes);
    let known = position(&record, &path);
    let present = match root.kind(&path)? {
        None => None,
        Some(Kind::File) => Some(hash(&root.read(&path, MAX_FILE)?)),
        Some(kind) => return Err(foreign(&path, kind)),
    };
    if let Some(present) = &present {
        let ours = known.is_some_and(|at| record.files[at].sha256.contains(present));
        if !ours && *present != new {
            return Err(foreign(&path, Kind::File));
        }
        if ours && *present == new {
            return Ok(Outcome::Unchanged);
        }
    }
    // Both hashes are ours until the rename is done: a crash between the two writes leaves a file that is still known.
    let mut hashes: Vec<String> = present.clone().into_iter().collect();
    if present.as_ref() != Some(&new) {
        hashes.push(new.clone());
    }
    remember(&mut record, &path, hashes);
    write_record(root, &record)?;
    if present.as_ref() == Some(&new) {
        return Ok(Outcome::Unchanged);
    }
    root.write_atomic(&path, bytes, 0o755)?;
    remember(&mut record, &path, vec![new]);
    write_record(root, &record)?;
    Ok(Outcome::Installed)
}

/// Removes every file of the record that still is as we wrote it; `keep` stays. Gives the paths that were removed.
pub fn remove_all(root: &Root, keep: Option<&Path>) -> Result<Vec<String>, InstallError> {
    let mut record = read_record(root);
    let mut removed = Vec::new();
    let mut first_error = None;
    record.files.retain(|file| {
        if keep.is_some_and(|keep| keep == Path::new(&file.path)) {
            return true;
        }
        match remove_one(root, file) {
            Ok(gone) => {
                removed.extend(gone.then(|| file.path.clone()));
                false
            }
            Err(error) => {
                first_error.get_or_insert(error);
                true
            }
        }
    });
    if record.files.is_empty() {
        root.remove(RECORD)?;
    } else {
        write_record(root, &record)?;
    }
    first_error.map_or(Ok(removed), Err)
}

fn remove_one(root: &Root, file: &Installed) -> Result<bool, InstallError> {
    match root.kind(&file.path) {
        Ok(Some(Kind::File)) => {}
        Ok(_) => return Ok(false),
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if !file
        .sha256
        .contains(&hash(&root.read(&file.path, MAX_FILE)?))
    {
        return Ok(false);
    }
    Ok(root.remove(&file.path)?)
}

fn foreign(path: &Path, kind: Kind) -> InstallError {
    let what = match kind {
        Kind::File => "a file",
        Kind::Dir => "a directory",
        Kind::Symlink => "a symbolic link",
        Kind::Other => "something",
    };
    InstallError::Foreign {
        path: path.display().to_string(),
        what,
    }
}

fn position(record: &Record, path: &Path) -> Option<usize> {
    record
        .files
        .iter()
        .position(|file| Path::new(&file.path) == path)
}

fn remember(record: &mut Record, path: &Path, sha256: Vec<String>) {
    match position(record, path) {
        Some(at) => record.files[at].sha256 = sha256,
        None => record.files.push(Installed {
            path: path.display().to_string(),
            sha256,
        }),
    }
}

/// A record that does not read is none: then nothing counts as ours, and nothing is touched.
fn read_record(root: &Root) -> Record {
    let read = root.read(RECORD, 1 << 20).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn write_record(root: &Root, record: &Record) -> Result<(), RootError> {
    root.make_dirs("/var/lib/multus", 0o755)?;
    let record = Record {
        schema: 1,
        files: record
            .files
            .iter()
            .map(|file| Installed {
                path: file.path.clone(),
                sha256: file.sha256.clone(),
            })
            .collect(),
    };
    let bytes = serde_json::to_vec(&record).expect("strings always serialise");
    root.write_atomic(RECORD, &bytes, 0o600)
}

fn hash(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn node() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/bin", 0o755).unwrap();
        (dir, root)
    }

    fn put(root: &Root, bytes: &[u8]) -> Result<Outcome, InstallError> {
        install(root, Path::new("/bin"), "multus-shim", bytes)
    }

    #[test]
    fn ours_is_replaced_and_removed() {
        let (_dir, root) = node();
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Installed);
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Unchanged);
        assert_eq!(put(&root, b"two").unwrap(), Outcome::Installed);
        assert_eq!(root.read("/bin/multus-shim", 10).unwrap(), b"two");
        assert_eq!(remove_all(&root, None).unwrap(), ["/bin/multus-shim"]);
        assert!(root.list("/bin").unwrap().is_empty());
        assert!(!root.exists(RECORD));
    }

    #[test]
    fn a_foreign_file_is_never_touched() {
        let (_dir, root) = node();
        root.write_atomic("/bin/multus-shim", b"theirs", 0o755)
            .unwrap();
        let error = put(&root, b"ours").unwrap_err().to_string();
        assert!(error.contains("/bin/multus-shim is a file"), "{error}");
        assert_eq!(root.read("/bin/multus-shim", 10).unwrap(), b"theirs");
        assert!(remove_all(&root, None).unwrap().is_empty());
        assert_eq!(root.read("/bin/multus-shim", 10).unwrap(), b"theirs");
    }

    #[test]
    fn a_link_and_its_target_are_never_touched() {
        let (dir, root) = node();
        root.write_atomic("/bin/cni", b"multicall", 0o755).unwrap();
        symlink("cni", dir.path().join("bin/multus-shim")).unwrap();
        assert!(
            put(&root, b"ours")
                .unwrap_err()
                .to_string()
                .contains("symbolic link")
        );
        assert_eq!(root.read("/bin/cni", 10).unwrap(), b"multicall");
    }

    #[test]
    fn what_someone_changed_since_stays() {
        let (_dir, root) = node();
        put(&root, b"one").unwrap();
        root.write_atomic("/bin/multus-shim", b"theirs", 0o755)
            .unwrap();
        assert!(put(&root, b"two").is_err());
        assert!(remove_all(&root, None).unwrap().is_empty());
        assert_eq!(root.read("/bin/multus-shim", 10).unwrap(), b"theirs");
    }

    #[test]
    fn identical_bytes_become_ours_and_one_place_can_stay() {
        let (_dir, root) = node();
        root.write_atomic("/bin/multus-shim", b"one", 0o755)
            .unwrap();
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Unchanged);
        root.make_dirs("/new", 0o755).unwrap();
        install(&root, Path::new("/new"), "multus-shim", b"one").unwrap();
        assert_eq!(
            remove_all(&root, Some(Path::new("/new/multus-shim"))).unwrap(),
            ["/bin/multus-shim"]
        );
        assert!(root.exists("/new/multus-shim"));
    }
}
