//! Calls of the shim under test, and what they print.

use std::{
    ffi::OsStr,
    io::Write as _,
    process::{Child, Output, Stdio},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Harness;
use crate::sh;

#[derive(Debug)]
pub(crate) struct ShimOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A call of the shim that has not ended yet.
pub(crate) struct RunningShim(Child);

impl Harness {
    /// Runs the shim with exactly these CNI variables.
    pub(crate) fn shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<ShimOutput> {
        let mut command = self.node().command(&self.programs.borrow().shim);
        command.envs(env.iter().map(|(key, value)| (key, value)));
        Ok(sh::output(&mut command, stdin)?.into())
    }

    /// Starts the shim without waiting for its end.
    pub(crate) fn spawn_shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<RunningShim> {
        let mut command = self.node().command(&self.programs.borrow().shim);
        let mut child = command
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the shim")?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        // A shim that ends before it reads stdin reports the reason on stdout.
        let _ = input.write_all(stdin);
        Ok(RunningShim(child))
    }
}

impl RunningShim {
    /// Returns the output, or an error if the shim runs longer than that many seconds.
    pub(crate) fn within(mut self, seconds: u64) -> anyhow::Result<ShimOutput> {
        let ended = sh::until(seconds, "the shim ends", || {
            self.0.try_wait()?.context("it still runs")
        });
        if let Err(error) = ended {
            // The child is nsenter or timeout, which forward the signal to the shim.
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.0),
                rustix::process::Signal::TERM,
            )?;
            let _ = self.0.wait();
            return Err(error);
        }
        Ok(self.0.wait_with_output()?.into())
    }
}

impl From<Output> for ShimOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl ShimOutput {
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
}
