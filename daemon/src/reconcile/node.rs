//! Reconciles the node: finds the runtime and its CNI directories, runs delegates in the runtime's namespaces, installs the shim, or the
//! plugins where no daemon serves pods.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use api::plugins::{PLUGIN_DIR, PROGRAM, search_path};
use node::{
    dirs::{CniDirs, Overrides, Source},
    discover::{DiscoverOptions, Report, discover},
    install::{Installation, Outcome},
    process::Process,
    root::{Root, Stamp},
    runtime::{Rejected, Runtime},
};
use plan::daemon_config::Config;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::{
    certificate,
    config_manager::{self, Target},
    host::{
        self,
        dir_watch::{DirectoryWatch, changed_or_never},
        exec::RuntimeExec,
    },
    metrics::Metrics,
    readiness::{Gate, Purpose, Readiness},
    serving::socket,
    state,
};

/// Pause between two runs after a failure, and after a success.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_PERIOD: Duration = Duration::from_secs(30);
/// An open gate stays open for this long while the node cannot be inspected. Then it closes, or, for discovery, the failure is logged.
const HICCUP: Duration = Duration::from_mins(1);
/// The shim's name in the runtime's directory.
pub const SHIM: &str = api::SHIM_NAME;
/// The name under which the shim does nothing: the first plugin of an auxiliary chain.
pub const PASSTHRU: &str = "passthru";

/// Keeps the node's side of the daemon up to date; there is one for the lifetime of the daemon.
#[derive(Debug)]
pub struct NodeReconciler {
    /// The daemon's file.
    pub config: Arc<Config>,
    /// The node.
    pub root: Arc<Root>,
    /// Our pod's uid; without it the node's directories must be configured.
    pub pod_uid: Option<String>,
    /// Gets the process whose namespaces delegates run in.
    pub exec: Arc<RuntimeExec>,
    /// Gets the state of discovery and shim.
    pub readiness: Arc<Readiness>,
    /// The directory where the CNI configuration was written last.
    pub target: Mutex<Option<Target>>,
    /// Gets the runtime's name and directories.
    pub metrics: Arc<Metrics>,
    /// The directories and notes that were logged last.
    pub last_logged: Mutex<Option<(CniDirs, Vec<String>)>>,
    /// Notifies its receivers of each change of the directories.
    pub dirs_changed: watch::Sender<()>,
    /// The stamps of all files that were installed last.
    pub installed: Mutex<Vec<(PathBuf, Stamp)>>,
}

