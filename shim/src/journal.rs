//! Journals a DEL for a daemon that cannot be reached: temporary file, fsync, rename, fsync of the directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::wire::to_json;

use crate::call::CniCall;

/// Writes the call into the journal of its state directory and returns the file's path.
pub(crate) fn write(call: &CniCall) -> io::Result<PathBuf> {
    let dir = api::journal::dir(&call.cni_dir);
    let with_path =
        |source: io::Error| io::Error::new(source.kind(), format!("{}: {source}", dir.display()));
    let (container_id, ifname) = call
        .attachment
        .as_ref()
        .expect("DEL is about an attachment");
    let name = api::journal::file_name(container_id, ifname, call.netns());
    let request = to_json(call.variables.0.iter().cloned(), &call.stdin, None);
    write_file(&dir, &name, &request).map_err(with_path)?;
    Ok(dir.join(name))
}

fn write_file(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    // A crashed process with the same ID may have left it.
    let _ = fs::remove_file(&temporary);
    let written =
        write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, dir.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    // The directories may be new as well.
    for dir in dir.ancestors().take(3) {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
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
