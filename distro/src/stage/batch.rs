//! A batch of files: all are complete under temporary names before the first is renamed, so that a full disk changes nothing.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use node::root::{Directory, Root};

/// Coarser than the timestamps of any file system.
const STEP: Duration = Duration::from_secs(2);

/// Files under temporary names, which are deleted on drop unless [`Batch::put`] renamed them; so are directories made for them.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    root: &'a Root,
    /// The directory whose content is only for root.
    data_dir: &'a Path,
    files: Vec<NewFile>,
    dirs: Vec<PathBuf>,
}

/// A file under its temporary name.
#[derive(Debug)]
struct NewFile {
    dir: Directory,
    temporary: String,
    name: OsString,
    /// The final path.
    path: PathBuf,
    /// `None` until it is complete.
    open: Option<File>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(root: &'a Root, data_dir: &'a Path) -> Self {
        Self {
            root,
            data_dir,
            files: Vec::new(),
            dirs: Vec::new(),
        }
    }

    /// Writes a file under a temporary name: it gets the mode 0600, directories below the data directory 0700. The data directory itself
    /// and those above it get 0755, as from the distro: other programs look for files of theirs there.
    pub(crate) fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        if self.root.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.make_dirs(parent)?;
        // Hidden, and with an ending that no deploy controller reads.
        let temporary = format!(".{}.multus-tmp", name.to_string_lossy());
        let file = self.files.push_mut(NewFile {
            dir: self.root.directory(parent).map_err(|error| error.source)?,
            temporary,
            name: name.to_owned(),
            path: path.to_owned(),
            open: None,
        });
        let open = file.dir.create(&file.temporary, bytes, 0o600);
        file.open = Some(open.map_err(|error| error.source)?);
        Ok(())
    }

    fn make_dirs(&mut self, dir: &Path) -> io::Result<()> {
        let is_missing = |dir: &&Path| !self.root.exists(dir);
        let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
        for dir in missing.into_iter().rev() {
            let is_above = self.data_dir.starts_with(dir);
            let made = self
                .root
                .make_dirs(dir, if is_above { 0o755 } else { 0o700 });
            made.map_err(|error| error.source)?;
            self.dirs.push(dir.to_owned());
        }
        Ok(())
    }

    /// Renames the files to their final paths, in the order in which they were written.
    pub(crate) fn put(mut self) -> io::Result<()> {
        for file in &self.files {
            if let Some(open) = &file.open {
                change_modified_time(self.root, open, &file.path)?;
                file.dir
                    .sync_data(open, &file.temporary)
                    .map_err(|error| error.source)?;
            }
        }
        for file in &self.files {
            file.dir
                .rename(&file.temporary, &file.name)
                .and_then(|()| file.dir.sync())
                .map_err(|error| error.source)?;
        }
        self.files.clear();
        self.dirs.clear();
        Ok(())
    }
}

/// Gives the new file another modification time than the one that it replaces, since distros read a manifest again only then, and the
/// clock may have been set back.
fn change_modified_time(root: &Root, new: &File, path: &Path) -> io::Result<()> {
    let former = match root.open_file(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other
            .map_err(|error| error.source)?
            .metadata()?
            .modified()?,
    };
    if new.metadata()?.modified()? == former {
        new.set_modified(former + STEP)?;
    }
    Ok(())
}

/// Best effort: the caller reports the error that led here, and the next attempt overwrites what is left.
impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = file.dir.remove(&file.temporary);
        }
        for dir in self.dirs.iter().rev() {
            let _ = self.root.remove_dir(dir);
        }
    }
}

/// Writes one file, which is complete before it is visible; missing directories are only for root.
pub(crate) fn write_atomic(root: &Root, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut batch = Batch::new(root, Path::new("/"));
    batch.write(path, bytes)?;
    batch.put()
}