impl NodeReconciler {
    /// Discovers the runtime and its directories, and repeats it, since both can change while the daemon runs.
    pub async fn run(self: Arc<Self>, targets: watch::Sender<Option<Target>>) {
        let mut failing_since: Option<Instant> = None;
        let mut is_logged = false;
        let mut has_standalone = true;
        loop {
            let (pause, watch) = match self.reconcile_once(&mut has_standalone).await {
                Ok((target, watch)) => {
                    failing_since = None;
                    if std::mem::take(&mut is_logged) {
                        info!("the node can be inspected again");
                    }
                    self.remember(&target);
                    targets.send_if_modified(|known| {
                        let changed = known.as_ref() != Some(&target);
                        *known = Some(target);
                        changed
                    });
                    (ASK_PERIOD, watch)
                }
                Err((gate, reason)) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    let was_open = self.readiness.was_open(gate).is_ok();
                    match effect(gate, was_open, since.elapsed()) {
                        Effect::None => debug!(part = ?gate, reason, "cannot inspect the node"),
                        Effect::Warning if is_logged => {}
                        Effect::Warning => {
                            warn!(
                                reason,
                                "cannot inspect the node; its last known state stays in use"
                            );
                            is_logged = true;
                        }
                        Effect::Close => self.readiness.close(gate, reason),
                    }
                    (ASK_AGAIN, Err(io::ErrorKind::NotFound.into()))
                }
            };
            let has_socket = self.readiness.reason_closed(Gate::Socket).is_none();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = async { changed_or_never(watch).await; tokio::time::sleep(ASK_AGAIN).await } => {}
                () = self.readiness.wait_open(&[Gate::Socket]), if !has_socket => {}
            }
        }
    }

    /// Lets delegates run in the namespaces of the reported runtime. Returns whether it is the runtime that was known before.
    fn enter(&self, report: &Report) -> Result<bool, (Gate, String)> {
        let known = self.exec.context().runtime.map(|known| known.pid);
        let is_known = report.runtime.as_ref().map(|runtime| runtime.pid) == known;
        if let Some(runtime) = &report.runtime
            && !is_known
        {
            let process = Process::open(&self.root, runtime.pid).map_err(|error| {
                (
                    Gate::Discovery,
                    format!(
                        "cannot reach the namespaces of {} (pid {}): {error}",
                        runtime.name, runtime.pid
                    ),
                )
            })?;
            info!(
                name = runtime.name,
                version = runtime.version,
                pid = runtime.pid,
                "found the runtime"
            );
            self.exec.set_runtime(Arc::new(process));
        }
        Ok(is_known)
    }

    /// Discovers the node once and enters the runtime, if there is one: for commands that serve no requests.
    pub async fn enter_runtime(&self) -> Result<Report, String> {
        let report = self.report().await;
        self.enter(&report).map_err(|(_, reason)| reason)?;
        Ok(report)
    }

    /// Discovers runtime and directories, and installs the shim, or only the plugins. The returned watch reports changes to the directories.
    /// `has_standalone` is false once plugins of a former installation without a multiplexer were removed.
    async fn reconcile_once(
        &self,
        has_standalone: &mut bool,
    ) -> Result<(Target, io::Result<DirectoryWatch>), (Gate, String)> {
        let report = self.report().await;
        let is_known = self.enter(&report)?;
        let Some(dirs) = report.dirs else {
            return Err((
                Gate::Discovery,
                report
                    .problem
                    .unwrap_or_else(|| "the runtime's directories are not known".to_owned()),
            ));
        };
        if is_known
            && let Some(runtime) = &report.runtime
            && let Some(reason) = self.silence(runtime, &report.rejected, &dirs)
        {
            return Err((Gate::Discovery, reason));
        }
        if self.pod_uid.is_some() && report.runtime.is_none() {
            let reason = report
                .problem
                .unwrap_or_else(|| "the runtime that runs this pod was not found".to_owned());
            return Err((Gate::Discovery, reason));
        }
        self.readiness.open(Gate::Discovery);
        self.readiness.note("plugins", self.exec.warning());
        if let Some(reason) = self.readiness.reason_closed(Gate::Socket) {
            let reason = format!("it is installed once this daemon has the socket: {reason}");
            return Err((Gate::Shim, reason));
        }
        let named = |one: &Runtime| format!("{} {}", one.name, one.version);
        let name = report.runtime.as_ref().map(named).unwrap_or_default();
        self.metrics.set_runtime_dirs(&name, &dirs);
        self.log_changes(&dirs, report.notes);
        // A runtime that restarts creates its socket again.
        let socket = report.runtime.as_ref().and_then(|one| one.socket.parent());
        let watched = [
            Some(dirs.install_dir.as_path()),
            Some(&dirs.conf_dir),
            socket,
        ];
        let watched: Vec<&Path> = watched.into_iter().flatten().collect();
        let watch = DirectoryWatch::with_parents(&self.root, &watched);
        match self.readiness.purpose() {
            Purpose::Multiplexer => {
                self.install(&dirs)
                    .map_err(|error| (Gate::Shim, format!("{error:#}")))?;
                self.readiness.open(Gate::Shim);
                self.remove_from_other_dirs(&dirs, has_standalone);
            }
            Purpose::Plugins => {
                self.install_standalone(&dirs)
                    .map_err(|error| (Gate::Plugins, format!("{error:#}")))?;
                self.readiness.open(Gate::Plugins);
                self.remove_multiplexer();
            }
        }
        let target = Target {
            dir: dirs.conf_dir,
            accepted: report.cni_version,
        };
        Ok((target, watch))
    }

    /// Returns why newly discovered directories are not used, or `None` when they are.
    fn silence(&self, runtime: &Runtime, rejected: &[Rejected], dirs: &CniDirs) -> Option<String> {
        let last = self
            .last_logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (known, _) = last.as_ref()?;
        silence(known.source, dirs.source, &runtime.socket, rejected)
    }

    /// Installs the shim in the runtime's directory, and as `passthru` in ours, next to our plugins. What was installed before is not read
    /// again while its stamps are the same: an idle node would hash megabytes twice a minute.
    fn install(&self, dirs: &CniDirs) -> anyhow::Result<()> {
        let paths = self.own_files(dirs);
        // A path without a file makes the list shorter, so that it differs.
        let stamps = || -> Vec<(PathBuf, Stamp)> {
            let stamp = |path: &PathBuf| Some((path.clone(), self.root.stamp(path)?));
            paths.iter().filter_map(stamp).collect()
        };
        let mut installed = self
            .installed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *installed != stamps() || installed.len() != paths.len() {
            self.install_changed(dirs)?;
            *installed = stamps();
        }
        Ok(())
    }

    /// Returns the paths of all files that this daemon installs.
    fn own_files(&self, dirs: &CniDirs) -> Vec<PathBuf> {
        let names = &self.config.own_plugins.names;
        let program = (!names.is_empty()).then_some(PROGRAM);
        let own = names.iter().copied().chain(program).chain([PASSTHRU]);
        let own = own.map(|name| Path::new(PLUGIN_DIR).join(name));
        own.chain([dirs.install_dir.join(SHIM)]).collect()
    }

    fn install_changed(&self, dirs: &CniDirs) -> anyhow::Result<()> {
        let shim = shipped(SHIM)?;
        let installation = Installation::multiplexer(&self.root);
        let own = Path::new(PLUGIN_DIR);
        self.root.make_dirs(own, 0o755)?;
        for (dir, name) in [(own, PASSTHRU), (&dirs.install_dir, SHIM)] {
            let outcome = installation.install(dir, name, &shim)?;
            let dir = dir.display();
            match outcome {
                Outcome::Installed => info!(%dir, name, source = ?dirs.source, "installed"),
                Outcome::ReplacedUpstream => warn!(%dir, name, "installed in place of upstream's"),
                Outcome::Unchanged => {}
            }
        }
        self.install_plugins()
    }

    /// Installs our plugins: one program, and a link for each name. A file of another program keeps its name.
    fn install_plugins(&self) -> anyhow::Result<()> {
        let names = &self.config.own_plugins.names;
        if names.is_empty() {
            return Ok(());
        }
        let dir = Path::new(PLUGIN_DIR);
        let installation = Installation::multiplexer(&self.root);
        let program = installation.install(dir, PROGRAM, &shipped(PROGRAM)?)?;
        let (mut linked, mut kept) = (Vec::new(), Vec::new());
        for name in names {
            match installation.link(dir, name, PROGRAM)? {
                Some(Outcome::Unchanged) => {}
                Some(_) => linked.push(*name),
                None => kept.push(*name),
            }
        }
        if program != Outcome::Unchanged || !linked.is_empty() {
            info!(dir = PLUGIN_DIR, ?linked, "installed the plugins");
            if !kept.is_empty() {
                warn!(
                    dir = PLUGIN_DIR,
                    ?kept,
                    "other programs have these names: they stay"
                );
            }
        }
        Ok(())
    }

    /// Removes the shim from directories that the runtime used before, once no CNI configuration there sends pods to it, and the plugins of a
    /// daemon that served no pods.
    fn remove_from_other_dirs(&self, dirs: &CniDirs, has_standalone: &mut bool) {
        if !config_manager::all_installed_in(&self.root, &dirs.conf_dir) {
            return;
        }
        let keep = self.own_files(dirs);
        let keep: Vec<&Path> = keep.iter().map(PathBuf::as_path).collect();
        match Installation::multiplexer(&self.root).remove_others(&keep) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => info!(?removed, "removed files installed in other directories"),
            Err(error) => warn!(%error, "cannot remove files installed in other directories"),
        }
        // Once: during an update a daemon that installs plugins may still run, and puts them back until it ends.
        if *has_standalone {
            match Installation::plugins(&self.root).remove_all() {
                Ok(removed) => {
                    if !removed.is_empty() {
                        info!(?removed, "removed plugins of the former installation");
                    }
                    *has_standalone = false;
                }
                Err(error) => warn!(%error, "cannot remove plugins of the former installation"),
            }
        }
    }

    /// Logs directories and notes that have changed.
    fn log_changes(&self, dirs: &CniDirs, notes: Vec<String>) {
        let mut last = self
            .last_logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (known, logged) = last.take().unzip();
        if known.as_ref() != Some(dirs) {
            let (bin, conf) = (dirs.install_dir.display(), dirs.conf_dir.display());
            info!(%bin, %conf, source = %dirs.source, "the runtime's CNI directories");
        }
        let logged: Vec<String> = logged.unwrap_or_default();
        for note in notes.iter().filter(|note| !logged.contains(note)) {
            warn!("{note}");
        }
        let is_other = known.as_ref() != Some(dirs);
        *last = Some((dirs.clone(), notes));
        if is_other {
            self.dirs_changed.send_replace(());
        }
    }

    /// The known directories of plugins, in the order of the search.
    pub fn plugin_dirs(&self) -> Vec<PathBuf> {
        let last = self
            .last_logged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let runtime_dirs = last.iter().flat_map(|(dirs, _)| &dirs.bin_dirs);
        search_path(
            self.config.bin_dir.as_deref(),
            runtime_dirs.map(PathBuf::as_path),
            self.config.own_plugins.first,
        )
    }

    /// Discovers the runtime and its directories.
    pub async fn report(&self) -> Report {
        let overrides = overrides(&self.config);
        if self.pod_uid.is_none() && self.config.cri_socket.is_none() {
            // This process is in no pod, so no runtime can be found by it: without an explicit directory the shim goes next to the plugins.
            let alone = Overrides {
                shim_dir: overrides.shim_dir.clone().or(self.config.bin_dir.clone()),
                ..overrides.clone()
            };
            if let Some(dirs) = alone.complete() {
                return Report {
                    dirs: Some(dirs),
                    ..Report::default()
                };
            }
        }
        let question = DiscoverOptions {
            socket: self.config.cri_socket.clone(),
            pod_uid: self.pod_uid.clone(),
            overrides,
        };
        discover(&self.root, &question).await
    }

    fn remember(&self, target: &Target) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// Removes everything that was installed. The CNI configuration goes first, so that no pod is sent to a deleted shim; the state of
    /// running pods stays. Does nothing while another daemon of this node serves; returns whether the
    /// files of the multiplexer were removed.
    pub fn uninstall(&self) -> bool {
        if self.readiness.purpose() == Purpose::Plugins {
            self.uninstall_standalone();
            return false;
        }
        let serves = self.readiness.reason_closed(Gate::Socket).is_none();
        if !serves && socket::is_served(&self.root, &self.config.socket_dir) {
            info!("another daemon serves this node: nothing is removed");
            return false;
        }
        let target = self
            .target
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // Before discovery has succeeded, the record still lists what an earlier run wrote.
        let dir = target.as_ref().map(|target| target.dir.as_path());
        match config_manager::remove_others(&self.root, None, dir) {
            Ok(removed) => info!(?removed, "removed the CNI configuration"),
            Err(error) => {
                error!(%error, "cannot remove the CNI configuration: the shim stays too");
                return false;
            }
        }
        match Installation::multiplexer(&self.root).remove_all() {
            Ok(removed) => info!(?removed, "removed installed files"),
            Err(error) => warn!(%error, "cannot remove all installed files"),
        }
        host::end_services(&self.config, &self.root);
        let certificate = self.config.certificate.as_ref();
        match certificate.map(|settings| certificate::remove(&self.root, settings)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => info!("removed the node's certificate"),
            Some(Err(error)) => warn!(%error, "cannot remove the node's certificate"),
        }
        true
    }

    /// Removes the file of locks, when no request needs it any more.
    pub fn remove_locks(&self) {
        if let Err(error) = state::remove_locks(&self.root, &self.config.cni_dir) {
            warn!(%error, "cannot remove the lock file");
        }
    }
}

