//! What the daemon keeps up on its node: its hold on the runtime, and the shim in the runtime's directory.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use node::{
    dirs::{CniDirs, Overrides, Source},
    discover::{Question, Report, discover},
    install::{self, Outcome},
    process::Process,
    root::Root,
    runtime::{Rejected, Runtime},
};
use plan::daemon_config::Config;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::{
    certificate,
    config_manager::{self, Target},
    engine::OWN_PLUGIN_DIR,
    host::{
        dir_watch::{DirectoryWatch, heard},
        exec::RuntimeExec,
    },
    metrics::Metrics,
    readiness::{Part, Readiness},
    reconcile::dhcp,
    serving::socket,
    state,
};

/// Pause between two questions while there is no answer, and once there is one.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_PERIOD: Duration = Duration::from_secs(30);
/// For so long a part that was well counts as well when it cannot be looked at; then it is missing, or for what was discovered, logged.
const HICCUP: Duration = Duration::from_mins(1);
/// The shim's name in the runtime's directory.
pub const SHIM: &str = api::SHIM_NAME;
/// The shim under the name by which it does nothing: the head of an auxiliary chain.
pub const PASSTHRU: &str = "passthru";

/// One for the life of the daemon.
#[derive(Debug)]
pub struct Upkeep {
    /// The daemon's file.
    pub config: Arc<Config>,
    /// The node.
    pub root: Arc<Root>,
    /// Our pod's uid; without it the node's directories must be given.
    pub pod_uid: Option<String>,
    /// Told where delegates run.
    pub exec: Arc<RuntimeExec>,
    /// Told what is missing.
    pub readiness: Arc<Readiness>,
    /// Where the configuration was last put.
    pub target: Mutex<Option<Target>>,
    /// Told where the runtime looks.
    pub metrics: Arc<Metrics>,
    /// What of the node was last told in the log.
    pub told: Mutex<Option<(CniDirs, Vec<String>)>>,
}

