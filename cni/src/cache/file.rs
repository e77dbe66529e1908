//! One file of the cache: read with bounds, written as a whole.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{CacheError, Entry, KIND};

/// A longer file is not an entry.
const MAX_BYTES: u64 = 32 << 20;

/// Reads an entry; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Entry>, CacheError> {
    Ok(read_dated(path)?.map(|(entry, _)| entry))
}

/// The same, with the moment at which it was written, as far as that is known.
pub(super) fn read_dated(path: &Path) -> Result<Option<(Entry, Option<SystemTime>)>, CacheError> {
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
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(damaged("it is not a file".to_owned()));
    }
    // One byte more than there is, so that the end is seen without asking for more memory.
    let size = usize::try_from(metadata.len().min(MAX_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(size + 1);
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let entry: Entry =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if entry.kind == KIND {
        Ok(Some((entry, metadata.modified().ok())))
    } else {
        Err(damaged(format!("its kind is {:?}", entry.kind)))
    }
}

/// Replaces a file as one step. One name for each entry's temporary file, so that the next to write or to remove the entry
/// finds what a killed process left. Nothing waits for the disk: a power cut may leave the old file, or an empty one, which is no
/// entry.
pub(super) fn write(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    let written = match write_new(&temporary, bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
            write_new(&temporary, bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove(&temporary)?;
            write_new(&temporary, bytes)
        }
        written => written,
    };
    let written = written.and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: the next writer takes it away.
        let _ = remove(&temporary);
    }
    written
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
pub(super) fn meant_by(temporary: &[u8]) -> Option<&[u8]> {
    temporary.strip_prefix(b".")?.strip_suffix(b".tmp")
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    // By itself, the kernel stamps files by a clock that stands still for milliseconds. The order of a container's entries is that of
    // its networks.
    file.set_modified(SystemTime::now())
}
