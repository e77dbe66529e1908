//! The leases on disk, so that a process that is started again goes on with them. A reboot ends every network namespace, and with it the
//! use of every lease; a store that survives it says which leases are to be given back.
//!
//! Nothing here waits for the disk: a lease that a power cut takes expires at its server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};

use crate::interface::Identity;
use crate::removal::Configuration;
use crate::wire::Ask;
use crate::{Lease, Mac, Message};

/// The kernel's name of the time since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The directory of leases; its files have one lease each.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    boot: Option<String>,
}

/// A lease with what its renewal needs.
///
/// A later release may add fields, which this one passes over, so that a node can go back to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    schema: u32,
    /// The boot of the kernel in which the times and the network namespace below mean something.
    #[serde(default)]
    boot: Option<String>,
    pub(crate) ask: Ask,
    /// The identity of the network namespace: its path may be another one's by now.
    pub(crate) netns: Identity,
    /// The interface's index, by which it is found under another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ifindex: Option<u32>,
    pub(crate) mac: Mac,
    /// When it began, in milliseconds since the kernel was started.
    began: u64,
    server_mac: Mac,
    ack: Vec<u8>,
    /// What was on the interface when the lease was lost and its address taken off. The next lease puts it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<Configuration>,
}

const SCHEMA: u32 = 1;
/// The ending of a file that is being written.
const NEW: &str = "new";

impl Stored {
    pub(crate) fn new(ask: &Ask, netns: Identity, mac: Mac, lease: &Lease) -> Self {
        Self {
            schema: SCHEMA,
            boot: None,
            ask: ask.clone(),
            netns,
            ifindex: None,
            mac,
            began: u64::try_from(lease.began.as_millis()).unwrap_or_default(),
            server_mac: lease.server_mac,
            ack: lease.ack.encode(),
            removed: None,
        }
    }

    /// Returns the lease, or `None` when the file is of another release.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let ack = Message::decode(&self.ack).filter(|_| self.schema == SCHEMA)?;
        Some(Lease {
            ack,
            began: Duration::from_millis(self.began),
            server_mac: self.server_mac,
        })
    }
}

impl Store {
    /// A store in this directory, which is created once there is a lease.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let boot = fs::read_to_string(BOOT_ID).ok();
        Self {
            dir: dir.into(),
            boot: boot.map(|id| id.trim().to_owned()),
        }
    }

    /// The store next to a socket in `/run`, for a service that has no other place.
    pub fn from_socket(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".leases");
        Self::new(path)
    }

    /// Keeps a lease of this boot.
    pub(crate) fn keep(&self, stored: Stored) -> io::Result<()> {
        let boot = self.boot.clone();
        self.write(&Stored { boot, ..stored })
    }

    fn write(&self, stored: &Stored) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let path = self.path(&stored.ask.client);
        let new = path.with_extension(NEW);
        fs::write(&new, serde_json::to_vec(stored)?)?;
        fs::rename(new, path)
    }

    /// Returns whether a lease was kept since the kernel was started; a store that does not say does not outlive the kernel.
    pub(crate) fn is_of_this_boot(&self, stored: &Stored) -> bool {
        stored.boot.is_none() || stored.boot == self.boot
    }

    /// Moves all leases of another store into this one, and removes the other unless there is something else in it. A lease that this one
    /// has stays as it is.
    pub fn take_over(&self, other: &Self) -> io::Result<usize> {
        let mut moved = 0;
        for (path, stored) in other.read()? {
            if !self.path(&stored.ask.client).exists() {
                self.write(&stored)?;
                moved += 1;
            }
            fs::remove_file(path)?;
        }
        match fs::remove_dir(&other.dir) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(error)
            }
            _ => Ok(moved),
        }
    }

    /// Forgets a lease.
    pub(crate) fn forget(&self, client: &str) {
        // A file that stays is read by the next daemon, which finds that the namespace is gone.
        let _ = fs::remove_file(self.path(client));
    }

    /// Returns all leases. A file that is not a lease stays, since it may be another release's, unless a process was killed while it wrote it.
    /// The error is one of the whole process or directory: there may be leases.
    pub(crate) fn all(&self) -> io::Result<Vec<Stored>> {
        let read = self.read()?.into_iter();
        Ok(read.map(|(_, stored)| stored).collect())
    }

    /// Returns all leases, each with its file.
    fn read(&self) -> io::Result<Vec<(PathBuf, Stored)>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let text = match fs::read(&path) {
                Err(error) if is_of_process(&error) => return Err(error),
                text => text.ok(),
            };
            let is_unfinished = text.as_ref().is_some_and(Vec::is_empty)
                || path.extension().is_some_and(|extension| extension == NEW);
            if is_unfinished {
                let _ = fs::remove_file(&path);
            } else if let Some(stored) = text.and_then(|text| serde_json::from_slice(&text).ok()) {
                all.push((path, stored));
            }
        }
        Ok(all)
    }

    /// A client's name has slashes and may be longer than a file's.
    fn path(&self, client: &str) -> PathBuf {
        let digest = Sha512::digest(client);
        let name: Vec<_> = digest[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.dir.join(name.concat())
    }
}

