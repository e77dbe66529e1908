//! Key and certificate on the node: `multus-client-<date>.pem` and the link `multus-client-current.pem` to the newest, as upstream
//! keeps them. Either the old or the new one is there at any moment, and the one that the link leaves is removed.

use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use node::root::{Root, RootError};

const PREFIX: &str = "multus-client-";
const CURRENT: &str = "multus-client-current.pem";
/// What a crash leaves while a file or the link is written.
const UNFINISHED: &str = ".multus-rs-multus-client-";
const LINK_BESIDE: &str = ".multus-rs-multus-client-current.pem.link";
/// A chain of certificates and a key have far less.
const MAX_SIZE: u64 = 1 << 20;

/// The directory that holds them.
#[derive(Debug, Clone)]
pub(super) struct Store<'a> {
    pub(super) root: &'a Root,
    pub(super) dir: &'a Path,
}

impl Store<'_> {
    /// The newest; `None` where there is none.
    pub(super) fn load(&self) -> Result<Option<String>, RootError> {
        match self.root.read(self.current(), MAX_SIZE) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes it the newest.
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
        self.clean(&name)
    }

    /// The link is made beside and renamed over the old one.
    fn link(&self, name: &str) -> Result<(), rustix::io::Errno> {
        let failed = |_| rustix::io::Errno::NOTDIR;
        let dir = self.root.open_dir(self.dir).map_err(failed)?;
        let _ = rustix::fs::unlinkat(&dir, LINK_BESIDE, rustix::fs::AtFlags::empty());
        rustix::fs::symlinkat(name, &dir, LINK_BESIDE)?;
        rustix::fs::renameat(&dir, LINK_BESIDE, &dir, CURRENT)?;
        rustix::fs::fsync(&dir)
    }

    /// Removes all of ours; whether there was any.
    pub(super) fn clear(&self) -> Result<bool, RootError> {
        if !self.root.is_dir(self.dir) {
            return Ok(false);
        }
        self.remove_but(&[])
    }

    /// Removes all of ours but this one.
    fn clean(&self, kept: &str) -> Result<(), RootError> {
        self.remove_but(&[kept, CURRENT]).map(drop)
    }

    fn remove_but(&self, kept: &[&str]) -> Result<bool, RootError> {
        let ours = |name: &str| name.starts_with(PREFIX) || name.starts_with(UNFINISHED);
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
    fn the_newest_is_linked_and_the_only_one() {
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
    fn a_link_that_leads_nowhere_is_none() {
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
