//! Keeps our configuration in the runtime's directory: whole or not at all, restored when someone removes it, followed by the next directory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use node::root::{Root, RootError};
use tokio::sync::watch::Receiver;
use tracing::{info, warn};

use super::{FILE_NAME, GenerateError, choose, generate};
use crate::{
    config::Config,
    dirwatch::{DirectoryWatch, heard},
    readiness::{Part, Readiness},
};

const MAX_FILE: u64 = 4 << 20;
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
    Generate(#[from] GenerateError),
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
}

/// Brings the file up to date, and again whenever something changes.
#[derive(Debug)]
pub struct Manager {
    /// The node.
    pub root: Arc<Root>,
    /// The daemon's file.
    pub config: Arc<Config>,
    /// Told whether there is a configuration.
    pub readiness: Arc<Readiness>,
}

impl Manager {
    /// Runs for ever. While another daemon of the node has the socket, the file is its business.
    pub async fn run(self, mut targets: Receiver<Option<Target>>) {
        let mut served: Option<Target> = None;
        loop {
            self.readiness.wait_for(&[Part::Socket]).await;
            let target = targets.borrow_and_update().clone();
            let Some(target) = target else {
                if targets.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let primary_dir = self.primary_dir(&target);
            // Watched before it is looked at, so that no change falls between the two.
            let watch = DirectoryWatch::new(&self.root, &[&target.dir, &primary_dir]);
            if self.look(&target, served.as_ref()) {
                served = Some(target);
            }
            tokio::select! {
                () = heard(watch) => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(PERIOD) => {}
                changed = targets.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Says whether the target has its file; only then the former one is given up.
    fn look(&self, target: &Target, served: Option<&Target>) -> bool {
        match self.reconcile(target) {
            Ok(written) => {
                if written {
                    info!(file = %target.dir.join(FILE_NAME).display(), "wrote the CNI configuration");
                }
                self.readiness.well(Part::Configuration);
            }
            Err(error) => {
                self.readiness
                    .missing(Part::Configuration, error.to_string());
                return false;
            }
        }
        if let Some(old) = served.filter(|old| old.dir != target.dir)
            && let Err(error) = remove(&self.root, &old.dir)
        {
            warn!(%error, "cannot remove the configuration from the former directory");
        }
        true
    }

    /// Writes the file if it is not as it should be; says whether it did.
    pub fn reconcile(&self, target: &Target) -> Result<bool, ManageError> {
        let (name, bytes) = match &self.config.config_file {
            Some(path) => ready_made(path)?,
            None => (FILE_NAME.to_owned(), self.generated(target)?),
        };
        let path = target.dir.join(name);
        if self
            .root
            .read(&path, MAX_FILE)
            .is_ok_and(|present| present == bytes)
        {
            return Ok(false);
        }
        self.root.write_atomic(&path, &bytes, 0o600)?;
        Ok(true)
    }

    fn generated(&self, target: &Target) -> Result<Vec<u8>, ManageError> {
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
        let primary = choose(&dir, &names, self.config.primary_file.as_deref(), read)?;
        Ok(generate(&self.config, &dir, &primary, target.accepted)?)
    }

    fn primary_dir(&self, target: &Target) -> PathBuf {
        self.config
            .autoconfig_dir
            .clone()
            .unwrap_or_else(|| target.dir.clone())
    }
}

/// Removes our configuration from a directory; says whether there was one.
pub fn remove(root: &Root, dir: &Path) -> Result<bool, RootError> {
    root.remove(dir.join(FILE_NAME))
}

fn ready_made(path: &Path) -> Result<(String, Vec<u8>), ManageError> {
    let refuse = |reason: String| ManageError::ReadyMade {
        path: path.to_owned(),
        reason,
    };
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes)
        .map_err(|error| refuse(error.to_string()))?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| refuse("it has no file name".to_owned()))?;
    Ok((name.to_owned(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    const PRIMARY: &[u8] = br#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"bridge"}]}"#;

    fn manager() -> (tempfile::TempDir, Manager, Target) {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        root.make_dirs("/net.d", 0o755).unwrap();
        let config = Arc::new(Config::parse(Map::new()).unwrap());
        let readiness = Arc::new(Readiness::new(&[Part::Configuration]));
        (
            dir,
            Manager {
                root,
                config,
                readiness,
            },
            Target {
                dir: "/net.d".into(),
                accepted: None,
            },
        )
    }

    #[test]
    fn nothing_is_written_without_a_primary_and_the_last_good_file_stays() {
        let (_dir, manager, target) = manager();
        assert!(!manager.look(&target, None));
        assert!(manager.root.list("/net.d").unwrap().is_empty());
        assert!(
            manager
                .readiness
                .problem()
                .unwrap()
                .contains("no primary CNI configuration in /net.d")
        );
        manager
            .root
            .write_atomic("/net.d/10-a.conflist", PRIMARY, 0o600)
            .unwrap();
        assert!(manager.reconcile(&target).unwrap());
        assert!(!manager.reconcile(&target).unwrap());
        let good = manager.root.read("/net.d/00-multus.conf", 9999).unwrap();
        manager
            .root
            .write_atomic("/net.d/10-a.conflist", b"{\"half", 0o600)
            .unwrap();
        assert!(manager.reconcile(&target).is_err());
        assert_eq!(
            manager.root.read("/net.d/00-multus.conf", 9999).unwrap(),
            good
        );
    }

    #[test]
    fn a_new_directory_is_served_before_the_old_one_is_given_up() {
        let (_dir, manager, old) = manager();
        manager
            .root
            .write_atomic("/net.d/10-a.conflist", PRIMARY, 0o600)
            .unwrap();
        assert!(manager.look(&old, None));
        let new = Target {
            dir: "/new.d".into(),
            accepted: None,
        };
        manager.root.make_dirs("/new.d", 0o755).unwrap();
        assert!(!manager.look(&new, Some(&old)));
        assert!(manager.root.exists("/net.d/00-multus.conf"));
        manager
            .root
            .write_atomic("/new.d/10-a.conflist", PRIMARY, 0o600)
            .unwrap();
        assert!(manager.look(&new, Some(&old)));
        assert!(
            manager.root.exists("/new.d/00-multus.conf")
                && !manager.root.exists("/net.d/00-multus.conf")
        );
    }

    #[tokio::test]
    async fn a_file_that_someone_removes_comes_back() {
        let (_dir, manager, target) = manager();
        let root = Arc::clone(&manager.root);
        root.write_atomic("/net.d/10-a.conflist", PRIMARY, 0o600)
            .unwrap();
        let (sender, receiver) = tokio::sync::watch::channel(Some(target));
        let running = tokio::spawn(manager.run(receiver));
        for _ in 0..2 {
            tokio::time::timeout(Duration::from_secs(20), async {
                while !root.exists("/net.d/00-multus.conf") {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("written within 20 s");
            root.remove("/net.d/00-multus.conf").unwrap();
        }
        drop(sender);
        running.abort();
    }
}
