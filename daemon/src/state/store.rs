//! Reading and writing state below the node's root. Every write is complete before it is seen (temporary file, fsync,
//! rename), so a crash leaves the file of before or the file of after.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::env::{ContainerId, IfName};
use node::lock::FileLock;
use node::root::{Root, RootError};
use serde_json::{Map, Value, json};
use tracing::warn;

use super::sidecar::{self, Sidecar};
use super::upstream::{self, Decoded};
use super::{Delegate, PodRef, Progress, State};

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
    /// The file is there and says nothing usable, and no sidecar helps.
    #[error("state file {} is damaged and its sidecar does not help: {reason}", path.display())]
    Damaged {
        /// The file on the node.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system refused.
    #[error("state: {0}")]
    Io(#[from] RootError),
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
        let Some(bytes) = self.read(&path)? else {
            return Ok(None);
        };
        let sidecar = self.sidecar(id);
        match upstream::decode(&bytes) {
            Ok(decoded) => {
                let bound = sidecar.filter(|sidecar| sidecar.belongs_to(id, &bytes));
                if let Some(Ok(state)) = bound.map(|sidecar| sidecar.into_state(id)) {
                    return Ok(Some(state));
                }
                from_upstream(id, ifname, decoded)
                    .map(Some)
                    .map_err(|reason| StateError::Damaged { path, reason })
            }
            Err(reason) => match sidecar.filter(|sidecar| sidecar.is_of(id)) {
                Some(sidecar) => {
                    warn!(path = %path.display(), reason, "state file is damaged, using its sidecar");
                    sidecar
                        .into_state(id)
                        .map(Some)
                        .map_err(|reason| StateError::Damaged { path, reason })
                }
                None => Err(StateError::Damaged { path, reason }),
            },
        }
    }

    /// Writes both files. The sidecar comes first: alone it counts for nothing, so nothing is known before all is.
    pub fn begin(&self, state: &State) -> Result<(), StateError> {
        let path = self.upstream_path(&state.container_id);
        let bytes = upstream::encode(state.delegates.iter());
        let own = self.dir.join(OWN_DIR);
        self.root.make_dirs(&own, DIR_MODE)?;
        self.write(
            &self.sidecar_path(&state.container_id),
            &sidecar::encode(state, &bytes),
        )?;
        self.write(&path, &bytes)
    }

    /// Writes how far the delegates are.
    pub fn record(&self, state: &State) -> Result<(), StateError> {
        let path = self.upstream_path(&state.container_id);
        let bytes = upstream::encode(state.delegates.iter());
        // Files that another program wrote, or that are damaged, are replaced as a whole.
        if self.read(&path)?.as_ref() != Some(&bytes) {
            return self.begin(state);
        }
        self.write(
            &self.sidecar_path(&state.container_id),
            &sidecar::encode(state, &bytes),
        )
    }

    /// Forgets a container; what is gone already is success.
    pub fn remove(&self, id: &ContainerId) -> Result<(), StateError> {
        for path in [self.upstream_path(id), self.sidecar_path(id)] {
            self.root.remove(&path)?;
        }
        Ok(())
    }

    /// The containers that have a state file.
    pub fn containers(&self) -> Result<Vec<ContainerId>, StateError> {
        let names = self.list(&self.dir)?;
        Ok(names
            .iter()
            .filter(|name| *name != RESULTS_DIR)
            .filter_map(|name| name.parse().ok())
            .collect())
    }

    /// The containers of sidecars that lost, or never got, the file they belong to.
    pub fn orphans(&self) -> Result<Vec<ContainerId>, StateError> {
        let known = self.containers()?;
        let names = self.list(&self.dir.join(OWN_DIR))?;
        Ok(names
            .iter()
            .filter_map(|name| name.strip_suffix(".json")?.parse().ok())
            .filter(|id| !known.contains(id))
            .collect())
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

/// Upstream's file alone: interface names are counted again, and every delegate may have been run.
fn from_upstream(
    id: &ContainerId,
    ifname: &IfName,
    decoded: Vec<Decoded>,
) -> Result<State, String> {
    let delegates = decoded.into_iter().enumerate().map(|(index, decoded)| {
        let name = match &decoded.requested.interface {
            Some(name) => name.clone(),
            None if index == 0 => ifname.to_string(),
            None => format!("net{index}"),
        };
        Ok(Delegate {
            ifname: name.parse::<IfName>().map_err(|error| error.to_string())?,
            capability_args: if index == 0 {
                Map::new()
            } else {
                capability_args(&decoded)
            },
            name: decoded.name,
            config: decoded.config,
            requested: decoded.requested,
            progress: Progress::Started,
        })
    });
    Ok(State {
        container_id: id.clone(),
        ifname: ifname.clone(),
        netns: None,
        pod: PodRef::default(),
        delegates: delegates.collect::<Result<_, String>>()?,
    })
}

/// As much of the capability arguments as upstream's file keeps.
fn capability_args(decoded: &Decoded) -> Map<String, Value> {
    let requested = &decoded.requested;
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

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
