//! Putting our own programs into directories that belong to others: only names that are free, ours or upstream's, each as one step.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::{
    record::{Hash, Record, Written},
    root::{Kind, Root, RootError},
};

/// What we installed, with the hashes that tell it from others' files.
pub const RECORD: &str = "/var/lib/multus/installed.json";

/// What became of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file is new or was replaced.
    Installed,
    /// Upstream's program was there and has been replaced.
    Exchanged,
    /// The same bytes were there.
    Unchanged,
}

/// A file could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file system refused.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The directory can be read alone.
    #[error(
        "cannot write {path}, its file system is read-only: let the runtime look in a second directory (bin_dirs, from containerd 2.1 on), or name another in config.cni_conf.shimDir"
    )]
    ReadOnly {
        /// Where.
        path: String,
    },
    /// Something is there that is not ours.
    #[error(
        "{path} is {what} that was not installed by multus-rs: move it away, or name another directory in config.cni_conf.shimDir"
    )]
    Foreign {
        /// Where.
        path: String,
        /// What it is.
        what: &'static str,
    },
}

/// Installs `bytes` as `<dir>/<name>`, mode 0755. The record is written before the file.
pub fn install(root: &Root, dir: &Path, name: &str, bytes: &[u8]) -> Result<Outcome, InstallError> {
    let path = dir.join(name);
    let mut record = Record::read(root, Path::new(RECORD));
    let present = match root.kind(&path)? {
        None => None,
        Some(Kind::File) => Some(look_at(root, &path)?),
        Some(kind) => return Err(foreign(&path, kind)),
    };
    let new = Hash::of(bytes);
    let is_known = |hash| record.find(&path).is_some_and(|file| file.is(hash));
    let outcome = match &present {
        Some(present) if present.hash == new => Outcome::Unchanged,
        Some(present) if is_known(&present.hash) => Outcome::Installed,
        Some(present) if present.is_upstreams => Outcome::Exchanged,
        Some(_) => return Err(foreign(&path, Kind::File)),
        None => Outcome::Installed,
    };
    // Both are ours until the rename is done: a crash between the two writes leaves a file that is still known.
    let before = present.iter().map(|present| &present.hash);
    record.remember(&path, &before.chain([&new]).collect::<Vec<_>>())?;
    if outcome != Outcome::Unchanged {
        root.write_atomic(&path, bytes, 0o755)
            .map_err(|error| refused(&path, error))?;
        record.remember(&path, &[&new])?;
    }
    Ok(outcome)
}

/// Removes every file of the record that still is as we wrote it, those of `keep` apart. Gives the paths that were removed.
pub fn remove_others(root: &Root, keep: &[&Path]) -> Result<Vec<String>, InstallError> {
    let mut record = Record::read(root, Path::new(RECORD));
    let mut removed = Vec::new();
    let mut first_error = None;
    record.retain(|file| {
        if keep.contains(&file.path.as_path()) {
            return true;
        }
        match remove_one(root, file) {
            Ok(gone) => {
                removed.extend(gone.then(|| file.path.display().to_string()));
                false
            }
            Err(error) => {
                first_error.get_or_insert(error);
                true
            }
        }
    })?;
    first_error.map_or(Ok(removed), Err)
}

