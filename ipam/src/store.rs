//! The records of a node's blocks on disk: who has which address.
//!
//! A record is written before a request is sent and before an address is answered. Nothing here waits for the disk: what a power cut takes,
//! the boot has ended, and a block gives nothing after a boot before its turn was raised.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::range::BLOCK_SIZE;
use crate::wire::{Attachment, Pod};

/// The kernel's name of the time since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A name that no two directories share.
const UUID: &str = "/proc/sys/kernel/random/uuid";
const SCHEMA: u32 = 1;
const IDENTITY: &str = "identity.json";
const BLOCKS: &str = "blocks";
/// The ending of a file that is being written, and of the note that a record could not be read.
const NEW: &str = "new";
const DAMAGED: &str = "damaged";

/// The directory of a node's records.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    boot: String,
    identity: Identity,
}

/// What tells this directory from every other one.
#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    schema: u32,
    incarnation: String,
    /// The boot in which the directory was made.
    boot: String,
    /// The last boot after which the node has taken its blocks without a record.
    #[serde(default)]
    adopted: Option<String>,
}

/// The record of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    schema: u32,
    /// The boot in which the uses below mean something, and in which the turn was raised.
    #[serde(default)]
    boot: String,
    pub name: String,
    pub space: String,
    /// The block's first address.
    pub first: String,
    /// What the node knows of a block that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    pub uses: Vec<Use>,
    /// Owners that may still have a slot of the shared block although their use has ended.
    #[serde(default)]
    pub ended: Vec<String>,
}

/// A block that this node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub uid: String,
    pub turn: u64,
    #[serde(default)]
    pub frozen: bool,
}

/// A pod's use of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    pub slot: u32,
    /// The owner as slots of shared blocks name it.
    pub owner: String,
    #[serde(flatten)]
    pub attachment: Attachment,
    pub pod: Pod,
    pub network: String,
    /// In seconds since 1970.
    pub since: u64,
    /// Whether the address is one of a shared block.
    #[serde(default)]
    pub is_shared: bool,
    /// Whether the request for the address is under way: no pod has it yet.
    #[serde(default)]
    pub is_asked: bool,
}

/// What a file said.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// A record of this boot: its uses go on.
    Current(Record),
    /// A record of an earlier boot, which has ended every use.
    Former(Record),
    /// The record of a block with this name cannot be read. The block gives nothing until the next boot.
    Damaged(String),
}

impl Record {
    pub fn new(name: &str, space: &str, first: &str) -> Self {
        Self {
            schema: SCHEMA,
            boot: String::new(),
            name: name.to_owned(),
            space: space.to_owned(),
            first: first.to_owned(),
            held: None,
            uses: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Ends the uses of a former boot, and those that were only asked for. Of shared blocks their owners may still have slots.
    fn end(&mut self, all: bool) {
        let (over, kept): (Vec<_>, Vec<_>) =
            self.uses.drain(..).partition(|one| all || one.is_asked);
        let over = over.into_iter().filter(|one| one.is_shared);
        self.ended.extend(over.map(|one| one.owner));
        self.uses = kept;
    }
}

impl Identity {
    fn make(path: &Path, boot: &str) -> io::Result<Self> {
        let identity = Self {
            schema: SCHEMA,
            incarnation: fs::read_to_string(UUID)?.trim().to_owned(),
            boot: boot.to_owned(),
            adopted: None,
        };
        write(path, &serde_json::to_vec(&identity)?)?;
        Ok(identity)
    }
}

impl Store {
    /// Opens the directory, or makes it.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let boot = fs::read_to_string(BOOT_ID)?;
        Self::open_in_boot(dir, boot.trim())
    }

    /// Opens the directory in this boot.
    pub(crate) fn open_in_boot(dir: impl Into<PathBuf>, boot: &str) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(dir.join(BLOCKS))?;
        let path = dir.join(IDENTITY);
        let known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice::<Identity>(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Without its identity the directory may have lost records, too: it is a new one.
        let known = known.filter(|known| known.schema == SCHEMA);
        let identity = known.map_or_else(|| Identity::make(&path, boot), Ok)?;
        Ok(Self {
            dir,
            boot: boot.to_owned(),
            identity,
        })
    }

    /// The name of this directory, which no directory has that was made in its place.
    pub fn incarnation(&self) -> &str {
        &self.identity.incarnation
    }

    /// Returns whether blocks without a record have no use: the machine was started since the directory was made, and the node has not
    /// yet taken these blocks since.
    pub fn may_adopt(&self) -> bool {
        self.identity.boot != self.boot && self.identity.adopted.as_ref() != Some(&self.boot)
    }

    /// Returns whether the node has never taken blocks without a record: another directory may have been here.
    pub fn is_new(&self) -> bool {
        self.identity.adopted.is_none()
    }

    /// Notes that the node has taken its blocks without a record: one that loses its record from now on gives nothing until the next boot.
    pub fn set_adopted(&mut self) -> io::Result<()> {
        self.identity.adopted = Some(self.boot.clone());
        write(
            &self.dir.join(IDENTITY),
            &serde_json::to_vec(&self.identity)?,
        )
    }

    /// Writes the record of a block in this boot.
    pub fn keep(&self, record: &Record) -> io::Result<()> {
        let boot = self.boot.clone();
        let record = Record {
            boot,
            ..record.clone()
        };
        write(&self.path(&record.name), &serde_json::to_vec(&record)?)
    }

    /// Forgets a block of which nothing of this node is left.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads all records.
    pub fn all(&self) -> io::Result<Vec<Read>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.dir.join(BLOCKS))? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            match (ending, stem) {
                (Some(NEW), _) => fs::remove_file(&path)?,
                (Some("json"), Some(name)) => all.extend(self.read(name, &path)?),
                _ => {}
            }
        }
        Ok(all)
    }

    /// Reads a record; `None` is one that could not be read before the machine was started.
    fn read(&self, name: &str, path: &Path) -> io::Result<Option<Read>> {
        let record = serde_json::from_slice::<Record>(&fs::read(path)?).ok();
        let is_sound = |record: &Record| {
            let slots = record.uses.iter().all(|one| one.slot < BLOCK_SIZE);
            record.schema == SCHEMA && record.name == name && slots
        };
        if let Some(mut record) = record.filter(is_sound) {
            let is_current = record.boot == self.boot;
            record.end(!is_current);
            return Ok(Some(if is_current {
                Read::Current(record)
            } else {
                Read::Former(record)
            }));
        }
        let note = path.with_extension(DAMAGED);
        match fs::read_to_string(&note) {
            Ok(boot) if boot != self.boot => {
                fs::remove_file(path)?;
                fs::remove_file(note)?;
                return Ok(None);
            }
            Ok(_) => {}
            Err(_) => write(&note, self.boot.as_bytes())?,
        }
        Ok(Some(Read::Damaged(name.to_owned())))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(BLOCKS).join(format!("{name}.json"))
    }
}