/// The consequence of a node that cannot be inspected.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// Only a debug message: the failure may be short.
    None,
    /// A warning in the log.
    Warning,
    /// The gate closes: pods are no longer served.
    Close,
}

/// A discovered node stays in use for as long as the runtime does not answer: the runtime is busy or restarts, and pods must not lose
/// their networks for that. The shim's gate stays open only for [`HICCUP`].
fn effect(gate: Gate, was_open: bool, failing: Duration) -> Effect {
    match gate {
        _ if was_open && failing < HICCUP => Effect::None,
        Gate::Discovery if was_open => Effect::Warning,
        _ => Effect::Close,
    }
}

/// Directories of another source are not used while the runtime that reported the known ones does not answer; returns why it does not.
fn silence(known: Source, now: Source, socket: &Path, rejected: &[Rejected]) -> Option<String> {
    let was_reported = matches!(known, Source::CniConfig | Source::Config);
    let silent = rejected.iter().find(|one| one.path == socket)?;
    (was_reported && known != now).then(|| silent.reason.clone())
}

/// Reads a program that is shipped with this daemon.
pub fn shipped(program: &str) -> anyhow::Result<Vec<u8>> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let path: PathBuf = own.with_file_name(program);
    std::fs::read(&path).with_context(|| {
        format!(
            "cannot read {}: it must be in the same directory as multus-daemon",
            path.display()
        )
    })
}

