//! What a stranger gets wrong: one line that says what, where and what helps, the right status, and nothing changed.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub(crate) const FAILED: i32 = 1;
const BAD_USAGE: i32 = 2;

/// The program, with a memory of its own in `dir` and no need of git.
pub(crate) fn xtask(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    prepare(&mut command, dir);
    command.args(words);
    command
}

fn prepare(command: &mut Command, dir: &Path) {
    command
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("SOURCE_DATE_EPOCH", "0");
}

/// The program where no file can have more than two kilobytes, as near to a full disk as one gets without root.
fn xtask_without_room(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    prepare(&mut command, dir);
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_xtask"))
        .args(words);
    command
}

pub(crate) fn output(mut command: Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().expect("the built program starts");
    let status = status.code().expect("it ends by itself");
    (status, String::from_utf8(stderr).expect("it speaks UTF-8"))
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

/// Everything below a folder, by path; folders have no bytes.
fn content(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder of the test") {
        let path = entry.expect("a folder of the test").path();
        let bytes = (!path.is_dir()).then(|| fs::read(&path).expect("a file of the test"));
        if bytes.is_none() {
            found.extend(content(&path));
        }
        found.insert(path, bytes);
    }
    found
}

#[test]
fn wrong_words_are_bad_usage() {
    let dir = tempfile::tempdir().unwrap();
    for (words, part) in [
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
        refused(xtask(dir.path(), words), BAD_USAGE, &[part, "--help"]);
    }
    assert!(content(dir.path()).is_empty());
}

#[test]
fn a_folder_that_is_a_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis"), "mine").unwrap();
    let before = content(dir.path());
    for words in [
        &["chart", "package"][..],
        &["generate"],
        &["dist"],
        &["dist", "--arch", "amd64"],
    ] {
        for out in ["thesis", "thesis/dist"] {
            let words = [words, &["--out", out]].concat();
            refused(
                xtask(dir.path(), &words),
                FAILED,
                &[out, "name another place"],
            );
        }
    }
    assert_eq!(content(dir.path()), before);
}

#[test]
fn without_room_the_former_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let former = dir.path().join("dist/charts/assets/k3s-multus-crd");
    fs::create_dir_all(&former).unwrap();
    fs::write(former.join("k3s-multus-crd-5.0.0.tgz"), "former").unwrap();
    fs::write(dir.path().join("dist/charts/index.yaml"), "former").unwrap();
    let before = content(dir.path());
    for words in [&["chart", "package"][..], &["generate"]] {
        let without_room = xtask_without_room(dir.path(), words);
        refused(without_room, FAILED, &["cannot write dist/", "make room"]);
        assert_eq!(content(dir.path()), before);
    }
    // The same with room, so that the test proves what it says.
    for words in [&["chart", "package"][..], &["generate"]] {
        let (status, error) = output(xtask(dir.path(), words));
        assert_eq!(status, 0, "{error}");
    }
}

#[test]
fn full_stdout_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut index = xtask(dir.path(), &["chart", "index"]);
    // `output` would put a pipe there.
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
fn a_missing_toolchain_comes_with_its_cure() {
    let dir = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let bare = |words: &[&str]| {
        let mut command = xtask(dir.path(), words);
        command.env("PATH", tools.path());
        command
    };
    refused(bare(&["build"]), FAILED, &["rustc", "https://rustup.rs"]);
    let rustc = tools.path().join("rustc");
    fs::write(&rustc, "#!/bin/sh\necho /no/such/folder\n").unwrap();
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    let missing = [
        "cannot build for arm64, arm",
        "`rustup target add aarch64-unknown-linux-musl armv7-unknown-linux-gnueabihf`",
        "`apt-get install --yes gcc-aarch64-linux-gnu",
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
fn steps_name_what_makes_their_input() {
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
fn what_is_no_release_is_told_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    for name in ["file", "folder", "absent"] {
        let verify = xtask(dir.path(), &["verify", name]);
        refused(verify, FAILED, &[name, "cargo xtask dist"]);
    }
    fs::write(dir.path().join("folder/SHA256SUMS"), "x\n").unwrap();
    let verify = xtask(dir.path(), &["verify", "folder"]);
    refused(verify, FAILED, &["folder", "SHA256SUMS is damaged"]);
}

#[test]
fn a_time_that_is_none_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = xtask(dir.path(), &["chart", "index"]);
    index.env("SOURCE_DATE_EPOCH", "noon");
    refused(index, FAILED, &["SOURCE_DATE_EPOCH is `noon`", "unset it"]);
}
