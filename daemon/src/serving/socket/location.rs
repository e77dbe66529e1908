//! How a probe finds its daemon's own socket without the daemon's configuration.
//!
//! The own socket is in `socketDir`. A daemon for which that is not the default directory leaves a file in the default directory that
//! names it; without such a file the default directory is the place.

use std::path::{Path, PathBuf};

use node::root::{Root, RootError};

/// More than any path.
const MOST: u64 = 4096;
const SUFFIX: &str = ".location";

/// Directory of the socket of the daemon with this id.
pub fn find(root: &Root, id: &str) -> PathBuf {
    read(root, &path(id)).unwrap_or_else(|| api::DEFAULT_SOCKET_DIR.into())
}

/// Makes `dir` the directory that [`find`] returns.
pub(super) fn set(root: &Root, id: &str, dir: &Path) -> Result<(), RootError> {
    if dir == Path::new(api::DEFAULT_SOCKET_DIR) {
        return root.remove(path(id)).map(drop);
    }
    if read(root, &path(id)).as_deref() == Some(dir) {
        return Ok(());
    }
    root.make_dirs(api::DEFAULT_SOCKET_DIR, super::DIR_MODE)?;
    let text = dir.to_string_lossy();
    root.write_atomic(path(id), text.as_bytes(), super::SOCKET_MODE)
}

/// Removes what [`set`] left.
pub(super) fn forget(root: &Root, id: &str) -> Result<(), RootError> {
    root.remove(path(id)).map(drop)
}

/// Ids of daemons that left such a file, each with the directory that it names.
pub(super) fn list(root: &Root) -> Vec<(String, PathBuf)> {
    let names = root.list(api::DEFAULT_SOCKET_DIR).unwrap_or_default();
    let ids = names.iter().filter_map(|name| id(name));
    ids.filter_map(|id| Some((id.to_owned(), read(root, &path(id))?)))
        .collect()
}

/// Whether a file of the default directory is one of these.
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
