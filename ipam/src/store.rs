//! The records of a node's blocks on disk: who has which address.
//!
//! A record is written before a request is sent and before an address is answered. Nothing here waits for the disk: what a power cut takes,
//! the boot has ended, and a block gives nothing after a boot before its turn was raised.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::range::BLOCK_SIZE;
use crate::wire::{Attachment, Pod, all, text};

/// The kernel's name of the time since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A name that no two directories share.
const UUID: &str = "/proc/sys/kernel/random/uuid";
pub(crate) const SCHEMA: u64 = 1;
const IDENTITY: &str = "identity.json";
/// The directory of the records of blocks.
pub const BLOCKS: &str = "blocks";
/// The ending of a file that is being written, and of the note that a record could not be read.
const NEW: &str = "new";
const DAMAGED: &str = "damaged";

/// Returns whether a file is the record of a block of which no pod has an address, and which this node does not hold.
pub fn is_over(bytes: &[u8]) -> bool {
    Record::parse(bytes).is_some_and(|record| {
        record.held.is_none()
            && record.uses.is_empty()
            && record.ended.is_empty()
            && record.claims.is_empty()
    })
}

/// Returns the uses in a record of a block; none of one that cannot be read.
pub fn uses(bytes: &[u8]) -> Vec<Use> {
    Record::parse(bytes).map_or_else(Vec::new, |record| record.uses)
}

/// The directory of a node's records.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    boot: String,
    identity: Identity,
}

/// What tells this directory from every other one.
#[derive(Debug)]
struct Identity {
    incarnation: String,
    /// The last boot after which the node has taken its blocks without a record.
    adopted: Option<String>,
    /// The last boot after which requests of the former one can no longer be made.
    settled: Option<String>,
    /// The uid of the Node when it was read last.
    node: Option<String>,
}

/// The record of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The boot in which the uses below mean something.
    boot: String,
    pub name: String,
    pub space: String,
    /// The block's first address.
    pub first: String,
    /// What the node knows of a block that it holds.
    pub held: Option<Held>,
    pub uses: Vec<Use>,
    /// Owners that may still have a slot of the shared block although their use has ended.
    pub ended: Vec<String>,
    /// Owners of slots, claims, whose last pod was this node's: the slot is free when its claim is gone.
    pub claims: Vec<String>,
}

/// A block that this node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub uid: String,
    pub turn: u64,
    pub frozen: bool,
    /// Whether the turn was raised in the boot of the record.
    pub confirmed: bool,
}

/// A pod's use of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub slot: u32,
    /// The owner as slots of shared blocks name it.
    pub owner: String,
    pub attachment: Attachment,
    pub pod: Pod,
    pub network: String,
    /// In seconds since 1970.
    pub since: u64,
    /// Whether the address is one of a shared block.
    pub is_shared: bool,
    /// Whether the request for the address is under way: no pod has it yet.
    pub is_asked: bool,
    /// The `IPPool` of an adopted range, to which a return gives the address; empty for others.
    pub pool: String,
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
            boot: String::new(),
            name: name.to_owned(),
            space: space.to_owned(),
            first: first.to_owned(),
            held: None,
            uses: Vec::new(),
            ended: Vec::new(),
            claims: Vec::new(),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let value = document(bytes)?;
        let held = match value.get("held") {
            None | Some(Value::Null) => None,
            Some(held) => Some(Held {
                uid: text(held, "uid")?,
                turn: held.get("turn")?.as_u64()?,
                frozen: held.get("frozen")?.as_bool()?,
                confirmed: held.get("confirmed")?.as_bool()?,
            }),
        };
        let owner = |value: &Value| value.as_str().map(str::to_owned);
        let none = Value::Array(Vec::new());
        Some(Self {
            boot: text(&value, "boot")?,
            name: text(&value, "name")?,
            space: text(&value, "space")?,
            first: text(&value, "first")?,
            held,
            uses: all(value.get("uses")?, Use::read)?,
            ended: all(value.get("ended")?, owner)?,
            claims: all(value.get("claims").unwrap_or(&none), owner)?,
        })
    }

    pub(crate) fn document(&self, boot: &str) -> Vec<u8> {
        let held = self
            .held
            .as_ref()
            .map(|held| json!({"uid": held.uid, "turn": held.turn, "frozen": held.frozen, "confirmed": held.confirmed}));
        let uses: Vec<Value> = self.uses.iter().map(Use::value).collect();
        let document = json!({
            "schema": SCHEMA, "boot": boot, "name": self.name, "space": self.space, "first": self.first,
            "held": held, "uses": uses, "ended": self.ended, "claims": self.claims,
        });
        document.to_string().into_bytes()
    }

    /// Ends the uses of a former boot, and those that were only asked for. Of blocks that are shared, or may be, their owners may still
    /// have slots.
    fn end(&mut self, all: bool) {
        let is_frozen = self.held.as_ref().is_some_and(|held| held.frozen);
        let (over, kept): (Vec<_>, Vec<_>) =
            self.uses.drain(..).partition(|one| all || one.is_asked);
        let over = over.into_iter();
        let over = over.filter(|one| one.is_shared || is_frozen);
        self.ended.extend(over.map(|one| one.owner));
        self.uses = kept;
    }
}

impl Use {
    fn read(value: &Value) -> Option<Self> {
        let is = |key: &str| value.get(key).and_then(Value::as_bool) == Some(true);
        Some(Self {
            slot: u32::try_from(value.get("slot")?.as_u64()?).ok()?,
            owner: text(value, "owner")?,
            attachment: Attachment::read(value)?,
            pod: Pod::read(value.get("pod")?)?,
            network: text(value, "network")?,
            since: value.get("since")?.as_u64()?,
            is_shared: is("shared"),
            is_asked: is("asked"),
            pool: text(value, "pool").unwrap_or_default(),
        })
    }

