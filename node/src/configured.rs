//! What the files and flags of a runtime tell: the answer where the runtime itself gives none, and what its answer is compared with.

use std::path::PathBuf;

use crate::{
    command_line::CommandLine,
    containerd::{self, ConfigError, ConfigFile, Release},
    crio,
    dirs::{Evidence, Source},
    places::{self, Place},
    process,
    root::Root,
    runtime::{Hint, Rejected, Runtime},
};

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// The directories and the files that they come from.
    pub evidence: Evidence,
    /// What someone who reads the files might not expect.
    pub notes: Vec<String>,
}

/// Reads what a runtime that answers was started with.
pub fn of_runtime(
    root: &Root,
    runtime: &Runtime,
    hint: Option<&Hint>,
) -> Result<Configured, String> {
    let line = CommandLine::of(root, runtime.pid);
    let program = line.as_ref().map_or("", CommandLine::program);
    let mut found = match (runtime.name.as_str(), &line, program) {
        ("containerd", Some(line), "containerd") => from_line(root, runtime, line),
        ("containerd", ..) => from_places(root, runtime, hint),
        ("cri-o", Some(line), _) => {
            let files = crio::gather(root, line).map_err(|error| error.to_string())?;
            let told = crio::effective(&files, line);
            Ok(configured(Source::File, runtime, &files, told))
        }
        ("docker", Some(line), "cri-dockerd") => {
            Ok(configured(Source::File, runtime, &[], crio::dockerd(line)))
        }
        (name, ..) => Err(format!(
            "where {name} (pid {}, program `{program}`) has its configuration is not known here",
            runtime.pid
        )),
    }?;
    found.notes.extend(too_new(root, runtime, &found));
    Ok(found)
}

/// Reads every file that may be in use on a node whose runtime does not answer.
pub fn everywhere(root: &Root, hint: Option<&Hint>) -> (Vec<Configured>, Vec<Rejected>) {
    let (mut found, mut rejected) = (Vec::new(), Vec::new());
    for Place { path, .. } in places::present(root, hint) {
        match containerd::gather(root, &path, None) {
            Ok((files, release)) => found.push(read(Source::Guess, &files, release)),
            Err(error) => rejected.push(Rejected {
                place: path,
                reason: error.to_string(),
            }),
        }
    }
    (found, rejected)
}

/// containerd's own command line names the file, or means the usual one; where that is absent, what is built in holds.
fn from_line(root: &Root, runtime: &Runtime, line: &CommandLine) -> Result<Configured, String> {
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
    found.evidence.from.push(process_place(runtime.pid));
    Ok(found)
}

/// Its command line is not to be seen: of the files at usual places the one whose reader listens on the runtime's socket.
fn from_places(root: &Root, runtime: &Runtime, hint: Option<&Hint>) -> Result<Configured, String> {
    let release = Release::parse(&runtime.version);
    let socket = root.identity(&runtime.socket);
    let mut reasons = Vec::new();
    for place in places::present(root, hint) {
        let (files, release) = match containerd::gather(root, &place.path, release) {
            Ok(found) => found,
            Err(error) => {
                reasons.push(error.to_string());
                continue;
            }
        };
        let said = containerd::effective(&files, release).address;
        let address = said.unwrap_or(place.address);
        if address == runtime.socket || (socket.is_some() && root.identity(&address) == socket) {
            return Ok(read(Source::Guess, &files, release));
        }
        reasons.push(format!(
            "{} is of a runtime at {}",
            place.path.display(),
            address.display()
        ));
    }
    let reasons = if reasons.is_empty() {
        "there is no file at any usual place".to_owned()
    } else {
        reasons.join("; ")
    };
    Err(format!(
        "what {} (pid {}) was started with is not to be seen, and {reasons}",
        runtime.name, runtime.pid
    ))
}

fn read(source: Source, files: &[ConfigFile], release: Release) -> Configured {
    let effective = containerd::effective(files, release);
    Configured {
        evidence: Evidence {
            source,
            from: files.iter().map(|file| file.path.clone()).collect(),
            told: effective.told,
        },
        notes: effective.notes,
    }
}

fn configured(
    source: Source,
    runtime: &Runtime,
    files: &[ConfigFile],
    told: crate::dirs::Told,
) -> Configured {
    let mut from: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    from.push(process_place(runtime.pid));
    Configured {
        evidence: Evidence { source, from, told },
        notes: Vec::new(),
    }
}

fn process_place(pid: u32) -> PathBuf {
    format!("/proc/{pid}/cmdline").into()
}

/// A file that was written after the runtime was started may not be what it runs with.
fn too_new(root: &Root, runtime: &Runtime, found: &Configured) -> Option<String> {
    /// A distro writes the file right before, and the start is known to the second only.
    const LEEWAY: i64 = 2;
    let started = process::started(root, runtime.pid)?;
    let is_newer = |path: &&PathBuf| {
        !path.starts_with("/proc")
            && root
                .modified(path)
                .is_some_and(|time| time > started + LEEWAY)
    };
    let newer = found.evidence.from.iter().find(is_newer)?;
    Some(format!(
        "{} was changed after {} was started: restart it, so that both say the same",
        newer.display(),
        runtime.name
    ))
}
