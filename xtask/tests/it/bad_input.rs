//! Wrong input: one line that says what is wrong, where and what helps, the right exit status, and nothing changed.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub(crate) const FAILED: i32 = 1;
const BAD_USAGE: i32 = 2;

/// Returns a command of the program, with a cache of its own in `dir` and without the need of git.
pub(crate) fn xtask(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    prepare(&mut command, dir);
    command.args(args);
    command
}

fn prepare(command: &mut Command, dir: &Path) {
    command
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("SOURCE_DATE_EPOCH", "0");
}

/// Returns a command that can write no file of more than two kilobytes, which comes as near to a full disk as is possible without root.
fn xtask_without_room(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    prepare(&mut command, dir);
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_xtask"))
        .args(args);
    command
}

/// Runs the command; returns its exit status and stderr.
pub(crate) fn output(mut command: Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().expect("the built program starts");
    let status = status.code().expect("no signal ends the program");
    let stderr = String::from_utf8(stderr).expect("the program writes UTF-8");
    (status, stderr)
}

#[track_caller]
pub(crate) fn refused(command: Command, status: i32, parts: &[&str]) {
    let (found, error) = output(command);
    assert_eq!(found, status, "{error}");
    assert!(error.starts_with("error: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for part in parts {
        assert!(error.contains(part), "no `{part}` in {error}");
    }
}

/// Returns everything below a directory by path; directories have no bytes.
fn content(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory of the test") {
        let path = entry.expect("a directory of the test").path();
        let bytes = (!path.is_dir()).then(|| fs::read(&path).expect("a file of the test"));
        if bytes.is_none() {
            found.extend(content(&path));
        }
        found.insert(path, bytes);
    }
    found
}

#[test]
fn missing_directories_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["verify", "/nosuch"][..], "/nosuch does not exist"),
        (
            &["chart", "index", "--check", "/nosuch"],
            "/nosuch/index.yaml: name the directory",
        ),
    ] {
        refused(xtask(dir.path(), args), FAILED, &[expected]);
    }
}

#[test]
fn wrong_arguments_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    for (args, part) in [
        (
            &["build", "--arch", "sparc"][..],
            "possible values: amd64, arm64, arm",
        ),
        (&["images", "--arch", "amd64,sparc"], "'sparc'"),
        (&["airgap", "bundle", "--arch", "sparc"], "'sparc'"),
        (&["dist", "--arch", "sparc"], "'sparc'"),
        (&["e2e", "moon"], "'moon'"),
        (&["jump"], "'jump'"),
        (&["verify"], "<DIR>"),
        (&["chart", "package", "--arch", "arm"], "'--arch'"),
    ] {
        refused(xtask(dir.path(), args), BAD_USAGE, &[part, "--help"]);
    }
    assert!(content(dir.path()).is_empty());
}

#[test]
fn file_where_a_directory_is_expected_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis"), "mine").unwrap();
    let before = content(dir.path());
    for args in [
        &["chart", "package"][..],
        &["generate"],
        &["dist"],
        &["dist", "--arch", "amd64"],
    ] {
        for out in ["thesis", "thesis/dist"] {
            let args = [args, &["--out", out]].concat();
            refused(
                xtask(dir.path(), &args),
                FAILED,
                &[out, "name another path"],
            );
        }
    }
    assert_eq!(content(dir.path()), before);
}

#[test]
fn full_disk_leaves_the_former_files() {
    let dir = tempfile::tempdir().unwrap();
    let former = dir.path().join("dist/charts/assets/k3s-multus-crd");
    fs::create_dir_all(&former).unwrap();
    fs::write(former.join("k3s-multus-crd-5.0.0.tgz"), "former").unwrap();
    fs::write(dir.path().join("dist/charts/index.yaml"), "former").unwrap();
    let before = content(dir.path());
    for args in [&["chart", "package"][..], &["generate"]] {
        let without_room = xtask_without_room(dir.path(), args);
        refused(without_room, FAILED, &["cannot write dist/", "make room"]);
        assert_eq!(content(dir.path()), before);
    }
    // With room the same commands succeed, so the lack of room was the reason.
    for args in [&["chart", "package"][..], &["generate"]] {
        let (status, error) = output(xtask(dir.path(), args));
        assert_eq!(status, 0, "{error}");
    }
}

