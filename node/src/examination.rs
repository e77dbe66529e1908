//! The examination of a node: facts, notes and problems, each with what helps, and those about Multus itself. `multus-distro doctor` adds
//! what concerns the distro, `multus-daemon doctor` has only these.

use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use api::{CONF_NAME, DEFAULT_CNI_DIR, PATH_READYZ, SHIM_NAME, SOCKET_NAME};
use serde::Serialize;

use crate::{
    discover::{Detail, Report},
    root::{Root, proc_path},
};

/// The findings about everything but the runtime and its directories, which the report of discovery has.
#[derive(Debug, Default, Serialize)]
pub struct Examination {
    /// A subject, and its state.
    facts: Vec<(&'static str, String)>,
    /// Findings that deserve attention although everything works.
    pub notes: Vec<String>,
    /// Faults, each with a hint.
    pub problems: Vec<String>,
}

impl Examination {
    /// Adds a subject with its state.
    pub fn fact(&mut self, subject: &'static str, text: impl Into<String>) {
        self.facts.push((subject, text.into()));
    }

    /// Adds a finding that deserves attention although everything works.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a fault, with its hint.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (subject, text) in &self.facts {
            writeln!(f, "{subject:<14} {text}")?;
        }
        for note in &self.notes {
            writeln!(f, "note           {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem        {problem}")?;
        }
        Ok(())
    }
}

/// The report of discovery and the examination: what `doctor` prints.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    #[serde(flatten)]
    pub report: &'a Report,
    /// Under a key of its own.
    pub node: &'a Examination,
}

impl Outcome<'_> {
    /// Returns the text for people, on one screen unless each source of a directory is wanted, too.
    pub fn text(&self, has_evidence: bool) -> String {
        let detail = if has_evidence {
            Detail::Evidence
        } else {
            Detail::Decision
        };
        self.report.text(detail) + &self.node.to_string()
    }

    /// Returns the problem, or the number of problems with the first one.
    pub fn problem(&self) -> Option<String> {
        let problem = self.report.problem.iter();
        let problems: Vec<&String> = problem.chain(&self.node.problems).collect();
        match problems[..] {
            [] => None,
            [problem] => Some(problem.clone()),
            [first, ..] => Some(format!("{} problems, the first: {first}", problems.len())),
        }
    }
}

const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// More than any answer to a readiness probe.
const MAX_PROBE_ANSWER: u64 = 64 << 10;

/// Checks the daemons of the node, and what new pods need.
pub fn check_multus(root: &Root, report: &Report, socket_dir: &Path, found: &mut Examination) {
    check_daemons(root, socket_dir, found);
    check_network(root, report, socket_dir, found);
}

/// Probes the daemons of this node: there are two of them during an update, and one that is not ready stops the update.
fn check_daemons(root: &Root, dir: &Path, found: &mut Examination) {
    let names = root.list(dir).unwrap_or_default();
    let is_daemon = |name: &&String| {
        let id = name.strip_prefix("daemon-");
        id.is_some_and(|id| id.strip_suffix(".sock").is_some())
    };
    for name in names.iter().filter(is_daemon) {
        let socket = dir.join(name);
        match probe(root, &socket) {
            Ok((200, notes)) => notes.lines().for_each(|note| found.note(note)),
            Ok((_, reason)) => found.problem(format!(
                "the daemon at {} is not ready: {}",
                socket.display(),
                reason.trim()
            )),
            // The socket of a daemon that was killed; the next daemon removes it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => found.problem(format!(
                "the daemon at {} does not answer: {error}",
                socket.display()
            )),
        }
    }
}

/// Returns status and body of a daemon's answer about its readiness.
fn probe(root: &Root, socket: &Path) -> io::Result<(u16, String)> {
    let mut stream = connect(root, socket)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    let request = format!("GET {PATH_READYZ} HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(MAX_PROBE_ANSWER).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}

/// Returns whether a daemon accepts connections of shims.
pub fn is_served(root: &Root, socket_dir: &Path) -> bool {
    connect(root, &socket_dir.join(SOCKET_NAME)).is_ok()
}

fn connect(root: &Root, socket: &Path) -> io::Result<UnixStream> {
    let (dir, name) = root.parent(socket).map_err(|error| error.source)?;
    UnixStream::connect(proc_path(&dir).join(name))
}

/// The chart's value that sets the directory of the shim.
const SHIM_DIR_VALUE: &str = "config.cni_conf.shimDir";

/// Checks what new pods need: the configuration that the runtime reads, the shim, and a daemon that answers it.
fn check_network(root: &Root, report: &Report, socket_dir: &Path, found: &mut Examination) {
    let Some(dirs) = &report.dirs else { return };
    let names = root.list(&dirs.conf_dir).unwrap_or_default();
    let is_configuration = |name: &&String| {
        [".conf", ".conflist", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let first = names.iter().find(is_configuration);
    let own = [CONF_NAME.to_owned(), format!("{CONF_NAME}list")];
    let own = own.iter().find(|own| names.iter().any(|name| name == *own));
    let socket = socket_dir.join(SOCKET_NAME);
    let answers = is_served(root, socket_dir);
    match (own, first) {
        (None, None) => found.note(format!(
            "no network is configured in {}: Multus waits for the default network",
            dirs.conf_dir.display()
        )),
        (None, Some(_)) => found.fact("multus", "not installed on this node yet: no configuration"),
        (Some(own), Some(first)) => {
            if first != own {
                found.problem(format!(
                    "{}/{first} comes before {own}, and pods get only that network: rename it so that it comes after, or remove it",
                    dirs.conf_dir.display()
                ));
            }
            if !root.is_executable(dirs.install_dir.join(SHIM_NAME)) {
                found.problem(format!(
                    "{own} names {SHIM_NAME}, which is not in {}: the daemon puts it there as soon as it is ready; remove {SHIM_DIR_VALUE} from the chart's values where it names another directory",
                    dirs.install_dir.display()
                ));
            }
            let state = if answers {
                "answers"
            } else {
                "does not answer"
            };
            found.fact("multus", format!("{own} is in use, the daemon {state}"));
            if !answers {
                found.problem(format!(
                    "no daemon answers at {}, and new pods wait: look at `kubectl --namespace kube-system get pods --output wide` and the logs of the multus pod of this node",
                    socket.display()
                ));
            }
        }
        (Some(_), None) => {}
    }
    let pending = api::journal::dir(Path::new(DEFAULT_CNI_DIR));
    let pending = root.list(pending).unwrap_or_default();
    if !pending.is_empty() {
        found.note(format!(
            "{} removals of pods wait for the daemon, which runs them before anything else",
            pending.len()
        ));
    }
}
