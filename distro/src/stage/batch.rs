//! Files that are complete beside their places before the first is put in its own, so that a full disk changes nothing.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// Coarser than any file system's idea of time.
const STEP: Duration = Duration::from_secs(2);

/// What was written and is not in its place yet. Dropped before it is there, it goes again, directories included.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    files: Vec<(PathBuf, PathBuf)>,
    dirs: Vec<PathBuf>,
}

impl Batch {
    /// Writes a file beside its place: directories 0700, file 0600.
    pub(crate) fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.make_dirs(parent)?;
        // Hidden, and with an ending that no deploy controller reads.
        let beside = parent.join(format!(".{}.multus-tmp", name.to_string_lossy()));
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        self.files.push((beside, path.to_owned()));
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn make_dirs(&mut self, dir: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            DirBuilder::new().mode(0o700).create(dir)?;
            self.dirs.push(dir.to_owned());
        }
        Ok(())
    }

    /// Puts the files in their places, in the order in which they were written.
    pub(crate) fn put(mut self) -> io::Result<()> {
        for (beside, path) in &self.files {
            make_unlike(beside, path)?;
            fs::rename(beside, path)?;
            if let Some(parent) = path.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        self.files.clear();
        self.dirs.clear();
        Ok(())
    }
}

/// Distros look at a manifest again when its time of change is another one, which no clock promises.
fn make_unlike(beside: &Path, path: &Path) -> io::Result<()> {
    let former = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.modified()?,
    };
    if fs::metadata(beside)?.modified()? == former {
        let file = OpenOptions::new().write(true).open(beside)?;
        file.set_modified(former + STEP)?;
    }
    Ok(())
}

/// Best effort: the error that led here is told, and the next attempt overwrites what is left.
impl Drop for Batch {
    fn drop(&mut self) {
        for (beside, _) in &self.files {
            let _ = fs::remove_file(beside);
        }
        for dir in self.dirs.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// One file, complete before it is seen.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.write(path, bytes)?;
    batch.put()
}
