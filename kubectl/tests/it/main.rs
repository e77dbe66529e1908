//! Tests of the built program: `lint` with files and pipes; `status`, `why`, `ipam`, `preflight` and `report` with a fake
//! API server.
//! Exec needs a kubelet and is tested on a real cluster (e2e).

#![cfg(test)]

mod addresses;
mod cluster;
mod lint;
mod networks;
mod pod;
mod preflight;
mod report;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Runs the program with this stdin.
fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-multus"))
        .args(args)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nowhere")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads no stdin may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Runs the program with `-o json` and returns exit status and answer.
#[track_caller]
fn answer(args: &[&str], input: &str) -> (i32, Value) {
    let output = run(&[args, &["-o", "json"]].concat(), input);
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code().unwrap(), answer)
}

/// Fails unless the program refused with exit status 3, and said this.
#[track_caller]
fn is_refused(output: &Output, part: &str) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(part), "{text}");
}

/// Fails unless an answer came with this exit status and has this value at a pointer; null, where it has nothing.
#[track_caller]
fn check((status, answer): &(i32, Value), expected: i32, pointer: &str, value: &Value) {
    let found = (*status, answer.pointer(pointer).unwrap_or(&Value::Null));
    assert_eq!(found, (expected, value), "{answer}");
}

/// Fails unless a text, or one inside of a list or an object, has this part.
#[track_caller]
fn has(value: &Value, part: &str) {
    assert!(value.to_string().contains(part), "{value}");
}
