//! Finding and running one plugin, behind a trait: the daemon runs plugins in the node's mount namespace, tests use a fake.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{self, Limits, Output, RunError};
use crate::types::CniError;

/// How many characters of a plugin's output an error quotes.
const EXCERPT: usize = 1024;

/// Finds and runs plugins.
pub trait Exec: Send + Sync {
    /// Returns the program of this name in the first directory that has it.
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError>;

    /// Runs the program to its end and returns its stdout. `env` has the `CNI_*` variables; the implementation adds others, as `PATH`.
    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError>;

    /// The same within this time, if the implementation limits the time of programs. A shorter limit of its own remains.
    fn run_within(
        &self,
        _time: Duration,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        self.run(path, env, stdin)
    }
}

/// The reason why a plugin could not be run or failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The plugin's name is empty or a path.
    #[error("invalid plugin name {0:?}")]
    Name(String),
    /// None of the directories has the plugin.
    #[error(
        "plugin {plugin:?} is in none of {}: install it on this node",
        list(dirs)
    )]
    NotFound {
        /// The plugin's name.
        plugin: String,
        /// The directories that were searched.
        dirs: Vec<PathBuf>,
    },
    /// The program could not be started, or one of its pipes failed.
    #[error("cannot run {}: {source}", path.display())]
    Io {
        /// The program.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The program wrote more to stdout than is allowed.
    #[error("{} wrote more than {limit} bytes", path.display())]
    TooMuchOutput {
        /// The program.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// The program did not end in time and was killed.
    #[error("{} did not end within {seconds} s", path.display())]
    TimedOut {
        /// The program.
        path: PathBuf,
        /// The time limit.
        seconds: u64,
    },
    /// The process that starts plugins does not run, or ended together with the plugin.
    #[error("cannot run {}: {reason}", path.display())]
    Unavailable {
        /// The program.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A signal ended the plugin, so it cannot have cleaned up after itself.
    #[error(transparent)]
    Killed(Box<CniError>),
    /// The plugin was not run, because the caller no longer wants it.
    #[error(transparent)]
    Stopped(Box<CniError>),
    /// The plugin ran and failed with this error.
    #[error(transparent)]
    Plugin(#[from] CniError),
}

impl ExecError {
    /// The error of a run of the program at `path` within `limits`.
    pub fn from_run(error: RunError, path: &Path, limits: &Limits) -> Self {
        let path = path.to_owned();
        match error {
            RunError::Io(source) => Self::Io { path, source },
            RunError::TooMuchOutput => Self::TooMuchOutput {
                path,
                limit: limits.stdout,
            },
            RunError::TimedOut(time) => Self::TimedOut {
                path,
                seconds: time.as_secs(),
            },
        }
    }

    /// Returns the error of the protocol: the plugin's own, or one of this library for a plugin that reported none.
    pub fn to_cni(&self) -> CniError {
        match self {
            Self::Plugin(error) => error.clone(),
            Self::Killed(error) | Self::Stopped(error) => (**error).clone(),
            Self::TimedOut { .. } | Self::Unavailable { .. } => {
                CniError::new(CniError::TRY_AGAIN_LATER, self.to_string())
            }
            Self::Io { .. } => CniError::new(CniError::IO_FAILURE, self.to_string()),
            _ => CniError::new(CniError::INTERNAL, self.to_string()),
        }
    }
}

/// Runs plugins as plain child processes, with `PATH` as the only variable besides `CNI_*`.
#[derive(Clone, Debug)]
pub struct DirectExec {
    /// The `PATH` of plugins.
    pub search_path: String,
    /// The limits of each run.
    pub limits: Limits,
    /// Whether a program gets a process group of its own. A plugin that runs another one gives it none: the runtime ends both by the
    /// plugin's group.
    pub own_group: bool,
}

impl Default for DirectExec {
    fn default() -> Self {
        Self {
            search_path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            limits: Limits::default(),
            own_group: true,
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
        let run = if self.own_group {
            process::run
        } else {
            process::run_in_this_group
        };
        let output = run(&mut command, stdin, &self.limits)
            .map_err(|error| ExecError::from_run(error, path, &self.limits))?;
        stdout_of(output, path)
    }
}

/// Returns the stdout of a plugin that succeeded; of one that failed, its error, or one that quotes its output.
pub fn stdout_of(output: Output, path: &Path) -> Result<Vec<u8>, ExecError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let failed = |error| match output.status.signal() {
        Some(_) => ExecError::Killed(Box::new(error)),
        None => ExecError::Plugin(error),
    };
    if let Some(error) = CniError::parse(&output.stdout) {
        return Err(failed(error));
    }
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let mut msg = format!("plugin {name} failed: {}", output.status);
    let text = if output.stderr.trim_ascii().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    if !text.trim_ascii().is_empty() {
        msg.push_str(": ");
        msg.push_str(&excerpt(text));
    }
    Err(failed(CniError::new(CniError::INTERNAL, msg)))
}

/// Fails unless the plugin's name is one component of a path.
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

/// Returns the end of a text on one line, since programs print last why they failed.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth_back(EXCERPT) {
        None => line,
        Some((start, _)) => format!("…{}", &line[start..]),
    }
}
