//! Everything at once: find the runtime, ask it, and say what was found, from where, and what was rejected.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use crate::{
    dirs::{self, CniDirs, Overrides},
    root::Root,
    runtime::{self, Rejected, Runtime},
};

/// What to go by.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The only socket to ask, where one is given.
    pub socket: Option<PathBuf>,
    /// Our own pod's uid; without it the first runtime that answers is taken.
    pub pod_uid: Option<String>,
    /// Directories that were given.
    pub overrides: Overrides,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The runtime that runs this pod.
    pub runtime: Option<Runtime>,
    /// Its CNI directories.
    pub dirs: Option<CniDirs>,
    /// The highest CNI version that it accepts.
    pub cni_version: Option<&'static str>,
    /// Sockets that were not taken.
    pub rejected: Vec<Rejected>,
    /// Why there are no directories.
    pub problem: Option<String>,
}

/// Looks, and never fails: what is missing stands in the report's `problem`.
pub async fn discover(root: &Root, question: &Question) -> Report {
    let hint = runtime::hint(root);
    let candidates = runtime::candidates(question.socket.as_deref(), hint.as_ref());
    let (found, rejected) = runtime::find(root, &candidates, question.pod_uid.as_deref()).await;
    let mut report = Report {
        runtime: None,
        dirs: question.overrides.complete(),
        cni_version: None,
        rejected,
        problem: None,
    };
    let Some((runtime, mut client)) = found else {
        if report.dirs.is_none() {
            report.problem = Some(nobody(&report.rejected));
        }
        return report;
    };
    report.cni_version = runtime::highest_cni_version(&runtime.name, &runtime.version);
    report.runtime = Some(runtime);
    if report.dirs.is_none() {
        let answer = match client.verbose_status().await {
            Ok(info) => {
                dirs::discover(root, &info, &question.overrides).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(dirs) => report.dirs = Some(dirs),
            Err(reason) => report.problem = Some(reason),
        }
    }
    report
}

fn nobody(rejected: &[Rejected]) -> String {
    let list: Vec<String> = rejected
        .iter()
        .map(|one| format!("{} ({})", one.socket.display(), one.reason))
        .collect();
    format!(
        "no container runtime that runs this pod was found: {}",
        list.join("; ")
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.runtime {
            Some(runtime) => writeln!(
                f,
                "runtime        {} {} at {} (pid {})",
                runtime.name,
                runtime.version,
                runtime.socket.display(),
                runtime.pid
            )?,
            None => writeln!(f, "runtime        none")?,
        }
        if let Some(dirs) = &self.dirs {
            let bins: Vec<String> = dirs
                .bin_dirs
                .iter()
                .map(|dir| dir.display().to_string())
                .collect();
            writeln!(f, "plugins        {}", bins.join(", "))?;
            writeln!(f, "shim goes to   {}", dirs.install_dir.display())?;
            writeln!(f, "configuration  {}", dirs.conf_dir.display())?;
            writeln!(f, "source         {:?}", dirs.source)?;
        }
        writeln!(
            f,
            "cniVersion     {}",
            self.cni_version.unwrap_or("that of the primary")
        )?;
        for one in &self.rejected {
            writeln!(f, "rejected       {}: {}", one.socket.display(), one.reason)?;
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "problem        {problem}")?;
        }
        Ok(())
    }
}
