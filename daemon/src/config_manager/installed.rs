//! The configurations that Multus has installed, with a record of them. Those that are no longer wanted are removed, whatever their name
//! and directory.

use std::path::{Path, PathBuf};

use node::{
    install::CONFIGURATIONS_RECORD as RECORD,
    record::{Hash, Record, RecordedFile},
    root::{Root, RootError},
};
use serde_json::{Map, Value};

use super::{FILE_NAME, default_network::plugin_types};

pub(super) const MAX_FILE: u64 = 4 << 20;
const MODE: u32 = 0o600;

/// Writes the file. Returns what was there before, or `None` when the file had this content already.
pub(super) fn put(root: &Root, path: &Path, bytes: &[u8]) -> Result<Option<Previous>, RootError> {
    let mut record = Record::read(root, Path::new(RECORD));
    let present = root.read(path, MAX_FILE).ok();
    let (new, old) = (Hash::of(bytes), present.as_deref().map(Hash::of));
    // Recorded before it is written, so that a crash leaves no file that would never be removed.
    match &old {
        Some(old) if *old == new => {
            record.set(path, &[&new])?;
            return Ok(None);
        }
        Some(old) if record.find(path).is_some_and(|file| file.is(old)) => {
            record.set(path, &[old, &new])?;
        }
        _ => record.set(path, &[&new])?,
    }
    root.write_atomic(path, bytes, MODE)?;
    record.set(path, &[&new])?;
    Ok(Some(match old {
        Some(_) => Previous::Other,
        None => Previous::Nothing,
    }))
}

/// The previous content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Previous {
    /// There was no readable file.
    Nothing,
    /// The file had another content.
    Other,
}

/// Whether the record has any configuration of ours.
pub fn any_installed(root: &Root) -> bool {
    !Record::read(root, Path::new(RECORD)).files().is_empty()
}

/// Whether there are configurations of ours, all of them in `dir`.
pub fn all_installed_in(root: &Root, dir: &Path) -> bool {
    let record = Record::read(root, Path::new(RECORD));
    let files = record.files();
    !files.is_empty() && files.iter().all(|file| file.path.parent() == Some(dir))
}

/// Removes every configuration of ours except `keep`, and returns their paths. In `dir` a file without a record is also ours when it has
/// our name and calls our shim.
pub fn remove_others(
    root: &Root,
    keep: Option<&Path>,
    dir: Option<&Path>,
) -> Result<Vec<PathBuf>, RootError> {
    let mut record = Record::read(root, Path::new(RECORD));
    let mut removed = Vec::new();
    let mut first_error = None;
    let mut try_remove = |path: &Path, written: Option<&RecordedFile>| {
        if keep.is_some_and(|keep| root.is_same_entry(keep, path)) {
            return true;
        }
        match remove(root, path, written) {
            Ok(existed) => {
                removed.extend(existed.then(|| path.to_owned()));
                true
            }
            Err(error) => {
                first_error.get_or_insert(error);
                false
            }
        }
    };
    record.retain(|file| keep == Some(&file.path) || !try_remove(&file.path, Some(file)))?;
    if let Some(path) = dir.map(|dir| dir.join(FILE_NAME))
        && keep != Some(&path)
    {
        try_remove(&path, None);
    }
    first_error.map_or(Ok(removed), Err)
}

