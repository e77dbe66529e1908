//! Copies archives to where the distro imports from: each is complete under a temporary name first, so that the distro's watcher never
//! sees a part of one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use archive::durable;

use super::{ArchiveDir, ENDINGS, archive_dir::CheckedFile, hash, stem};

/// With this file the distro imports archives only when they change, those of others too; it never makes the file itself.
const CACHE: &str = ".cache.json";

/// The outcome of an installation.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    /// The new files.
    pub(crate) written: Vec<PathBuf>,
    /// Lines for the operator.
    pub(crate) notes: Vec<String>,
}

/// Copies archives into the directory. They are hashed again while they are copied, since they may have changed since the check.
/// With `conditional_import`, the file with which the distro imports changed archives alone is made as well.
pub(crate) fn install(
    source: &ArchiveDir,
    archives: &[CheckedFile],
    dir: &Path,
    conditional_import: bool,
) -> anyhow::Result<Installed> {
    make_dirs(dir).with_context(|| format!("cannot make {}", dir.display()))?;
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
            .add(&source.path(&archive.name), &path, &archive.sha256)
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
    if !conditional_import {
        return Ok(installed);
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

/// Makes missing directories as the distro makes them, whatever the umask: other programs look for files of theirs below the first ones.
fn make_dirs(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        DirBuilder::new().create(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns digest and length of a file that is already under the archive's name.
fn former(path: &Path) -> anyhow::Result<Option<(String, u64)>> {
    let context = || format!("cannot read {}", path.display());
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => {
            let file = other.with_context(context)?;
            let length = file.metadata().with_context(context)?.len();
            let digest = hash(file, io::sink()).with_context(context)?;
            Ok(Some((digest, length)))
        }
    }
}

/// Returns the paths of the same archive in its other forms.
fn others(dir: &Path, name: &str) -> Vec<PathBuf> {
    let stem = stem(name).unwrap_or(name);
    let names = ENDINGS.iter().map(|ending| format!("{stem}{ending}"));
    names
        .filter(|other| other != name)
        .map(|other| dir.join(other))
        .collect()
}

/// Copies under temporary names, each with its final path; those that were not put there are deleted on drop.
#[derive(Debug, Default)]
struct Copies(Vec<(PathBuf, PathBuf)>);

impl Copies {
    fn add(&mut self, from: &Path, to: &Path, digest: &str) -> anyhow::Result<u64> {
        let name = to.file_name().context("an archive has a name")?;
        // No importer reads files with this ending.
        let temporary = to.with_file_name(format!(".{}.multus-tmp", name.to_string_lossy()));
        let source = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
        let target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        self.0.push((temporary, to.to_owned()));
        let found = hash(source, &target)?;
        ensure!(
            found == digest,
            "{} changed while it was read: run again",
            from.display()
        );
        Ok(target.metadata()?.len())
    }

    fn put(mut self) -> io::Result<()> {
        for (temporary, _) in &self.0 {
            durable::sync(temporary)?;
        }
        for (temporary, to) in &self.0 {
            durable::rename(temporary, to)?;
        }
        self.0.clear();
        Ok(())
    }
}

/// Best effort: the caller reports the error that led here, and the next attempt overwrites what is left.
impl Drop for Copies {
    fn drop(&mut self) {
        for (temporary, _) in &self.0 {
            let _ = fs::remove_file(temporary);
        }
    }
}
