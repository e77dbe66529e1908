//! Programs of others that this crate and its users run.

use std::{process::Command, time::Duration};

use cni::process::{Limits, RunError};

/// The outcome of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// It ended with status 0.
    pub is_success: bool,
    pub stdout: String,
    /// The beginning of its stderr.
    pub stderr: String,
}

/// Runs a program that `PATH` has. The child gets no other variable, since ours may hold a key.
pub fn run_program(
    program: &str,
    args: &[String],
    stdin: &[u8],
    limit: Duration,
) -> Result<Output, RunError> {
    let path = std::env::var_os("PATH");
    let path = path.unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin".into());
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/root");
    let limits = Limits {
        time: Some(limit),
        ..Limits::default()
    };
    let output = cni::process::run(&mut command, stdin, &limits)?;
    Ok(Output {
        is_success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
