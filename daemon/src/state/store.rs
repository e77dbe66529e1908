//! Reading and writing state below the node's root. Every write is complete before it is seen (temporary file, fsync,
//! rename), so a crash leaves the file of before or the file of after.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::env::{ContainerId, IfName};
use cni::types::CniError;
use node::lock::FileLock;
use node::root::{self, Root, RootError};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::sidecar::{self, Sidecar};
use super::upstream::{self, Saved};
use super::{Delegate, Progress, Requested, State};

const MAX_BYTES: u64 = 16 << 20;
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// Our own directory beside upstream's files.
const OWN_DIR: &str = ".multus-rs";
/// Below it: who is at which container, in any process.
const LOCKS_DIR: &str = "locks";
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

/// The state directory of one node.
#[derive(Clone)]
pub struct Store {
    root: Arc<Root>,
    dir: PathBuf,
}

impl Store {
    /// The store in `dir` of the node.
    pub fn new(root: Arc<Root>, dir: impl Into<PathBuf>) -> Self {
        Self {
            root,
            dir: dir.into(),
        }
    }

    /// Where cached results lie, as a path of the node.
    pub fn results_dir(&self) -> PathBuf {
        self.dir.join(RESULTS_DIR)
    }

    /// Waits until no other process, as there are two in a rolling update, is at the container.
    pub fn lock(&self, id: &ContainerId) -> Result<FileLock, StateError> {
        Ok(FileLock::wait(&self.root, &self.lock_path(id)?)?)
    }

    /// The same, if nobody is.
    pub fn try_lock(&self, id: &ContainerId) -> Result<Option<FileLock>, StateError> {
        Ok(FileLock::attempt(&self.root, &self.lock_path(id)?)?)
    }

    fn lock_path(&self, id: &ContainerId) -> Result<PathBuf, StateError> {
        let dir = self.dir.join(OWN_DIR).join(LOCKS_DIR);
        self.root.make_dirs(&dir, DIR_MODE)?;
        Ok(dir.join(id.as_str()))
    }

