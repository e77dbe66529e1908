//! The files in which Node Feature Discovery finds labels for this node's Node.
//!
//! Its worker (0.19) reads them at the first change of their directory, and hears of no other change until its clock of a second ticks. A file
//! that is replaced changes the directory twice: it is made, and gets its name once it is on disk. So the worker reads what was there before,
//! and again a minute later. Another change of the directory, when that second is over, has it read them at once.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use node::root::{Root, RootError};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// The directory that its local source reads.
const DIR: &str = "/etc/kubernetes/node-feature-discovery/features.d";
/// The name of the first file; further ones have a number.
const FILE: &str = "multus-rs";
/// The name of a file without labels, which is made and removed; the worker reads no file whose name begins with a dot.
const BELL: &str = ".multus-rs";
/// So long after a change the worker hears of changes again: its second, and some time for a busy node.
const DEAF: Duration = Duration::from_millis(1500);

/// The files below the node's root, as this daemon writes them.
pub(crate) struct FeatureFiles {
    root: Arc<Root>,
    /// When their directory is to change once more, after a change that the worker may not have heard of.
    tell_at: Option<Instant>,
}

impl FeatureFiles {
    pub(crate) fn new(root: Arc<Root>) -> Self {
        let tell_at = None;
        Self { root, tell_at }
    }

    /// Writes files where they differ, and removes further ones of ours.
    pub(crate) fn set(&mut self, files: &[String]) -> Result<(), RootError> {
        let root = &self.root;
        root.make_dirs(DIR, 0o755)?;
        for (number, text) in files.iter().enumerate() {
            let path = path(number);
            let known = root.read(&path, text.len() as u64);
            if known.ok().as_deref() != Some(text.as_bytes()) {
                self.tell_at = Some(Instant::now() + DEAF);
                root.write_atomic(&path, text.as_bytes(), 0o644)?;
            }
        }
        if remove_from(root, files.len()) {
            self.tell_at = Some(Instant::now() + DEAF);
        }
        Ok(())
    }

    /// Changes the directory once more when that is due. It never returns, and may be dropped and called again.
    pub(crate) async fn tell(&mut self) {
        if let Some(at) = self.tell_at {
            sleep_until(at).await;
            let bell = Path::new(DIR).join(BELL);
            let changed = self.root.write_atomic(&bell, b"", 0o644);
            if let Err(error) = changed.and_then(|()| self.root.remove(&bell)) {
                warn!(%error, "Node Feature Discovery reads the new labels up to a minute later");
            }
            self.tell_at = None;
        }
        std::future::pending::<()>().await;
    }
}

/// Removes the files.
pub(crate) fn remove(root: &Root) {
    remove_from(root, 0);
    // A daemon that was killed between making and removing this file has left it.
    let _ = root.remove(Path::new(DIR).join(BELL));
}

/// Removes the files from this number on; returns whether there was one.
fn remove_from(root: &Root, first: usize) -> bool {
    for number in first.. {
        match root.remove(path(number)) {
            Ok(true) => {}
            Ok(false) => return number > first,
            Err(error) => {
                warn!(%error, "cannot remove a file of node features");
                return number > first;
            }
        }
    }
    true
}

fn path(number: usize) -> PathBuf {
    let name = match number {
        0 => FILE.to_owned(),
        number => format!("{FILE}.{number}"),
    };
    Path::new(DIR).join(name)
}
