//! Discovery: finds the runtime, asks it, reads its files and decides. The outcome is a [`Report`].

use std::path::{Path, PathBuf};

use crate::{
    config_files::{self, ConfiguredDirs},
    cri::Client,
    dirs::{self, CniDirs, Directories, Evidence, Overrides},
    process,
    root::Root,
    runtime::{self, Hint, Rejected, Runtime},
    status,
};

pub use crate::report::{Detail, Report};

/// The parameters of a discovery.
#[derive(Debug, Clone, Default)]
pub struct DiscoverOptions {
    /// The socket of the runtime; without it the candidates are tried.
    pub socket: Option<PathBuf>,
    /// The UID of the daemon's own pod; without it a runtime that runs pods is preferred to one that runs none.
    pub pod_uid: Option<String>,
    /// Directories that override those of the node.
    pub overrides: Overrides,
}

/// Inspects the node. It never fails: without directories the report has a `problem`.
pub async fn discover(root: &Root, options: &DiscoverOptions) -> Report {
    let hint = runtime::hint(root);
    let mut report = Report::default();
    let found = find(root, options, hint.as_ref(), &mut report.rejected).await;
    let decided = match found {
        Some((runtime, client)) => {
            report.cni_version = runtime::highest_cni_version(&runtime.name, &runtime.version);
            let decided = directories(
                root,
                options,
                (&runtime, client),
                hint.as_ref(),
                &mut report,
            )
            .await;
            report.runtime = Some(runtime);
            decided
        }
        None => options.overrides.complete().ok_or_else(|| {
            read_default_files(root, hint.as_ref(), &mut report);
            no_runtime(options, &report)
        }),
    };
    match decided {
        Ok(dirs) => report.dirs = Some(dirs),
        Err(problem) => report.problem = Some(problem),
    }
    report
}

impl Directories for Root {
    fn is_writable(&self, dir: &Path) -> bool {
        Self::is_writable(self, dir)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        let identity = self.identity(one);
        one.components().eq(other.components())
            || (identity.is_some() && identity == self.identity(other))
    }
}

/// Tries the usual sockets, and without a suitable runtime there, those of the running processes.
async fn find(
    root: &Root,
    options: &DiscoverOptions,
    hint: Option<&Hint>,
    rejected: &mut Vec<Rejected>,
) -> Option<(Runtime, Client)> {
    let uid = options.pod_uid.as_deref();
    let candidates = runtime::candidates(options.socket.as_deref(), hint);
    let (found, others) = runtime::find(root, &candidates, uid).await;
    rejected.extend(others);
    if found.is_some() || options.socket.is_some() {
        return found;
    }
    let (mut sockets, others) = runtime::sockets_of_processes(root);
    rejected.extend(others);
    sockets.retain(|socket| !candidates.contains(socket));
    let (found, others) = runtime::find(root, &sockets, uid).await;
    rejected.extend(others);
    found
}

/// Decides on directories by the runtime's report and its files, and notes where the two differ.
async fn directories(
    root: &Root,
    options: &DiscoverOptions,
    (runtime, mut client): (&Runtime, Client),
    hint: Option<&Hint>,
    report: &mut Report,
) -> Result<CniDirs, String> {
    match client.verbose_status().await {
        Ok(info) => {
            let evidence = status::reported(&info)
                .into_iter()
                .map(|(source, reported)| Evidence {
                    source,
                    from: vec![runtime.socket.clone()],
                    reported,
                });
            report.evidence.extend(evidence);
        }
        Err(error) => report.rejected.push(Rejected {
            path: runtime.socket.clone(),
            reason: error.to_string(),
        }),
    }
    match config_files::read_config(root, runtime, hint) {
        Ok(ConfiguredDirs { evidence, notes }) => {
            report.evidence.push(evidence);
            report.notes.extend(notes);
        }
        Err(reason) => report.rejected.push(Rejected {
            path: format!("/proc/{}/cmdline", runtime.pid).into(),
            reason,
        }),
    }
    let dirs = dirs::decide(&options.overrides, &report.evidence, root)
        .map_err(|error| error.to_string())?;
    report.notes.extend(options.overrides.notes());
    report.note_differences(runtime);
    report.note_unusable_dirs(root, &dirs);
    check_file_tree(root, runtime, &dirs).map(|()| dirs)
}

/// Fails when these paths lead the runtime to other directories, in a file tree or behind a mount of its own.
fn check_file_tree(root: &Root, runtime: &Runtime, dirs: &CniDirs) -> Result<(), String> {
    let Some(tree) = process::file_tree(root, runtime.pid) else {
        return Ok(());
    };
    let differs = |dir: &&PathBuf| tree.identity(dir) != root.identity(dir);
    match [&dirs.install_dir, &dirs.conf_dir]
        .into_iter()
        .find(differs)
    {
        None => Ok(()),
        Some(dir) => Err(format!(
            "{} of {} (pid {}) is not the node's directory of that name: it runs in a file tree of its own, /proc/{2}/root",
            dir.display(),
            runtime.name,
            runtime.pid
        )),
    }
}

/// Adds the files at default paths to a report without a runtime: they decide nothing, but help to find the problem.
fn read_default_files(root: &Root, hint: Option<&Hint>, report: &mut Report) {
    let (found, rejected) = config_files::at_default_paths(root, hint);
    report.rejected.extend(rejected);
    for ConfiguredDirs { evidence, notes } in found {
        report.evidence.push(evidence);
        report.notes.extend(notes);
    }
}

fn no_runtime(options: &DiscoverOptions, report: &Report) -> String {
    let problem = if options.pod_uid.is_some() {
        "no container runtime that runs this pod was found"
    } else {
        "no container runtime was found"
    };
    let hint = "start it, or name its socket in criSocket";
    format!("{problem} ({}): {hint}", report.reasons())
}
