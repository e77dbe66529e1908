//! Puts complete files where others read them, so that a power cut leaves the former file or the new one, and never a part.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Syncs a file, or a directory with everything in it, renames it to its final path, and syncs the directory of that path.
///
/// Both paths are on one file system. When the sync fails, nothing is renamed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    sync(from)?;
    fs::rename(from, to)?;
    let parent = to.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Syncs a file, or a directory with everything in it.
///
/// Whoever renames several files syncs all of them before the first, so that a failure changes none.
pub fn sync(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() || kind.is_file() {
                sync(&entry.path())?;
            }
        }
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn file_and_directory_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("new"), "2").unwrap();
        fs::write(at("old"), "1").unwrap();
        rename(&at("new"), &at("old")).unwrap();
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "2");
        fs::create_dir_all(at("tree/below")).unwrap();
        fs::write(at("tree/below/file"), "3").unwrap();
        rename(&at("tree"), &at("there")).unwrap();
        assert_eq!(fs::read_to_string(at("there/below/file")).unwrap(), "3");
        assert!(!at("new").exists() && !at("tree").exists());
    }

    #[test]
    fn nothing_is_renamed_that_could_not_be_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "1").unwrap();
        // The kernel cannot sync this device, while a rename of the link succeeds.
        symlink("/dev/null", &new).unwrap();
        rename(&new, &old).unwrap_err();
        assert_eq!(fs::read_to_string(&old).unwrap(), "1");
        rename(&dir.path().join("absent"), &old).unwrap_err();
        assert_eq!(fs::read_to_string(&old).unwrap(), "1");
    }
}