fn remove_one(root: &Root, file: &Written) -> Result<bool, InstallError> {
    match root.kind(&file.path) {
        Ok(Some(Kind::File)) => {}
        Ok(_) => return Ok(false),
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if !file.is(&look_at(root, &file.path)?.hash) {
        return Ok(false);
    }
    Ok(root.remove(&file.path)?)
}

/// What there is to know of a program. It is not held as a whole: upstream's is larger than the daemon may become.
#[derive(Debug)]
struct Seen {
    hash: Hash,
    /// Whether it is a program of upstream Multus, which ours takes the place of: Go's linker notes in every program the module
    /// that it was built from.
    is_upstreams: bool,
}

fn look_at(root: &Root, path: &Path) -> Result<Seen, RootError> {
    let file = root.open_file(path)?;
    see(file).map_err(|source| RootError {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

fn see(mut file: File) -> io::Result<Seen> {
    const ELF: &[u8] = b"\x7fELF";
    const MARKS: [&[u8]; 2] = [b"\xff Go buildinf:", b"k8snetworkplumbingwg/multus-cni"];
    /// No mark is longer, so none is missed between two blocks.
    const OVERLAP: usize = 32;
    let (mut hasher, mut is_program, mut found) = (Sha256::new(), None, [false; 2]);
    let (mut block, mut kept) = (vec![0; OVERLAP + (1 << 16)], 0);
    loop {
        let count = match file.read(&mut block[kept..]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = kept + count;
        hasher.update(&block[kept..end]);
        if *is_program.get_or_insert_with(|| block[..end].starts_with(ELF)) {
            for (found, mark) in found.iter_mut().zip(MARKS) {
                *found |= block[..end].windows(mark.len()).any(|part| part == mark);
            }
        }
        kept = end.min(OVERLAP);
        block.copy_within(end - kept..end, 0);
    }
    Ok(Seen {
        hash: Hash::from(hasher),
        is_upstreams: found == [true; 2],
    })
}

fn refused(path: &Path, error: RootError) -> InstallError {
    if error.source.kind() == io::ErrorKind::ReadOnlyFilesystem {
        let path = path.display().to_string();
        return InstallError::ReadOnly { path };
    }
    error.into()
}

fn foreign(path: &Path, kind: Kind) -> InstallError {
    let what = match kind {
        Kind::File => "a file",
        Kind::Dir => "a directory",
        Kind::Symlink => "a symbolic link",
        Kind::Socket | Kind::Other => "something",
    };
    InstallError::Foreign {
        path: path.display().to_string(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const UPSTREAMS: &[u8] = b"\x7fELF\x02\x01..\xff Go buildinf:\x08\x02..path\tgopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-shim\n";

    fn node() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/bin", 0o755).unwrap();
        (dir, root)
    }

    fn put(root: &Root, bytes: &[u8]) -> Result<Outcome, InstallError> {
        install(root, Path::new("/bin"), "multus-shim", bytes)
    }

    fn there(root: &Root) -> Vec<u8> {
        root.read("/bin/multus-shim", 1 << 10).unwrap()
    }

    #[test]
    fn ours_is_replaced_and_removed() {
        let (_dir, root) = node();
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Installed);
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Unchanged);
        assert_eq!(put(&root, b"two").unwrap(), Outcome::Installed);
        assert_eq!(there(&root), b"two");
        assert_eq!(remove_others(&root, &[]).unwrap(), ["/bin/multus-shim"]);
        assert!(root.list("/bin").unwrap().is_empty());
        assert!(!root.exists(RECORD));
    }

    #[test]
    fn a_foreign_file_is_never_touched() {
        let text = String::from_utf8_lossy(UPSTREAMS).replace("Go build", "No build");
        for theirs in [b"theirs", &UPSTREAMS[1..], text.as_bytes()] {
            let (_dir, root) = node();
            root.write_atomic("/bin/multus-shim", theirs, 0o755)
                .unwrap();
            let error = put(&root, b"ours").unwrap_err().to_string();
            assert!(error.contains("/bin/multus-shim is a file"), "{error}");
            assert_eq!(there(&root), theirs);
            assert!(remove_others(&root, &[]).unwrap().is_empty());
            assert_eq!(there(&root), theirs);
        }
    }

    #[test]
    fn upstreams_gives_way_whenever_it_comes() {
        let (_dir, root) = node();
        for _ in 0..2 {
            root.write_atomic("/bin/multus-shim", UPSTREAMS, 0o755)
                .unwrap();
            assert_eq!(put(&root, b"ours").unwrap(), Outcome::Exchanged);
            assert_eq!(there(&root), b"ours");
        }
        root.write_atomic("/bin/multus-shim", UPSTREAMS, 0o755)
            .unwrap();
        assert!(remove_others(&root, &[]).unwrap().is_empty());
        assert_eq!(
            there(&root),
            UPSTREAMS,
            "nobody but its installer removes it"
        );
    }

    #[test]
    fn marks_are_found_wherever_they_are() {
        let (dir, root) = node();
        let path = Path::new("/bin/multus-shim");
        for before in (1 << 16) - 60..(1 << 16) + 40 {
            let text = [b"\x7fELF", vec![0; before].as_slice(), &UPSTREAMS[4..]].concat();
            std::fs::write(dir.path().join("bin/multus-shim"), &text).unwrap();
            let seen = look_at(&root, path).unwrap();
            assert!(seen.is_upstreams, "{before}");
            assert_eq!(seen.hash, Hash::of(&text));
        }
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
        assert!(remove_others(&root, &[]).unwrap().is_empty());
        assert_eq!(there(&root), b"theirs");
    }

    #[test]
    fn a_read_only_directory_has_a_cure() {
        for (kind, part) in [
            (io::ErrorKind::ReadOnlyFilesystem, "bin_dirs"),
            (io::ErrorKind::StorageFull, "cannot write /bin/x: "),
        ] {
            let error = RootError {
                action: "write",
                path: "/bin/x".into(),
                source: kind.into(),
            };
            let error = refused(Path::new("/bin/x"), error).to_string();
            assert!(error.contains(part), "{error}");
        }
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
            remove_others(&root, &[Path::new("/new/multus-shim")]).unwrap(),
            ["/bin/multus-shim"]
        );
        assert!(root.exists("/new/multus-shim"));
    }
}
