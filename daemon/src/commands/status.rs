//! `multus-daemon status [--ready] [--wait SECONDS] [--json]`: queries the running daemon over its socket; probes use the exit status.
//!
//! A probe reads no configuration: a broken value in a ConfigMap must not fail a daemon that serves with the value before it.
//! Probes are also the only processes that an idle node starts again and again, so a probe does nothing but query the socket.

use std::{
    ffi::OsStr,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use api::pod_report::RecentFailure;
use cmdline::counted;
use node::root::{Root, proc_path};
use plan::daemon_config::Config;

use super::CommandContext;
use crate::{
    metrics::Status,
    serving::socket::{location, own_name},
};

/// The number of failures that are shown.
const FAILURES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum size of a response; larger than any.
const MOST: u64 = 4 << 20;
/// Pauses between two attempts: they begin with the first and double up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The options of a probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probe {
    /// True if the daemon must be ready; else it must only respond.
    pub ready: bool,
    /// The time for retries.
    pub wait: Duration,
}

impl Probe {
    /// Parses the command line of a probe as the chart writes it, with at least one option; returns `None` for any other command line.
    pub fn from_arguments<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> Option<Self> {
        let mut arguments = arguments.map(OsStr::to_str);
        if arguments.next()?? != "status" {
            return None;
        }
        let mut probe = Self::default();
        let mut arguments = arguments.peekable();
        arguments.peek()?;
        for argument in arguments {
            match argument?.split_once('=') {
                None if argument? == "--ready" => probe.ready = true,
                Some(("--wait", seconds)) => {
                    probe.wait = Duration::from_secs(seconds.parse::<u32>().ok()?.into());
                }
                _ => return None,
            }
        }
        Some(probe)
    }
}