#[test]
fn full_stdout_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut index = xtask(dir.path(), &["chart", "index"]);
    // `output` would replace stdout by a pipe.
    index.stdout(full).stderr(std::process::Stdio::piped());
    let child = index.spawn().unwrap().wait_with_output().unwrap();
    let error = String::from_utf8(child.stderr).unwrap();
    assert_eq!(child.status.code(), Some(FAILED));
    assert!(
        error.starts_with("error: cannot write to stdout: "),
        "{error}"
    );
}

#[test]
fn missing_toolchain_is_reported_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let bare = |args: &[&str]| {
        let mut command = xtask(dir.path(), args);
        command.env("PATH", tools.path());
        command
    };
    refused(bare(&["build"]), FAILED, &["rustc", "https://rustup.rs"]);
    let rustc = tools.path().join("rustc");
    let write_rustc = |release: &str| {
        let text = format!(
            "#!/bin/sh\ncase $1 in -vV) echo 'release: {release}'; echo 'commit-hash: c0ffee' ;; *) echo /no/such/dir ;; esac\n"
        );
        fs::write(&rustc, text).unwrap();
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let pin = include_str!("../../../rust-toolchain.toml");
    let pin = pin.lines().find_map(|line| line.strip_prefix("channel = "));
    let pin = pin.unwrap().trim_matches('"');
    write_rustc("1.2.3");
    let expected = [
        "rustc is 1.2.3, rust-toolchain.toml pins",
        &format!("rustup toolchain install {pin}"),
    ];
    for command in ["build", "dist"] {
        refused(bare(&[command, "--arch", "arm64"]), FAILED, &expected);
    }
    write_rustc(pin);
    let missing = [
        "cannot build for arm64, arm",
        "`rustup target add aarch64-unknown-linux-musl`",
        "`rustup component add rust-src`",
        "`cargo xtask download --lock xtask/zig-",
        "--install",
        "--arch",
    ];
    refused(bare(&["build", "--arch", "arm64,arm"]), FAILED, &missing);
    let (status, error) = output(bare(&["build", "--arch", "arm64", "--install"]));
    assert_eq!(status, FAILED);
    let last = error.lines().last().unwrap();
    assert!(last.contains("https://rustup.rs"), "{error}");
    assert!(content(dir.path()).is_empty());
}

#[test]
fn missing_input_is_reported_with_the_command_that_makes_it() {
    let dir = tempfile::tempdir().unwrap();
    let images = xtask(dir.path(), &["images", "--arch", "arm"]);
    refused(images, FAILED, &["cargo xtask build --arch arm --out dist"]);
    let bundle = xtask(dir.path(), &["airgap", "bundle", "--arch", "arm"]);
    refused(
        bundle,
        FAILED,
        &["cargo xtask images --arch arm --out dist"],
    );
    assert!(content(dir.path()).is_empty());
}

#[test]
fn directory_that_is_not_a_release_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    for name in ["file", "dir", "absent"] {
        let verify = xtask(dir.path(), &["verify", name]);
        refused(verify, FAILED, &[name, "name the directory of"]);
    }
    fs::create_dir(dir.path().join("medium")).unwrap();
    fs::write(dir.path().join("medium/sha256sum-arm.txt"), "x\n").unwrap();
    let verify = xtask(dir.path(), &["verify", "medium"]);
    refused(verify, FAILED, &["medium is not sound"]);
    fs::write(dir.path().join("dir/SHA256SUMS"), "x\n").unwrap();
    let verify = xtask(dir.path(), &["verify", "dir"]);
    refused(verify, FAILED, &["dir", "SHA256SUMS is damaged"]);
}

#[test]
fn invalid_source_date_epoch_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = xtask(dir.path(), &["chart", "index"]);
    index.env("SOURCE_DATE_EPOCH", "noon");
    refused(index, FAILED, &["SOURCE_DATE_EPOCH is `noon`", "unset it"]);
}
