//! Reads and writes state files below the node's root. A file gets its name when it is complete, so a crash leaves either the old file or
//! the new one.
//!
//! A power cut may take everything that was not synced, in any order. Only what has to survive one is synced, since every sync waits for a
//! disk that etcd may share. The kernel's boot id in the sidecar shows that there may have been a power cut.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use node::lock::FileLock;
use node::root::{self, Directory, Durability, Root, RootError};
use rustix::io::Errno;
use tracing::warn;

use super::sidecar::{self, Encoded, Sidecar};
use super::{State, boot_id, upstream};

const MAX_BYTES: u64 = 16 << 20;
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// Our own directory next to upstream's files.
const OWN_DIR: &str = ".multus-rs";
/// The file in it whose locks each stand for a container that a process works on.
const LOCKS_FILE: &str = "container.locks";
/// The directory of libcni's result cache, next to upstream's files.
const RESULTS_DIR: &str = "results";

/// An error of reading or writing state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file exists but cannot be read, at least in part, and there is no usable sidecar.
    #[error("state file {} is damaged and has no usable sidecar: {reason}", path.display())]
    Damaged {
        /// The file on the node.
        path: PathBuf,
        /// The damage.
        reason: String,
        /// The state with the delegates that can still be read.
        partial: Box<State>,
    },
    /// The record would be too large to be read again.
    #[error(
        "the networks of container {id} need a record of {bytes} bytes, but {MAX_BYTES} can be read: attach fewer networks"
    )]
    TooLarge {
        id: ContainerId,
        /// The bytes of the larger file.
        bytes: usize,
    },
    /// A file operation failed.
    #[error("state: {0}")]
    Io(#[from] RootError),
}

impl From<StateError> for CniError {
    fn from(error: StateError) -> Self {
        Self::new(Self::IO_FAILURE, error.to_string())
    }
}

/// The state directory of a node. It opens its directories once, so it is made for each request and not kept for the daemon's lifetime.
#[derive(Clone)]
pub struct Store {
    root: Arc<Root>,
    dir: PathBuf,
    boot: OnceLock<Option<Arc<str>>>,
    writer: Option<Writer>,
    state_dir: OnceLock<Arc<Directory>>,
    own_dir: OnceLock<Arc<Directory>>,
}

/// The daemon that writes records.
#[derive(Debug, Clone)]
pub struct Writer {
    /// Its process.
    pub daemon: Arc<str>,
    /// Ends the plugins of another process that wrote records, if that has ended: they may still work on the record's container.
    pub end_plugins_of: fn(&str),
}

/// The first record of a container, in which an ADD notes its progress.
#[derive(Debug)]
pub struct AddRecord {
    sidecar: File,
    name: String,
    encoded: Encoded,
    dir: Arc<Directory>,
    is_synced: bool,
    is_progress_synced: bool,
}

impl AddRecord {
    /// Returns whether the record survives a power cut without a call of [`sync`](Self::sync).
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns when the record survives a power cut.
    pub fn sync(&self) -> Result<(), StateError> {
        Ok(self.dir.sync_data(&self.sidecar, &self.name)?)
    }

    /// Records that a planned delegate is about to be attached. It overwrites one word in place, since replacing the file without a sync
    /// could leave an empty one after a power cut. The loss of the word does no harm then.
    pub fn start(&self, delegate: usize) -> Result<(), StateError> {
        let write = || -> io::Result<()> {
            #[cfg(test)]
            super::faults::step()?;
            match self.encoded.start(delegate) {
                Some((word, at)) => self.sidecar.write_all_at(word, at),
                None => Ok(()),
            }
        };
        write().map_err(|source| RootError {
            action: "write",
            path: PathBuf::from(&self.name),
            source,
        })?;
        if self.is_progress_synced {
            self.sync()?;
        }
        Ok(())
    }
}