/// Prints one word and the daemon's notes on success; fails with the reason when there was no success in time.
pub fn run(context: &CommandContext, probe: Probe) -> anyhow::Result<()> {
    let deadline = Instant::now() + probe.wait;
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = once(context, probe.ready);
        if outcome.is_ok() || Instant::now() + pause > deadline {
            return outcome;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn once(context: &CommandContext, ready: bool) -> anyhow::Result<()> {
    let path = if ready {
        api::PATH_READYZ
    } else {
        api::PATH_HEALTHZ
    };
    let (status, body) = query(context, path)?;
    if status == 200 {
        let word = if ready { "ready" } else { "running" };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{word}")?;
        for note in body.lines() {
            writeln!(out, "note: {note}")?;
        }
        return Ok(());
    }
    anyhow::bail!("not ready: {}", body.trim())
}

/// Prints the running daemon's state and counters as JSON.
pub fn print_json(context: &CommandContext) -> anyhow::Result<()> {
    let (status, body) = query(context, api::PATH_STATUS)?;
    anyhow::ensure!(
        status == 200,
        "the running daemon is older than this program and has no status as JSON: run this without --json"
    );
    writeln!(std::io::stdout(), "{}", body.trim_end())?;
    Ok(())
}

/// Prints the running daemon's state for users. Prints nothing for an older daemon, which has no such state.
pub fn print_summary(context: &CommandContext) {
    let status = query(context, api::PATH_STATUS).ok();
    let status = status.filter(|(status, _)| *status == 200);
    let parsed = status.and_then(|(_, body)| serde_json::from_str::<Status>(&body).ok());
    if let Some(status) = parsed {
        // A closed stdout is not an error.
        let failures = failures(context).unwrap_or_default();
        let _ = write!(
            std::io::stdout(),
            "{}{}",
            status.to_text(),
            failure_lines(&failures)
        );
    }
}

/// Returns the recent failures of the running daemon, the newest last.
pub(super) fn failures(context: &CommandContext) -> anyhow::Result<Vec<RecentFailure>> {
    let (status, body) = query(context, api::PATH_FAILURES)?;
    anyhow::ensure!(status == 200, "the daemon responds with status {status}");
    serde_json::from_str(&body).context("the daemon's response is not a list of failures")
}

/// Renders the newest failures, the newest first, each with its cause and the id under which the log has its text.
fn failure_lines(failures: &[RecentFailure]) -> String {
    let newest = failures.iter().rev().take(FAILURES);
    let line = |one: &RecentFailure| {
        let RecentFailure {
            id,
            pod,
            verb,
            cause,
            count,
            ..
        } = one;
        format!(
            "failure     {verb} of {pod}: {cause}, {} (id {id})\n",
            counted(count, "time")
        )
    };
    newest.map(line).collect()
}

/// Requests a path of the daemon's socket; returns status and body.
pub(super) fn query(context: &CommandContext, path: &str) -> anyhow::Result<(u16, String)> {
    query_within(context, path, PATIENCE)
}

/// The same for an answer that takes longer.
pub(super) fn query_within(
    context: &CommandContext,
    path: &str,
    patience: Duration,
) -> anyhow::Result<(u16, String)> {
    let root = context.root()?;
    let (dir, name) = socket(&root, context);
    let opened = root
        .open_dir(&dir)
        .context("the daemon has not opened its socket: start it with `multus-daemon run`")?;
    let mut stream = UnixStream::connect(proc_path(&opened).join(&name)).with_context(|| {
        format!(
            "the daemon does not answer on {}",
            dir.join(&name).display()
        )
    })?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = String::new();
    stream
        .take(MOST)
        .read_to_string(&mut response)
        .map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
        .context("the daemon did not answer in time")?;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .context("the daemon's response is not HTTP")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("the daemon's response has no status")?;
    Ok((status, body.to_owned()))
}

/// Directory and name of the socket to query. In a pod it is the socket of the pod's own daemon: shims may still be served by the previous
/// daemon, and the file that the pod sees may already name the directory of the next one.
fn socket(root: &Root, context: &CommandContext) -> (PathBuf, String) {
    match context.identity.pod_uid.as_deref() {
        Some(uid) => (location::find(root, uid), own_name(uid)),
        None => (socket_dir(&context.config), api::SOCKET_NAME.to_owned()),
    }
}

/// Outside a pod only the daemon's file names the socket's directory; without a valid file it is the default.
fn socket_dir(config: &Path) -> PathBuf {
    Config::load(config).map_or_else(
        |_| api::DEFAULT_SOCKET_DIR.into(),
        |config| config.socket_dir,
    )
}

#[cfg(test)]
mod tests {
    use api::cause::Cause;

    use super::*;

    #[test]
    fn newest_failures_are_shown_with_their_causes() {
        let failure = |number: u32| RecentFailure {
            id: format!("0a0b0c{number:02}"),
            pod: format!("shop/cart-{number}"),
            verb: "ADD".to_owned(),
            cause: Cause::PluginMissing,
            count: number,
            ..RecentFailure::default()
        };
        let failures: Vec<_> = (1..=12).map(failure).collect();
        let lines = failure_lines(&failures);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), FAILURES);
        assert_eq!(
            lines[0],
            "failure     ADD of shop/cart-12: plugin-missing, 12 times (id 0a0b0c12)"
        );
        assert_eq!(failure_lines(&[]), "");
    }

    #[track_caller]
    fn check(args: &[&str], expected: Option<(bool, u64)>) {
        let probe = Probe::from_arguments(args.iter().map(OsStr::new));
        let found = probe.map(|probe| (probe.ready, probe.wait.as_secs()));
        assert_eq!(found, expected, "{args:?}");
    }

    #[test]
    fn probe_command_lines_of_the_chart_are_read() {
        check(&["status", "--wait=0"], Some((false, 0)));
        check(&["status", "--ready"], Some((true, 0)));
        check(&["status", "--ready", "--wait=50"], Some((true, 50)));
    }

    #[test]
    fn other_command_lines_are_left_to_the_parser() {
        check(&[], None);
        check(&["run"], None);
        check(&["status"], None);
        check(&["status", "--help"], None);
        check(&["status", "--wait", "5"], None);
        check(&["status", "--wait=-5"], None);
        check(&["--root", "/", "status"], None);
    }
}
