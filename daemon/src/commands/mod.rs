//! Subcommands, one file each. What they print is their answer: data on stdout, talk on stderr.

pub mod approve;
pub mod discover;
pub mod install;
pub mod pod;
pub mod status;
pub mod uninstall;
pub mod verify;

use std::path::{Path, PathBuf};

use anyhow::Context;
use node::root::Root;
use plan::daemon_config::{Config, DEFAULT_PATH};

use crate::app::Identity;

/// What every command goes by.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The daemon's file.
    pub config: PathBuf,
    /// The directory that stands for the node's `/`.
    pub root: PathBuf,
    /// Who we are.
    pub identity: Identity,
}

impl Setting {
    /// Reads the file; where none was named and none is there, every default holds.
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