    fn value(&self) -> Value {
        let Attachment { container, ifname } = &self.attachment;
        json!({
            "slot": self.slot, "owner": self.owner, "container": container, "ifname": ifname, "pod": self.pod.value(),
            "network": self.network, "since": self.since, "shared": self.is_shared, "asked": self.is_asked,
            "pool": self.pool,
        })
    }
}

/// Reads a document of this schema.
pub(crate) fn document(bytes: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    (value.get("schema")?.as_u64()? == SCHEMA).then_some(value)
}

impl Identity {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let value = document(bytes)?;
        Some(Self {
            incarnation: text(&value, "incarnation")?,
            adopted: text(&value, "adopted"),
            settled: text(&value, "settled"),
            node: text(&value, "node"),
        })
    }

    fn document(&self) -> Vec<u8> {
        let Self {
            incarnation,
            adopted,
            settled,
            node,
        } = self;
        let document = json!({
            "schema": SCHEMA, "incarnation": incarnation, "adopted": adopted, "settled": settled, "node": node,
        });
        document.to_string().into_bytes()
    }

    fn make(path: &Path) -> io::Result<Self> {
        let identity = Self {
            incarnation: fs::read_to_string(UUID)?.trim().to_owned(),
            adopted: None,
            settled: None,
            node: None,
        };
        write(path, &identity.document())?;
        Ok(identity)
    }
}

impl Store {
    /// Opens the directory, or makes it.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_in_boot(dir, &boot_id()?)
    }

    /// Opens the directory in this boot.
    pub(crate) fn open_in_boot(dir: impl Into<PathBuf>, boot: &str) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(dir.join(BLOCKS))?;
        let path = dir.join(IDENTITY);
        let known = match fs::read(&path) {
            Ok(text) => Identity::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Without its identity the directory may have lost records, too: it is a new one.
        let identity = known.map_or_else(|| Identity::make(&path), Ok)?;
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

    /// The name of the boot of this machine.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Returns whether the node has not yet taken its blocks of before the boot, of which the directory perhaps has no record.
    pub fn has_to_adopt(&self) -> bool {
        self.identity.adopted.as_ref() != Some(&self.boot)
    }

    /// The uid of the Node when it was read last.
    pub fn node(&self) -> Option<&str> {
        self.identity.node.as_deref()
    }

    /// Notes the uid of the Node, which an API server that is away does not tell.
    pub fn set_node(&mut self, uid: &str) -> io::Result<()> {
        if self.node() == Some(uid) {
            return Ok(());
        }
        self.identity.node = Some(uid.to_owned());
        write(&self.dir.join(IDENTITY), &self.identity.document())
    }

    /// Notes that the node has taken its blocks of before the boot.
    pub fn set_adopted(&mut self) -> io::Result<()> {
        self.identity.adopted = Some(self.boot.clone());
        write(&self.dir.join(IDENTITY), &self.identity.document())
    }

    /// Returns whether a request that was sent before this boot may still be made, of which an older disk or a new one knows nothing.
    pub fn is_open(&self) -> bool {
        self.identity.settled.as_ref() != Some(&self.boot)
    }

    /// Notes that such requests were looked for when none could come any more.
    pub fn set_settled(&mut self) -> io::Result<()> {
        self.identity.settled = Some(self.boot.clone());
        write(&self.dir.join(IDENTITY), &self.identity.document())
    }

    /// Writes the record of a block in this boot.
    pub fn keep(&self, record: &Record) -> io::Result<()> {
        let document = record.document(&self.boot);
        write(&self.path(&record.name), &document)
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
        let record = Record::parse(&fs::read(path)?);
        let is_sound = |record: &Record| {
            let slots = record.uses.iter().all(|one| one.slot < BLOCK_SIZE);
            record.name == name && slots
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

/// Returns the name of this boot.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

/// Writes beside the file and renames: readers see all or nothing.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".");
    new.push(NEW);
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a directory that is gone when the test is over: in memory where the machine has a file system there, since histories write
    /// many thousand records.
    pub(crate) fn disk() -> tempfile::TempDir {
        let memory = Path::new("/dev/shm");
        tempfile::tempdir_in(memory)
            .or_else(|_| tempfile::tempdir())
            .unwrap()
    }

    fn record(name: &str) -> Record {
        let mut record = Record::new(name, "", name);
        record.held = Some(Held {
            uid: "u".to_owned(),
            turn: 4,
            frozen: false,
            confirmed: true,
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
            pool: "10.0.0.0-24".to_owned(),
        });
        record
    }

    #[test]
    fn boot_ends_uses_and_keeps_what_is_held() {
        let dir = disk();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        store.keep(&record("10.0.0.0")).unwrap();
        let again = Store::open_in_boot(dir.path(), "a").unwrap();
        assert_eq!(again.incarnation(), store.incarnation());
        let all = again.all().unwrap();
        let [Read::Current(read)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((read.uses.len(), &read.held), (1, &record("").held));
        let mut booted = Store::open_in_boot(dir.path(), "b").unwrap();
        assert!(booted.has_to_adopt());
        booted.set_adopted().unwrap();
        let again = Store::open_in_boot(dir.path(), "b").unwrap();
        assert!(!again.has_to_adopt());
        let all = booted.all().unwrap();
        let [Read::Former(read)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((read.uses.len(), &read.held), (0, &record("").held));
    }

    #[test]
    fn shared_uses_that_are_over_leave_their_owners() {
        let dir = disk();
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
        let dir = disk();
        let store = Store::open_in_boot(dir.path(), "a").unwrap();
        let newer = String::from_utf8(record("10.0.0.0").document("a")).unwrap();
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
        let dir = disk();
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
    }
}