/// Returns whether an error is the process's, which has too many open files or too little memory, and not the file's.
fn is_of_process(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::wire::Verb;

    fn stored(client: &str) -> Stored {
        let mut ack = Message::new(Kind::Ack, 7, [2, 0, 0, 0, 0, 1]);
        ack.your_address = [10, 0, 0, 5].into();
        let lease = Lease {
            ack,
            began: Duration::from_millis(1_234_567),
            server_mac: [2, 0, 0, 0, 0, 2],
        };
        let ask = Ask {
            verb: Verb::Allocate,
            client: client.to_owned(),
            netns: "/run/netns/x".to_owned(),
            ifname: "eth0".to_owned(),
            provide: vec![(12, "pod".to_owned())],
            request: vec![3, 1],
            broadcast: false,
        };
        let stored = Stored::new(&ask, (4, 99), lease.ack.mac, &lease);
        assert_eq!(stored.lease(), Some(lease));
        stored
    }

    #[test]
    fn leases_are_kept_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::from_socket(&dir.path().join("dhcp.sock"));
        assert!(store.all().unwrap().is_empty());
        let stored = stored("container/net/eth0");
        store.keep(stored.clone()).unwrap();
        store.keep(stored.clone()).unwrap();
        let all = store.all().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].lease(), stored.lease());
        assert_eq!((&all[0].ask, all[0].netns), (&stored.ask, (4, 99)));
        store.forget("container/net/eth0");
        assert!(store.all().unwrap().is_empty());
    }

    #[test]
    fn files_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        store.keep(stored("a")).unwrap();
        let text = fs::read_to_string(store.path("a")).unwrap();
        // A field of a later release.
        let later = text.replacen('{', "{\"later\": 1,", 1);
        fs::write(store.path("a"), &later).unwrap();
        fs::write(dir.path().join("broken"), "{").unwrap();
        fs::create_dir(dir.path().join("unreadable")).unwrap();
        // A process was killed while it wrote these.
        fs::write(dir.path().join("empty"), "").unwrap();
        fs::write(store.path("a").with_extension(NEW), &text).unwrap();
        let all = store.all().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].lease(), stored("a").lease());
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        let mut expected = [
            store.path("a"),
            dir.path().join("broken"),
            dir.path().join("unreadable"),
        ];
        expected.sort();
        assert_eq!(names, expected);
        assert_eq!(fs::read_to_string(store.path("a")).unwrap(), later);
    }

    #[test]
    fn directory_that_cannot_be_read_is_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Store::new(file).all().is_err());
        assert!(is_of_process(&rustix::io::Errno::MFILE.into()));
        assert!(!is_of_process(&rustix::io::Errno::ISDIR.into()));
    }

    #[test]
    fn leases_know_their_boot() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::new(dir.path());
        assert!(store.boot.is_some());
        store.keep(stored("a")).unwrap();
        let kept = store.all().unwrap().remove(0);
        assert!(store.is_of_this_boot(&kept));
        // The format of earlier releases, whose file was only in /run.
        assert!(store.is_of_this_boot(&stored("a")));
        store.boot = Some("another".to_owned());
        assert!(!store.is_of_this_boot(&kept));
    }

    #[test]
    fn another_store_is_taken_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let former = Store::from_socket(&dir.path().join("dhcp.sock"));
        let store = Store::new(dir.path().join("new"));
        assert_eq!(store.take_over(&former).unwrap(), 0);
        former.keep(stored("a")).unwrap();
        former.keep(stored("b")).unwrap();
        store.keep(stored("b")).unwrap();
        assert_eq!(store.take_over(&former).unwrap(), 1);
        assert!(!former.dir.exists());
        assert_eq!(store.all().unwrap().len(), 2);
    }
}