impl Upkeep {
    /// Finds out where things are on this node, and again, as they may move.
    pub async fn follow(self: Arc<Self>, targets: watch::Sender<Option<Target>>) {
        let mut failing_since: Option<Instant> = None;
        let mut is_told = false;
        loop {
            let (pause, watch) = match self.settle().await {
                Ok((target, watch)) => {
                    failing_since = None;
                    if std::mem::take(&mut is_told) {
                        info!("the node answers again");
                    }
                    self.remember(&target);
                    targets.send_if_modified(|known| {
                        let changed = known.as_ref() != Some(&target);
                        *known = Some(target);
                        changed
                    });
                    (ASK_PERIOD, watch)
                }
                Err((part, reason)) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    let was_well = self.readiness.once_well(part).is_ok();
                    match effect(part, was_well, since.elapsed()) {
                        Effect::None => debug!(?part, reason, "could not look at the node"),
                        Effect::Warning if is_told => {}
                        Effect::Warning => {
                            warn!(
                                reason,
                                "cannot look at the node; what was known of it holds"
                            );
                            is_told = true;
                        }
                        Effect::Missing => self.readiness.missing(part, reason),
                    }
                    (ASK_AGAIN, Err(io::ErrorKind::NotFound.into()))
                }
            };
            let has_socket = self.readiness.reason(Part::Socket).is_none();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = async { heard(watch).await; tokio::time::sleep(ASK_AGAIN).await } => {}
                () = self.readiness.wait_for(&[Part::Socket]), if !has_socket => {}
            }
        }
    }

    /// Has delegates run where the runtime is, whether or not it is the one that was known before; which of both.
    fn enter(&self, report: &Report) -> Result<bool, (Part, String)> {
        let known = self.exec.place().runtime.map(|known| known.pid);
        let is_known = report.runtime.as_ref().map(|runtime| runtime.pid) == known;
        if let Some(runtime) = &report.runtime
            && !is_known
        {
            let process = Process::open(&self.root, runtime.pid).map_err(|error| {
                (
                    Part::Discovery,
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

    /// One look for a command that serves nobody: has delegates run where the runtime is, if there is one.
    pub async fn enter_runtime(&self) -> Result<Report, String> {
        let report = self.report().await;
        self.enter(&report).map_err(|(_, reason)| reason)?;
        Ok(report)
    }

    /// One look at the node: the runtime, its directories, the shim in them. What is given along hears of changes to the shim.
    async fn settle(&self) -> Result<(Target, io::Result<DirectoryWatch>), (Part, String)> {
        let report = self.report().await;
        let is_known = self.enter(&report)?;
        let Some(dirs) = report.dirs else {
            return Err((
                Part::Discovery,
                report
                    .problem
                    .unwrap_or_else(|| "the runtime's directories are not known".to_owned()),
            ));
        };
        if is_known
            && let Some(runtime) = &report.runtime
            && let Some(reason) = self.silence(runtime, &report.rejected, &dirs)
        {
            return Err((Part::Discovery, reason));
        }
        if self.pod_uid.is_some() && report.runtime.is_none() {
            let reason = report
                .problem
                .unwrap_or_else(|| "the runtime that runs this pod was not found".to_owned());
            return Err((Part::Discovery, reason));
        }
        self.readiness.well(Part::Discovery);
        if let Some(reason) = self.readiness.reason(Part::Socket) {
            return Err((Part::Shim, format!("its place is not ours yet: {reason}")));
        }
        let named = |one: &Runtime| format!("{} {}", one.name, one.version);
        let name = report.runtime.as_ref().map(named).unwrap_or_default();
        self.metrics.place(&name, &dirs);
        self.tell(&dirs, report.notes);
        // A runtime that restarts makes its socket anew.
        let socket = report.runtime.as_ref().and_then(|one| one.socket.parent());
        let watched = [
            Some(dirs.install_dir.as_path()),
            Some(&dirs.conf_dir),
            socket,
        ];
        let watched: Vec<&Path> = watched.into_iter().flatten().collect();
        let watch = DirectoryWatch::with_parents(&self.root, &watched);
        self.install(&dirs)
            .map_err(|error| (Part::Shim, format!("{error:#}")))?;
        self.readiness.well(Part::Shim);
        self.leave_others(&dirs);
        let target = Target {
            dir: dirs.conf_dir,
            accepted: report.cni_version,
        };
        Ok((target, watch))
    }

    /// Why these directories do not count, if they do not.
    fn silence(&self, runtime: &Runtime, rejected: &[Rejected], dirs: &CniDirs) -> Option<String> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, _) = told.as_ref()?;
        silence(known.source, dirs.source, &runtime.socket, rejected)
    }

    /// The shim in the runtime's directory, and under its other name in ours.
    fn install(&self, dirs: &CniDirs) -> anyhow::Result<()> {
        let shim = shim_bytes()?;
        let own = Path::new(OWN_PLUGIN_DIR);
        self.root.make_dirs(own, 0o755)?;
        for (dir, name) in [(own, PASSTHRU), (&dirs.install_dir, SHIM)] {
            let outcome = install::install(&self.root, dir, name, &shim)?;
            let dir = dir.display();
            match outcome {
                Outcome::Installed => info!(%dir, name, source = ?dirs.source, "installed"),
                Outcome::Exchanged => warn!(%dir, name, "installed in place of upstream's"),
                Outcome::Unchanged => {}
            }
        }
        Ok(())
    }

    /// Removes the shim from where the runtime looked before, once no configuration is left that sends pods there.
    fn leave_others(&self, dirs: &CniDirs) {
        if !config_manager::are_all_in(&self.root, &dirs.conf_dir) {
            return;
        }
        let keep = [
            dirs.install_dir.join(SHIM),
            Path::new(OWN_PLUGIN_DIR).join(PASSTHRU),
        ];
        match install::remove_others(&self.root, &keep.each_ref().map(PathBuf::as_path)) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => info!(?removed, "removed what was installed elsewhere"),
            Err(error) => warn!(%error, "cannot remove what was installed elsewhere"),
        }
    }

    /// Logs where things are, when that is news.
    fn tell(&self, dirs: &CniDirs, notes: Vec<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, said) = told.take().unzip();
        if known.as_ref() != Some(dirs) {
            let (bin, conf) = (dirs.install_dir.display(), dirs.conf_dir.display());
            info!(%bin, %conf, source = %dirs.source, "the runtime's CNI directories");
        }
        let said: Vec<String> = said.unwrap_or_default();
        for note in notes.iter().filter(|note| !said.contains(note)) {
            warn!("{note}");
        }
        *told = Some((dirs.clone(), notes));
    }

    /// Where plugins of the node are looked for, as far as is known.
    pub fn plugin_dirs(&self) -> Vec<PathBuf> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let known = told.iter().flat_map(|(dirs, _)| dirs.bin_dirs.clone());
        let given = self.config.bin_dir.clone().into_iter();
        given.chain(known).chain([OWN_PLUGIN_DIR.into()]).collect()
    }

    /// What there is to be found on the node now.
    pub async fn report(&self) -> Report {
        let overrides = overrides(&self.config);
        if self.pod_uid.is_none() && self.config.cri_socket.is_none() {
            // No pod, so no runtime runs us: with no other place for the shim, it goes where the plugins are.
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
        let question = Question {
            socket: self.config.cri_socket.clone(),
            pod_uid: self.pod_uid.clone(),
            overrides,
        };
        discover(&self.root, &question).await
    }

    fn remember(&self, target: &Target) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// The last end: the configuration first, so that no pod is sent to a shim that is gone; state of running pods stays.
    /// What another daemon of this node serves by now is its own.
    pub fn leave(&self) {
        let serves = self.readiness.reason(Part::Socket).is_none();
        if !serves && socket::is_served(&self.root, &self.config.socket_dir) {
            return info!("another daemon serves this node: what is installed stays with it");
        }
        let target = self
            .target
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        // Where nothing is known yet the record still tells what an earlier run wrote.
        let dir = target.as_ref().map(|target| target.dir.as_path());
        match config_manager::remove_others(&self.root, None, dir) {
            Ok(removed) => info!(?removed, "removed the CNI configuration"),
            Err(error) => {
                return error!(%error, "cannot remove the CNI configuration: the shim stays, too");
            }
        }
        match install::remove_others(&self.root, &[]) {
            Ok(removed) => info!(?removed, "removed what was installed"),
            Err(error) => warn!(%error, "cannot remove all that was installed"),
        }
        dhcp::end();
        if let Err(error) = state::remove_locks(&self.root, &self.config.cni_dir) {
            warn!(%error, "cannot remove the file of locks");
        }
        let certificate = self.config.certificate.as_ref();
        match certificate.map(|settings| certificate::forget(&self.root, settings)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => info!("removed the node's certificate"),
            Some(Err(error)) => warn!(%error, "cannot remove the node's certificate"),
        }
    }
}

