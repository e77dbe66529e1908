//! Files written beside their places first and put there afterwards, so that a full disk changes nothing.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{File, write_new};

/// What was written and is not in its place yet. Dropped before it is there, it goes again, folders included.
#[derive(Default)]
pub(crate) struct Staged {
    files: Vec<(PathBuf, PathBuf)>,
    folders: Vec<PathBuf>,
}

impl Staged {
    /// Writes a file beside its place, unless the same file is there.
    pub(crate) fn write(&mut self, to: &Path, file: &File) -> anyhow::Result<()> {
        let context = || format!("cannot write {}", to.display());
        if is_same(to, file).with_context(context)? {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            self.make_folder(parent).with_context(context)?;
        }
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let beside = to.with_file_name(format!(".{name}.{}", std::process::id()));
        self.files.push((beside.clone(), to.to_owned()));
        write_new(&beside, file).with_context(context)
    }

    /// Makes a folder and its parents.
    pub(crate) fn make_folder(&mut self, dir: &Path) -> io::Result<()> {
        let missing: Vec<_> = dir
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
            .collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir)?;
            self.folders.push(dir.to_owned());
        }
        Ok(())
    }

    /// Puts every file in its place, in the order in which they were written.
    pub(crate) fn put(mut self) -> anyhow::Result<()> {
        for (beside, to) in &self.files {
            fs::rename(beside, to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        self.files.clear();
        self.folders.clear();
        Ok(())
    }
}

/// Best effort: the error that led here is the one to tell. A folder that holds something by now stays.
impl Drop for Staged {
    fn drop(&mut self) {
        for (beside, _) in &self.files {
            let _ = fs::remove_file(beside);
        }
        for dir in self.folders.iter().rev() {
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
