//! A directory as a value, and the two ways of writing it: file by file, or as a replacement of another directory.

mod batch;

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail, ensure};
use archive::{durable, medium};

pub use self::batch::Batch;

/// Bits that no file of a release has: set-user-ID, set-group-ID, sticky, and write permission for everybody.
const UNSAFE: u32 = 0o7002;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub is_program: bool,
}

/// Files by their path below the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, File>);

/// The largest size of some files, which are refused before they are read.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Returns whether the limit is for the file with this path.
    pub applies: fn(&str) -> bool,
    pub bytes: u64,
}

/// The limit of nothing.
const UNLIMITED: Limit = Limit {
    applies: |_| false,
    bytes: u64::MAX,
};

impl<Bytes: Into<Vec<u8>>> FromIterator<(String, Bytes)> for Tree {
    /// Makes a tree of data files.
    fn from_iter<T: IntoIterator<Item = (String, Bytes)>>(files: T) -> Self {
        let mut tree = Self::default();
        for (path, bytes) in files {
            tree.add(path, bytes);
        }
        tree
    }
}

impl Tree {
    /// Adds a data file.
    pub fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.insert(path.into(), bytes.into(), false);
    }

    pub fn add_program(&mut self, path: impl Into<String>, bytes: Vec<u8>) {
        self.insert(path.into(), bytes, true);
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>, is_program: bool) {
        self.0.insert(path, File { bytes, is_program });
    }

    /// Adds all files of another tree, which replace those with the same path.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds all files of another tree below `prefix`, which ends in `/`.
    pub fn extend_below(&mut self, prefix: &str, other: Self) {
        let files = other.0.into_iter();
        self.0
            .extend(files.map(|(path, file)| (format!("{prefix}{path}"), file)));
    }

    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(|file| file.bytes.as_slice())
    }

    /// Returns the files below `prefix`, which ends in `/`, with the rest of their path.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a File)> {
        self.0
            .iter()
            .filter_map(move |(path, file)| Some((path.strip_prefix(prefix)?, file)))
    }

    /// Reads a directory; fails at anything but files and directories.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        Self::read_limited(dir, UNLIMITED)
    }

    /// Reads a directory, but no file that is larger than its limit.
    fn read_limited(dir: &Path, limit: Limit) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_below(dir, "", limit)?;
        Ok(tree)
    }

    /// Reads a directory inside of another one, with the paths that its files have from there.
    pub fn read_below_name(dir: &Path, prefix: &str, limit: Limit) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_below(dir, prefix, limit)?;
        Ok(tree)
    }

    /// Reads the directory at which a medium may be mounted, without what its file system adds there.
    pub fn read_medium(dir: &Path, limit: Limit) -> anyhow::Result<Self> {
        let context = || format!("cannot read {}", dir.display());
        let mut tree = Self::default();
        for entry in fs::read_dir(dir).with_context(context)? {
            let entry = entry.with_context(context)?;
            if !medium::is_of_file_system(&entry.file_name(), entry.file_type()?) {
                tree.read_entry(&entry, "", limit)?;
            }
        }
        Ok(tree)
    }

    fn read_below(&mut self, dir: &Path, prefix: &str, limit: Limit) -> anyhow::Result<()> {
        let context = || format!("cannot read {}", dir.display());
        for entry in fs::read_dir(dir).with_context(context)? {
            self.read_entry(&entry.with_context(context)?, prefix, limit)?;
        }
        Ok(())
    }

    fn read_entry(
        &mut self,
        entry: &fs::DirEntry,
        prefix: &str,
        limit: Limit,
    ) -> anyhow::Result<()> {
        let (kind, path) = (entry.file_type()?, entry.path());
        let Ok(name) = entry.file_name().into_string() else {
            bail!("the name of {} is not UTF-8", path.display());
        };
        let name = format!("{prefix}{name}");
        if kind.is_dir() {
            return self.read_below(&path, &format!("{name}/"), limit);
        }
        ensure!(
            kind.is_file(),
            "{} is not a regular file: remove it",
            path.display()
        );
        let metadata = entry.metadata()?;
        ensure!(
            !(limit.applies)(&name) || metadata.len() <= limit.bytes,
            "{} has {} bytes, and a file of this kind has at most {}: copy it again",
            path.display(),
            metadata.len(),
            limit.bytes
        );
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_program = check_mode(&path, &metadata)? & 0o111 != 0;
        self.insert(name, bytes, is_program);
        Ok(())
    }

    /// Writes all files below `dir`, or none when one cannot be written, and removes others below `owned` (each ending in `/`).
    ///
    /// An index is written after the files that it names, so that a reader never finds a name without its file.
    pub fn update(&self, dir: &Path, owned: &[&str]) -> anyhow::Result<()> {
        let mut files: Vec<_> = self.0.iter().collect();
        files.sort_by_key(|(path, _)| path.ends_with("index.json"));
        let mut batch = Batch::default();
        for (path, file) in files {
            batch.write(&dir.join(path), file)?;
        }
        batch.put()?;
        for prefix in owned {
            let below = dir.join(prefix);
            if !below.is_dir() {
                continue;
            }
            let mut found = Self::default();
            found.read_below(&below, prefix, UNLIMITED)?;
            for path in found.0.keys().filter(|path| !self.0.contains_key(*path)) {
                remove_with_parents(dir, path)
                    .with_context(|| format!("cannot remove {}", dir.join(path).display()))?;
            }
        }
        Ok(())
    }

    /// Writes the files into a new directory, which has no readers yet, without syncing them; [`replace`] does that.
    pub fn write_new(&self, dir: &Path) -> anyhow::Result<()> {
        for (path, file) in &self.0 {
            let to = dir.join(path);
            write_new(&to, file).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(())
    }
}

