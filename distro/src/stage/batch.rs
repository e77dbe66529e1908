//! A batch of files: all are complete under temporary names before the first is renamed, so that a full disk changes nothing.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use archive::durable;

/// Coarser than the timestamps of any file system.
const STEP: Duration = Duration::from_secs(2);

/// Files under temporary names, which are deleted on drop unless [`Batch::put`] renamed them; so are directories made for them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Temporary and final path of each file.
    files: Vec<(PathBuf, PathBuf)>,
    dirs: Vec<PathBuf>,
}

impl Batch {
    /// Writes a file under a temporary name: directories get the mode 0700, the file 0600.
    pub(crate) fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.make_dirs(parent)?;
        // Hidden, and with an ending that no deploy controller reads.
        let temporary = parent.join(format!(".{}.multus-tmp", name.to_string_lossy()));
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        self.files.push((temporary, path.to_owned()));
        file.write_all(bytes)
    }

    fn make_dirs(&mut self, dir: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(dir)?;
            self.dirs.push(dir.to_owned());
        }
        Ok(())
    }

    /// Renames the files to their final paths, in the order in which they were written.
    pub(crate) fn put(mut self) -> io::Result<()> {
        for (temporary, path) in &self.files {
            change_modified_time(temporary, path)?;
            durable::sync(temporary)?;
        }
        for (temporary, path) in &self.files {
            durable::rename(temporary, path)?;
        }
        self.files.clear();
        self.dirs.clear();
        Ok(())
    }
}

/// Gives the new file another modification time than the one that it replaces, since distros read a manifest again only then, and the
/// clock may have been set back.
fn change_modified_time(temporary: &Path, path: &Path) -> io::Result<()> {
    let former = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.modified()?,
    };
    if fs::metadata(temporary)?.modified()? == former {
        let file = OpenOptions::new().write(true).open(temporary)?;
        file.set_modified(former + STEP)?;
    }
    Ok(())
}

/// Best effort: the caller reports the error that led here, and the next attempt overwrites what is left.
impl Drop for Batch {
    fn drop(&mut self) {
        for (temporary, _) in &self.files {
            let _ = fs::remove_file(temporary);
        }
        for dir in self.dirs.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Writes one file, which is complete before it is visible.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.write(path, bytes)?;
    batch.put()
}
