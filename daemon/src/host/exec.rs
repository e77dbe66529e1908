//! Running delegates where the runtime would run them: in its mount namespace, charged to its cgroup.
//!
//! A process that is there already starts them (`serve`); this side hands it programs (`spawner`) and talks to what runs.

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
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cni::{
    exec::{Exec, ExecError, check_plugin_name},
    process::{self, Limits, Output, Streams},
};
use node::{process::Process, root::Root};
use tracing::info;

use self::{
    spawner::{Failure, Launcher, Spawner},
    wire::Request,
};
use crate::host::orphans::Mark;

pub use environment::of_plugins;
pub use serve::{ARGUMENT as SPAWNER_ARGUMENT, main as spawner_main};
pub use spawner::{Detached, Fate};

/// No delegate runs longer; kubelet gives up on a sandbox after four minutes.
const PLUGIN_TIME: Duration = Duration::from_mins(2);
/// This program, whatever became of its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where delegates run at this moment.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The runtime, once it is known.
    pub runtime: Option<Arc<Process>>,
    /// A directory, in the daemon's own view, that wins over the runtime's mount namespace.
    pub chroot: Option<PathBuf>,
}

/// Runs plugins at a place that may change while the daemon runs.
#[derive(Debug)]
pub struct RuntimeExec {
    root: Arc<Root>,
    place: RwLock<Place>,
    /// What plugins get beside the variables of the specification.
    environment: Vec<(OsString, OsString)>,
    limits: Limits,
    launcher: Launcher,
    /// For the present place, once something was run there.
    current: Mutex<Option<Arc<Current>>>,
    spawners: AtomicU64,
}

/// A spawner, and what it starts has in common.
#[derive(Debug)]
struct Current {
    spawner: Spawner,
    environment: Vec<(OsString, OsString)>,
    search_path: OsString,
}

impl RuntimeExec {
    /// Looks for plugins below `root`; runs them at `place`.
    pub fn new(root: Arc<Root>, place: Place) -> Self {
        Self {
            root,
            place: RwLock::new(place),
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
            current: Mutex::default(),
            spawners: AtomicU64::new(0),
        }
    }

    /// Gives plugins these variables, too.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(OsString, OsString)>) -> Self {
        self.environment = environment;
        self
    }

    /// Runs plugins within other bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Gives plugins this soft limit of open files, whatever the daemon's own is by now.
    #[must_use]
    pub fn with_file_limit(mut self, soft: u64) -> Self {
        self.launcher.file_limit = Some(soft);
        self
    }

    /// Takes another program than this one as the spawner; it understands [`SPAWNER_ARGUMENT`].
    #[must_use]
    pub fn with_spawner_program(mut self, program: PathBuf) -> Self {
        self.launcher.program = program;
        self
    }

    /// Needs no program: for tests of what runs plugins.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_spawner_thread(mut self) -> Self {
        self.launcher.is_thread = true;
        self
    }

    /// From now on delegates run in this process's mount namespace. Those that run stay where they are.
    pub fn set_runtime(&self, runtime: Arc<Process>) {
        self.place
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .runtime = Some(runtime);
        // Whoever has started a spawner for the place before is waited for here.
        *self.lock_current() = None;
    }

    /// Where delegates run.
    pub fn place(&self) -> Place {
        self.place
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Starts a program that outlives this daemon: charged to the runtime, and with nothing on its standard streams.
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

    /// Hands something to the spawner, and once more to another one where the first turns out to have gone before.
    fn on_spawner<T>(
        &self,
        path: &Path,
        act: impl Fn(&Arc<Current>) -> Result<T, Failure>,
    ) -> Result<T, ExecError> {
        let mut current = self.current(path)?;
        let mut outcome = act(&current);
        if matches!(outcome, Err(Failure::NotSent)) {
            self.give_up(&current);
            current = self.current(path)?;
            outcome = act(&current);
        }
        outcome.map_err(|failure| self.explain(path, &current, failure))
    }

    /// The spawner of the present place.
    fn current(&self, path: &Path) -> Result<Arc<Current>, ExecError> {
        let mut current = self.lock_current();
        if let Some(current) = &*current {
            return Ok(Arc::clone(current));
        }
        let place = self.place();
        let mark = Mark::new(self.spawners.fetch_add(1, Ordering::Relaxed));
        let variables = mark.variables();
        let spawner = Spawner::start(&self.launcher, &place, mark)
            .map_err(|reason| unavailable(path, reason))?;
        let of_runtime = match (&place.chroot, &place.runtime) {
            (None, Some(runtime)) => runtime.search_path.as_deref(),
            _ => None,
        };
        let marked = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let started = Arc::new(Current {
            spawner,
            environment: self.environment.iter().cloned().chain(marked).collect(),
            search_path: environment::search_path(of_runtime).into(),
        });
        Ok(Arc::clone(current.insert(started)))
    }

    /// The next call starts another spawner; calls that are under way keep this one.
    fn give_up(&self, lost: &Arc<Current>) {
        let mut current = self.lock_current();
        if current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, lost))
        {
            *current = None;
        }
    }

    fn explain(&self, path: &Path, current: &Arc<Current>, failure: Failure) -> ExecError {
        let reason = match failure {
            Failure::NotStarted(source) => return failed(path, source),
            Failure::NotSent | Failure::Lost => "the process that starts plugins has ended",
            Failure::Silent => "the process that starts plugins does not answer",
        };
        self.give_up(current);
        unavailable(path, reason.to_owned())
    }

    fn lock_current(&self) -> std::sync::MutexGuard<'_, Option<Arc<Current>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
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
        let output = self.on_spawner(path, |current| {
            let variables = env.iter().map(|(name, value)| (name.into(), value.into()));
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
            match process::exchange(call.as_fd(), streams, stdin, &self.limits) {
                Ok((stdout, stderr)) => Ok(Ok(Output {
                    status: call.status()?,
                    stdout,
                    stderr,
                })),
                Err(broken) => {
                    if call.kill().is_err() {
                        // What went wrong first is what counts for this call.
                        self.give_up(current);
                    }
                    Ok(Err(broken))
                }
            }
        })?;
        let output = output.map_err(|broken| broken.into_exec_error(path, &self.limits))?;
        let talk = output.stderr.trim_ascii();
        if output.status.success() && !talk.is_empty() {
            let text = String::from_utf8_lossy(talk);
            info!(plugin = %path.display(), stderr = %text, "a plugin talks");
        }
        output.into_answer(path)
    }
}

/// The pipes of a plugin: the daemon's ends, and the plugin's stdin, stdout and stderr.
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

/// Opens a network namespace by the path that the runtime gave, as the runtime would.
pub fn open_netns(root: &Root, place: &Place, netns: &str) -> io::Result<OwnedFd> {
    if netns.starts_with("/proc/") {
        return Ok(File::open(netns)?.into());
    }
    let tree = place.runtime.as_ref().map_or(root, |runtime| &runtime.tree);
    let file = tree.open_file(netns);
    file.map(OwnedFd::from).map_err(|error| error.source)
}