/// The directories that the daemon's file names in place of those of the runtime.
pub(crate) fn overrides(config: &Config) -> Overrides {
    Overrides {
        shim_dir: config.shim_dir.clone(),
        conf_dir: config.conf_dir.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_stays_ready_while_the_runtime_does_not_answer() {
        let minutes = Duration::from_mins;
        let check = |gate, was_open, failing, expected| {
            assert_eq!(effect(gate, was_open, failing), expected, "{gate:?}");
        };
        check(Gate::Discovery, false, Duration::ZERO, Effect::Close);
        check(Gate::Discovery, true, Duration::ZERO, Effect::None);
        check(Gate::Discovery, true, minutes(2), Effect::Warning);
        check(Gate::Discovery, true, minutes(60), Effect::Warning);
        check(Gate::Shim, true, Duration::ZERO, Effect::None);
        check(Gate::Shim, true, minutes(2), Effect::Close);
    }

    #[test]
    fn other_sources_are_ignored_while_the_reporting_runtime_does_not_answer() {
        let socket = Path::new("/run/containerd.sock");
        let rejected = |place: &str| {
            [Rejected {
                path: place.into(),
                reason: "no answer".to_owned(),
            }]
        };
        let (silent, other) = (
            rejected("/run/containerd.sock"),
            rejected("/etc/config.toml"),
        );
        let check = |known, now, rejected: &[Rejected], expected: Option<&str>| {
            let found = silence(known, now, socket, rejected);
            assert_eq!(found.as_deref(), expected, "{known:?} {now:?}");
        };
        check(Source::CniConfig, Source::File, &silent, Some("no answer"));
        check(Source::Config, Source::Guess, &silent, Some("no answer"));
        check(Source::CniConfig, Source::File, &other, None);
        check(Source::CniConfig, Source::CniConfig, &silent, None);
        check(Source::File, Source::Guess, &silent, None);
    }
}
