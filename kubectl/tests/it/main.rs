//! The built program: files and pipes for `lint`, a small API server for `status`, `why` and `preflight`.
//! Exec needs a kubelet and is tried on a real cluster.

#![cfg(test)]

mod cluster;
mod lint;
mod pod;
mod preflight;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Runs the program with an input.
fn run(words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-multus"))
        .args(words)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nowhere")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Who reads no input may have ended by then.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The exit status and the answer as JSON.
#[track_caller]
fn answer(words: &[&str], input: &str) -> (i32, Value) {
    let output = run(&[words, &["-o", "json"]].concat(), input);
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code().unwrap(), answer)
}
