//! Keeps our configuration in the runtime's directory. The file is always complete; it is restored when another program removes it, and
//! moves when the runtime's directory does.

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
    Constraints, DefaultNetwork, DefaultNetworkError, FILE_NAME, NoName,
    backoff::Backoff,
    choose, generate,
    installed::{self, MAX_FILE, Previous},
    static_config,
};
use crate::{
    host::dir_watch::{DirectoryWatch, changed_or_never},
    readiness::{self, Gate, Readiness},
};

/// The longest time between two reconciliations, when no change is notified.
const PERIOD: Duration = Duration::from_secs(30);
/// The pause after a change, so that several changes in a row are reconciled once.
const SETTLE: Duration = Duration::from_millis(50);

/// The runtime's configuration directory and the version that the runtime accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The runtime's configuration directory.
    pub dir: PathBuf,
    /// The highest version that the runtime accepts.
    pub accepted: Option<&'static str>,
}

/// The configuration could not be updated; the previous one stays.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The default network has no usable configuration.
    #[error(transparent)]
    DefaultNetwork(#[from] DefaultNetworkError),
    /// The default network's configuration has no name to take over.
    #[error(transparent)]
    NoName(#[from] NoName),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The static configuration cannot be used.
    #[error("multusConfigFile {}: {reason}", path.display())]
    StaticConfig {
        /// The path of the file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The default network is not ready.
    #[error("{}", readiness::waiting_for(indicator))]
    Waiting {
        /// The file that appears when the default network is ready.
        indicator: PathBuf,
    },
}

/// Updates the configuration at the start and whenever something changes.
#[derive(Debug)]
pub struct Manager {
    root: Arc<Root>,
    config: Arc<Config>,
    readiness: Arc<Readiness>,
    /// The last valid configuration with its path.
    valid: Option<ValidConfig>,
    backoff: Backoff,
    /// How the file was last changed by another program.
    loss: String,
    /// The file of somebody else that sorted before ours at the last update.
    first: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ValidConfig {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The file of the default network, unless the configuration is a static one.
    default_network: Option<String>,
}

impl Manager {
    /// Creates a manager, which reports to `readiness` whether there is a configuration.
    pub fn new(root: Arc<Root>, config: Arc<Config>, readiness: Arc<Readiness>) -> Self {
        Self {
            root,
            config,
            readiness,
            valid: None,
            backoff: Backoff::default(),
            loss: String::new(),
            first: None,
        }
    }

    /// Runs for ever. While another daemon of the node has the socket, that daemon manages the file.
    pub async fn run(mut self, mut targets: Receiver<Option<Target>>) {
        loop {
            self.readiness.wait_open(&[Gate::Socket]).await;
            let target = targets.borrow_and_update().clone();
            let Some(target) = target else {
                if targets.changed().await.is_err() {
                    return;
                }
                continue;
            };
            // Watched before they are read, so that no change falls between the two.
            let source_dir = self.source_dir(&target);
            let mut dirs = vec![target.dir.as_path(), &source_dir];
            let indicator = self.config.readiness_file.as_deref();
            dirs.extend(indicator.and_then(Path::parent));
            let watch = DirectoryWatch::with_parents(&self.root, &dirs);
            let pause = self.update(&target);
            let is_over = tokio::select! {
                () = changed_or_never(watch) => {
                    if pause == SETTLE {
                        self.restore();
                    }
                    tokio::select! {
                        () = sleep(pause) => false,
                        changed = targets.changed() => changed.is_err(),
                    }
                }
                () = sleep(PERIOD) => false,
                changed = targets.changed() => changed.is_err(),
            };
            if is_over {
                return;
            }
        }
    }

    /// Writes the file at once when it is gone, as when upstream's daemon ends, which removes the file of its name. A pod that starts
    /// without it gets only the default network. Everything else waits until the changes have settled.
    fn restore(&mut self) {
        let serves = self.readiness.reason_closed(Gate::Socket).is_none();
        let lost = self.valid.clone();
        if let Some(lost) = lost.filter(|valid| serves && !self.root.exists(&valid.path)) {
            // The next update reports what keeps the file from being written.
            let _ = self.put(&lost);
        }
    }

    /// Reconciles the configuration, reports the outcome to `readiness`, and returns the pause after the next change.
    pub(super) fn update(&mut self, target: &Target) -> Duration {
        let problem = self.reconcile(target).err().map(|error| error.to_string());
        let pause = self.backoff.pause(Instant::now());
        let problem = problem.or_else(|| {
            pause.map(|_| {
                format!(
                    "another program keeps changing {} ({}): configure it to leave that file alone, as cni.exclusive=false does for Cilium",
                    target.dir.join(FILE_NAME).display(), self.loss
                )
            })
        });
        self.readiness.set(Gate::Configuration, problem);
        pause.unwrap_or(SETTLE)
    }

    /// Installs the current configuration and then removes those that it replaces. The last valid one stays whenever this fails.
    fn reconcile(&mut self, target: &Target) -> Result<(), ManageError> {
        let waiting = self.waiting();
        if self.valid.is_none() && waiting.is_some() {
            return waiting.map_or(Ok(()), Err);
        }
        let wanted = match self.wanted(target) {
            Ok(wanted) => wanted,
            Err(error) => {
                if let Some(valid) = self.valid.clone() {
                    self.put(&valid)?;
                }
                return Err(error);
            }
        };
        self.put(&wanted)?;
        // The former ones go only now that the new one is installed.
        match installed::remove_others(&self.root, Some(&wanted.path), Some(&target.dir)) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => info!(?removed, "removed former CNI configurations"),
            Err(error) => warn!(%error, "cannot remove a former CNI configuration"),
        }
        let first = self.sorts_before(&wanted.path);
        if first != self.first {
            if let Some(first) = &first {
                warn!(file = %wanted.path.display(), %first, "runtimes take the first file by name, and pods get additional networks only if it is this daemon's: remove the other one, or give multusConfigFile a name that sorts before it");
            }
            self.first = first;
        }
        self.valid = Some(wanted);
        waiting.map_or(Ok(()), Err)
    }

    /// Writes the file. A missing directory, with which our file was removed, is created again, but not its parent, which belongs to the
    /// runtime or the administrator.
    fn put(&mut self, wanted: &ValidConfig) -> Result<(), RootError> {
        if let Some(dir) = wanted.path.parent()
            && !self.root.is_dir(dir)
            && dir.parent().is_some_and(|parent| self.root.is_dir(parent))
        {
            self.root.make_dirs(dir, 0o755)?;
        }
        let Some(before) = installed::put(&self.root, &wanted.path, &wanted.bytes)? else {
            return Ok(());
        };
        info!(file = %wanted.path.display(), "wrote the CNI configuration");
        let is_same =
            |valid: &ValidConfig| (&valid.path, &valid.bytes) == (&wanted.path, &wanted.bytes);
        if self.valid.as_ref().is_some_and(is_same) {
            self.backoff.lost(Instant::now());
            self.loss = self.loss(wanted, before);
        }
        Ok(())
    }

    /// Describes how another program changed the file.
    fn loss(&self, lost: &ValidConfig, before: Previous) -> String {
        if before == Previous::Other {
            return "its content is replaced".to_owned();
        }
        let dir = lost.path.parent().unwrap_or(Path::new("/"));
        let names = self.root.list(dir).unwrap_or_default();
        let is_renamed = |name: &&String| {
            let path = dir.join(name);
            path != lost.path
                && self
                    .root
                    .read(&path, MAX_FILE)
                    .is_ok_and(|bytes| bytes == lost.bytes)
        };
        names.iter().find(is_renamed).map_or_else(
            || "it is removed".to_owned(),
            |name| format!("it is renamed to {name}"),
        )
    }

    fn wanted(&self, target: &Target) -> Result<ValidConfig, ManageError> {
        match &self.config.config_file {
            Some(path) => self.static_config(path, target),
            None => self.generated(target),
        }
    }

    fn static_config(&self, path: &Path, target: &Target) -> Result<ValidConfig, ManageError> {
        let read = static_config::read(&self.root, path);
        let config = read.and_then(|bytes| static_config::check(path, bytes));
        let config = config.map_err(|reason| ManageError::StaticConfig {
            path: path.to_owned(),
            reason,
        })?;
        let wanted = ValidConfig {
            path: target.dir.join(config.name),
            bytes: config.bytes,
            default_network: None,
        };
        if config.calls_thin && self.valid.as_ref() != Some(&wanted) {
            warn!(file = %path.display(), "multusConfigFile names plugin multus, which is upstream's own program and does not use this daemon: write \"type\": \"multus-shim\"");
        }
        if !config.calls_multus && self.valid.as_ref() != Some(&wanted) {
            warn!(file = %path.display(), "no plugin of multusConfigFile is multus-shim: pods get the networks of this file and no others");
        }
        Ok(wanted)
    }

    /// Returns the configuration of somebody else that the runtime takes instead of this one, because its name sorts before.
    fn sorts_before(&self, path: &Path) -> Option<String> {
        let own = path.file_name()?.to_str()?;
        let mut names = self.root.list(path.parent()?).ok()?;
        names.retain(|name| {
            let ending = name.rsplit_once('.').map(|(_, ending)| ending);
            matches!(ending, Some("conf" | "conflist" | "json")) && name.as_str() < own
        });
        names.into_iter().min()
    }

    fn generated(&self, target: &Target) -> Result<ValidConfig, ManageError> {
        let dir = self.source_dir(target);
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
        let known = Constraints {
            wanted: self.config.default_network_file.as_deref(),
            present: present.as_deref(),
        };
        let source: DefaultNetwork = choose(&dir, &names, known, read)?;
        Ok(ValidConfig {
            path: target.dir.join(FILE_NAME),
            bytes: generate(&self.config, &dir, &source, target.accepted)?,
            default_network: Some(source.file),
        })
    }

    /// Returns the present file of the default network. After a start it is the one that the configuration of the last run names.
    fn present(&self, target: &Target, dir: &Path) -> Option<String> {
        if let Some(valid) = &self.valid {
            return valid.default_network.clone();
        }
        let bytes = self.root.read(target.dir.join(FILE_NAME), MAX_FILE).ok()?;
        let config: Map<String, Value> = serde_json::from_slice(&bytes).ok()?;
        let path = node_path(config.get("clusterNetwork")?.as_str()?);
        let name = path.file_name()?.to_str()?.to_owned();
        (path.parent() == Some(dir)).then_some(name)
    }

    /// Returns the directory of the default network's configuration.
    fn source_dir(&self, target: &Target) -> PathBuf {
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
