//! What discovery found, from where, and what it rejected and why: for people and as JSON.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use crate::{
    dirs::{CniDirs, Evidence, Source, list},
    root::Root,
    runtime::{NOT_THERE, Rejected, Runtime},
};

/// Plugins of which a node that runs pods has at least one.
const COMMON_PLUGINS: [&str; 2] = ["loopback", "host-local"];

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The runtime that runs this pod.
    pub runtime: Option<Runtime>,
    /// Its CNI directories.
    pub dirs: Option<CniDirs>,
    /// The highest CNI version that it accepts.
    pub cni_version: Option<&'static str>,
    /// Everyone who told of directories.
    pub evidence: Vec<Evidence>,
    /// What was looked at and not taken.
    pub rejected: Vec<Rejected>,
    /// What an operator should know, though the daemon can work.
    pub notes: Vec<String>,
    /// Why there are no directories.
    pub problem: Option<String>,
}

impl Report {
    /// Notes where the runtime and its files do not say the same. The runtime is right.
    pub(crate) fn compare(&mut self, runtime: &Runtime) {
        let of = |wanted: fn(Source) -> bool| {
            let found = self.evidence.iter().find(|one| wanted(one.source));
            found.map(|one| (one.from.clone(), one.told.clone()))
        };
        let word = of(|source| source < Source::File);
        let files = of(|source| source >= Source::File);
        if let (Some((_, word)), Some((from, said))) = (word, files) {
            let bins_differ = !word.bin_dirs.is_empty() && word.bin_dirs != said.bin_dirs;
            let conf_differs = word.conf_dir.is_some() && word.conf_dir != said.conf_dir;
            if bins_differ || conf_differs {
                self.notes.push(format!(
                    "{} uses {word}, but {} say {said}: what it uses is taken; restart it if the files are right",
                    runtime.name,
                    list(&from)
                ));
            }
        }
        let mut told: Vec<&Evidence> = self.evidence.iter().collect();
        told.sort_by_key(|one| one.source);
        let handlers = told.iter().find(|one| !one.told.handlers.is_empty());
        let handlers = handlers.map(|one| one.told.handlers.clone());
        let loaded = told.iter().find_map(|one| one.told.max_conf_num);
        for (name, dir) in handlers.unwrap_or_default() {
            self.notes.push(format!(
                "pods of the runtime handler {name} take their network from {}: they get none of Multus' networks",
                dir.display()
            ));
        }
        if let Some(count) = loaded.filter(|count| *count != 1) {
            self.notes.push(format!(
                "{} loads {count} configurations (max_conf_num; 0 is all): a pod gets the primary network once more from each; set it to 1",
                runtime.name
            ));
        }
    }

    /// Notes what is wrong with the directories themselves.
    pub(crate) fn look(&mut self, root: &Root, dirs: &CniDirs) {
        let install_dir = &dirs.install_dir;
        let shown = install_dir.display();
        if !root.is_dir(install_dir) {
            self.notes.push(format!(
                "{shown} is not there: the primary network makes it, or a path in the runtime's configuration is out of date"
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
                    "no {} is in {}: pods have no network until a primary network is installed",
                    COMMON_PLUGINS.join(" or "),
                    list(&dirs.bin_dirs)
                ));
            }
        }
        if !root.is_dir(&dirs.conf_dir) {
            let conf_dir = dirs.conf_dir.display();
            self.notes.push(format!("{conf_dir} is not there yet"));
        }
    }

    /// What was rejected, in one line; things of one reason together.
    pub(crate) fn reasons(&self) -> String {
        let lines = by_reason(&self.rejected)
            .into_iter()
            .map(|(reason, places)| {
                let places = list(&places);
                if places.is_empty() {
                    reason
                } else {
                    format!("{places}: {reason}")
                }
            });
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// What is there comes before what is not.
fn by_reason(rejected: &[Rejected]) -> Vec<(String, Vec<PathBuf>)> {
    let mut groups: BTreeMap<(bool, &str), Vec<PathBuf>> = BTreeMap::new();
    for one in rejected {
        let key = (one.reason == NOT_THERE, one.reason.as_str());
        groups.entry(key).or_default().push(one.place.clone());
    }
    let groups = groups.into_iter();
    groups
        .map(|((_, reason), places)| (reason.to_owned(), places))
        .collect()
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
            writeln!(f, "plugins        {}", list(&dirs.bin_dirs))?;
            writeln!(f, "shim goes to   {}", dirs.install_dir.display())?;
            writeln!(f, "configuration  {}", dirs.conf_dir.display())?;
            writeln!(f, "source         {}", dirs.source)?;
        }
        let version = self.cni_version.unwrap_or("that of the primary");
        writeln!(f, "cniVersion     {version}")?;
        for one in &self.evidence {
            let from = list(&one.from);
            writeln!(f, "told           {}: {} ({from})", one.source, one.told)?;
        }
        for (reason, places) in by_reason(&self.rejected) {
            writeln!(f, "rejected       {}: {reason}", list(&places))?;
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
