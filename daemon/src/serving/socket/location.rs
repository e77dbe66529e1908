//! Finds a daemon's own socket without the daemon's configuration, for probes.
//!
//! The own socket is in `socketDir`. A daemon whose `socketDir` is not the default directory writes a location file with its path into the
//! default directory; without such a file the socket is in the default directory.

use std::path::{Path, PathBuf};

use node::root::{Root, RootError};

/// The maximum size of a location file; larger than any path.
const MOST: u64 = 4096;
const SUFFIX: &str = ".location";

/// Returns the directory of the socket of the daemon with this id.
pub fn find(root: &Root, id: &str) -> PathBuf {
    read(root, &path(id)).unwrap_or_else(|| api::DEFAULT_SOCKET_DIR.into())
}

/// Writes the location file, unless `dir` is the default directory.
pub(super) fn set(root: &Root, id: &str, dir: &Path) -> Result<(), RootError> {
    if dir == Path::new(api::DEFAULT_SOCKET_DIR) {
        return root.remove(path(id)).map(drop);
    }
    if read(root, &path(id)).as_deref() == Some(dir) {
        return Ok(());
    }
    root.make_dirs(api::DEFAULT_SOCKET_DIR, super::DIR_MODE)?;
    let text = dir.to_string_lossy();
    root.write_atomic(path(id), text.as_bytes(), 0o600)
}

/// Removes the location file.
pub(super) fn forget(root: &Root, id: &str) -> Result<(), RootError> {
    root.remove(path(id)).map(drop)
}

/// Returns the ids of daemons with a location file, each with the directory in it.
pub(super) fn list(root: &Root) -> Vec<(String, PathBuf)> {
    let names = root.list(api::DEFAULT_SOCKET_DIR).unwrap_or_default();
    let ids = names.iter().filter_map(|name| id(name));
    ids.filter_map(|id| Some((id.to_owned(), read(root, &path(id))?)))
        .collect()
}

/// Returns whether a file of the default directory is a location file.
pub(super) fn is_name(name: &str) -> bool {
    id(name).is_some()
}

fn id(name: &str) -> Option<&str> {
    name.strip_prefix("daemon-")?.strip_suffix(SUFFIX)
}

fn path(id: &str) -> PathBuf {
    Path::new(api::DEFAULT_SOCKET_DIR).join(format!("daemon-{id}{SUFFIX}"))
}

fn read(root: &Root, path: &Path) -> Option<PathBuf> {
    let bytes = root.read(path, MOST).ok()?;
    let dir = PathBuf::from(String::from_utf8(bytes).ok()?);
    dir.is_absolute().then_some(dir)
}
