//! `multus-daemon status [--ready] [--wait SECONDS] [--json]`: asks the running daemon over its socket; the exit status is a probe's answer.
//!
//! A probe reads no configuration: a ConfigMap that holds a wrong value must not make a daemon fail that serves with the one before.
//! A probe is also the only thing that an idle node starts again and again, so it does nothing but ask.

use std::{
    ffi::OsStr,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use node::root::{Root, proc_path};
use plan::daemon_config::Config;

use super::Setting;
use crate::{
    metrics::Status,
    serving::socket::{location, own_name},
};

const PATIENCE: Duration = Duration::from_secs(3);
/// More than any answer.
const MOST: u64 = 4 << 20;
/// Pauses between two attempts while waiting: from the first, doubled, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What a probe wants to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probe {
    /// Whether the daemon must be ready; otherwise it must answer.
    pub ready: bool,
    /// How long to try again before the answer is no.
    pub wait: Duration,
}

impl Probe {
    /// Reads the command line of a probe as the chart writes it, with an option at least; `None` where it is anything else.
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

/// Prints one word and what else there is to know when the answer is yes; fails with the reason when it is still no after the wait.
pub fn run(setting: &Setting, probe: Probe) -> anyhow::Result<()> {
    let deadline = Instant::now() + probe.wait;
    let mut pause = FIRST_PAUSE;
    loop {
        let answer = once(setting, probe.ready);
        if answer.is_ok() || Instant::now() + pause > deadline {
            return answer;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn once(setting: &Setting, ready: bool) -> anyhow::Result<()> {
    let path = if ready {
        api::PATH_READYZ
    } else {
        api::PATH_HEALTHZ
    };
    let (status, body) = ask(setting, path)?;
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

/// Prints what the running daemon does and has counted, as JSON.
pub fn print_json(setting: &Setting) -> anyhow::Result<()> {
    let (status, body) = ask(setting, api::PATH_STATUS)?;
    anyhow::ensure!(
        status == 200,
        "the daemon that runs is older than this program and has no status: ask it without --json"
    );
    writeln!(std::io::stdout(), "{}", body.trim_end())?;
    Ok(())
}

/// Prints what the running daemon does, for people. It is no part of the answer: an older daemon has none.
pub fn print_summary(setting: &Setting) {
    let status = ask(setting, api::PATH_STATUS).ok();
    let status = status.filter(|(status, _)| *status == 200);
    let parsed = status.and_then(|(_, body)| serde_json::from_str::<Status>(&body).ok());
    if let Some(status) = parsed {
        // Nobody is left to be told when stdout is closed.
        let _ = write!(std::io::stdout(), "{}", status.to_text());
    }
}

/// What the daemon answers on a path of its socket: status and body.
pub(super) fn ask(setting: &Setting, path: &str) -> anyhow::Result<(u16, String)> {
    let root = setting.root()?;
    let (dir, name) = socket(&root, setting);
    let opened = root
        .open_dir(&dir)
        .context("the daemon has not opened its socket, start it with: multus-daemon run")?;
    let mut stream = UnixStream::connect(proc_path(&opened).join(&name)).with_context(|| {
        format!(
            "the daemon does not answer on {}",
            dir.join(&name).display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: dummy\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream
        .take(MOST)
        .read_to_string(&mut answer)
        .map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
        .context("the daemon did not answer in time")?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the daemon's answer is not HTTP")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .context("the daemon's answer has no status")?;
    Ok((status, body.to_owned()))
}

/// Directory and name of the socket to ask. In a pod it is that of the pod's own daemon: shims may still be served by the one before
/// it, and the file that the pod sees may say by now where the next one will listen.
fn socket(root: &Root, setting: &Setting) -> (PathBuf, String) {
    match setting.identity.pod_uid.as_deref() {
        Some(uid) => (location::find(root, uid), own_name(uid)),
        None => (socket_dir(&setting.config), api::SOCKET_NAME.to_owned()),
    }
}

/// On the node itself only the file can say where the socket is; where it cannot be used the default place is tried.
fn socket_dir(config: &Path) -> PathBuf {
    Config::load(config).map_or_else(
        |_| api::DEFAULT_SOCKET_DIR.into(),
        |config| config.socket_dir,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], expected: Option<(bool, u64)>) {
        let probe = Probe::from_arguments(words.iter().map(OsStr::new));
        let found = probe.map(|probe| (probe.ready, probe.wait.as_secs()));
        assert_eq!(found, expected, "{words:?}");
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
