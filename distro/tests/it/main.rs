//! The built program, from outside.

mod bad_input;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(words)
        .output()
        .expect("the built program starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn server_stages_then_becomes_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), dir.path().join("k3s"));
    fs::write(&program, "#!/bin/sh\necho started \"$@\"\ncat \"$2\"/server/manifests/multus.yaml | head -1\nexit 7\n").unwrap();
    fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let hint = dir.path().join("node.json");
    let output = run(&[
        "server",
        "--multus",
        "--hint",
        path(&hint),
        "--",
        path(&program),
        "--data-dir",
        path(&data),
    ]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        format!(
            "started --data-dir {}\napiVersion: helm.cattle.io/v1\n",
            data.display()
        )
    );
    let hint: serde_json::Value = serde_json::from_slice(&fs::read(hint).unwrap()).unwrap();
    assert_eq!(hint["dataDir"], path(&data));
    let off = run(&["server", "--", path(&program), "--data-dir", path(&data)]);
    assert_eq!(off.status.code(), Some(7));
    assert!(!data.join("server/manifests/multus.yaml").exists());
}

#[test]
fn the_chart_that_is_staged_is_the_one_that_is_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let data = path(dir.path());
    assert!(
        run(&["stage", "--multus", "--distro", "k3s", "--data-dir", data])
            .status
            .success()
    );
    let staged = dir.path().join("server/static/charts").join(concat!(
        "k3s-multus-",
        env!("CARGO_PKG_VERSION"),
        ".tgz"
    ));
    assert_eq!(
        fs::read(staged).unwrap(),
        run(&["chart", "get", "k3s-multus"]).stdout
    );
    assert!(run(&["unstage", "--data-dir", data]).status.success());
    assert_eq!(
        fs::read_dir(dir.path().join("server/manifests"))
            .unwrap()
            .count(),
        0
    );
}
