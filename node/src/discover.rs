//! Everything at once: find the runtime, ask it, read its files, and decide. What comes of it is a [`Report`].

use std::path::{Path, PathBuf};

use crate::{
    configured::{self, Configured},
    cri::Client,
    dirs::{self, CniDirs, Directories, Evidence, Overrides},
    process,
    root::Root,
    runtime::{self, Hint, Rejected, Runtime},
    status,
};

pub use crate::report::Report;

/// What to go by.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The only socket to ask, where one is given.
    pub socket: Option<PathBuf>,
    /// Our own pod's uid; without it a runtime that runs pods is taken before one that runs none.
    pub pod_uid: Option<String>,
    /// Directories that were given.
    pub overrides: Overrides,
}

/// Looks, and never fails: what is missing stands in the report's `problem`.
pub async fn discover(root: &Root, question: &Question) -> Report {
    let hint = runtime::hint(root);
    let mut report = Report::default();
    let found = find(root, question, hint.as_ref(), &mut report.rejected).await;
    let decided = match found {
        Some((runtime, client)) => {
            report.cni_version = runtime::highest_cni_version(&runtime.name, &runtime.version);
            let decided = ask(
                root,
                question,
                (&runtime, client),
                hint.as_ref(),
                &mut report,
            )
            .await;
            report.runtime = Some(runtime);
            decided
        }
        None => question.overrides.complete().ok_or_else(|| {
            read_all(root, hint.as_ref(), &mut report);
            nobody(question, &report)
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

/// Asks at the usual places, and where no runtime is ours there, at those of the processes that run.
async fn find(
    root: &Root,
    question: &Question,
    hint: Option<&Hint>,
    rejected: &mut Vec<Rejected>,
) -> Option<(Runtime, Client)> {
    let uid = question.pod_uid.as_deref();
    let candidates = runtime::candidates(question.socket.as_deref(), hint);
    let (found, others) = runtime::find(root, &candidates, uid).await;
    rejected.extend(others);
    if found.is_some() || question.socket.is_some() {
        return found;
    }
    let (mut sockets, others) = runtime::running(root);
    rejected.extend(others);
    sockets.retain(|socket| !candidates.contains(socket));
    let (found, others) = runtime::find(root, &sockets, uid).await;
    rejected.extend(others);
    found
}

/// The runtime's own word, its files to compare with it, and what comes of both.
async fn ask(
    root: &Root,
    question: &Question,
    (runtime, mut client): (&Runtime, Client),
    hint: Option<&Hint>,
    report: &mut Report,
) -> Result<CniDirs, String> {
    match client.verbose_status().await {
        Ok(info) => {
            let evidence = status::told(&info)
                .into_iter()
                .map(|(source, told)| Evidence {
                    source,
                    from: vec![runtime.socket.clone()],
                    told,
                });
            report.evidence.extend(evidence);
        }
        Err(error) => report.rejected.push(Rejected {
            place: runtime.socket.clone(),
            reason: error.to_string(),
        }),
    }
    match configured::of_runtime(root, runtime, hint) {
        Ok(Configured { evidence, notes }) => {
            report.evidence.push(evidence);
            report.notes.extend(notes);
        }
        Err(reason) => report.rejected.push(Rejected {
            place: format!("/proc/{}/cmdline", runtime.pid).into(),
            reason,
        }),
    }
    let dirs = dirs::decide(&question.overrides, &report.evidence, root)
        .map_err(|error| error.to_string())?;
    report.notes.extend(question.overrides.notes());
    report.compare(runtime);
    report.look(root, &dirs);
    is_its_own(root, runtime, &dirs).map(|()| dirs)
}

/// Fails where the runtime means other directories by these names: in a file tree of its own, or behind a mount of its own.
fn is_its_own(root: &Root, runtime: &Runtime, dirs: &CniDirs) -> Result<(), String> {
    let Some(tree) = process::tree(root, runtime.pid) else {
        return Ok(());
    };
    let differs = |dir: &&PathBuf| tree.identity(dir) != root.identity(dir);
    match [&dirs.install_dir, &dirs.conf_dir]
        .into_iter()
        .find(differs)
    {
        None => Ok(()),
        Some(dir) => Err(format!(
            "{} of {} (pid {}) is another directory than that of the node: it runs in a file tree of its own, which is /proc/{2}/root",
            dir.display(),
            runtime.name,
            runtime.pid
        )),
    }
}

/// With no runtime to ask nothing is decided, but what files say helps to see why.
fn read_all(root: &Root, hint: Option<&Hint>, report: &mut Report) {
    let (found, rejected) = configured::everywhere(root, hint);
    report.rejected.extend(rejected);
    for Configured { evidence, notes } in found {
        report.evidence.push(evidence);
        report.notes.extend(notes);
    }
}

fn nobody(question: &Question, report: &Report) -> String {
    let what = if question.pod_uid.is_some() {
        "no container runtime that runs this pod was found"
    } else {
        "no container runtime was found"
    };
    let cure = "start it, or name its socket in criSocket";
    format!("{what} ({}): {cure}", report.reasons())
}
