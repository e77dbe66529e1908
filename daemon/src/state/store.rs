//! Reading and writing state below the node's root. What counts is complete before it is seen, so a crash leaves the file of before or
//! the file of after.
//!
//! A power cut is another matter: it takes what was not synced, in any order. Only what has to outlive it is synced, since every
//! wait is one for the disk that etcd may be on. The kernel's boot id in the sidecar tells that there may have been one.

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
use super::takeover::from_upstream;
use super::{State, boot_id, upstream};

const MAX_BYTES: u64 = 16 << 20;
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// Our own directory beside upstream's files.
const OWN_DIR: &str = ".multus-rs";
/// Below it: the file whose locks say which process works at which container.
const LOCKS_FILE: &str = "container.locks";
/// libcni's result cache lies in the same directory.
const RESULTS_DIR: &str = "results";

/// Why state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is there and cannot be read, or not all of it, and no sidecar helps.
    #[error("state file {} is damaged and its sidecar does not help: {reason}", path.display())]
    Damaged {
        /// The file on the node.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// The delegates that can still be read.
        left: Box<State>,
    },
    /// The file system refused.
    #[error("state: {0}")]
    Io(#[from] RootError),
}

impl From<StateError> for CniError {
    fn from(error: StateError) -> Self {
        Self::new(Self::IO_FAILURE, error.to_string())
    }
}

/// The state directory of one node. Its directories are opened once, so it is for one request, not for the life of a daemon.
#[derive(Clone)]
pub struct Store {
    root: Arc<Root>,
    dir: PathBuf,
    boot: OnceLock<Option<Arc<str>>>,
    base: OnceLock<Arc<Directory>>,
    own: OnceLock<Arc<Directory>>,
}

/// The first record of a container, which an ADD carries on.
#[derive(Debug)]
pub struct Begun {
    sidecar: File,
    name: String,
    encoded: Encoded,
    /// Where the sidecar is, if progress has to be synced.
    synced_in: Option<Arc<Directory>>,
}

impl Begun {
    /// Writes that a planned delegate is about to be attached: one word in place, since replacing the file unsynced could leave
    /// an empty one after a power cut. Whether the word is lost then does not matter.
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
        if let Some(dir) = &self.synced_in {
            dir.sync_data(&self.sidecar, &self.name)?;
        }
        Ok(())
    }
}

