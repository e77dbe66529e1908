//! A batch of files: all are written under temporary names before the first is renamed, so that a full disk changes nothing.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use archive::durable;

use super::{File, write_new};

/// Files under temporary names, which are deleted on drop unless [`Batch::put`] renamed them; so are directories made for them.
#[derive(Default)]
pub struct Batch {
    /// Temporary and final path of each file.
    files: Vec<(PathBuf, PathBuf)>,
    dirs: Vec<PathBuf>,
}

impl Batch {
    /// Writes a file under a temporary name, unless the same file is there already.
    pub fn write(&mut self, to: &Path, file: &File) -> anyhow::Result<()> {
        let context = || format!("cannot write {}", to.display());
        if is_same(to, file).with_context(context)? {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            self.make_dir(parent).with_context(context)?;
        }
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let temporary = to.with_file_name(format!(".{name}.{}", std::process::id()));
        self.files.push((temporary.clone(), to.to_owned()));
        write_new(&temporary, file).with_context(context)
    }

    /// Makes a directory and its parents.
    pub fn make_dir(&mut self, dir: &Path) -> io::Result<()> {
        let missing: Vec<_> = dir
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
            .collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir)?;
            self.dirs.push(dir.to_owned());
        }
        Ok(())
    }

    /// Renames every file to its final path, in the order in which they were written.
    pub fn put(mut self) -> anyhow::Result<()> {
        let context = |to: &Path| format!("cannot write {}", to.display());
        for (temporary, to) in &self.files {
            durable::sync(temporary).with_context(|| context(to))?;
        }
        for (temporary, to) in &self.files {
            durable::rename(temporary, to).with_context(|| context(to))?;
        }
        self.files.clear();
        self.dirs.clear();
        Ok(())
    }
}

/// Best effort: the caller reports the error that led here. A directory that holds other files stays.
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

fn is_same(path: &Path, file: &File) -> io::Result<bool> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let is_program = metadata.permissions().mode() & 0o111 != 0;
    Ok(is_program == file.is_program && fs::read(path)? == file.bytes)
}
