//! One file of the cache: read with bounds, written as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{CacheError, Entry, KIND};

/// A longer file is not an entry.
const MAX_BYTES: u64 = 32 << 20;

/// Reads an entry; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Entry>, CacheError> {
    let failed = |source| CacheError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let damaged = |reason| CacheError::Damaged {
        path: path.to_owned(),
        reason,
    };
    // A named pipe of that name must not hang the reader.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag of open");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(damaged("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let entry: Entry =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if entry.kind == KIND {
        Ok(Some(entry))
    } else {
        Err(damaged(format!("its kind is {:?}", entry.kind)))
    }
}

/// Replaces a file as one step. One name for each entry's temporary file, so that the next to write or to remove the entry
/// finds what a killed process left.
pub(super) fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_dir(dir)?;
    let temporary = temporary(path);
    remove(&temporary)?;
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: who comes next takes it away.
        let _ = remove(&temporary);
    }
    written.and_then(|()| File::open(dir)?.sync_all())
}

/// Removes a file; one that is not there is success.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where an entry lies until it is complete.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// The entry's file name, of a temporary file's.
pub(super) fn meant_by(temporary: &str) -> Option<&str> {
    temporary.strip_prefix('.')?.strip_suffix(".tmp")
}

/// A directory that is new has to outlive a power cut as its files do.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