/// Writes beside the file and renames: readers see all or nothing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".");
    new.push(NEW);
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        let mut record = Record::new(name, "", name);
        record.held = Some(Held {
            uid: "u".to_owned(),
            turn: 4,
            frozen: false,
        });
        record.uses.push(Use {
            slot: 3,
            owner: "pod/u/c/net1".to_owned(),
            attachment: Attachment::default(),
            pod: Pod::default(),
            network: "lan".to_owned(),
            since: 1,
            is_shared: false,
            is_asked: false,
        });
        record
    }

    #[test]
    fn boot_ends_uses_and_keeps_what_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        assert!(!store.may_adopt(), "the directory was made in this boot");
        store.keep(&record("10.0.0.0")).unwrap();
        let again = Store::open_in_boot(dir.path(), "a").unwrap();
        assert_eq!(again.incarnation(), store.incarnation());
        let all = again.all().unwrap();
        let [Read::Current(read)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((read.uses.len(), &read.held), (1, &record("").held));
        let mut booted = Store::open_in_boot(dir.path(), "b").unwrap();
        assert!(booted.may_adopt() && booted.is_new());
        booted.set_adopted().unwrap();
        let again = Store::open_in_boot(dir.path(), "b").unwrap();
        assert!(!again.may_adopt() && !again.is_new());
        let all = booted.all().unwrap();
        let [Read::Former(read)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((read.uses.len(), &read.held), (0, &record("").held));
    }

    #[test]
    fn shared_uses_that_are_over_leave_their_owners() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        let mut written = record("10.0.0.0");
        let mut one = Use {
            is_shared: true,
            ..written.uses.remove(0)
        };
        for (owner, is_asked) in [("pod/1", false), ("pod/2", true)] {
            (one.owner, one.is_asked) = (owner.to_owned(), is_asked);
            written.uses.push(one.clone());
        }
        store.keep(&written).unwrap();
        let ended = |boot: &str| {
            let store = Store::open_in_boot(dir.path(), boot).unwrap();
            match store.all().unwrap().remove(0) {
                Read::Current(record) | Read::Former(record) => (record.uses.len(), record.ended),
                Read::Damaged(name) => panic!("{name}"),
            }
        };
        assert_eq!(ended("a"), (1, vec!["pod/2".to_owned()]));
        assert_eq!(
            ended("b"),
            (0, vec!["pod/1".to_owned(), "pod/2".to_owned()])
        );
    }

    #[test]
    fn damaged_record_blocks_its_block_until_the_next_boot() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        let newer = serde_json::to_string(&record("10.0.0.0")).unwrap();
        let newer = newer.replace("\"schema\":1", "\"schema\":2");
        for text in ["{", "", newer.as_str()] {
            fs::write(store.path("10.0.0.0"), text).unwrap();
            for _ in 0..2 {
                let damaged = Read::Damaged("10.0.0.0".to_owned());
                assert_eq!(store.all().unwrap(), [damaged], "{text}");
            }
            let booted = Store::open_in_boot(dir.path(), "b").unwrap();
            assert_eq!(booted.all().unwrap(), [], "{text}");
            assert_eq!(fs::read_dir(dir.path().join(BLOCKS)).unwrap().count(), 0);
        }
    }

    #[test]
    fn unfinished_file_is_removed_and_a_lost_identity_makes_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        store.keep(&record("10.0.0.0")).unwrap();
        fs::write(dir.path().join(BLOCKS).join("10.0.0.32.json.new"), "{").unwrap();
        assert_eq!(store.all().unwrap().len(), 1);
        store.forget("10.0.0.0").unwrap();
        store.forget("10.0.0.0").unwrap();
        assert_eq!(fs::read_dir(dir.path().join(BLOCKS)).unwrap().count(), 0);
        fs::remove_file(dir.path().join(IDENTITY)).unwrap();
        let other = Store::open_in_boot(dir.path(), "b").unwrap();
        assert_ne!(other.incarnation(), store.incarnation());
        assert!(!other.may_adopt());
    }
}
