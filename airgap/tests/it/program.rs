//! Runs the program as an operator does, without a checkout.

use std::{
    path::Path,
    process::{Command, Output},
};

pub(crate) const FAILED: i32 = 1;
pub(crate) const BAD_USAGE: i32 = 2;

/// Returns a command of the program that has neither the proxies nor the logins of this machine.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_multus-airgap"));
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
        .env_remove("REGISTRY_AUTH_FILE")
        .env_remove("MULTUS_REGISTRY_PASSWORD")
        .env("DOCKER_CONFIG", "/nonexistent")
        .args(args);
    command
}

/// Runs a command; returns its exit status, stdout and stderr.
pub(crate) fn output(mut command: Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the built program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
    let status = status.code().expect("no signal ends the program");
    (status, text(stdout), text(stderr))
}

/// Runs a command that must succeed; returns its stdout.
#[track_caller]
pub(crate) fn succeeds(command: Command) -> String {
    let (status, stdout, stderr) = output(command);
    assert_eq!(status, 0, "{stderr}");
    stdout
}

/// Runs a command that must fail; the last line of its stderr must have the text.
#[track_caller]
pub(crate) fn refused(command: Command, status: i32, expected: &str) {
    let (found, stdout, stderr) = output(command);
    assert_eq!(found, status, "{stdout}{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("multus-airgap: "), "{stderr}");
    assert!(last.contains(expected), "no `{expected}` in {stderr}");
    assert_eq!(stdout, "");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the test is text")
}

#[test]
fn wrong_arguments_are_bad_usage() {
    for (args, expected) in [
        (&["jump"][..], "'jump'"),
        (&["verify"], "<DIR>"),
        (&["push", "x"], "<REGISTRY>"),
        (
            &["push", "x", "r", "--user", "http://r=me"],
            "write NAME or HOST=NAME",
        ),
    ] {
        refused(command(args), BAD_USAGE, expected);
    }
}

#[test]
fn missing_paths_are_named() {
    for args in [
        &["verify", "/nosuch"][..],
        &["explain", "/nosuch"],
        &["push", "/nosuch", "r.example"],
    ] {
        refused(command(args), FAILED, "/nosuch");
    }
}

#[test]
fn version_is_that_of_the_workspace() {
    let version = api::version::line("multus-airgap") + "\n";
    for form in ["version", "--version", "-v", "-V"] {
        assert_eq!(succeeds(command(&[form])), version);
    }
}
