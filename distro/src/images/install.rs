//! Copies the archive to where the distro imports from: it is complete under a temporary name first, so that the distro's watcher never
//! sees a part of it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use archive::{
    digest::{self, Digest},
    durable,
};

/// With this file the distro imports archives only when they change, those of others too; it never makes the file itself.
const CACHE: &str = ".cache.json";

/// Copies the archive into the directory. It is hashed again while it is copied, since it may have changed since the check.
/// With `conditional_import`, the file with which the distro imports only changed archives is made as well. Returns the new files.
pub(crate) fn install(
    archive: &Path,
    digest: Digest,
    dir: &Path,
    conditional_import: bool,
    note: impl Fn(&str),
) -> anyhow::Result<Vec<PathBuf>> {
    make_dirs(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let _lock = lock(dir, &note).with_context(|| format!("cannot lock {}", dir.display()))?;
    let mut written = Vec::new();
    let path = dir.join(archive.file_name().context("an archive has a name")?);
    let former = former(&path)?;
    if former.as_ref().is_some_and(|(former, _)| *former == digest) {
        note(&format!("{} is there already", path.display()));
    } else {
        let size = copy(archive, &path, digest)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if former.is_some_and(|(_, before)| before == size) {
            note(&format!(
                "{} is as long as the one it replaces: restart the distro, which tells archives apart by their length",
                path.display()
            ));
        }
        written.push(path);
    }
    if !conditional_import {
        return Ok(written);
    }
    let cache = dir.join(CACHE);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&cache);
    match made {
        Ok(_) => written.push(cache),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", cache.display()));
        }
    }
    Ok(written)
}

/// Keeps other runs out of the directory as long as the file is open: archives of different releases have one name.
fn lock(dir: &Path, note: impl Fn(&str)) -> io::Result<File> {
    let file = File::open(dir)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            note(&format!(
                "another run installs into {}: waiting for its end",
                dir.display()
            ));
            file.lock()?;
        }
        other => other?,
    }
    Ok(file)
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
fn former(path: &Path) -> anyhow::Result<Option<(Digest, u64)>> {
    let context = || format!("cannot read {}", path.display());
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => {
            let file = other.with_context(context)?;
            let found = digest::copy(file, io::sink()).with_context(context)?;
            Ok(Some(found))
        }
    }
}

/// Copies a file of this digest under a temporary name, and renames it once it is complete; returns its length.
fn copy(from: &Path, to: &Path, digest: Digest) -> anyhow::Result<u64> {
    let name = to.file_name().context("an archive has a name")?;
    // No importer reads files with this ending.
    let temporary = to.with_file_name(format!(".{}.multus-tmp", name.to_string_lossy()));
    let copied = copy_to(from, &temporary, digest).and_then(|size| {
        durable::sync(&temporary)?;
        durable::rename(&temporary, to)?;
        Ok(size)
    });
    if copied.is_err() {
        // Best effort: the error is reported, and the next attempt overwrites what is left.
        let _ = fs::remove_file(&temporary);
    }
    copied
}

fn copy_to(from: &Path, to: &Path, digest: Digest) -> anyhow::Result<u64> {
    let source = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to)?;
    let (found, length) = digest::copy(source, &target)?;
    ensure!(
        found == digest,
        "{} changed while it was read: run again",
        from.display()
    );
    Ok(length)
}