/// What comes of a node that cannot be looked at.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing, yet.
    None,
    /// The log has it.
    Warning,
    /// Pods are not served any more.
    Missing,
}

/// What was discovered once holds for as long as the runtime is silent: it is busy or restarts, and must not learn that pods have no
/// network. The shim's place holds for a while.
fn effect(part: Part, was_well: bool, failing: Duration) -> Effect {
    match part {
        _ if was_well && failing < HICCUP => Effect::None,
        Part::Discovery if was_well => Effect::Warning,
        _ => Effect::Missing,
    }
}

/// Why directories from another source than before do not count: the same runtime, which reported them, does not answer now.
fn silence(known: Source, now: Source, socket: &Path, rejected: &[Rejected]) -> Option<String> {
    let was_reported = matches!(known, Source::CniConfig | Source::Config);
    let silent = rejected.iter().find(|one| one.place == socket)?;
    (was_reported && known != now).then(|| silent.reason.clone())
}

/// The shim that came with this daemon.
pub fn shim_bytes() -> anyhow::Result<Vec<u8>> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let shim: PathBuf = own.with_file_name(SHIM);
    std::fs::read(&shim).with_context(|| {
        format!(
            "cannot read {}: it belongs beside multus-daemon",
            shim.display()
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
    fn what_was_discovered_holds_while_the_runtime_is_silent() {
        let minutes = Duration::from_mins;
        let check = |part, was_well, failing, expected| {
            assert_eq!(effect(part, was_well, failing), expected, "{part:?}");
        };
        check(Part::Discovery, false, Duration::ZERO, Effect::Missing);
        check(Part::Discovery, true, Duration::ZERO, Effect::None);
        check(Part::Discovery, true, minutes(2), Effect::Warning);
        check(Part::Discovery, true, minutes(60), Effect::Warning);
        check(Part::Shim, true, Duration::ZERO, Effect::None);
        check(Part::Shim, true, minutes(2), Effect::Missing);
    }

    #[test]
    fn files_do_not_count_while_the_runtime_that_reported_is_silent() {
        let socket = Path::new("/run/containerd.sock");
        let rejected = |place: &str| {
            [Rejected {
                place: place.into(),
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