/// Returns the mode of a file, which must be one that a file of a release may have.
pub(crate) fn check_mode(path: &Path, metadata: &fs::Metadata) -> anyhow::Result<u32> {
    let mode = metadata.permissions().mode() & 0o7777;
    ensure!(
        mode & UNSAFE == 0,
        "{} has mode {mode:04o}: everybody may write it, or it gets the rights of its owner or group; chmod {} it, or copy it again",
        path.display(),
        if mode & 0o111 == 0 { "644" } else { "755" }
    );
    Ok(mode)
}

fn write_new(path: &Path, file: &File) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mode = if file.is_program { 0o755 } else { 0o644 };
    let mut out = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    out.write_all(&file.bytes)?;
    // The umask must not affect a release.
    out.set_permissions(fs::Permissions::from_mode(mode))
}

fn remove_with_parents(dir: &Path, path: &str) -> io::Result<()> {
    fs::remove_file(dir.join(path))?;
    for (slash, _) in path.rmatch_indices('/') {
        if fs::remove_dir(dir.join(&path[..slash])).is_err() {
            break;
        }
    }
    Ok(())
}

/// Replaces the directory `old`, which may be absent, by `new`. Both have to be on the same file system.
///
/// Between two renames there is no directory; [`repair`] restores it after a crash there.
pub fn replace(new: &Path, old: &Path) -> anyhow::Result<()> {
    let former = former_path(old);
    let context = || format!("cannot replace {}", old.display());
    if !old.exists() {
        return durable::rename(new, old).with_context(context);
    }
    // What takes the place is complete on the disk before the former directory leaves it.
    durable::sync(new).with_context(context)?;
    durable::rename(old, &former).with_context(context)?;
    if let Err(error) = durable::rename(new, old) {
        durable::rename(&former, old).with_context(context)?;
        return Err(error).with_context(context);
    }
    fs::remove_dir_all(&former).with_context(|| format!("cannot remove {}", former.display()))
}