/// Removes a file of ours. A file that another program has replaced stays, unless it still calls the shim: without us it would keep every
/// pod from starting.
fn remove(root: &Root, path: &Path, written: Option<&RecordedFile>) -> Result<bool, RootError> {
    match root.read(path, MAX_FILE) {
        Ok(bytes)
            if written.is_some_and(|file| file.is(&Hash::of(&bytes))) || calls_multus(&bytes) =>
        {
            root.remove(path)
        }
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

fn calls_multus(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(bytes)
        .is_ok_and(|config| plugin_types(&config).into_iter().any(plan::is_multus))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &[u8] = br#"{"type":"multus-shim"}"#;

    struct Node {
        dir: tempfile::TempDir,
        root: Root,
    }

    fn node() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.make_dirs("/a", 0o755).unwrap();
        root.make_dirs("/b", 0o755).unwrap();
        Node { dir, root }
    }

    impl Node {
        fn put(&self, path: &str, bytes: &[u8]) -> Option<Previous> {
            put(&self.root, Path::new(path), bytes).unwrap()
        }

        fn remove_others(&self, keep: Option<&str>, dir: Option<&str>) -> Vec<PathBuf> {
            remove_others(&self.root, keep.map(Path::new), dir.map(Path::new)).unwrap()
        }

        /// Writes a file as another program.
        fn write(&self, path: &str, bytes: &[u8]) {
            self.root.write_atomic(path, bytes, 0o644).unwrap();
        }
    }

    #[test]
    fn installed_files_are_removed_whatever_their_name_and_directory() {
        let node = node();
        assert_eq!(node.put("/a/10-my.conf", b"mine"), Some(Previous::Nothing));
        assert_eq!(node.put("/b/00-multus.conf", OURS), Some(Previous::Nothing));
        assert_eq!(node.put("/b/00-multus.conf", OURS), None);
        node.write("/b/10-cbr0.conf", b"{}");
        assert!(any_installed(&node.root));
        let removed = node.remove_others(Some("/b/00-multus.conf"), None);
        assert_eq!(removed, [Path::new("/a/10-my.conf")]);
        let removed = node.remove_others(None, None);
        assert_eq!(removed, [Path::new("/b/00-multus.conf")]);
        assert_eq!(node.root.list("/b").unwrap(), ["10-cbr0.conf"]);
        assert!(!any_installed(&node.root));
    }

    #[test]
    fn file_stays_whose_former_directory_is_a_link_to_its_own() {
        let node = node();
        node.put("/a/00-multus.conf", OURS);
        let dirs = ["a", "b"].map(|name| node.dir.path().join(name));
        std::fs::rename(&dirs[0], &dirs[1]).unwrap();
        std::os::unix::fs::symlink("b", &dirs[0]).unwrap();
        node.put("/b/00-multus.conf", OURS);
        for dir in [None, Some("/a")] {
            let removed = node.remove_others(Some("/b/00-multus.conf"), dir);
            assert_eq!(removed, Vec::<PathBuf>::new());
            assert_eq!(node.root.list("/b").unwrap(), ["00-multus.conf"]);
        }
        assert!(all_installed_in(&node.root, Path::new("/b")));
    }

    #[test]
    fn files_are_all_in_one_directory_or_not() {
        let node = node();
        let are_all = |dir: &str| all_installed_in(&node.root, Path::new(dir));
        assert!(!are_all("/a"), "none is not all");
        node.put("/a/00-multus.conf", OURS);
        assert!(are_all("/a") && !are_all("/b"));
        node.put("/b/00-multus.conf", OURS);
        assert!(!are_all("/a") && !are_all("/b"));
    }

    #[test]
    fn a_replaced_file_stays_unless_it_calls_multus() {
        let node = node();
        for path in ["/a/1.conf", "/a/2.conf", "/a/3.conf"] {
            node.put(path, OURS);
        }
        node.write("/a/1.conf", br#"{"type":"bridge"}"#);
        node.write("/a/2.conf", br#"{"plugins":[{"type":"multus-shim"}]}"#);
        node.root.remove("/a/3.conf").unwrap();
        assert_eq!(node.remove_others(None, None), [Path::new("/a/2.conf")]);
        assert_eq!(node.root.list("/a").unwrap(), ["1.conf"]);
    }

    #[test]
    fn without_a_record_name_and_content_decide() {
        let node = node();
        node.write("/a/00-multus.conf", OURS);
        node.write("/b/00-multus.conf", br#"{"type":"bridge"}"#);
        assert_eq!(
            node.remove_others(None, Some("/a")),
            [Path::new("/a/00-multus.conf")]
        );
        assert!(node.remove_others(None, Some("/b")).is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_removed_stays_in_the_record() {
        let node = node();
        node.put("/a/1.conf", OURS);
        node.root.remove("/a/1.conf").unwrap();
        node.root.make_dirs("/a/1.conf", 0o755).unwrap();
        let removed = remove_others(&node.root, None, None);
        assert!(removed.is_err() && any_installed(&node.root));
    }
}
