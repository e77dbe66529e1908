//! Runs delegates where the runtime would run them: in its mount namespace and in its cgroup.
//!
//! A process that is already there starts them (`serve`). This side sends it the programs to start (`spawner`) and serves their pipes.

mod environment;
mod serve;
mod spawner;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cni::{
    exec::{Exec, ExecError, check_plugin_name, stdout_of},
    process::{self, Limits, Output, Streams},
};
use node::{process::Process, root::Root};
use tracing::debug;

use self::{
    spawner::{Failure, Launcher, Spawner},
    wire::Request,
};
use crate::{host::orphans::Mark, metrics};

pub use environment::plugin_environment;
pub use serve::{ARGUMENT as SPAWNER_ARGUMENT, main as spawner_main};
pub use spawner::{Detached, Fate};

/// The time limit of a delegate; the kubelet abandons a sandbox after four minutes.
const PLUGIN_TIME: Duration = Duration::from_mins(2);
/// This program, even if its file was replaced or deleted.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The namespaces and root directory in which delegates run.
#[derive(Debug, Clone, Default)]
pub struct ExecContext {
    /// The runtime, once it is discovered.
    pub runtime: Option<Arc<Process>>,
    /// A directory in the daemon's mount namespace that takes precedence over the runtime's mount namespace.
    pub chroot: Option<PathBuf>,
}

impl ExecContext {
    fn is_same(&self, other: &Self) -> bool {
        let runtime = |context: &Self| context.runtime.as_ref().map(Arc::as_ptr);
        runtime(self) == runtime(other) && self.chroot == other.chroot
    }
}

/// Runs plugins in the runtime's namespaces, which may change while the daemon runs.
#[derive(Debug)]
pub struct RuntimeExec {
    root: Arc<Root>,
    /// The variables that plugins get in addition to those of the CNI specification.
    environment: Vec<(OsString, OsString)>,
    limits: Limits,
    launcher: Launcher,
    present: Mutex<Present>,
    /// Held while a spawner starts, which may take seconds, and contains the number of started ones.
    starts: Mutex<u64>,
}

/// The context of the next delegate.
#[derive(Debug)]
struct Present {
    context: ExecContext,
    /// The spawner of this context, once it was needed.
    current: Option<Arc<Current>>,
}

/// A spawner, and the environment of the plugins that it starts.
#[derive(Debug)]
struct Current {
    spawner: Spawner,
    environment: Vec<(OsString, OsString)>,
    search_path: OsString,
}

impl RuntimeExec {
    /// Searches plugins below `root` and runs them in `context`.
    pub fn new(root: Arc<Root>, context: ExecContext) -> Self {
        Self {
            root,
            environment: Vec::new(),
            limits: Limits {
                time: Some(PLUGIN_TIME),
                ..Limits::default()
            },
            launcher: Launcher {
                program: OWN_PROGRAM.into(),
                file_limit: None,
                #[cfg(test)]
                is_thread: false,
            },
            present: Mutex::new(Present {
                context,
                current: None,
            }),
            starts: Mutex::default(),
        }
    }

