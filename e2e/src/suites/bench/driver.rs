//! The runtime of a bench: this program in another role, inside a node, which starts shims and plugins and measures each.
//!
//! Entering the node for every call would take longer than the call itself.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

use crate::{node::Node, sh};

/// The argument that makes this program the driver.
pub(crate) const NAME: &str = "bench-driver";
/// Number of readings of a waiting program's memory, and the pause between two.
const MEMORY_READINGS: (u32, Duration) = (10, Duration::from_millis(5));

/// Calls of a program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) program: String,
    /// The number of calls at the same time.
    pub(crate) concurrency: usize,
    pub(crate) calls: Vec<Call>,
    /// A socket without answers: the driver reads the memory of each program while it waits there, and then kills it.
    pub(crate) hang_on: Option<String>,
    /// The control group that the driver joins first, and with it every program that it starts.
    pub(crate) group: Option<PathBuf>,
}

/// One call of a program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: String,
}

/// The measurements of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Seconds of the complete batch.
    pub(crate) seconds: f64,
    pub(crate) calls: Vec<CallTimes>,
}

/// The measurements of a call.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct CallTimes {
    /// Seconds from its start to its end.
    pub(crate) wall: f64,
    /// CPU seconds of the program itself.
    pub(crate) cpu: f64,
    /// Bytes of memory, with `hang_on`.
    pub(crate) memory: u64,
}

impl Batch {
    /// Runs the batch in a node; a failed call is an error.
    pub(crate) fn run(&self, node: &Node) -> anyhow::Result<Times> {
        let mut command = node.command(std::env::current_exe()?);
        let times = sh::feed(command.arg(NAME), serde_json::to_string(self)?.as_bytes())
            .with_context(|| format!("{} on {}", self.program, node.name))?;
        serde_json::from_str(&times).context("the driver printed no JSON")
    }
}

impl Times {
    pub(crate) fn walls(&self) -> impl Iterator<Item = f64> {
        self.calls.iter().map(|call| call.wall)
    }

    pub(crate) fn cpus(&self) -> Vec<f64> {
        self.calls.iter().map(|call| call.cpu).collect()
    }

    /// Returns the calls per second.
    pub(crate) fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "there are hundreds")]
        let count = self.calls.len() as f64;
        count / self.seconds
    }
}

/// Runs the batch on stdin and prints its measurements.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let batch: Batch = serde_json::from_str(&text).context("no batch on stdin")?;
    if let Some(group) = &batch.group {
        super::usage::enter(group, 0)?;
    }
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let run_calls = || {
        let mut done = Vec::new();
        while let Some((index, call)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            batch.calls.get(index).map(|call| (index, call))
        } {
            let took = match &batch.hang_on {
                None => one(&batch.program, call),
                Some(socket) => hung(&batch.program, call, Path::new(socket)),
            };
            done.push((index, took.with_context(|| format!("call {index}"))?));
        }
        anyhow::Ok(done)
    };
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.concurrency)
            .map(|_| scope.spawn(run_calls))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done?),
                Err(_) => bail!("a thread of the driver panicked"),
            }
        }
        anyhow::Ok(all)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    all.sort_by_key(|(index, _)| *index);
    let calls = all.into_iter().map(|(_, took)| took).collect();
    let times = serde_json::to_string(&Times { seconds, calls })?;
    Ok(std::io::stdout().write_all(times.as_bytes())?)
}

fn one(program: &str, call: &Call) -> anyhow::Result<CallTimes> {
    let start = Instant::now();
    let mut child = spawn(program, call)?;
    let mut stdout = String::new();
    let mut pipe = child.stdout.take().context("stdout is piped")?;
    pipe.read_to_string(&mut stdout)?;
    // The process has ended but is not reaped, so its files in /proc are still there.
    let pid = Pid::from_child(&child);
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = run_time(child.id())?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}: {stdout}");
    Ok(CallTimes {
        wall,
        cpu,
        memory: 0,
    })
}

fn hung(program: &str, call: &Call, socket: &Path) -> anyhow::Result<CallTimes> {
    let _ = fs::remove_file(socket);
    let directory = socket.parent().context("a socket lies in a directory")?;
    fs::create_dir_all(directory)?;
    let listener = UnixListener::bind(socket)?;
    let mut child = spawn(program, call)?;
    let (_connection, _) = listener.accept()?;
    let mut memory = 0;
    let (readings, pause) = MEMORY_READINGS;
    for _ in 0..readings {
        thread::sleep(pause);
        memory = memory.max(super::usage::resident(child.id())?);
    }
    child.kill()?;
    child.wait()?;
    Ok(CallTimes {
        memory,
        ..CallTimes::default()
    })
}

fn spawn(program: &str, call: &Call) -> anyhow::Result<Child> {
    let mut child = Command::new(program)
        .args(&call.args)
        .env_clear()
        .envs(&call.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    // A program that does not read its stdin prints the reason on stdout.
    let _ = stdin.write_all(call.stdin.as_bytes());
    Ok(child)
}

/// Returns the CPU seconds of a process with one thread, with nanosecond resolution.
fn run_time(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let nanos: u64 = text
        .split_whitespace()
        .next()
        .context("schedstat has three numbers")?
        .parse()?;
    Ok(Duration::from_nanos(nanos).as_secs_f64())
}
