//! Wrong input: one line that says what is wrong, where and what helps, the right exit status, and nothing changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{path, run};

const FAILED: i32 = 1;
const BAD_USAGE: i32 = 2;

#[track_caller]
fn refused(args: &[&str], status: i32, parts: &[&str]) {
    let output = run(args);
    let error = String::from_utf8(output.stderr).expect("the program writes UTF-8");
    assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for part in parts {
        assert!(error.contains(part), "{args:?}: no `{part}` in {error}");
    }
}

/// Returns everything below a directory, with the bytes of files.
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
fn wrong_arguments_are_bad_usage() {
    for (args, part) in [
        (
            &["chart", "get", "nothing"][..],
            "k3s-multus, k3s-multus-crd",
        ),
        (
            &["stage", "--multus", "--distro", "k3s", "--data-dir", "here"],
            "give an absolute path",
        ),
        (&["unstage", "--data-dir", "here"], "give an absolute path"),
        (
            &["stage", "--distro", "k8s", "--data-dir", "/x"],
            "k3s, rke2",
        ),
        (&["stage", "--multus"], "--data-dir <DATA_DIR>"),
        (&["run", "--multus"], "<COMMAND>"),
        (&["run", "--", "sleep", "1"], "with --distro"),
        (&["run", "--distro", "rke2", "--", "k3s"], "leave it out"),
        (
            &[
                "stage",
                "--multus",
                "--distro=k3s",
                "--data-dir=/x",
                "--system-default-registry=${REGISTRY}",
            ],
            "a template that was not filled in: set host and port",
        ),
        (
            &[
                "images",
                "list",
                "--system-default-registry=https://r.example",
            ],
            "leave https:// out",
        ),
        (
            &["run", "--", "k3s", "kubectl"],
            "neither as server nor as agent",
        ),
        (&["jump"], "'jump'"),
    ] {
        refused(args, BAD_USAGE, &[part]);
    }
}

#[test]
fn missing_program_stages_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, absent) = (dir.path().join("data"), dir.path().join("k3s"));
    let hint = dir.path().join("node.json");
    for program in [path(&absent), "no-such-k3s"] {
        let args = ["run", "--multus", "--distro", "k3s", "--hint"];
        let data = ["server", "--data-dir", path(&data)];
        let more = [&[path(&hint), "--", program][..], &data].concat();
        refused(&[&args[..], &more].concat(), FAILED, &[program, "after --"]);
    }
    assert!(content(dir.path()).is_empty());
}

#[test]
fn file_where_a_directory_is_expected_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thesis");
    fs::write(&file, "mine").unwrap();
    let before = content(dir.path());
    let below = file.join("k3s");
    for dir in [path(&file), path(&below)] {
        let stage = ["stage", "--multus", "--distro", "k3s", "--data-dir", dir];
        refused(&stage, FAILED, &[dir, "is not a directory: name another"]);
        refused(&["unstage", "--data-dir", dir], FAILED, &[dir]);
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

#[test]
fn missing_directory_of_archives_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = path(dir.path());
    let expected = "there is no directory /nosuch: name the one with";
    refused(&["images", "verify", "/nosuch"], FAILED, &[expected]);
    let install = ["images", "install", "/nosuch", "--distro", "k3s"];
    let install = [&install[..], &["--data-dir", data]].concat();
    refused(&install, FAILED, &[expected]);
}

/// `ulimit` allows no file of more than two kilobytes, which comes as near to a full disk as is possible without root.
#[test]
fn full_disk_leaves_the_former_files() {
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
fn full_stdout_is_reported() {
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
fn damaged_record_is_reported() {
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
