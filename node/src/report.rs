//! The findings of discovery with their sources, and what it rejected and why: as text for users and as JSON.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use crate::{
    dirs::{CniDirs, Evidence, Source, list},
    root::Root,
    runtime::{NOT_THERE, Rejected, Runtime},
};

/// A node that runs pods has at least one of these plugins.
const COMMON_PLUGINS: [&str; 2] = ["loopback", "host-local"];

/// The findings of a discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The runtime that runs this pod.
    pub runtime: Option<Runtime>,
    /// The runtime's CNI directories.
    pub dirs: Option<CniDirs>,
    /// The highest CNI version that the runtime accepts.
    pub cni_version: Option<&'static str>,
    /// All sources of directories.
    pub evidence: Vec<Evidence>,
    /// The sockets, files and processes that were checked and not used.
    pub rejected: Vec<Rejected>,
    /// Notes for the operator on things that do not keep the daemon from working.
    pub notes: Vec<String>,
    /// The reason why there are no directories.
    pub problem: Option<String>,
}

impl Report {
    /// Notes differences between the runtime's report and its files, handlers with networks of their own, and several loaded configurations.
    pub(crate) fn note_differences(&mut self, runtime: &Runtime) {
        let first = |is_of_kind: fn(Source) -> bool| {
            let found = self.evidence.iter().find(|one| is_of_kind(one.source));
            found.map(|one| (one.from.clone(), one.reported.clone()))
        };
        let own = first(|source| source < Source::File);
        let files = first(|source| source >= Source::File);
        if let (Some((_, own)), Some((from, configured))) = (own, files) {
            let bins_differ = !own.bin_dirs.is_empty() && own.bin_dirs != configured.bin_dirs;
            let conf_differs = own.conf_dir.is_some() && own.conf_dir != configured.conf_dir;
            if bins_differ || conf_differs {
                self.notes.push(format!(
                    "{} uses {own}, although {} name {configured}: restart it if the files are right",
                    runtime.name,
                    list(&from)
                ));
            }
        }
        let mut sources: Vec<&Evidence> = self.evidence.iter().collect();
        sources.sort_by_key(|one| one.source);
        let handlers = sources.iter().find(|one| !one.reported.handlers.is_empty());
        let handlers = handlers.map(|one| one.reported.handlers.clone());
        let loaded = sources.iter().find_map(|one| one.reported.max_conf_num);
        for (name, dir) in handlers.unwrap_or_default() {
            self.notes.push(format!(
                "pods of the runtime handler {name} take their network from {}: they get none of Multus' networks",
                dir.display()
            ));
        }
        if let Some(count) = loaded.filter(|count| *count != 1) {
            self.notes.push(format!(
                "{} loads {count} configurations (max_conf_num; 0 is all): a pod gets the default network again from each; set it to 1",
                runtime.name
            ));
        }
    }

    /// Notes directories that are missing, read-only or without plugins.
    pub(crate) fn note_unusable_dirs(&mut self, root: &Root, dirs: &CniDirs) {
        let install_dir = &dirs.install_dir;
        let shown = install_dir.display();
        if !root.is_dir(install_dir) {
            self.notes.push(format!(
                "{shown} does not exist: the default network creates it, or a path in the runtime's configuration is out of date"
            ));
        } else if !root.is_writable(install_dir) {
            self.notes.push(format!(
                "{shown} is read-only: let the runtime look in a second directory (bin_dirs, from containerd 2.1 on), and restart it"
            ));
        } else {
            let has = |name: &str| {
                let in_dir = |dir: &PathBuf| root.is_executable(dir.join(name));
                dirs.bin_dirs.iter().any(in_dir)
            };
            if !COMMON_PLUGINS.into_iter().any(has) {
                self.notes.push(format!(
                    "there is no {} in {}: pods get no network until a default network is installed",
                    COMMON_PLUGINS.join(" or "),
                    list(&dirs.bin_dirs)
                ));
            }
        }
        if !root.is_dir(&dirs.conf_dir) {
            let conf_dir = dirs.conf_dir.display();
            self.notes.push(format!("{conf_dir} does not exist yet"));
        }
    }

    /// Returns the rejections on one line, grouped by reason.
    pub(crate) fn reasons(&self) -> String {
        let lines = by_reason(&self.rejected)
            .into_iter()
            .map(|(reason, paths)| {
                let paths = list(&paths);
                if paths.is_empty() {
                    reason
                } else {
                    format!("{paths}: {reason}")
                }
            });
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// Groups rejections by reason; missing sockets come last.
fn by_reason(rejected: &[Rejected]) -> Vec<(String, Vec<PathBuf>)> {
    let mut groups: BTreeMap<(bool, &str), Vec<PathBuf>> = BTreeMap::new();
    for one in rejected {
        let key = (one.reason == NOT_THERE, one.reason.as_str());
        groups.entry(key).or_default().push(one.path.clone());
    }
    let groups = groups.into_iter();
    groups
        .map(|((_, reason), paths)| (reason.to_owned(), paths))
        .collect()
}

/// Which sources of directories a text of the report names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Only the decision, notes and the problem.
    Decision,
    /// Also each piece of evidence, and what was rejected.
    Evidence,
}

impl Report {
    /// Writes the report for users, one line per finding.
    pub fn text(&self, detail: Detail) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, detail);
        text
    }

    fn write(&self, f: &mut impl fmt::Write, detail: Detail) -> fmt::Result {
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
            writeln!(f, "plugins        {}", list(&dirs.bin_dirs))?;
            writeln!(f, "shim goes to   {}", dirs.install_dir.display())?;
            writeln!(f, "configuration  {}", dirs.conf_dir.display())?;
            writeln!(f, "source         {}", dirs.source)?;
        }
        let version = self.cni_version.unwrap_or("that of the default network");
        writeln!(f, "cniVersion     {version}")?;
        if detail == Detail::Evidence {
            for one in &self.evidence {
                let from = list(&one.from);
                writeln!(
                    f,
                    "reported       {}: {} ({from})",
                    one.source, one.reported
                )?;
            }
            for (reason, paths) in by_reason(&self.rejected) {
                writeln!(f, "rejected       {}: {reason}", list(&paths))?;
            }
        }
        for note in &self.notes {
            writeln!(f, "note           {note}")?;
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "problem        {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Detail::Evidence)
    }
}