/// Completes or undoes a [`replace`] that was interrupted.
pub fn repair(old: &Path) -> anyhow::Result<()> {
    let former = former_path(old);
    if !former.exists() {
        return Ok(());
    }
    let result = if old.exists() {
        fs::remove_dir_all(&former)
    } else {
        durable::rename(&former, old)
    };
    result.with_context(|| format!("cannot repair {}", former.display()))
}

fn former_path(path: &Path) -> std::path::PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.former"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(*path, *text);
        }
        tree
    }

    #[test]
    fn update_removes_files_only_below_owned_directories() {
        let dir = tempfile::tempdir().unwrap();
        let first = tree(&[("a/old/x", "1"), ("a/keep", "2"), ("b/other", "3")]);
        first.update(dir.path(), &[]).unwrap();
        let second = tree(&[("a/keep", "4"), ("a/new", "5")]);
        second.update(dir.path(), &["a/"]).unwrap();
        let expected = tree(&[("a/keep", "4"), ("a/new", "5"), ("b/other", "3")]);
        assert_eq!(Tree::read(dir.path()).unwrap(), expected);
        assert!(!dir.path().join("a/old").exists());
    }

    #[test]
    fn file_that_everybody_may_write_or_that_gives_rights_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        tree(&[("bin/x", "1")]).update(dir.path(), &[]).unwrap();
        let path = dir.path().join("bin/x");
        for (mode, is_safe) in [
            (0o644, true),
            (0o775, true),
            (0o4755, false),
            (0o6777, false),
            (0o646, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Tree::read(dir.path());
            assert_eq!(read.is_ok(), is_safe, "{mode:o}");
            if let Err(error) = read {
                let words = format!("has mode {mode:04o}");
                assert!(error.to_string().contains(&words), "{error}");
            }
        }
    }

    #[test]
    fn failed_update_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let first = tree(&[("a/x", "1"), ("z/y", "2")]);
        first.update(dir.path(), &[]).unwrap();
        let long = format!("z/{}", "n".repeat(300));
        let second = tree(&[("a/x", "3"), ("b/c/d", "4"), (&long, "5")]);
        let error = second.update(dir.path(), &["a/", "z/"]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error:#}");
        assert_eq!(Tree::read(dir.path()).unwrap(), first);
        assert!(!dir.path().join("b").exists());
        // A directory with a file's path is found before any file is renamed.
        let third = tree(&[("a/x", "3"), ("z", "6")]);
        third.update(dir.path(), &[]).unwrap_err();
        assert_eq!(Tree::read(dir.path()).unwrap(), first);
    }

    #[test]
    fn program_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add_program("bin/x", b"x".to_vec());
        tree.add("bin/y", b"y".to_vec());
        tree.update(dir.path(), &[]).unwrap();
        assert_eq!(Tree::read(dir.path()).unwrap(), tree);
    }

    #[test]
    fn directory_is_replaced_completely_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("dist"));
        tree(&[("x", "1")]).write_new(&new).unwrap();
        replace(&new, &old).unwrap();
        tree(&[("y", "2")]).write_new(&new).unwrap();
        replace(&new, &old).unwrap();
        assert_eq!(Tree::read(&old).unwrap(), tree(&[("y", "2")]));
        // As a crash between the two renames leaves it.
        fs::rename(&old, former_path(&old)).unwrap();
        repair(&old).unwrap();
        assert_eq!(Tree::read(&old).unwrap(), tree(&[("y", "2")]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_above_its_limit_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = tree(&[("a/x.sig", "123"), ("a/y", "1234")]);
        files.update(dir.path(), &[]).unwrap();
        let limit = |bytes| Limit {
            applies: |path| path == "a/x.sig",
            bytes,
        };
        assert_eq!(Tree::read_limited(dir.path(), limit(3)).unwrap(), files);
        let error = Tree::read_limited(dir.path(), limit(2)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("a/x.sig has 3 bytes"), "{error}");
    }

    #[test]
    fn links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("x")).unwrap();
        let error = Tree::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("is not a regular file: remove it"),
            "{error}"
        );
    }
}
