//! One side of a comparison: a host with a container, on which one side's plugins run and whose state is read after each verb.
//!
//! The test starts this program as a cell in a sandbox. It reads the scenario from stdin and prints what it saw.

mod observe;

use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sandbox;
use crate::sh;

/// The argument that makes this program a cell.
pub(crate) const NAME: &str = "plugins-cell";
/// The network namespace of the container.
pub(super) const NETNS: &str = "/run/netns/pod";

/// A step in a cell; steps run one after another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Step {
    /// A shell script on the host.
    Shell(String),
    /// A verb of a plugin.
    Call(Call),
    /// The verbs one after another, each with the result of the one before, until the first error. With a fraction all processes are
    /// killed after this part of the time that the first chain took.
    Chain(Vec<Call>, Option<f64>),
    /// The state is read.
    Observe(String),
}

/// A verb of a plugin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    /// The directory of the plugin, which also has the plugins that it runs.
    pub(super) plugins: PathBuf,
    pub(super) verb: String,
    /// The configuration; `type` names the plugin.
    pub(super) config: Value,
    /// Adds the result of the last successful ADD to the configuration as `prevResult`.
    pub(super) is_chained: bool,
    pub(super) container: String,
    pub(super) netns: String,
    pub(super) ifname: String,
    pub(super) args: String,
}

/// How a call ended or what the state was, in the order of the steps.
pub(super) type Seen = Vec<(String, Value)>;

/// Runs the steps in a cell of their own.
pub(super) fn run_in_sandbox(steps: &[Step]) -> anyhow::Result<Seen> {
    let mut command = sandbox::command(std::env::current_exe()?);
    command.arg(NAME);
    let seen = sh::feed(&mut command, &serde_json::to_vec(steps)?)?;
    serde_json::from_str(&seen).context("a cell printed something else than what it saw")
}

/// Runs as a cell.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut steps = Vec::new();
    std::io::stdin().read_to_end(&mut steps)?;
    let steps: Vec<Step> = serde_json::from_slice(&steps).context("the steps are not JSON")?;
    sh::run(Command::new("ip").args(["netns", "add", "pod"]))?;
    let baseline = observe::Baseline::read()?;
    let mut seen = Seen::new();
    let mut result = Value::Null;
    let mut undisturbed = None;
    for step in steps {
        match step {
            Step::Shell(script) => drop(sh::run(Command::new("sh").args(["-ec", &script]))?),
            Step::Call(call) => {
                let outcome = call.run(&result)?;
                if call.verb == "ADD" && outcome["status"] == 0 {
                    result = outcome["answer"].clone();
                }
                seen.push((call.verb, outcome));
            }
            Step::Chain(calls, fraction) => {
                let start = Instant::now();
                let end = match fraction {
                    None => None,
                    Some(fraction) => {
                        let whole: Duration = undisturbed.context("no chain ran before")?;
                        Some(start + whole.mul_f64(fraction))
                    }
                };
                let outcome = chain(&calls, &mut result, end)?;
                undisturbed.get_or_insert(start.elapsed());
                seen.push(("chain".to_owned(), outcome));
            }
            Step::Observe(name) => seen.push((name, observe::state(&baseline)?)),
        }
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(&serde_json::to_vec(&seen)?)?;
    Ok(stdout.flush()?)
}

/// Runs verbs one after another; returns the outcome of the last one. As at a runtime, DEL gets the result of a whole chain of ADDs, and
/// none after an error.
fn chain(calls: &[Call], result: &mut Value, end: Option<Instant>) -> anyhow::Result<Value> {
    let mut outcome = Value::Null;
    if calls.iter().any(|call| call.verb == "ADD") {
        *result = Value::Null;
    }
    for call in calls {
        outcome = match end {
            None => call.run(result)?,
            Some(end) => call.run_until(result, end)?,
        };
        if outcome["status"] != 0 {
            *result = Value::Null;
            break;
        }
        if call.verb == "ADD" {
            *result = outcome["answer"].clone();
        }
    }
    Ok(outcome)
}

impl Call {
    /// Returns a call of the latest version for `eth0` of the container, as `net` where the configuration has no other name.
    pub(super) fn new(plugins: &Path, verb: &str, mut config: Value) -> Self {
        for (key, value) in [("cniVersion", "1.1.0"), ("name", "net")] {
            if config[key].is_null() {
                config[key] = value.into();
            }
        }
        Self {
            plugins: plugins.to_owned(),
            verb: verb.to_owned(),
            config,
            is_chained: false,
            container: "container".to_owned(),
            netns: NETNS.to_owned(),
            ifname: "eth0".to_owned(),
            args: String::new(),
        }
    }

    fn run(&self, result: &Value) -> anyhow::Result<Value> {
        let (mut command, config) = self.command(result)?;
        outcome(&sh::output(&mut command, config.as_bytes())?)
    }

    /// Like [`Call::run`], but kills the plugin and the programs that it runs at a moment.
    fn run_until(&self, result: &Value, end: Instant) -> anyhow::Result<Value> {
        let (mut command, config) = self.command(result)?;
        // The plugin leads the process group of all programs that it runs.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().context("stdin is piped")?;
        // A killed plugin reads nothing.
        let _ = stdin.write_all(config.as_bytes());
        drop(stdin);
        let group = Pid::from_child(&child);
        let (sender, exited) = mpsc::channel();
        let killer = thread::spawn(move || {
            let left = end.saturating_duration_since(Instant::now());
            if exited.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                // The group may have ended by itself in this moment.
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        let output = child.wait_with_output()?;
        drop::<mpsc::Sender<()>>(sender);
        killer
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        outcome(&output)
    }

    /// Returns the command and its stdin.
    fn command(&self, result: &Value) -> anyhow::Result<(Command, String)> {
        let mut config = self.config.clone();
        if self.is_chained && !result.is_null() {
            config["prevResult"] = result.clone();
        }
        let name = config["type"]
            .as_str()
            .context("a configuration names its plugin")?;
        // Plugins print this path, so it is the same for both sides.
        let plugins = Path::new("/tmp/plugins");
        let _ = std::fs::remove_file(plugins);
        std::os::unix::fs::symlink(&self.plugins, plugins)?;
        let mut command = Command::new(plugins.join(name));
        command
            .env_clear()
            .env("PATH", path())
            .env("CNI_PATH", plugins)
            .env("CNI_COMMAND", &self.verb)
            .env("CNI_CONTAINERID", &self.container)
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", &self.ifname)
            .env("CNI_ARGS", &self.args);
        Ok((command, config.to_string()))
    }
}

/// Returns the status, which is null after a signal, and what the plugin printed.
fn outcome(output: &Output) -> anyhow::Result<Value> {
    let stdout = str::from_utf8(&output.stdout).context("a plugin printed no UTF-8")?;
    let answer = match stdout.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    };
    Ok(serde_json::json!({"status": output.status.code(), "answer": answer}))
}

/// Plugins search `iptables` and the like there.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Returns whether a path is the container's namespace, which is part of no state.
fn is_namespace(path: &Path) -> bool {
    path.starts_with("/run/netns")
}