/// Removes the file of locks in the state directory `dir`, at an uninstall; returns whether it was there.
pub fn remove_locks(root: &Root, dir: &Path) -> Result<bool, RootError> {
    match root.directory(dir.join(OWN_DIR)) {
        Ok(own) => own.remove(LOCKS_FILE),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

impl Store {
    /// The store in `dir` of the node.
    pub fn new(root: Arc<Root>, dir: impl Into<PathBuf>) -> Self {
        Self {
            root,
            dir: dir.into(),
            boot: OnceLock::new(),
            base: OnceLock::new(),
            own: OnceLock::new(),
        }
    }

    /// The same store in a boot whose id is known already.
    #[must_use]
    pub(crate) fn in_boot(mut self, boot: Option<Arc<str>>) -> Self {
        self.boot = OnceLock::from(boot);
        self
    }

    /// Where cached results lie, as a path of the node.
    pub fn results_dir(&self) -> PathBuf {
        self.dir.join(RESULTS_DIR)
    }

    /// Waits until no other process, as there are two in a rolling update, is at the container.
    pub fn lock(&self, id: &ContainerId) -> Result<FileLock, StateError> {
        Ok(FileLock::wait(&*self.own(true)?, LOCKS_FILE, id.as_str())?)
    }

    /// The same, if nobody is.
    pub fn try_lock(&self, id: &ContainerId) -> Result<Option<FileLock>, StateError> {
        Ok(FileLock::attempt(
            &*self.own(true)?,
            LOCKS_FILE,
            id.as_str(),
        )?)
    }

    /// What is known of a container; `ifname` is what the runtime asks for, should only upstream's file be there.
    pub fn load(&self, id: &ContainerId, ifname: &IfName) -> Result<Option<State>, StateError> {
        let (bytes, damage) = match self.upstream_file(id) {
            Ok(bytes) => (bytes, None),
            Err(error) if error.is_not_found() => return Ok(self.sidecar_of_earlier_boot(id)),
            Err(error) if may_pass(&error) => return Err(error.into()),
            Err(error) => (Vec::new(), Some(error.source.to_string())),
        };
        let boot = self.boot();
        let mut sidecar = self.sidecar(id);
        // Of a file that the sidecar was written for, nothing is needed but that.
        if damage.is_none()
            && let Some(own) = sidecar.take_if(|own| own.belongs_to(id, &bytes))
            && let Ok(state) = own.into_state(id, boot)
        {
            return Ok(Some(state));
        }
        let path = self.dir.join(id.as_str());
        let file = upstream::decode(&bytes);
        let damage = damage.or(file.damage);
        if let Some(reason) = &damage
            && let Some(own) = sidecar.filter(|own| own.is_of(id))
            && let Ok(state) = own.into_state(id, boot)
        {
            warn!(path = %path.display(), reason, "state file is damaged, using its sidecar");
            return Ok(Some(state));
        }
        let (state, odd) = from_upstream(id, ifname, file.delegates);
        match damage.or(odd) {
            None => Ok(Some(state)),
            Some(reason) => Err(StateError::Damaged {
                path,
                reason,
                left: Box::new(state),
            }),
        }
    }

    /// Whatever an upstream program does, it removes its own file alone when it has detached a container. So a sidecar without that
    /// file counts for nothing, unless a power cut may have taken the file, which was not synced: then the container is detached
    /// once more.
    fn sidecar_of_earlier_boot(&self, id: &ContainerId) -> Option<State> {
        let sidecar = self.sidecar(id)?;
        let boot = self.boot();
        if !sidecar.is_of(id) || !sidecar.is_of_earlier_boot(boot) {
            return None;
        }
        sidecar.into_state(id, boot).ok()
    }

    /// Writes both files before anything is attached. The sidecar comes first: alone it counts for nothing, so nothing is known before
    /// all is; hence it needs no rename either. Once this returns, the sidecar outlives a power cut.
    pub fn begin(&self, state: &State) -> Result<Begun, StateError> {
        let id = &state.container_id;
        let upstream_file = upstream::encode(state.delegates.iter());
        let encoded = sidecar::encode(state, &upstream_file, None, self.boot());
        let (own, name) = (self.own(true)?, sidecar_name(id));
        #[cfg(test)]
        super::faults::create_step(&own, &name)?;
        let sidecar = own.create(&name, &encoded.bytes, FILE_MODE)?;
        own.sync_data(&sidecar, &name)?;
        own.sync()?;
        write(
            &*self.base(true)?,
            id.as_str(),
            &upstream_file,
            self.if_boot_is_known(Durability::Volatile),
        )?;
        Ok(Begun {
            sidecar,
            name,
            encoded,
            synced_in: self.boot().is_none().then_some(own),
        })
    }

    /// Replaces what is known of a container.
    pub fn record(&self, state: &State) -> Result<(), StateError> {
        let id = &state.container_id;
        let upstream_file = upstream::encode(state.delegates.iter());
        let (base, own) = (self.base(true)?, self.own(true)?);
        // Files that another program wrote, or that are damaged, are replaced as a whole.
        let there = self.upstream_file(id).ok();
        let is_right = there.as_ref() == Some(&upstream_file);
        // Until the file is replaced, too, the sidecar counts beside the one that is there.
        let before = there.as_deref().filter(|_| !is_right);
        let encoded = sidecar::encode(state, &upstream_file, before, self.boot());
        // With the same networks, the sidecar of before would do: after a reboot, everything in it counts as begun.
        let durability = if is_right {
            self.if_boot_is_known(Durability::Complete)
        } else {
            Durability::Synced
        };
        write(&own, &sidecar_name(id), &encoded.bytes, durability)?;
        if !is_right {
            // With other networks, a file of before the one before would not belong to the sidecar.
            write(&base, id.as_str(), &upstream_file, Durability::Synced)?;
        }
        Ok(())
    }

    /// Forgets a container; what is gone already is success. Once this returns, a power cut does not bring back what counts; before,
    /// upstream's file never stays without its sidecar.
    pub fn remove(&self, id: &ContainerId) -> Result<(), StateError> {
        self.remove_files(id, Directory::sync)
    }

    /// The same with half the waits, for a caller who comes again if this does not return: in between, a power cut may take the sidecar
    /// and leave upstream's file, by which nobody can tell that the container is gone.
    pub fn remove_on_request(&self, id: &ContainerId) -> Result<(), StateError> {
        self.remove_files(id, |_| Ok(()))
    }

    fn remove_files(
        &self,
        id: &ContainerId,
        sync_between: impl FnOnce(&Directory) -> Result<(), RootError>,
    ) -> Result<(), StateError> {
        let base = match self.base(false) {
            Ok(base) => base,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let upstream_file = remove(&base, id.as_str())?;
        if upstream_file {
            sync_between(&base)?;
        }
        let own = match self.own(false) {
            Ok(own) => Some(own),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let sidecar = match &own {
            Some(own) => remove(own, &sidecar_name(id))?,
            None => false,
        };
        // One wait for both: file systems with one journal take them along together. On others the sidecar may come back alone; then
        // the next start detaches the container once more and forgets it.
        if upstream_file {
            base.sync()?;
        } else if let (true, Some(own)) = (sidecar, own) {
            own.sync()?;
        }
        Ok(())
    }

    /// The containers that have any file here: state, a sidecar that lost it or never got it, or something that was
    /// never completed.
    pub fn known(&self) -> Result<BTreeSet<ContainerId>, StateError> {
        let id = |name: &str| name.parse::<ContainerId>().ok();
        let mut known = BTreeSet::new();
        for name in list(self.base(false))? {
            let name = root::final_name(&name).unwrap_or(&name);
            known.extend(id(name).filter(|_| name != RESULTS_DIR));
        }
        for name in list(self.own(false))? {
            let name = root::final_name(&name).unwrap_or(&name);
            known.extend(name.strip_suffix(".json").and_then(id));
        }
        Ok(known)
    }

    /// Whether the file is there that every program here goes by.
    pub fn has_state(&self, id: &ContainerId) -> bool {
        self.root.exists(self.dir.join(id.as_str()))
    }

    /// The durability of what may be lost as long as the boot id tells afterwards that it may have been.
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
        self.read(&*self.base(false)?, id.as_str())
    }

    fn sidecar(&self, id: &ContainerId) -> Option<Sidecar> {
        let name = sidecar_name(id);
        let bytes = match self.own(false).and_then(|own| self.read(&own, &name)) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return None,
            Err(error) => {
                warn!(%error, "sidecar cannot be read");
                return None;
            }
        };
        Sidecar::parse(&bytes)
            .inspect_err(|reason| warn!(name, reason, "sidecar is not usable"))
            .ok()
    }

    fn base(&self, make: bool) -> Result<Arc<Directory>, RootError> {
        self.open(&self.base, make, || self.dir.clone())
    }

    fn own(&self, make: bool) -> Result<Arc<Directory>, RootError> {
        self.open(&self.own, make, || self.dir.join(OWN_DIR))
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
            // A link has to be resolved below the root.
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
            warn!(path = %error.path.display(), "a directory lies where state should be, it is left alone");
            Ok(false)
        }
        removed => Ok(removed?),
    }
}

fn sidecar_name(id: &ContainerId) -> String {
    format!("{id}.json")
}

/// The names in a directory that may be missing.
fn list(dir: Result<Arc<Directory>, RootError>) -> Result<Vec<String>, StateError> {
    match dir.and_then(|dir| dir.list()) {
        Ok(names) => Ok(names),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is the daemon that is short of something, and not the file that is bad.
fn may_pass(error: &RootError) -> bool {
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
