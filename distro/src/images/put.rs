//! Archives put where the distro imports from: complete beside their places first, so that its watcher never sees a part of one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::{ENDINGS, Folder, folder::Checked, hash, stem};

/// Where it is, the distro imports only what changed; it never makes it itself.
pub(crate) const CACHE: &str = ".cache.json";

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    /// Files that are new.
    pub(crate) written: Vec<PathBuf>,
    /// What the operator should know.
    pub(crate) notes: Vec<String>,
}

/// Copies archives into the directory. What is written is hashed while it is, whatever was seen before.
pub(crate) fn install(
    folder: &Folder,
    archives: &[Checked],
    dir: &Path,
) -> anyhow::Result<Installed> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    let mut installed = Installed::default();
    let mut copies = Copies::default();
    for archive in archives {
        let path = dir.join(&archive.name);
        let former = former(&path)?;
        if former
            .as_ref()
            .is_some_and(|(digest, _)| *digest == archive.sha256)
        {
            installed
                .notes
                .push(format!("{} is there already", path.display()));
            continue;
        }
        let size = copies
            .add(&folder.path(&archive.name), &path, &archive.sha256)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if former.is_some_and(|(_, before)| before == size) {
            installed.notes.push(format!(
                "{} is as long as the one it replaces: restart the distro, which tells archives apart by their length",
                path.display()
            ));
        }
        installed.written.push(path);
    }
    copies
        .put()
        .with_context(|| format!("cannot write below {}", dir.display()))?;
    for archive in archives {
        for other in others(dir, &archive.name) {
            match fs::remove_file(&other) {
                Ok(()) => installed.notes.push(format!(
                    "{} is removed: the same images would be imported twice",
                    other.display()
                )),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", other.display()));
                }
            }
        }
    }
    let cache = dir.join(CACHE);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&cache);
    match made {
        Ok(_) => installed.written.push(cache),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", cache.display()));
        }
    }
    Ok(installed)
}

/// Digest and length of what is in the archive's place.
fn former(path: &Path) -> anyhow::Result<Option<(String, u64)>> {
    let place = || format!("cannot read {}", path.display());
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => {
            let file = other.with_context(place)?;
            let length = file.metadata().with_context(place)?.len();
            let digest = hash(file, io::sink()).with_context(place)?;
            Ok(Some((digest, length)))
        }
    }
}

/// The same archive with other endings.
fn others(dir: &Path, name: &str) -> Vec<PathBuf> {
    let stem = stem(name).unwrap_or(name);
    let names = ENDINGS.iter().map(|ending| format!("{stem}{ending}"));
    names
        .filter(|other| other != name)
        .map(|other| dir.join(other))
        .collect()
}

/// Copies that are not in their places yet; dropped before, they go again.
#[derive(Debug, Default)]
struct Copies(Vec<(PathBuf, PathBuf)>);

impl Copies {
    fn add(&mut self, from: &Path, to: &Path, digest: &str) -> anyhow::Result<u64> {
        let name = to.file_name().context("an archive has a name")?;
        // No importer knows this ending.
        let beside = to.with_file_name(format!(".{}.multus-tmp", name.to_string_lossy()));
        let source = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
        let target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        self.0.push((beside, to.to_owned()));
        let found = hash(source, &target)?;
        ensure!(
            found == digest,
            "{} changed while it was read: run again",
            from.display()
        );
        target.sync_all()?;
        Ok(target.metadata()?.len())
    }

    fn put(mut self) -> io::Result<()> {
        for (beside, to) in &self.0 {
            fs::rename(beside, to)?;
            if let Some(dir) = to.parent() {
                File::open(dir)?.sync_all()?;
            }
        }
        self.0.clear();
        Ok(())
    }
}

/// Best effort: the error that led here is told, and the next attempt writes over what is left.
impl Drop for Copies {
    fn drop(&mut self) {
        for (beside, _) in &self.0 {
            let _ = fs::remove_file(beside);
        }
    }
}
