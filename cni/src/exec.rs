//! Finding and running one plugin, behind a trait: the daemon runs plugins inside the node's mount namespace, tests run none.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Limits};
use crate::types::CniError;

/// Finds and runs plugins.
pub trait Exec: Send + Sync {
    /// The program of that name in the first directory that has it.
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError>;

    /// Runs it to its end and returns its stdout. `env` holds the `CNI_*` variables; what else a program needs is added here.
    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError>;
}

/// Why a plugin gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A name that is a path or empty.
    #[error("invalid plugin name {0:?}")]
    Name(String),
    /// In none of the directories.
    #[error(
        "plugin {plugin:?} is in none of {}: install it on this node",
        list(dirs)
    )]
    NotFound {
        /// The name.
        plugin: String,
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// It could not be started or talked to.
    #[error("cannot run {}: {source}", path.display())]
    Io {
        /// The program.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It wrote more than is allowed.
    #[error("{} wrote more than {limit} bytes", path.display())]
    TooMuchOutput {
        /// The program.
        path: PathBuf,
        /// The bound.
        limit: usize,
    },
    /// It did not end in time and was killed.
    #[error("{} did not end within {seconds} s", path.display())]
    TimedOut {
        /// The program.
        path: PathBuf,
        /// The bound.
        seconds: u64,
    },
    /// The process that starts plugins is not there, or was lost with the plugin.
    #[error("cannot run {}: {reason}", path.display())]
    Unavailable {
        /// The program.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It ran and failed, with its own words.
    #[error(transparent)]
    Plugin(#[from] CniError),
}

impl ExecError {
    /// The error with its code: the plugin's own, or 999 for what happened before it could say anything.
    pub fn to_cni(&self) -> CniError {
        match self {
            Self::Plugin(error) => error.clone(),
            Self::TimedOut { .. } | Self::Unavailable { .. } => {
                CniError::new(CniError::TRY_AGAIN_LATER, self.to_string())
            }
            Self::Io { .. } => CniError::new(CniError::IO_FAILURE, self.to_string()),
            _ => CniError::new(CniError::INTERNAL, self.to_string()),
        }
    }
}

/// Runs plugins as plain child processes, with `PATH` as the only variable beside `CNI_*`.
#[derive(Clone, Debug)]
pub struct DirectExec {
    /// The `PATH` plugins see.
    pub search_path: String,
    /// Bounds of each run.
    pub limits: Limits,
}

impl Default for DirectExec {
    fn default() -> Self {
        Self {
            search_path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            limits: Limits::default(),
        }
    }
}

impl Exec for DirectExec {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        check_plugin_name(plugin)?;
        dirs.iter()
            .map(|dir| dir.join(plugin))
            .find(|path| {
                path.metadata()
                    .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
            })
            .ok_or_else(|| ExecError::NotFound {
                plugin: plugin.to_owned(),
                dirs: dirs.to_vec(),
            })
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let mut command = Command::new(path);
        command
            .env_clear()
            .env("PATH", &self.search_path)
            .envs(env.iter().map(|(key, value)| (key, value)));
        process::run(&mut command, path, stdin, &self.limits)?.into_answer(path)
    }
}

/// A plugin's name is one component of a path.
pub fn check_plugin_name(plugin: &str) -> Result<(), ExecError> {
    let invalid = matches!(plugin, "" | "." | "..") || plugin.contains(['/', '\0']);
    if invalid {
        Err(ExecError::Name(plugin.to_owned()))
    } else {
        Ok(())
    }
}

fn list(dirs: &[PathBuf]) -> String {
    if dirs.is_empty() {
        return "no directories (CNI_PATH is empty)".to_owned();
    }
    dirs.iter()
        .map(|dir| dir.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
