//! The files in which Node Feature Discovery finds labels for this node's Node.

use std::path::{Path, PathBuf};

use node::root::{Root, RootError};
use tracing::warn;

/// The directory that its local source reads.
const DIR: &str = "/etc/kubernetes/node-feature-discovery/features.d";
/// The name of the first file; further ones have a number.
const FILE: &str = "multus-rs";

/// Writes these files where they differ, and removes further ones of ours.
pub(crate) fn write(root: &Root, files: &[String]) -> Result<(), RootError> {
    root.make_dirs(DIR, 0o755)?;
    for (number, text) in files.iter().enumerate() {
        let path = path(number);
        let known = root.read(&path, text.len() as u64);
        if known.ok().as_deref() != Some(text.as_bytes()) {
            root.write_atomic(&path, text.as_bytes(), 0o644)?;
        }
    }
    remove_from(root, files.len());
    Ok(())
}

/// Removes the files.
pub(crate) fn remove(root: &Root) {
    remove_from(root, 0);
}

/// Removes the files from this number on.
fn remove_from(root: &Root, first: usize) {
    for number in first.. {
        match root.remove(path(number)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return warn!(%error, "cannot remove a file of node features"),
        }
    }
}

fn path(number: usize) -> PathBuf {
    let name = match number {
        0 => FILE.to_owned(),
        number => format!("{FILE}.{number}"),
    };
    Path::new(DIR).join(name)
}
