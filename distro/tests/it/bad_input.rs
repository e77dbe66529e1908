//! What a stranger gets wrong: one line that says what, where and what helps, the right status, and nothing changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{path, run};

const FAILED: i32 = 1;
const BAD_USAGE: i32 = 2;

#[track_caller]
fn refused(words: &[&str], status: i32, parts: &[&str]) {
    let output = run(words);
    let error = String::from_utf8(output.stderr).expect("it speaks UTF-8");
    assert_eq!(output.status.code(), Some(status), "{words:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{words:?}: {error}");
    assert!(output.stdout.is_empty(), "{words:?}");
    for part in parts {
        assert!(error.contains(part), "{words:?}: no `{part}` in {error}");
    }
}

/// Everything below a directory, with the bytes of files.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory of the test") {
        let path = entry.expect("a directory of the test").path();
        if path.is_dir() {
            found.extend(content(&path));
            found.push((path, Vec::new()));
        } else {
            let bytes = fs::read(&path).expect("a file of the test");
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn wrong_words_are_bad_usage() {
    for (words, part) in [
        (
            &["chart", "get", "nothing"][..],
            "k3s-multus, k3s-multus-crd",
        ),
        (
            &["stage", "--multus", "--distro", "k3s", "--data-dir", "here"],
            "name it by its whole path",
        ),
        (&["unstage", "--data-dir", "here"], "by its whole path"),
        (
            &["stage", "--distro", "k8s", "--data-dir", "/x"],
            "k3s, rke2",
        ),
        (&["stage", "--multus"], "--data-dir <DATA_DIR>"),
        (&["server", "--multus"], "<COMMAND>"),
        (&["server", "--", "sleep", "1"], "with --distro"),
        (
            &["server", "--", "k3s", "server", "--data-dir", "here"],
            "by its whole path",
        ),
        (&["agent", "--distro", "rke2", "--", "k3s"], "leave it out"),
        (
            &["server", "--data-dir", "/a", "--", "k3s", "--data-dir=/b"],
            "leave one of them out",
        ),
        (
            &["server", "--", "rke2", "server", "--cni", "multus,canal"],
            "take `multus` out",
        ),
        (
            &[
                "server",
                "--multus",
                "--",
                "k3s",
                "server",
                "--config=/nowhere",
                "--disable",
                "x,multus",
            ],
            "take it out of its disable list",
        ),
        (&["server", "--", "k3s", "agent"], "multus-distro agent"),
        (&["agent", "--", "k3s", "server"], "multus-distro server"),
        (&["jump"], "'jump'"),
    ] {
        refused(words, BAD_USAGE, &[part]);
    }
}

#[test]
fn a_program_that_is_not_there_stages_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, absent) = (dir.path().join("data"), dir.path().join("k3s"));
    let hint = dir.path().join("node.json");
    for program in [path(&absent), "no-such-k3s"] {
        let words = ["server", "--multus", "--distro", "k3s", "--hint"];
        let more = [path(&hint), "--", program, "--data-dir", path(&data)];
        refused(
            &[&words[..], &more].concat(),
            FAILED,
            &[program, "after --"],
        );
    }
    assert!(content(dir.path()).is_empty());
}

#[test]
fn a_directory_that_is_a_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thesis");
    fs::write(&file, "mine").unwrap();
    let before = content(dir.path());
    let below = file.join("k3s");
    for place in [path(&file), path(&below)] {
        let stage = ["stage", "--multus", "--distro", "k3s", "--data-dir", place];
        refused(&stage, FAILED, &[place, "no directory"]);
        refused(&["unstage", "--data-dir", place], FAILED, &[place]);
    }
    let out = ["chart", "get", "k3s-multus", "--out"];
    refused(
        &[&out[..], &[path(&below)]].concat(),
        FAILED,
        &["thesis/k3s"],
    );
    refused(
        &[&out[..], &[path(dir.path())]].concat(),
        FAILED,
        &["directory"],
    );
    refused(&[&out[..], &["/"]].concat(), FAILED, &["cannot write /"]);
    assert_eq!(content(dir.path()), before);
}

/// No file can have more than two kilobytes, as near to a full disk as one gets without root.
#[test]
fn without_room_the_former_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let stage = |registry: &str, shell: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", shell, "sh"]);
        command.args([env!("CARGO_BIN_EXE_multus-distro"), "stage", "--multus"]);
        command.args(["--distro", "k3s", "--data-dir", path(dir.path())]);
        command.args(["--system-default-registry", registry]);
        command.output().unwrap()
    };
    let full = "trap '' XFSZ; ulimit -f 4; exec \"$@\"";
    let chart = dir.path().join(concat!(
        "server/static/charts/k3s-multus-",
        env!("CARGO_PKG_VERSION"),
        ".tgz"
    ));
    for registry in ["a.example", "b.example"] {
        if chart.exists() {
            fs::write(&chart, "has to be written again").unwrap();
        }
        let before = content(dir.path());
        let output = stage(registry, full);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(FAILED), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains("cannot stage /"), "{error}");
        assert!(error.contains("make room"), "{error}");
        assert_eq!(content(dir.path()), before);
        assert!(stage(registry, "exec \"$@\"").status.success());
        assert_ne!(content(dir.path()), before);
    }
}

#[test]
fn full_stdout_is_told() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let child = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(["chart", "get", "k3s-multus"])
        .stdout(full.unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{error}");
    assert!(error.contains("cannot write to stdout"), "{error}");
}

#[test]
fn a_damaged_record_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("server")).unwrap();
    fs::write(dir.path().join("server/.multus-distro.json"), "{").unwrap();
    let before = content(dir.path());
    let data = path(dir.path());
    let stage = ["stage", "--multus", "--distro", "k3s", "--data-dir", data];
    refused(&stage, FAILED, &["is damaged: remove it"]);
    refused(&["unstage", "--data-dir", data], FAILED, &["remove it"]);
    assert_eq!(content(dir.path()), before);
}
