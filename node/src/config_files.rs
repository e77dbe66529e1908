//! The CNI directories by a runtime's files and flags. They stand in for a runtime that does not report its directories, and are compared
//! with the report of one that does.

use std::path::PathBuf;

use crate::{
    command_line::CommandLine,
    containerd::{self, ConfigError, ConfigFile, Release},
    crio,
    default_paths::{self, ConfigPath},
    dirs::{Evidence, ReportedDirs, Source},
    process,
    root::Root,
    runtime::{Hint, Rejected, Runtime},
};

/// The directories by the configuration of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredDirs {
    /// The directories, and the files that name them.
    pub evidence: Evidence,
    /// Notes on what a reader of the files might not expect.
    pub notes: Vec<String>,
}

/// Reads the configuration of a runtime that answers.
pub fn read_config(
    root: &Root,
    runtime: &Runtime,
    hint: Option<&Hint>,
) -> Result<ConfiguredDirs, String> {
    let line = CommandLine::of(root, runtime.pid);
    let program = line.as_ref().map_or("", CommandLine::program);
    let mut found = match (runtime.name.as_str(), &line, program) {
        ("containerd", Some(line), "containerd") => from_command_line(root, runtime, line),
        ("containerd", ..) => from_default_paths(root, runtime, hint),
        ("cri-o", Some(line), _) => {
            let files = crio::gather(root, line).map_err(|error| error.to_string())?;
            let reported = crio::effective(&files, line);
            Ok(with_command_line(runtime, &files, reported))
        }
        ("docker", Some(line), "cri-dockerd") => {
            Ok(with_command_line(runtime, &[], crio::dockerd(line)))
        }
        (name, ..) => Err(format!(
            "multus-rs does not know where {name} (pid {}, program `{program}`) has its configuration",
            runtime.pid
        )),
    }?;
    found
        .notes
        .extend(changed_since_start(root, runtime, &found));
    Ok(found)
}

/// Reads every file that may be in use on a node whose runtime does not answer.
pub fn at_default_paths(root: &Root, hint: Option<&Hint>) -> (Vec<ConfiguredDirs>, Vec<Rejected>) {
    let (mut found, mut rejected) = (Vec::new(), Vec::new());
    for ConfigPath { path, .. } in default_paths::existing(root, hint) {
        match containerd::gather(root, &path, None) {
            Ok((files, release)) => found.push(read(Source::Guess, &files, release)),
            Err(error) => rejected.push(Rejected {
                path,
                reason: error.to_string(),
            }),
        }
    }
    (found, rejected)
}

/// Reads the file that containerd's command line names, else the default one; without that, the built-in directories hold.
fn from_command_line(
    root: &Root,
    runtime: &Runtime,
    line: &CommandLine,
) -> Result<ConfiguredDirs, String> {
    let release = Release::parse(&runtime.version);
    let named = line.value(&["config", "c"]).map(PathBuf::from);
    let is_named = named.is_some();
    let path = named.unwrap_or_else(|| containerd::DEFAULT_CONFIG.into());
    let (files, release) = match containerd::gather(root, &path, release) {
        Err(ConfigError::Root(error)) if error.is_not_found() && !is_named => {
            (Vec::new(), release.unwrap_or(Release::for_config(1)))
        }
        other => other.map_err(|error| error.to_string())?,
    };
    let mut found = read(Source::File, &files, release);
    found.evidence.from.push(command_line_path(runtime.pid));
    Ok(found)
}

/// For a runtime whose command line is not visible: of the files at default paths, reads the one whose address is the runtime's socket.
fn from_default_paths(
    root: &Root,
    runtime: &Runtime,
    hint: Option<&Hint>,
) -> Result<ConfiguredDirs, String> {
    let release = Release::parse(&runtime.version);
    let socket = root.identity(&runtime.socket);
    let mut reasons = Vec::new();
    for candidate in default_paths::existing(root, hint) {
        let (files, release) = match containerd::gather(root, &candidate.path, release) {
            Ok(found) => found,
            Err(error) => {
                reasons.push(error.to_string());
                continue;
            }
        };
        let configured = containerd::effective(&files, release).address;
        let address = configured.unwrap_or(candidate.address);
        if address == runtime.socket || (socket.is_some() && root.identity(&address) == socket) {
            return Ok(read(Source::Guess, &files, release));
        }
        reasons.push(format!(
            "{} is of a runtime at {}",
            candidate.path.display(),
            address.display()
        ));
    }
    let reasons = if reasons.is_empty() {
        "there is no file at a default path".to_owned()
    } else {
        reasons.join("; ")
    };
    Err(format!(
        "the command line of {} (pid {}) is not visible, and {reasons}",
        runtime.name, runtime.pid
    ))
}

fn read(source: Source, files: &[ConfigFile], release: Release) -> ConfiguredDirs {
    let effective = containerd::effective(files, release);
    ConfiguredDirs {
        evidence: Evidence {
            source,
            from: files.iter().map(|file| file.path.clone()).collect(),
            reported: effective.dirs,
        },
        notes: effective.notes,
    }
}

fn with_command_line(
    runtime: &Runtime,
    files: &[ConfigFile],
    reported: ReportedDirs,
) -> ConfiguredDirs {
    let mut from: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    from.push(command_line_path(runtime.pid));
    ConfiguredDirs {
        evidence: Evidence {
            source: Source::File,
            from,
            reported,
        },
        notes: Vec::new(),
    }
}

fn command_line_path(pid: u32) -> PathBuf {
    format!("/proc/{pid}/cmdline").into()
}

/// Notes a file that changed after the runtime was started, since the runtime may not have read it.
fn changed_since_start(root: &Root, runtime: &Runtime, found: &ConfiguredDirs) -> Option<String> {
    /// In seconds: a distro writes the file right before the start, which is known to the second only.
    const LEEWAY: i64 = 2;
    let started = process::start_time(root, runtime.pid)?;
    let is_newer = |path: &&PathBuf| {
        !path.starts_with("/proc")
            && root
                .modified(path)
                .is_some_and(|time| time > started + LEEWAY)
    };
    let newer = found.evidence.from.iter().find(is_newer)?;
    Some(format!(
        "{} was changed after {} was started: restart it, so that it reads the file",
        newer.display(),
        runtime.name
    ))
}
