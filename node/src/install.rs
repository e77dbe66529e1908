//! Installation of the shim and of plugins into directories that belong to others. It replaces only files that multus-rs or upstream
//! Multus installed, each atomically.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::{
    lock::FileLock,
    record::{Hash, Record, RecordedFile},
    root::{Kind, Root, RootError},
};

/// The record of the files that a daemon installs, with the hashes that distinguish them from others' files.
pub const RECORD: &str = "/var/lib/multus/installed.json";
/// The same of plugins that are installed without a multiplexer. While a node changes from one to the other, both have a process on it,
/// and both write this record: whoever does waits for its [turn](Installation::turn).
pub const PLUGINS_RECORD: &str = "/var/lib/multus/plugins.json";
/// The record of the CNI configurations that a daemon writes.
pub const CONFIGURATIONS_RECORD: &str = "/var/lib/multus/configurations.json";
/// The directories that only Multus uses, the innermost first.
const OWN_DIRS: [&str; 3] = [api::plugins::PLUGIN_DIR, "/var/lib/multus", "/run/multus"];

/// Installed files with a record of their own.
#[derive(Debug, Clone, Copy)]
pub struct Installation<'a> {
    root: &'a Root,
    record: &'static str,
}

/// The outcome of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file is new, or replaced an older one of multus-rs.
    Installed,
    /// The file replaced upstream's program.
    ReplacedUpstream,
    /// The file had the same bytes already.
    Unchanged,
}

/// The reason why a file could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The file system refused.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The directory is on a read-only file system.
    #[error(
        "cannot write {path}, its file system is read-only: let the runtime look in a second directory (bin_dirs, from containerd 2.1 on), or name another in config.cni_conf.shimDir"
    )]
    ReadOnly {
        /// The path of the file.
        path: String,
    },
    /// The path exists and was not installed by multus-rs.
    #[error(
        "{path} is {what} that was not installed by multus-rs: move it away, or name another directory in config.cni_conf.shimDir"
    )]
    Foreign {
        /// The path of the file.
        path: String,
        /// The kind of file, in words.
        what: &'static str,
    },
}

impl<'a> Installation<'a> {
    /// The shim, and the plugins next to it.
    pub fn multiplexer(root: &'a Root) -> Self {
        let record = RECORD;
        Self { root, record }
    }

    /// Plugins without a multiplexer.
    pub fn plugins(root: &'a Root) -> Self {
        let record = PLUGINS_RECORD;
        Self { root, record }
    }

    /// Waits until nobody else has the turn to change installed files; it ends when the lock is dropped.
    pub fn turn(&self) -> Result<FileLock, InstallError> {
        let dir = Path::new(self.record)
            .parent()
            .expect("a record is in a directory");
        let dir = self.root.make_directory(dir, 0o755)?;
        Ok(FileLock::wait_for_directory(&dir)?)
    }

    /// Removes every file of the record that is unchanged since, in a [turn](Self::turn) of its own. Returns the removed paths.
    pub fn remove_all(&self) -> Result<Vec<String>, InstallError> {
        // Nothing is created where nothing was installed.
        if !self.root.exists(self.record) {
            return Ok(Vec::new());
        }
        let _turn = self.turn()?;
        self.remove_others(&[])
    }

