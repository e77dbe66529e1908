//! Stores key and certificate on the node: `multus-client-<date>.pem`, and the link `multus-client-current.pem` to the newest, as
//! upstream does. At any moment the link leads to either the old or the new one, and the old file is removed afterwards.

use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use node::root::{Root, RootError};

const PREFIX: &str = "multus-client-";
const CURRENT: &str = "multus-client-current.pem";
/// The prefix of temporary files, which a crash may leave.
const TEMPORARY: &str = ".multus-rs-multus-client-";
const TEMPORARY_LINK: &str = ".multus-rs-multus-client-current.pem.link";
/// The size limit of a stored file, which is far smaller.
const MAX_SIZE: u64 = 1 << 20;

/// The directory of key and certificate.
#[derive(Debug, Clone)]
pub(super) struct Store<'a> {
    pub(super) root: &'a Root,
    pub(super) dir: &'a Path,
}

impl Store<'_> {
    /// Returns the newest certificate with its key, or `None` where there is none.
    pub(super) fn load(&self) -> Result<Option<String>, RootError> {
        match self.root.read(self.current(), MAX_SIZE) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a certificate with its key as the newest.
    pub(super) fn save(&self, pem: &str, now: Timestamp) -> Result<(), RootError> {
        self.root
            .make_dirs(self.dir.parent().unwrap_or(self.dir), 0o755)?;
        self.root.make_dirs(self.dir, 0o700)?;
        let name = format!("{PREFIX}{}.pem", now.strftime("%Y-%m-%d-%H-%M-%S"));
        self.root
            .write_atomic(self.dir.join(&name), pem.as_bytes(), 0o600)?;
        self.link(&name).map_err(|error| RootError {
            action: "link",
            path: self.current(),
            source: error.into(),
        })?;
        self.remove_old(&name)
    }

    /// Creates the link under a temporary name and renames it over the old one.
    fn link(&self, name: &str) -> Result<(), rustix::io::Errno> {
        let failed = |_| rustix::io::Errno::NOTDIR;
        let dir = self.root.open_dir(self.dir).map_err(failed)?;
        let _ = rustix::fs::unlinkat(&dir, TEMPORARY_LINK, rustix::fs::AtFlags::empty());
        rustix::fs::symlinkat(name, &dir, TEMPORARY_LINK)?;
        rustix::fs::renameat(&dir, TEMPORARY_LINK, &dir, CURRENT)?;
        rustix::fs::fsync(&dir)
    }

    /// Removes all of our files. Returns whether there were any.
    pub(super) fn clear(&self) -> Result<bool, RootError> {
        if !self.root.is_dir(self.dir) {
            return Ok(false);
        }
        self.remove_except(&[])
    }

    /// Removes all of our files except this one and the link.
    fn remove_old(&self, kept: &str) -> Result<(), RootError> {
        self.remove_except(&[kept, CURRENT]).map(drop)
    }

    fn remove_except(&self, kept: &[&str]) -> Result<bool, RootError> {
        let ours = |name: &str| name.starts_with(PREFIX) || name.starts_with(TEMPORARY);
        let mut found = false;
        for name in self.root.list(self.dir)? {
            if ours(&name) && !kept.contains(&name.as_str()) {
                self.root.remove(self.dir.join(name))?;
                found = true;
            }
        }
        Ok(found)
    }

    fn current(&self) -> PathBuf {
        self.dir.join(CURRENT)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_newest_is_kept_and_linked() {
        let node = tempfile::tempdir().unwrap();
        let root = Root::open(node.path()).unwrap();
        let dir = Path::new("/var/lib/certs");
        let store = Store { root: &root, dir };
        assert_eq!(store.load().unwrap(), None);
        assert!(!store.clear().unwrap());
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        store.save("one", time("2026-01-02T03:04:05Z")).unwrap();
        assert_eq!(store.load().unwrap().unwrap(), "one");
        let here = node.path().join("var/lib/certs");
        fs::write(here.join("of-another.pem"), "kept").unwrap();
        fs::write(here.join(".multus-rs-multus-client-2.pem.tmp"), "torn").unwrap();
        store.save("two", time("2026-01-03T03:04:05Z")).unwrap();
        assert_eq!(store.load().unwrap().unwrap(), "two");
        assert_eq!(
            names(&here),
            [
                "multus-client-2026-01-03-03-04-05.pem",
                "multus-client-current.pem",
                "of-another.pem"
            ]
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&here.join(CURRENT)), 0o600);
        assert_eq!(mode(&here), 0o700);
        assert!(store.clear().unwrap());
        assert_eq!(names(&here), ["of-another.pem"]);
        assert!(!store.clear().unwrap());
    }

    #[test]
    fn a_dangling_link_counts_as_no_certificate() {
        let node = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("gone.pem", node.path().join(CURRENT)).unwrap();
        let root = Root::open(node.path()).unwrap();
        let store = Store {
            root: &root,
            dir: Path::new("/"),
        };
        assert_eq!(store.load().unwrap(), None);
    }
}
