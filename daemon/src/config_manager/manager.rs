//! Keeps our configuration in the runtime's directory: whole or not at all, put back when someone takes it away, followed by the next directory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use node::root::{Root, RootError};
use plan::{daemon_config::Config, node_path::node_path};
use serde_json::{Map, Value};
use tokio::{sync::watch::Receiver, time::sleep};
use tracing::{info, warn};

use super::{
    FILE_NAME, Known, NoName, Primary, PrimaryError, choose, generate, ready_made,
    rivalry::Rivalry,
    written::{self, Before, MAX_FILE},
};
use crate::{
    host::dir_watch::{DirectoryWatch, heard},
    readiness::{self, Part, Readiness},
};

/// How often is looked again even when nothing is heard.
const PERIOD: Duration = Duration::from_secs(30);
/// Several changes in a row are looked at once.
const SETTLE: Duration = Duration::from_millis(50);

/// Where the configuration goes and what its reader accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The runtime's configuration directory.
    pub dir: PathBuf,
    /// The highest version that the runtime accepts.
    pub accepted: Option<&'static str>,
}

/// The configuration could not be brought up to date; what was there still is.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// There is nothing to make it from.
    #[error(transparent)]
    Primary(#[from] PrimaryError),
    /// It cannot be called as it should be.
    #[error(transparent)]
    NoName(#[from] NoName),
    /// The node's file system refused.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The ready-made file cannot be used.
    #[error("multusConfigFile {}: {reason}", path.display())]
    ReadyMade {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The default network is not ready.
    #[error("{}", readiness::waiting_for(indicator))]
    Waiting {
        /// The file that will tell that it is.
        indicator: PathBuf,
    },
}

/// Brings the file up to date, and again whenever something changes.
#[derive(Debug)]
pub struct Manager {
    root: Arc<Root>,
    config: Arc<Config>,
    readiness: Arc<Readiness>,
    /// The last good configuration, and where it is.
    good: Option<Good>,
    rivalry: Rivalry,
    /// What became of the file when it was last lost.
    loss: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Good {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The primary's file, unless the configuration was ready-made.
    primary: Option<String>,
}

impl Manager {
    /// Tells `readiness` whether there is a configuration.
    pub fn new(root: Arc<Root>, config: Arc<Config>, readiness: Arc<Readiness>) -> Self {
        Self {
            root,
            config,
            readiness,
            good: None,
            rivalry: Rivalry::default(),
            loss: String::new(),
        }
    }

    /// Runs for ever. While another daemon of the node has the socket, the file is its business.
    pub async fn run(mut self, mut targets: Receiver<Option<Target>>) {
        loop {
            self.readiness.wait_for(&[Part::Socket]).await;
            let target = targets.borrow_and_update().clone();
            let Some(target) = target else {
                if targets.changed().await.is_err() {
                    return;
                }
                continue;
            };
            // Watched before it is looked at, so that no change falls between the two.
            let primary_dir = self.primary_dir(&target);
            let mut dirs = vec![target.dir.as_path(), &primary_dir];
            let indicator = self.config.readiness_file.as_deref();
            dirs.extend(indicator.and_then(Path::parent));
            let watch = DirectoryWatch::with_parents(&self.root, &dirs);
            let pause = self.look(&target);
            tokio::select! {
                () = async { heard(watch).await; sleep(pause).await } => {}
                () = sleep(PERIOD) => {}
                changed = targets.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Does what there is to do, and says how long to let things settle after the next change.
    pub(super) fn look(&mut self, target: &Target) -> Duration {
        let problem = self.reconcile(target).err().map(|error| error.to_string());
        let pause = self.rivalry.pause(Instant::now());
        let problem = problem.or_else(|| {
            pause.map(|_| {
                format!(
                    "another program keeps taking {} away ({}): tell it to leave that file alone, as Cilium is told by cni.exclusive=false",
                    target.dir.join(FILE_NAME).display(), self.loss
                )
            })
        });
        self.readiness.set(Part::Configuration, problem);
        pause.unwrap_or(SETTLE)
    }

    /// Brings the file up to date and gives up those that it replaces. What is good stays, however this ends.
    fn reconcile(&mut self, target: &Target) -> Result<(), ManageError> {
        let waiting = self.waiting();
        if self.good.is_none() && waiting.is_some() {
            return waiting.map_or(Ok(()), Err);
        }
        let wanted = match self.wanted(target) {
            Ok(wanted) => wanted,
            Err(error) => {
                if let Some(good) = self.good.clone() {
                    self.put(&good)?;
                }
                return Err(error);
            }
        };
        self.put(&wanted)?;
        // Only now that there is another one.
        match written::remove_others(&self.root, Some(&wanted.path), Some(&target.dir)) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => info!(?removed, "removed former CNI configurations"),
            Err(error) => warn!(%error, "cannot remove a former CNI configuration"),
        }
        self.good = Some(wanted);
        waiting.map_or(Ok(()), Err)
    }

    /// Who takes the directory away takes our file with it; the one above it is the runtime's or the administrator's to make.
    fn put(&mut self, wanted: &Good) -> Result<(), RootError> {
        if let Some(dir) = wanted.path.parent()
            && !self.root.is_dir(dir)
            && dir.parent().is_some_and(|above| self.root.is_dir(above))
        {
            self.root.make_dirs(dir, 0o755)?;
        }
        let Some(before) = written::put(&self.root, &wanted.path, &wanted.bytes)? else {
            return Ok(());
        };
        info!(file = %wanted.path.display(), "wrote the CNI configuration");
        let is_back = |good: &Good| (&good.path, &good.bytes) == (&wanted.path, &wanted.bytes);
        if self.good.as_ref().is_some_and(is_back) {
            self.rivalry.lost(Instant::now());
            self.loss = self.loss(wanted, before);
        }
        Ok(())
    }

    /// What someone else did to the file.
    fn loss(&self, lost: &Good, before: Before) -> String {
        if before == Before::Other {
            return "its content is replaced".to_owned();
        }
        let dir = lost.path.parent().unwrap_or(Path::new("/"));
        let names = self.root.list(dir).unwrap_or_default();
        let is_it = |name: &&String| {
            let path = dir.join(name);
            path != lost.path
                && self
                    .root
                    .read(&path, MAX_FILE)
                    .is_ok_and(|bytes| bytes == lost.bytes)
        };
        names.iter().find(is_it).map_or_else(
            || "it is removed".to_owned(),
            |name| format!("it is renamed to {name}"),
        )
    }

    fn wanted(&self, target: &Target) -> Result<Good, ManageError> {
        match &self.config.config_file {
            Some(path) => self.ready_made(path, target),
            None => self.generated(target),
        }
    }

    fn ready_made(&self, path: &Path, target: &Target) -> Result<Good, ManageError> {
        let read = ready_made::read(&self.root, path);
        let made = read.and_then(|bytes| ready_made::check(path, bytes));
        let made = made.map_err(|reason| ManageError::ReadyMade {
            path: path.to_owned(),
            reason,
        })?;
        let wanted = Good {
            path: target.dir.join(made.name),
            bytes: made.bytes,
            primary: None,
        };
        if made.calls_thin && self.good.as_ref() != Some(&wanted) {
            warn!(file = %path.display(), "multusConfigFile names plugin multus, which is upstream's own program and does not ask this daemon: write \"type\": \"multus-shim\"");
        }
        if !made.calls_multus && self.good.as_ref() != Some(&wanted) {
            warn!(file = %path.display(), "no plugin of multusConfigFile is multus-shim: pods get what it says and no further networks");
        }
        Ok(wanted)
    }

    fn generated(&self, target: &Target) -> Result<Good, ManageError> {
        let dir = self.primary_dir(target);
        let names = match self.root.list(&dir) {
            Ok(names) => names,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let read = |name: &str| {
            self.root
                .read(dir.join(name), MAX_FILE)
                .map_err(|error| error.to_string())
        };
        let present = self.present(target, &dir);
        let known = Known {
            wanted: self.config.primary_file.as_deref(),
            present: present.as_deref(),
        };
        let primary: Primary = choose(&dir, &names, known, read)?;
        Ok(Good {
            path: target.dir.join(FILE_NAME),
            bytes: generate(&self.config, &dir, &primary, target.accepted)?,
            primary: Some(primary.file),
        })
    }

    /// The primary's file until now; after a start it is the one that the configuration of the last run leads to.
    fn present(&self, target: &Target, dir: &Path) -> Option<String> {
        if let Some(good) = &self.good {
            return good.primary.clone();
        }
        let bytes = self.root.read(target.dir.join(FILE_NAME), MAX_FILE).ok()?;
        let config: Map<String, Value> = serde_json::from_slice(&bytes).ok()?;
        let primary = node_path(config.get("clusterNetwork")?.as_str()?);
        let name = primary.file_name()?.to_str()?.to_owned();
        (primary.parent() == Some(dir)).then_some(name)
    }

    fn primary_dir(&self, target: &Target) -> PathBuf {
        self.config
            .autoconfig_dir
            .clone()
            .unwrap_or_else(|| target.dir.clone())
    }

    fn waiting(&self) -> Option<ManageError> {
        let indicator = self.config.readiness_file.as_ref()?;
        (!self.root.exists(indicator)).then(|| ManageError::Waiting {
            indicator: indicator.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