    /// What is known of a container; `ifname` is what the runtime asks for, should only upstream's file be there.
    pub fn load(&self, id: &ContainerId, ifname: &IfName) -> Result<Option<State>, StateError> {
        let path = self.upstream_path(id);
        let (bytes, damage) = match self.root.read(&path, MAX_BYTES) {
            Ok(bytes) => (bytes, None),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) if may_pass(&error) => return Err(error.into()),
            Err(error) => (Vec::new(), Some(error.source.to_string())),
        };
        let file = upstream::decode(&bytes);
        let damage = damage.or(file.damage);
        let sidecar = self.sidecar(id).filter(|sidecar| match damage {
            None => sidecar.belongs_to(id, &bytes),
            Some(_) => sidecar.is_of(id),
        });
        if let Some(Ok(state)) = sidecar.map(|sidecar| sidecar.into_state(id)) {
            if let Some(reason) = damage {
                warn!(path = %path.display(), reason, "state file is damaged, using its sidecar");
            }
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

    /// Writes both files. The sidecar comes first: alone it counts for nothing, so nothing is known before all is.
    pub fn begin(&self, state: &State) -> Result<(), StateError> {
        self.write_both(state, None)
    }

    /// The same over a file with this content: until it is replaced, too, the sidecar counts beside it.
    fn write_both(&self, state: &State, before: Option<&[u8]>) -> Result<(), StateError> {
        let path = self.upstream_path(&state.container_id);
        let bytes = upstream::encode(state.delegates.iter());
        let own = self.dir.join(OWN_DIR);
        self.root.make_dirs(&own, DIR_MODE)?;
        self.write(
            &self.sidecar_path(&state.container_id),
            &sidecar::encode(state, &bytes, before),
        )?;
        self.write(&path, &bytes)
    }

    /// Writes how far the delegates are.
    pub fn record(&self, state: &State) -> Result<(), StateError> {
        let path = self.upstream_path(&state.container_id);
        let bytes = upstream::encode(state.delegates.iter());
        // Files that another program wrote, or that are damaged, are replaced as a whole.
        let there = self.read(&path).ok().flatten();
        if there.as_ref() != Some(&bytes) {
            return self.write_both(state, there.as_deref());
        }
        self.write(
            &self.sidecar_path(&state.container_id),
            &sidecar::encode(state, &bytes, None),
        )
    }

    /// Forgets a container; what is gone already is success.
    pub fn remove(&self, id: &ContainerId) -> Result<(), StateError> {
        for path in [self.upstream_path(id), self.sidecar_path(id)] {
            #[cfg(test)]
            super::faults::file_step(&self.root, &path)?;
            match self.root.remove(&path) {
                Err(error) if is_directory(&error) => {
                    warn!(path = %path.display(), "a directory lies where state should be, it is left alone");
                }
                removed => drop(removed?),
            }
        }
        Ok(())
    }

    /// The containers that have any file here: state, a sidecar that lost it or never got it, a lock, or something that was
    /// never completed.
    pub fn known(&self) -> Result<BTreeSet<ContainerId>, StateError> {
        let id = |name: &str| name.parse::<ContainerId>().ok();
        let mut known = BTreeSet::new();
        for name in self.list(&self.dir)? {
            let name = root::written_as(&name).unwrap_or(&name);
            known.extend(id(name).filter(|_| name != RESULTS_DIR));
        }
        for name in self.list(&self.dir.join(OWN_DIR))? {
            let name = root::written_as(&name).unwrap_or(&name);
            known.extend(name.strip_suffix(".json").and_then(id));
        }
        let locks = self.list(&self.dir.join(OWN_DIR).join(LOCKS_DIR))?;
        known.extend(locks.iter().filter_map(|name| id(name)));
        Ok(known)
    }

    /// Whether the file is there that every program here goes by; a sidecar alone counts for nothing.
    pub fn has_state(&self, id: &ContainerId) -> bool {
        self.root.exists(self.upstream_path(id))
    }

    fn upstream_path(&self, id: &ContainerId) -> PathBuf {
        self.dir.join(id.as_str())
    }

    fn sidecar_path(&self, id: &ContainerId) -> PathBuf {
        self.dir.join(OWN_DIR).join(format!("{id}.json"))
    }

    fn sidecar(&self, id: &ContainerId) -> Option<Sidecar> {
        let path = self.sidecar_path(id);
        let bytes = match self.read(&path) {
            Ok(bytes) => bytes?,
            Err(error) => {
                warn!(%error, "sidecar cannot be read");
                return None;
            }
        };
        Sidecar::parse(&bytes)
            .inspect_err(|reason| warn!(path = %path.display(), reason, "sidecar is not usable"))
            .ok()
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, StateError> {
        match self.root.read(path, MAX_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), StateError> {
        #[cfg(test)]
        super::faults::file_step(&self.root, path)?;
        Ok(self.root.write_atomic(path, bytes, FILE_MODE)?)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, StateError> {
        match self.root.list(dir) {
            Ok(names) => Ok(names),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether it is the daemon that is short of something, and not the file that is bad.
fn may_pass(error: &RootError) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    error
        .source
        .raw_os_error()
        .is_some_and(|code| short.iter().any(|errno| errno.raw_os_error() == code))
}

fn is_directory(error: &RootError) -> bool {
    error.source.kind() == io::ErrorKind::IsADirectory
}

/// Upstream's file alone: interface names are counted again, and nobody knows how far each delegate was. What is wrong is
/// left out and told.
fn from_upstream(
    id: &ContainerId,
    ifname: &IfName,
    saved: Vec<(usize, Saved)>,
) -> (State, Option<String>) {
    let mut damage = None;
    let mut delegates = Vec::new();
    for (index, saved) in saved {
        let name = match &saved.requested.interface {
            Some(name) => name.parse::<IfName>(),
            None if index == 0 => Ok(ifname.clone()),
            None => format!("net{index}").parse(),
        };
        match name {
            Ok(ifname) => delegates.push(Delegate {
                ifname,
                capability_args: if index == 0 {
                    Map::new()
                } else {
                    capability_args(&saved.requested)
                },
                args: None,
                name: saved.name,
                config: saved.config,
                requested: saved.requested,
                progress: Progress::Unknown,
                displaced: Vec::new(),
            }),
            Err(error) => damage = Some(format!("delegate {index}: {error}")),
        }
    }
    let state = State {
        delegates,
        ..State::unknown(id, ifname)
    };
    (state, damage)
}

/// As much of the capability arguments as upstream's file keeps.
fn capability_args(requested: &Requested) -> Map<String, Value> {
    let mut out = Map::new();
    if !requested.ips.is_empty() {
        out.insert("ips".to_owned(), json!(requested.ips));
    }
    for (key, value) in [
        ("mac", &requested.mac),
        ("infinibandGUID", &requested.infiniband_guid),
        ("deviceID", &requested.device_id),
    ] {
        if let Some(value) = value {
            out.insert(key.to_owned(), json!(value));
        }
    }
    out
}
