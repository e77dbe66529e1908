//! Subcommands, one file each. They print their results to stdout and messages to stderr.

pub mod approve;
pub mod discover;
pub mod doctor;
pub mod install;
pub mod networks;
pub mod pod;
pub mod status;
pub mod uninstall;
pub mod verify;

use std::path::{Path, PathBuf};

use anyhow::Context;
use node::root::Root;
use plan::daemon_config::{Config, DEFAULT_PATH};

use crate::app::Identity;

/// The input of every command.
#[derive(Debug, Clone)]
pub struct CommandContext {
    /// The daemon's file.
    pub config: PathBuf,
    /// The directory that is the node's `/`.
    pub root: PathBuf,
    /// The identity of this process.
    pub identity: Identity,
}

impl CommandContext {
    /// Reads the daemon's file; a missing file at the default path means defaults for all keys.
    pub fn config(&self) -> anyhow::Result<Config> {
        match Config::load(&self.config) {
            Err(error) if error.is_not_found() && self.config == Path::new(DEFAULT_PATH) => {
                Ok(Config::parse(serde_json::Map::new())?)
            }
            other => Ok(other?),
        }
    }

    /// Opens the node's file tree.
    pub fn root(&self) -> anyhow::Result<Root> {
        Root::open(&self.root).with_context(|| {
            format!(
                "{} must be the node's root: mount it there, or name it with --root",
                self.root.display()
            )
        })
    }
}
