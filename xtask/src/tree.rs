//! A folder as a value, and the two ways of writing it: file by file, or as a whole in place of another.

mod staged;

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail, ensure};

pub(crate) use self::staged::Staged;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_program: bool,
}

/// Files by their path below the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub BTreeMap<String, File>);

impl Tree {
    /// Adds a data file.
    pub(crate) fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.insert(path.into(), bytes.into(), false);
    }

    /// Adds a program.
    pub(crate) fn add_program(&mut self, path: impl Into<String>, bytes: Vec<u8>) {
        self.insert(path.into(), bytes, true);
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>, is_program: bool) {
        self.0.insert(path, File { bytes, is_program });
    }

    /// Adds all files of another tree.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// A file's bytes.
    pub(crate) fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(|file| file.bytes.as_slice())
    }

    /// Files below `prefix`, which ends in `/`, with the rest of their path.
    pub(crate) fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a File)> {
        self.0
            .iter()
            .filter_map(move |(path, file)| Some((path.strip_prefix(prefix)?, file)))
    }

    /// Reads a folder; anything but files and folders is refused.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_below(dir, "")?;
        Ok(tree)
    }

    fn read_below(&mut self, dir: &Path, prefix: &str) -> anyhow::Result<()> {
        let context = || format!("cannot read {}", dir.display());
        for entry in fs::read_dir(dir).with_context(context)? {
            let entry = entry.with_context(context)?;
            let (kind, path) = (entry.file_type()?, entry.path());
            let Ok(name) = entry.file_name().into_string() else {
                bail!("{} has a name that is no text", path.display());
            };
            let name = format!("{prefix}{name}");
            if kind.is_dir() {
                self.read_below(&path, &format!("{name}/"))?;
                continue;
            }
            ensure!(
                kind.is_file(),
                "{} is no plain file: remove it",
                path.display()
            );
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let is_program = entry.metadata()?.permissions().mode() & 0o111 != 0;
            self.insert(name, bytes, is_program);
        }
        Ok(())
    }

    /// Writes the files below `dir`, all or, where one cannot be written, none, and removes others below `owned` (each ending in `/`).
    ///
    /// An index is written after what it points at, so a reader never finds a name without its bytes.
    pub(crate) fn update(&self, dir: &Path, owned: &[&str]) -> anyhow::Result<()> {
        let mut files: Vec<_> = self.0.iter().collect();
        files.sort_by_key(|(path, _)| path.ends_with("index.json"));
        let mut staged = Staged::default();
        for (path, file) in files {
            staged.write(&dir.join(path), file)?;
        }
        staged.put()?;
        for prefix in owned {
            let below = dir.join(prefix);
            if !below.is_dir() {
                continue;
            }
            let mut found = Self::default();
            found.read_below(&below, prefix)?;
            for path in found.0.keys().filter(|path| !self.0.contains_key(*path)) {
                remove_with_parents(dir, path)
                    .with_context(|| format!("cannot remove {}", dir.join(path).display()))?;
            }
        }
        Ok(())
    }

    /// Writes the files to a new folder, syncing nothing: a folder that nobody looks at yet.
    pub(crate) fn write_new(&self, dir: &Path) -> anyhow::Result<()> {
        for (path, file) in &self.0 {
            let to = dir.join(path);
            write_new(&to, file).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(())
    }
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
    // The umask must not decide about a release.
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

/// Puts the folder `new` in the place of `old`, which may be absent. Both lie on one file system.
///
/// Between two renames there is no folder; [`repair`] brings back what a crash there left aside.
pub(crate) fn replace(new: &Path, old: &Path) -> anyhow::Result<()> {
    let aside = aside(old);
    let context = || format!("cannot put {} in place", old.display());
    if !old.exists() {
        return fs::rename(new, old).with_context(context);
    }
    fs::rename(old, &aside).with_context(context)?;
    if let Err(error) = fs::rename(new, old) {
        fs::rename(&aside, old).with_context(context)?;
        return Err(error).with_context(context);
    }
    fs::remove_dir_all(&aside).with_context(|| format!("cannot remove {}", aside.display()))
}

/// Undoes a [`replace`] that was cut off.
pub(crate) fn repair(old: &Path) -> anyhow::Result<()> {
    let aside = aside(old);
    if !aside.exists() {
        return Ok(());
    }
    let result = if old.exists() {
        fs::remove_dir_all(&aside)
    } else {
        fs::rename(&aside, old)
    };
    result.with_context(|| format!("cannot clear {}", aside.display()))
}

fn aside(path: &Path) -> std::path::PathBuf {
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
    fn an_update_removes_only_what_it_owns() {
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
    fn an_update_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let first = tree(&[("a/x", "1"), ("z/y", "2")]);
        first.update(dir.path(), &[]).unwrap();
        let long = format!("z/{}", "n".repeat(300));
        let second = tree(&[("a/x", "3"), ("b/c/d", "4"), (&long, "5")]);
        let error = second.update(dir.path(), &["a/", "z/"]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error:#}");
        assert_eq!(Tree::read(dir.path()).unwrap(), first);
        assert!(!dir.path().join("b").exists());
        // A folder in a file's place is seen before anything is put anywhere.
        let third = tree(&[("a/x", "3"), ("z", "6")]);
        third.update(dir.path(), &[]).unwrap_err();
        assert_eq!(Tree::read(dir.path()).unwrap(), first);
    }

    #[test]
    fn a_program_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add_program("bin/x", b"x".to_vec());
        tree.add("bin/y", b"y".to_vec());
        tree.update(dir.path(), &[]).unwrap();
        assert_eq!(Tree::read(dir.path()).unwrap(), tree);
    }

    #[test]
    fn a_folder_is_replaced_whole_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("dist"));
        tree(&[("x", "1")]).write_new(&new).unwrap();
        replace(&new, &old).unwrap();
        tree(&[("y", "2")]).write_new(&new).unwrap();
        replace(&new, &old).unwrap();
        assert_eq!(Tree::read(&old).unwrap(), tree(&[("y", "2")]));
        // As a crash between the two renames leaves it.
        fs::rename(&old, aside(&old)).unwrap();
        repair(&old).unwrap();
        assert_eq!(Tree::read(&old).unwrap(), tree(&[("y", "2")]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("x")).unwrap();
        let error = Tree::read(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("is no plain file: remove it"), "{error}");
    }
}
