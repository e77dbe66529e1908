//! Plays the container runtime: a sandbox of a pod, the calls that a runtime makes for it, and their answers.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    process::{Child, Command, Output, Stdio},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    sh,
    single_node::{BIN_DIR, TRY_AGAIN_LATER},
};

/// A pod's sandbox: its container ID and its network namespace.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) namespace: String,
    /// The name of the pod.
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The container ID.
    pub(crate) id: String,
    /// The name of the network namespace; empty when it is deleted.
    pub(crate) netns_name: String,
}

impl Sandbox {
    pub(crate) fn netns(&self) -> String {
        match self.netns_name.as_str() {
            "" => String::new(),
            name => format!("/run/netns/{name}"),
        }
    }

    /// Returns the `CNI_ARGS` that a runtime passes.
    pub(crate) fn args(&self) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            self.namespace, self.name, self.id, self.uid
        )
    }

    /// Returns the variables of a call.
    pub(crate) fn env(&self, verb: &str) -> Vec<(String, String)> {
        [
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", self.id.clone()),
            ("CNI_NETNS", self.netns()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_ARGS", self.args()),
            ("CNI_PATH", BIN_DIR.to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec()
    }

    /// Returns the sandbox as it is after its network namespace is deleted.
    pub(crate) fn without_netns(&self) -> Self {
        Self {
            netns_name: String::new(),
            ..self.clone()
        }
    }
}

/// A call of a shim that has not ended yet.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a shim with these CNI variables.
    pub(crate) fn start(
        mut shim: Command,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<Self> {
        let mut child = shim
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the shim")?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        // A shim that ends before it reads stdin reports the reason on stdout.
        let _ = input.write_all(stdin);
        Ok(Self(child))
    }

    /// Waits for the end of the call.
    pub(crate) fn answer(self) -> anyhow::Result<Answer> {
        Ok(self.0.wait_with_output()?.into())
    }

    /// Does the same, and fails if the shim runs longer than that many seconds.
    pub(crate) fn within(mut self, seconds: u64) -> anyhow::Result<Answer> {
        let ended = sh::until(seconds, "the shim ends", || {
            self.0.try_wait()?.context("it still runs")
        });
        if let Err(error) = ended {
            // nsenter hands no signal on to its child, timeout does; either may end by itself meanwhile.
            let parent = self.0.id();
            let children = format!("/proc/{parent}/task/{parent}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            for pid in children.chain([parent.cast_signed()]) {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            let _ = self.0.wait();
            return Err(error);
        }
        self.answer()
    }
}

/// How a call of a shim ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    /// Returns the document on stdout, or null where there is none; a failed call is an error.
    pub(crate) fn success(&self) -> anyhow::Result<Value> {
        ensure!(
            self.code == Some(0),
            "exit status {:?}: {}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        if self.stdout.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("stdout is not one document: {}", self.stdout))
    }

    /// Returns the CNI error on stdout; a call that succeeded is an error.
    pub(crate) fn error(&self) -> anyhow::Result<Value> {
        ensure!(
            self.code == Some(1),
            "exit status {:?}: {}",
            self.code,
            self.stdout
        );
        let error: Value = serde_json::from_str(&self.stdout)
            .with_context(|| format!("stdout is not one document: {}", self.stdout))?;
        ensure!(
            error["code"].is_u64() && error["msg"].is_string(),
            "stdout holds no CNI error: {error}"
        );
        Ok(error)
    }

    /// Fails unless the call failed and its error contains these words.
    pub(crate) fn error_contains(&self, words: &[&str]) -> anyhow::Result<()> {
        let error = self.error()?.to_string();
        for word in words {
            ensure!(
                error.contains(word),
                "the error does not contain {word:?}: {error}"
            );
        }
        Ok(())
    }

    /// Fails unless the call failed with that code.
    pub(crate) fn has_code(&self, code: u64) -> anyhow::Result<()> {
        let error = self.error()?;
        ensure!(
            error["code"] == code,
            "code {} instead of {code}: {error}",
            error["code"]
        );
        Ok(())
    }

    /// Returns whether the error asks the runtime to try again later.
    pub(crate) fn is_retriable(&self) -> bool {
        self.error()
            .is_ok_and(|error| error["code"] == TRY_AGAIN_LATER)
    }
}