    fn read_record(&self) -> Record<'a> {
        Record::read(self.root, Path::new(self.record))
    }

    /// Returns whether the path exists as it was installed, by its record.
    pub fn has(&self, path: &Path) -> Result<bool, InstallError> {
        let record = self.read_record();
        let Some(file) = record.find(path) else {
            return Ok(false);
        };
        let present = present_hash(self.root, path)?;
        Ok(present.is_some_and(|present| file.is(&present)))
    }

    /// Installs `bytes` as `<dir>/<name>` with mode 0755. The record is written before the file.
    pub fn install(&self, dir: &Path, name: &str, bytes: &[u8]) -> Result<Outcome, InstallError> {
        let (root, path) = (self.root, dir.join(name));
        let mut record = self.read_record();
        let present = match root.kind(&path)? {
            None => None,
            Some(Kind::File) => Some(inspect(root, &path)?),
            Some(kind) => return Err(foreign(&path, kind)),
        };
        let new = Hash::of(bytes);
        let is_known = |hash| record.find(&path).is_some_and(|file| file.is(hash));
        let outcome = match &present {
            Some(present) if present.hash == new => Outcome::Unchanged,
            Some(present) if is_known(&present.hash) => Outcome::Installed,
            Some(present) if present.is_upstream => Outcome::ReplacedUpstream,
            Some(_) => return Err(foreign(&path, Kind::File)),
            None => Outcome::Installed,
        };
        // The record has both hashes until the rename, so that it knows the file after a crash between the two writes.
        let before = present.iter().map(|present| &present.hash);
        record.set(&path, &before.chain([&new]).collect::<Vec<_>>())?;
        if outcome != Outcome::Unchanged {
            root.write_atomic(&path, bytes, 0o755)
                .map_err(|error| write_error(&path, error))?;
            record.set(&path, &[&new])?;
        }
        Ok(outcome)
    }

    /// Makes `<dir>/<name>` a symbolic link to `target`, a file of the same directory. Returns `None` where another program's file or link
    /// has the name: that one stays. The record is written before the link.
    pub fn link(
        &self,
        dir: &Path,
        name: &str,
        target: &str,
    ) -> Result<Option<Outcome>, InstallError> {
        let (root, path) = (self.root, dir.join(name));
        let mut record = self.read_record();
        let new = hash_of_link(Path::new(target));
        let present = match root.kind(&path)? {
            None => None,
            Some(Kind::Symlink) => Some(hash_of_link(&root.read_link(&path)?)),
            Some(_) => return Ok(None),
        };
        let is_known = |hash| record.find(&path).is_some_and(|file| file.is(hash));
        match &present {
            Some(present) if *present == new => {
                record.set(&path, &[&new])?;
                return Ok(Some(Outcome::Unchanged));
            }
            Some(present) if !is_known(present) => return Ok(None),
            _ => {}
        }
        record.set(&path, &present.iter().chain([&new]).collect::<Vec<_>>())?;
        root.write_link(&path, target)
            .map_err(|error| write_error(&path, error))?;
        record.set(&path, &[&new])?;
        Ok(Some(Outcome::Installed))
    }

    /// Removes every file of the record that is unchanged since, except those in `keep`. Returns the removed paths.
    pub fn remove_others(&self, keep: &[&Path]) -> Result<Vec<String>, InstallError> {
        let mut record = self.read_record();
        let mut removed = Vec::new();
        let mut first_error = None;
        record.retain(|file| {
            if keep.contains(&file.path.as_path()) {
                return true;
            }
            // It has another path by now.
            if keep
                .iter()
                .any(|kept| self.root.is_same_entry(kept, &file.path))
            {
                return false;
            }
            match remove_one(self.root, file) {
                Ok(is_removed) => {
                    removed.extend(is_removed.then(|| file.path.display().to_string()));
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
}

/// Removes everything that daemons wrote by their records, and what is then empty, on a node where no daemon is left to do it. Returns the
/// removed paths. The configurations go first, so that no pod is sent to a shim that does not exist.
pub fn remove_everything(root: &Root) -> Result<Vec<String>, InstallError> {
    let mut removed = Vec::new();
    for record in [CONFIGURATIONS_RECORD, RECORD, PLUGINS_RECORD] {
        removed.extend(Installation { root, record }.remove_all()?);
    }
    for dir in OWN_DIRS {
        // Sockets of daemons that were killed.
        for path in root.list(dir).unwrap_or_default() {
            let path = Path::new(dir).join(path);
            if root.kind(&path)? == Some(Kind::Socket) {
                root.remove(&path)?;
            }
        }
        // Fails, as it should, while the directory holds files of somebody else.
        let _ = root.remove_dir(dir);
    }
    Ok(removed)
}

/// Returns what the record has for a link. No program has such a content.
fn hash_of_link(target: &Path) -> Hash {
    Hash::of(format!("symbolic link to {}", target.display()).as_bytes())
}

fn remove_one(root: &Root, file: &RecordedFile) -> Result<bool, InstallError> {
    match present_hash(root, &file.path)? {
        Some(present) if file.is(&present) => Ok(root.remove(&file.path)?),
        _ => Ok(false),
    }
}

/// Returns what a record would have for a file or link; `None` where neither exists.
fn present_hash(root: &Root, path: &Path) -> Result<Option<Hash>, InstallError> {
    match root.kind(path) {
        Ok(Some(Kind::File)) => Ok(Some(inspect(root, path)?.hash)),
        Ok(Some(Kind::Symlink)) => Ok(Some(hash_of_link(&root.read_link(path)?))),
        Ok(_) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The facts of an existing file. It is read in blocks, since upstream's program is larger than the daemon's memory may become.
#[derive(Debug)]
struct FileFacts {
    hash: Hash,
    /// Whether it is a program of upstream Multus, which may be replaced. Go's linker records in every program the module that it was
    /// built from.
    is_upstream: bool,
}

fn inspect(root: &Root, path: &Path) -> Result<FileFacts, RootError> {
    let file = root.open_file(path)?;
    scan(file).map_err(|source| RootError {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

fn scan(mut file: File) -> io::Result<FileFacts> {
    const ELF: &[u8] = b"\x7fELF";
    const MARKS: [&[u8]; 2] = [b"\xff Go buildinf:", b"k8snetworkplumbingwg/multus-cni"];
    /// At least the length of a mark, so that none is missed between two blocks.
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
    Ok(FileFacts {
        hash: Hash::from(hasher),
        is_upstream: found == [true; 2],
    })
}

fn write_error(path: &Path, error: RootError) -> InstallError {
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

    const UPSTREAM: &[u8] = b"\x7fELF\x02\x01..\xff Go buildinf:\x08\x02..path\tgopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-shim\n";

    fn node() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/bin", 0o755).unwrap();
        (dir, root)
    }

    fn put(root: &Root, bytes: &[u8]) -> Result<Outcome, InstallError> {
        Installation::multiplexer(root).install(Path::new("/bin"), "multus-shim", bytes)
    }

    fn installed(root: &Root) -> Vec<u8> {
        root.read("/bin/multus-shim", 1 << 10).unwrap()
    }

    #[test]
    fn own_file_is_replaced_and_removed() {
        let (_dir, root) = node();
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Installed);
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Unchanged);
        assert_eq!(put(&root, b"two").unwrap(), Outcome::Installed);
        assert_eq!(installed(&root), b"two");
        assert_eq!(
            Installation::multiplexer(&root).remove_others(&[]).unwrap(),
            ["/bin/multus-shim"]
        );
        assert!(root.list("/bin").unwrap().is_empty());
        assert!(!root.exists(RECORD));
    }

    #[test]
    fn file_stays_whose_former_directory_is_a_link_to_its_own() {
        let (dir, root) = node();
        put(&root, b"one").unwrap();
        std::fs::rename(dir.path().join("bin"), dir.path().join("new")).unwrap();
        symlink("new", dir.path().join("bin")).unwrap();
        let installation = Installation::multiplexer(&root);
        let new = Path::new("/new");
        installation.install(new, "multus-shim", b"one").unwrap();
        let keep = new.join("multus-shim");
        assert!(installation.remove_others(&[&keep]).unwrap().is_empty());
        assert_eq!(root.list("/new").unwrap(), ["multus-shim"]);
        assert_eq!(installation.remove_all().unwrap(), ["/new/multus-shim"]);
    }

    #[test]
    fn foreign_file_is_never_touched() {
        let text = String::from_utf8_lossy(UPSTREAM).replace("Go build", "No build");
        for theirs in [b"theirs", &UPSTREAM[1..], text.as_bytes()] {
            let (_dir, root) = node();
            root.write_atomic("/bin/multus-shim", theirs, 0o755)
                .unwrap();
            let error = put(&root, b"ours").unwrap_err().to_string();
            assert!(error.contains("/bin/multus-shim is a file"), "{error}");
            assert_eq!(installed(&root), theirs);
            assert!(
                Installation::multiplexer(&root)
                    .remove_others(&[])
                    .unwrap()
                    .is_empty()
            );
            assert_eq!(installed(&root), theirs);
        }
    }

    #[test]
    fn upstream_program_is_replaced_and_never_removed() {
        let (_dir, root) = node();
        for _ in 0..2 {
            root.write_atomic("/bin/multus-shim", UPSTREAM, 0o755)
                .unwrap();
            assert_eq!(put(&root, b"ours").unwrap(), Outcome::ReplacedUpstream);
            assert_eq!(installed(&root), b"ours");
        }
        root.write_atomic("/bin/multus-shim", UPSTREAM, 0o755)
            .unwrap();
        assert!(
            Installation::multiplexer(&root)
                .remove_others(&[])
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            installed(&root),
            UPSTREAM,
            "only its own installer removes it"
        );
    }

    #[test]
    fn marks_are_found_across_block_boundaries() {
        let (dir, root) = node();
        let path = Path::new("/bin/multus-shim");
        for before in (1 << 16) - 60..(1 << 16) + 40 {
            let text = [b"\x7fELF", vec![0; before].as_slice(), &UPSTREAM[4..]].concat();
            std::fs::write(dir.path().join("bin/multus-shim"), &text).unwrap();
            let facts = inspect(&root, path).unwrap();
            assert!(facts.is_upstream, "{before}");
            assert_eq!(facts.hash, Hash::of(&text));
        }
    }

    #[test]
    fn link_and_its_target_are_never_touched() {
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
    fn own_link_is_replaced_and_removed() {
        let (dir, root) = node();
        let put = |target| {
            Installation::multiplexer(&root)
                .link(Path::new("/bin"), "macvlan", target)
                .unwrap()
        };
        assert_eq!(put("one"), Some(Outcome::Installed));
        assert_eq!(put("one"), Some(Outcome::Unchanged));
        assert_eq!(put("two"), Some(Outcome::Installed));
        let read = || std::fs::read_link(dir.path().join("bin/macvlan")).unwrap();
        assert_eq!(read(), Path::new("two"));
        assert_eq!(
            Installation::multiplexer(&root).remove_others(&[]).unwrap(),
            ["/bin/macvlan"]
        );
        assert!(root.list("/bin").unwrap().is_empty());
    }

    #[test]
    fn nothing_is_left_where_one_process_installs_while_another_removes() {
        let (_dir, root) = node();
        let names: Vec<String> = (0..20).map(|number| format!("plugin-{number}")).collect();
        let install = || {
            let installation = Installation::plugins(&root);
            let _turn = installation.turn().unwrap();
            let dir = Path::new("/bin");
            installation.install(dir, "program", b"one").unwrap();
            for name in &names {
                let linked = installation.link(dir, name, "program").unwrap();
                assert!(linked.is_some(), "{name} is a link that no record knows");
            }
        };
        std::thread::scope(|scope| {
            let installing = scope.spawn(|| (0..20).for_each(|_| install()));
            while !installing.is_finished() {
                Installation::plugins(&root).remove_all().unwrap();
            }
        });
        Installation::plugins(&root).remove_all().unwrap();
        assert!(root.list("/bin").unwrap().is_empty());
        assert!(!root.exists(PLUGINS_RECORD));
    }

    #[test]
    fn removal_creates_nothing_where_nothing_was_installed() {
        let (_dir, root) = node();
        let removed = Installation::plugins(&root).remove_all().unwrap();
        assert!(removed.is_empty());
        assert!(!root.exists("/var"));
    }

    #[test]
    fn foreign_file_or_link_keeps_its_name() {
        let (dir, root) = node();
        let put = || {
            Installation::multiplexer(&root)
                .link(Path::new("/bin"), "macvlan", "ours")
                .unwrap()
        };
        root.write_atomic("/bin/macvlan", b"theirs", 0o755).unwrap();
        assert_eq!(put(), None);
        std::fs::remove_file(dir.path().join("bin/macvlan")).unwrap();
        assert_eq!(put(), Some(Outcome::Installed));
        std::fs::remove_file(dir.path().join("bin/macvlan")).unwrap();
        symlink("theirs", dir.path().join("bin/macvlan")).unwrap();
        assert_eq!(put(), None);
        assert!(
            Installation::multiplexer(&root)
                .remove_others(&[])
                .unwrap()
                .is_empty()
        );
        assert_eq!(root.list("/bin").unwrap(), ["macvlan"]);
    }

    #[test]
    fn changed_file_is_kept() {
        let (_dir, root) = node();
        put(&root, b"one").unwrap();
        root.write_atomic("/bin/multus-shim", b"theirs", 0o755)
            .unwrap();
        assert!(put(&root, b"two").is_err());
        assert!(
            Installation::multiplexer(&root)
                .remove_others(&[])
                .unwrap()
                .is_empty()
        );
        assert_eq!(installed(&root), b"theirs");
    }

    #[test]
    fn read_only_directory_has_a_hint() {
        for (kind, part) in [
            (io::ErrorKind::ReadOnlyFilesystem, "bin_dirs"),
            (io::ErrorKind::StorageFull, "cannot write /bin/x: "),
        ] {
            let error = RootError {
                action: "write",
                path: "/bin/x".into(),
                source: kind.into(),
            };
            let error = write_error(Path::new("/bin/x"), error).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn identical_file_is_adopted_and_kept_paths_stay() {
        let (_dir, root) = node();
        root.write_atomic("/bin/multus-shim", b"one", 0o755)
            .unwrap();
        assert_eq!(put(&root, b"one").unwrap(), Outcome::Unchanged);
        root.make_dirs("/new", 0o755).unwrap();
        Installation::multiplexer(&root)
            .install(Path::new("/new"), "multus-shim", b"one")
            .unwrap();
        assert_eq!(
            Installation::multiplexer(&root)
                .remove_others(&[Path::new("/new/multus-shim")])
                .unwrap(),
            ["/bin/multus-shim"]
        );
        assert!(root.exists("/new/multus-shim"));
    }
}
