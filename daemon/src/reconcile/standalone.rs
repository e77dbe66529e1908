//! Plugins without a multiplexer: puts our plugins into the directory where the runtime searches them, under the names that are free there.
//! It also removes what a daemon that served pods left on the node.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use api::plugins::{CLUSTER_IPAM, PROGRAM, WHEREABOUTS};
use node::{
    dirs::CniDirs,
    install::{InstallError, Installation, Outcome},
    root::Root,
};
use tracing::{info, warn};

use super::node::{NodeReconciler, shipped};
use crate::{config_manager, host, serving::socket};

impl NodeReconciler {
    /// Installs the plugins: one program, and a link for each name that no other program has in a directory of the runtime. Names that are
    /// taken later, and those that are no longer wanted, are given up.
    pub(super) fn install_standalone(&self, dirs: &CniDirs) -> anyhow::Result<()> {
        let (root, dir) = (&self.root, dirs.install_dir.as_path());
        let installation = Installation::plugins(root);
        // During an update the next daemon, which may be a multiplexer, removes what this one installs.
        let _turn = installation.turn()?;
        let searched = dirs.bin_dirs.iter().chain([&dirs.install_dir]);
        let searched: Vec<&Path> = searched.map(PathBuf::as_path).collect();
        let (mut free, mut taken) = (Vec::new(), Vec::new());
        let names = self.config.own_plugins.names.iter();
        // No daemon gives addresses here.
        for name in names.filter(|name| ![CLUSTER_IPAM, WHEREABOUTS].contains(name)) {
            let list = if is_taken(root, &searched, name)? {
                &mut taken
            } else {
                &mut free
            };
            list.push(*name);
        }
        let mut linked = Vec::new();
        let mut keep = Vec::new();
        if !free.is_empty() {
            ensure!(
                !is_taken(root, &[dir], PROGRAM)?,
                "{} was not installed by this chart: run `multus-cni-plugins uninstall {}` on the node, or set cniplugins.standalone to false",
                dir.join(PROGRAM).display(),
                dir.display()
            );
            installation.install(dir, PROGRAM, &shipped(PROGRAM)?)?;
            keep.push(dir.join(PROGRAM));
            for name in free {
                if let Some(Outcome::Installed) = installation.link(dir, name, PROGRAM)? {
                    linked.push(name);
                }
                keep.push(dir.join(name));
            }
        }
        if !linked.is_empty() {
            let dir = dir.display();
            info!(%dir, ?linked, ?taken, "installed the plugins; those of other programs stay");
        }
        let keep: Vec<&Path> = keep.iter().map(PathBuf::as_path).collect();
        let removed = installation
            .remove_others(&keep)
            .context("cannot remove plugins that are no longer wanted")?;
        if !removed.is_empty() {
            info!(?removed, "removed plugins that are no longer wanted");
        }
        Ok(())
    }

    /// Removes what daemons that served pods have installed, once none of them serves: the CNI configuration first, so that no pod is sent
    /// to a shim that is gone. Configurations without a record stay, since they may be those of another multiplexer.
    pub(super) fn remove_multiplexer(&self) {
        if socket::is_served(&self.root, &self.config.socket_dir) {
            return;
        }
        let removed = match config_manager::remove_others(&self.root, None, None) {
            Ok(removed) => removed,
            Err(error) => {
                return warn!(%error, "cannot remove the CNI configuration of the former installation: its shim stays too");
            }
        };
        let files = match Installation::multiplexer(&self.root).remove_all() {
            Ok(files) => files,
            Err(error) => {
                return warn!(%error, "cannot remove all files of the former installation");
            }
        };
        if removed.is_empty() && files.is_empty() {
            return;
        }
        host::remove_published(&self.config, &self.root);
        info!(configurations = ?removed, ?files, "removed the former installation, which served pods");
        self.remove_locks();
    }

    /// Removes the plugins.
    pub(super) fn uninstall_standalone(&self) {
        match Installation::plugins(&self.root).remove_all() {
            Ok(removed) => info!(?removed, "removed the plugins"),
            Err(error) => warn!(%error, "cannot remove all plugins"),
        }
        host::end_services(&self.config, &self.root);
    }
}

/// Returns whether another program has the name in one of these directories.
fn is_taken(root: &Root, dirs: &[&Path], name: &str) -> Result<bool, InstallError> {
    for dir in dirs {
        let path = dir.join(name);
        let exists = match root.kind(&path) {
            Ok(kind) => kind.is_some(),
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        if exists && !Installation::plugins(root).has(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}