    /// Adds variables to the environment of plugins.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(OsString, OsString)>) -> Self {
        self.environment = environment;
        self
    }

    /// Replaces the limits of plugins.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the soft limit of open files for plugins, independent of the daemon's own.
    #[must_use]
    pub fn with_file_limit(mut self, soft: u64) -> Self {
        self.launcher.file_limit = Some(soft);
        self
    }

    /// Starts another program than this one as the spawner; it must accept [`SPAWNER_ARGUMENT`].
    #[must_use]
    pub fn with_spawner_program(mut self, program: PathBuf) -> Self {
        self.launcher.program = program;
        self
    }

    /// Runs the spawner on a thread instead of a process, for tests.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_spawner_thread(mut self) -> Self {
        self.launcher.is_thread = true;
        self
    }

    /// Lets delegates run in this process's mount namespace from now on. Running delegates stay where they are.
    pub fn set_runtime(&self, runtime: Arc<Process>) {
        let mut present = self.lock_present();
        present.context.runtime = Some(runtime);
        present.current = None;
    }

    /// Returns where delegates run now.
    pub fn context(&self) -> ExecContext {
        self.lock_present().context.clone()
    }

    /// Returns what plugins lack where they run, although they work; `None` also before the first one.
    pub fn warning(&self) -> Option<String> {
        let current = self.lock_present().current.clone()?;
        current.spawner.warning().map(str::to_owned)
    }

    /// Returns the CPU time of ended plugins in seconds, without those of replaced spawners: the kernel adds these to the daemon's own
    /// children when a spawner ends.
    pub fn plugin_cpu(&self) -> f64 {
        let current = self.lock_present().current.clone();
        current
            .and_then(|current| metrics::Process::read(&current.spawner.pid()?.to_string()))
            .map_or(0.0, |spawner| spawner.children_cpu)
    }

    /// Starts a program that outlives this daemon: in the runtime's cgroup, with `/dev/null` as its standard streams.
    pub fn start(
        &self,
        path: &Path,
        arguments: &[&str],
        mark: (&str, &str),
    ) -> Result<Detached, ExecError> {
        let null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(|error| failed(path, error))?;
        self.on_spawner(path, |current| {
            let request = Request {
                reports_start: true,
                path: path.into(),
                arguments: arguments.iter().map(Into::into).collect(),
                environment: vec![
                    ("PATH".into(), current.search_path.clone()),
                    (mark.0.into(), mark.1.into()),
                ],
            };
            let null = null.as_fd();
            current.spawner.start_detached(&request, [null, null, null])
        })
    }

    /// Calls the spawner, and once more a new one if the first turns out to have ended before.
    fn on_spawner<T>(
        &self,
        path: &Path,
        act: impl Fn(&Arc<Current>) -> Result<T, Failure>,
    ) -> Result<T, ExecError> {
        let mut current = self.current(path)?;
        let mut outcome = act(&current);
        if matches!(outcome, Err(Failure::NotSent)) {
            self.discard(&current);
            current = self.current(path)?;
            outcome = act(&current);
        }
        outcome.map_err(|failure| self.explain(path, &current, failure))
    }

    /// Returns the spawner of the present context, and starts it if need be.
    fn current(&self, path: &Path) -> Result<Arc<Current>, ExecError> {
        if let Some(current) = &self.lock_present().current {
            return Ok(Arc::clone(current));
        }
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let context = {
                let present = self.lock_present();
                if let Some(current) = &present.current {
                    return Ok(Arc::clone(current));
                }
                present.context.clone()
            };
            *starts += 1;
            let started = self.start_spawner(path, &context, *starts)?;
            let mut present = self.lock_present();
            // Otherwise the runtime was replaced meanwhile.
            if present.context.is_same(&context) {
                return Ok(Arc::clone(present.current.insert(started)));
            }
        }
    }

    fn start_spawner(
        &self,
        path: &Path,
        context: &ExecContext,
        number: u64,
    ) -> Result<Arc<Current>, ExecError> {
        let mark = Mark::new(number);
        let variables = mark.variables();
        let spawner = Spawner::start(&self.launcher, context, mark)
            .map_err(|reason| unavailable(path, reason))?;
        let runtime_path = match (&context.chroot, &context.runtime) {
            (None, Some(runtime)) => runtime.search_path.as_deref(),
            _ => None,
        };
        let marked = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Ok(Arc::new(Current {
            spawner,
            environment: self.environment.iter().cloned().chain(marked).collect(),
            search_path: environment::search_path(runtime_path).into(),
        }))
    }

    /// Makes the next call start another spawner; calls in flight keep this one.
    fn discard(&self, lost: &Arc<Current>) {
        self.lock_present()
            .current
            .take_if(|current| Arc::ptr_eq(current, lost));
    }

    fn explain(&self, path: &Path, current: &Arc<Current>, failure: Failure) -> ExecError {
        let reason = match failure {
            Failure::NotStarted(source) => return failed(path, source),
            Failure::NotSent | Failure::Lost => "the process that starts plugins has ended",
            Failure::Silent => "the process that starts plugins does not respond",
        };
        self.discard(current);
        unavailable(path, reason.to_owned())
    }

    fn lock_present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(path: &Path, source: io::Error) -> ExecError {
    ExecError::Io {
        path: path.to_owned(),
        source,
    }
}

fn unavailable(path: &Path, reason: String) -> ExecError {
    ExecError::Unavailable {
        path: path.to_owned(),
        reason,
    }
}

impl Exec for RuntimeExec {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        check_plugin_name(plugin)?;
        dirs.iter()
            .map(|dir| dir.join(plugin))
            .find(|path| self.root.is_executable(path))
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
        self.run_within(Duration::MAX, path, env, stdin)
    }

    fn run_within(
        &self,
        time: Duration,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let limits = &Limits {
            time: self.limits.time.map(|own| own.min(time)),
            ..self.limits.clone()
        };
        let output = self.on_spawner(path, |current| {
            let variables = environment::call_environment(path, env);
            let request = Request {
                path: path.into(),
                environment: current
                    .environment
                    .iter()
                    .cloned()
                    .chain([("PATH".into(), current.search_path.clone())])
                    .chain(variables)
                    .collect(),
                ..Request::default()
            };
            let (streams, theirs) = pipes()?;
            let call = current
                .spawner
                .call(&request, theirs.each_ref().map(AsFd::as_fd))?;
            drop(theirs);
            match process::exchange(call.as_fd(), streams, stdin, limits) {
                Ok((stdout, stderr)) => Ok(Ok(Output {
                    status: call.status()?,
                    stdout,
                    stderr,
                })),
                Err(error) => {
                    if call.kill().is_err() {
                        // The first error is the one to report.
                        self.discard(current);
                    }
                    Ok(Err(error))
                }
            }
        })?;
        let output = output.map_err(|broken| ExecError::from_run(broken, path, limits))?;
        let stderr = output.stderr.trim_ascii();
        if output.status.success() && !stderr.is_empty() {
            let stderr = String::from_utf8_lossy(stderr);
            // Escaped: its lines must not look like lines of the log.
            debug!(plugin = %path.display(), ?stderr, "a plugin wrote to stderr");
        }
        stdout_of(output, path)
    }
}

/// Creates the pipes of a plugin: the daemon's ends, and the plugin's stdin, stdout and stderr.
fn pipes() -> io::Result<(Streams, [OwnedFd; 3])> {
    let (stdin, to_child) = io::pipe()?;
    let (from_child, stdout) = io::pipe()?;
    let (errors, stderr) = io::pipe()?;
    let streams = Streams {
        stdin: to_child.into(),
        stdout: from_child.into(),
        stderr: errors.into(),
    };
    Ok((streams, [stdin.into(), stdout.into(), stderr.into()]))
}

/// Opens a network namespace by a path of the runtime, in the runtime's file tree.
pub fn open_netns(root: &Root, context: &ExecContext, netns: &str) -> io::Result<OwnedFd> {
    if netns.starts_with("/proc/") {
        return Ok(File::open(netns)?.into());
    }
    let tree = context
        .runtime
        .as_ref()
        .map_or(root, |runtime| &runtime.tree);
    let file = tree.open_file(netns);
    file.map(OwnedFd::from).map_err(|error| error.source)
}
