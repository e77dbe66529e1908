//! `multus-daemon status [--ready|--json]`: asks the running daemon over its socket; the exit status is a probe's answer.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::Context;
use node::root::proc_path;

use super::Setting;
use crate::{metrics::Status, socket::own_name};

const PATIENCE: Duration = Duration::from_secs(3);
/// More than any answer.
const MOST: u64 = 4 << 20;

/// With `ready` the daemon must be ready, without it must answer, and more is printed: what it does, as text or as JSON.
pub fn run(setting: &Setting, ready: bool, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(setting);
    }
    let path = if ready {
        api::PATH_READYZ
    } else {
        api::PATH_HEALTHZ
    };
    let (status, body) = ask(setting, path)?;
    if status == 200 {
        let word = if ready { "ready" } else { "running" };
        writeln!(std::io::stdout(), "{word}")?;
        if !ready {
            print_summary(setting);
        }
        return Ok(());
    }
    anyhow::bail!("not ready: {}", body.trim())
}

fn print_json(setting: &Setting) -> anyhow::Result<()> {
    let (status, body) = ask(setting, api::PATH_STATUS)?;
    anyhow::ensure!(
        status == 200,
        "the daemon that runs is older than this program and has no status: ask it without --json"
    );
    writeln!(std::io::stdout(), "{}", body.trim_end())?;
    Ok(())
}

/// What the daemon does, for people. It is no part of the answer: an older daemon has none.
fn print_summary(setting: &Setting) {
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
    let config = setting.config()?;
    let root = setting.root()?;
    let dir = root
        .open_dir(&config.socket_dir)
        .context("the daemon has not opened its socket, start it with: multus-daemon run")?;
    // In a pod its own daemon is asked: shims may still be served by the one before it.
    let pod = setting.identity.pod_uid.as_deref();
    let name = pod.map_or_else(|| api::SOCKET_NAME.to_owned(), own_name);
    let mut stream = UnixStream::connect(proc_path(&dir).join(&name)).with_context(|| {
        format!(
            "the daemon does not answer on {}",
            config.socket_dir.join(&name).display()
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