/// Removes the file of locks in the state directory `dir`, at an uninstall; returns whether it was there.
pub fn remove_locks(root: &Root, dir: &Path) -> Result<bool, RootError> {
    match root.directory(own_dir(dir)) {
        Ok(own) => own.remove(LOCKS_FILE),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the directory of our own files in a directory of state.
pub fn own_dir(dir: &Path) -> PathBuf {
    dir.join(OWN_DIR)
}

impl Store {
    /// The store in `dir` of the node.
    pub fn new(root: Arc<Root>, dir: impl Into<PathBuf>) -> Self {
        Self {
            root,
            dir: dir.into(),
            boot: OnceLock::new(),
            writer: None,
            state_dir: OnceLock::new(),
            own_dir: OnceLock::new(),
        }
    }

    /// Sets the boot id if it was read already.
    #[must_use]
    pub(crate) fn in_boot(mut self, boot: Option<Arc<str>>) -> Self {
        self.boot = OnceLock::from(boot);
        self
    }

    /// Names the writer of records.
    #[must_use]
    pub(crate) fn written_by(mut self, writer: Option<Writer>) -> Self {
        self.writer = writer;
        self
    }

    /// The directory, as a path of the node.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of cached results, as a path of the node.
    pub fn results_dir(&self) -> PathBuf {
        self.dir.join(RESULTS_DIR)
    }

    /// Waits until no other process works on the container, and locks it. A rolling update runs two daemons on a node.
    pub fn lock(&self, id: &ContainerId) -> Result<FileLock, StateError> {
        Ok(FileLock::wait(
            &*self.own_dir(true)?,
            LOCKS_FILE,
            id.as_str(),
        )?)
    }

    /// Locks the container, or returns `None` when another process has locked it.
    pub fn try_lock(&self, id: &ContainerId) -> Result<Option<FileLock>, StateError> {
        Ok(FileLock::attempt(
            &*self.own_dir(true)?,
            LOCKS_FILE,
            id.as_str(),
        )?)
    }

    fn daemon(&self) -> Option<&str> {
        self.writer.as_ref().map(|writer| &*writer.daemon)
    }

    /// Loads the state of a container, after the end of the plugins of an ended daemon that wrote it. `ifname` is the interface that the runtime requests, which upstream's file does not hold.
    pub fn load(&self, id: &ContainerId, ifname: &IfName) -> Result<Option<State>, StateError> {
        let (bytes, damage) = match self.upstream_file(id) {
            Ok(bytes) => (bytes, None),
            Err(error) if error.is_not_found() => return Ok(self.sidecar_of_earlier_boot(id)),
            Err(error) if is_temporary(&error) => return Err(error.into()),
            Err(error) => (Vec::new(), Some(error.source.to_string())),
        };
        let boot = self.boot();
        let mut sidecar = self.sidecar(id);
        // A sidecar that was written for this file holds everything.
        if damage.is_none()
            && let Some(sidecar) = sidecar.take_if(|sidecar| sidecar.belongs_to(id, &bytes))
            && let Ok(state) = sidecar.into_state(id, boot)
        {
            return Ok(Some(state));
        }
        let path = self.dir.join(id.as_str());
        let file = upstream::decode(&bytes);
        let damage = damage.or(file.damage);
        if let Some(reason) = &damage
            && let Some(sidecar) = sidecar.filter(|sidecar| sidecar.is_of(id))
            && let Ok(state) = sidecar.into_state(id, boot)
        {
            warn!(path = %path.display(), reason, "the state file is damaged; its sidecar is used");
            return Ok(Some(state));
        }
        let (mut state, invalid_name) = upstream::from_upstream(id, ifname, file.delegates);
        // Upstream's file gets its name when the sidecar is complete, so only a power cut leaves an empty one next to it.
        state.rebooted = self.sidecar_bytes(id).is_some_and(|bytes| bytes.is_empty());
        match damage.or(invalid_name) {
            None => Ok(Some(state)),
            Some(reason) => Err(StateError::Damaged {
                path,
                reason,
                partial: Box::new(state),
            }),
        }
    }

    /// Returns the state of a sidecar without upstream's file if it is of an earlier boot. Upstream removes only its own file when it has
    /// detached a container, so such a sidecar does not count, unless a power cut may have taken the file, which was not synced. Then
    /// the container is detached once more.
    fn sidecar_of_earlier_boot(&self, id: &ContainerId) -> Option<State> {
        let sidecar = self.sidecar(id)?;
        let boot = self.boot();
        if !sidecar.is_of(id) || !sidecar.is_of_earlier_boot(boot) {
            return None;
        }
        sidecar.into_state(id, boot).ok()
    }

    /// Writes both files before anything is attached. The sidecar is written first: it does not count without upstream's file, so the
    /// record counts when it is complete, and the sidecar needs no rename.
    ///
    /// Where the file system commits names in their order, the caller syncs the record while the first delegate runs: what that delegate writes
    /// reaches the disk after the names of both files, and files that lost their content show that the default network has to be detached.
    pub fn begin(&self, state: &State) -> Result<AddRecord, StateError> {
        let id = &state.container_id;
        let upstream_file = upstream::encode(state.delegates.iter());
        let encoded = sidecar::encode(state, &upstream_file, None, self.boot(), self.daemon());
        check_size(id, &[&upstream_file, &encoded.bytes])?;
        let (own_dir, name) = (self.own_dir(true)?, sidecar_name(id));
        #[cfg(test)]
        super::faults::create_step(&own_dir, &name)?;
        let sidecar = own_dir.create(&name, &encoded.bytes, FILE_MODE)?;
        let is_boot_known = self.boot().is_some();
        let is_synced = !is_boot_known || !own_dir.syncs_name_of(&sidecar);
        if is_synced {
            own_dir.sync_data(&sidecar, &name)?;
            own_dir.sync()?;
        }
        write(
            &*self.state_dir(true)?,
            id.as_str(),
            &upstream_file,
            self.if_boot_is_known(Durability::Volatile),
        )?;
        Ok(AddRecord {
            sidecar,
            name,
            encoded,
            dir: own_dir,
            is_synced,
            is_progress_synced: !is_boot_known,
        })
    }

    /// Replaces the state of a container.
    pub fn record(&self, state: &State) -> Result<(), StateError> {
        let id = &state.container_id;
        let upstream_file = upstream::encode(state.delegates.iter());
        let (state_dir, own_dir) = (self.state_dir(true)?, self.own_dir(true)?);
        // A file that is damaged or was written by another program is replaced.
        let present = self.upstream_file(id).ok();
        let is_unchanged = present.as_ref() == Some(&upstream_file);
        // Until the file is replaced, too, the new sidecar has to count next to the present file.
        let before = present.as_deref().filter(|_| !is_unchanged);
        let encoded = sidecar::encode(state, &upstream_file, before, self.boot(), self.daemon());
        check_size(id, &[&upstream_file, &encoded.bytes])?;
        // With the same networks the old sidecar may survive instead: after a reboot, everything in it counts as begun.
        let durability = if is_unchanged {
            self.if_boot_is_known(Durability::Complete)
        } else {
            Durability::Synced
        };
        write(&own_dir, &sidecar_name(id), &encoded.bytes, durability)?;
        if !is_unchanged {
            // With other networks, an upstream file from before the previous one would not belong to the sidecar.
            write(&state_dir, id.as_str(), &upstream_file, Durability::Synced)?;
        }
        Ok(())
    }

    /// Records that the container's status is not pending any more. It overwrites one word in place and does not wait for the disk: when a
    /// power cut takes the word, the container is gone, too. A container without such a record is a success.
    pub fn clear_status_pending(&self, id: &ContainerId) -> Result<(), StateError> {
        let name = sidecar_name(id);
        let dir = match self.own_dir(false) {
            Ok(dir) => dir,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let bytes = match self.read(&dir, &name) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if let Some((word, at)) = sidecar::not_pending(&bytes) {
            dir.overwrite(&name, word, at)?;
        }
        Ok(())
    }

    /// Removes the state of a container; missing files are a success. Once this returns, a power cut does not bring back upstream's file;
    /// until then that file is never without its sidecar.
    pub fn remove(&self, id: &ContainerId) -> Result<(), StateError> {
        self.remove_files(id, Directory::sync)
    }

    /// Removes the state of a container with half the syncs, for a caller that repeats its request when this does not return. A power cut in
    /// between may take the sidecar and leave upstream's file, which does not show that the container was deleted.
    pub fn remove_on_request(&self, id: &ContainerId) -> Result<(), StateError> {
        self.remove_files(id, |_| Ok(()))
    }

    fn remove_files(
        &self,
        id: &ContainerId,
        sync_between: impl FnOnce(&Directory) -> Result<(), RootError>,
    ) -> Result<(), StateError> {
        let state_dir = match self.state_dir(false) {
            Ok(dir) => dir,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let upstream_file = remove(&state_dir, id.as_str())?;
        if upstream_file {
            sync_between(&state_dir)?;
        }
        let own_dir = match self.own_dir(false) {
            Ok(own_dir) => Some(own_dir),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let sidecar = match &own_dir {
            Some(own_dir) => remove(own_dir, &sidecar_name(id))?,
            None => false,
        };
        // One sync covers both on file systems with a single journal. On others a power cut may bring back only the sidecar; then the
        // next start detaches the container once more and forgets it.
        if upstream_file {
            state_dir.sync()?;
        } else if let (true, Some(own_dir)) = (sidecar, own_dir) {
            own_dir.sync()?;
        }
        Ok(())
    }

    /// Returns the containers that have any file here: state, a sidecar without state, or a file that was never completed.
    pub fn known(&self) -> Result<BTreeSet<ContainerId>, StateError> {
        let id = |name: &str| name.parse::<ContainerId>().ok();
        let mut known = BTreeSet::new();
        for name in list(self.state_dir(false))? {
            let name = root::final_name(&name).unwrap_or(&name);
            known.extend(id(name).filter(|_| name != RESULTS_DIR));
        }
        for name in list(self.own_dir(false))? {
            let name = root::final_name(&name).unwrap_or(&name);
            known.extend(name.strip_suffix(".json").and_then(id));
        }
        Ok(known)
    }

    /// Returns whether upstream's file exists, by which both programs know a container.
    pub fn has_state(&self, id: &ContainerId) -> bool {
        self.root.exists(self.dir.join(id.as_str()))
    }

    /// Returns `durability` if a boot id will show that a power cut may have taken unsynced data, and otherwise `Synced`.
    fn if_boot_is_known(&self, durability: Durability) -> Durability {
        match self.boot() {
            Some(_) => durability,
            None => Durability::Synced,
        }
    }

    fn boot(&self) -> Option<&str> {
        let boot = self.boot.get_or_init(|| boot_id(&self.root));
        boot.as_deref()
    }

    fn upstream_file(&self, id: &ContainerId) -> Result<Vec<u8>, RootError> {
        self.read(&*self.state_dir(false)?, id.as_str())
    }

    fn sidecar_bytes(&self, id: &ContainerId) -> Option<Vec<u8>> {
        let read = |dir: Arc<Directory>| self.read(&dir, &sidecar_name(id));
        match self.own_dir(false).and_then(read) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                warn!(%error, "cannot read the sidecar");
                None
            }
        }
    }

    fn sidecar(&self, id: &ContainerId) -> Option<Sidecar> {
        let sidecar = Sidecar::parse(&self.sidecar_bytes(id)?)
            .inspect_err(|reason| warn!(name = sidecar_name(id), reason, "cannot use the sidecar"))
            .ok()?;
        if let (Some(writer), Some(daemon)) = (&self.writer, &sidecar.daemon)
            && **daemon != *writer.daemon
            && !sidecar.is_of_earlier_boot(self.boot())
        {
            (writer.end_plugins_of)(daemon);
        }
        Some(sidecar)
    }

    fn state_dir(&self, make: bool) -> Result<Arc<Directory>, RootError> {
        self.open(&self.state_dir, make, || self.dir.clone())
    }

    fn own_dir(&self, make: bool) -> Result<Arc<Directory>, RootError> {
        self.open(&self.own_dir, make, || own_dir(&self.dir))
    }

    fn open(
        &self,
        cell: &OnceLock<Arc<Directory>>,
        make: bool,
        path: impl FnOnce() -> PathBuf,
    ) -> Result<Arc<Directory>, RootError> {
        if let Some(open) = cell.get() {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(if make {
            self.root.make_directory(path(), DIR_MODE)?
        } else {
            self.root.directory(path())?
        });
        Ok(Arc::clone(cell.get_or_init(|| open)))
    }

    fn read(&self, dir: &Directory, name: &str) -> Result<Vec<u8>, RootError> {
        match dir.read(name, MAX_BYTES) {
            // A symbolic link has to be resolved below the root.
            Err(error) if is_errno(&error, &[Errno::LOOP]) => {
                self.root.read(dir.path().join(name), MAX_BYTES)
            }
            read => read,
        }
    }
}

fn write(
    dir: &Directory,
    name: &str,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), StateError> {
    #[cfg(test)]
    super::faults::file_step(dir, name)?;
    Ok(dir.replace(name, bytes, FILE_MODE, durability)?)
}

fn remove(dir: &Directory, name: &str) -> Result<bool, StateError> {
    #[cfg(test)]
    super::faults::file_step(dir, name)?;
    match dir.remove(name) {
        Err(error) if is_directory(&error) => {
            warn!(path = %error.path.display(), "a directory has the name of a state file; it is not removed");
            Ok(false)
        }
        removed => Ok(removed?),
    }
}

/// Refuses a record of which a file could not be read again.
fn check_size(id: &ContainerId, files: &[&[u8]]) -> Result<(), StateError> {
    let bytes = files
        .iter()
        .map(|file| file.len())
        .max()
        .unwrap_or_default();
    if bytes as u64 >= MAX_BYTES {
        let id = id.clone();
        return Err(StateError::TooLarge { id, bytes });
    }
    Ok(())
}

fn sidecar_name(id: &ContainerId) -> String {
    format!("{id}.json")
}

/// Lists a directory that may not exist.
fn list(dir: Result<Arc<Directory>, RootError>) -> Result<Vec<String>, StateError> {
    match dir.and_then(|dir| dir.list()) {
        Ok(names) => Ok(names),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the process lacks a resource, in which case the file may be intact.
fn is_temporary(error: &RootError) -> bool {
    is_errno(error, &[Errno::MFILE, Errno::NFILE, Errno::NOMEM])
}

fn is_errno(error: &RootError, any: &[Errno]) -> bool {
    error
        .source
        .raw_os_error()
        .is_some_and(|code| any.iter().any(|errno| errno.raw_os_error() == code))
}

fn is_directory(error: &RootError) -> bool {
    error.source.kind() == io::ErrorKind::IsADirectory
}
