//! What git keeps of a distro's tree that has `chart/consumers`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn git(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.current_dir(dir).args(args);
    command.output().expect("git starts")
}

#[test]
fn lock_is_committed_and_downloads_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chart/consumers");
    fs::copy(source.join(".gitignore"), dir.path().join(".gitignore")).unwrap();
    assert!(git(dir.path(), &["init", "--quiet"]).status.success());
    let is_ignored = |path: &str| {
        let output = git(dir.path(), &["check-ignore", "--quiet", path]);
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            _ => panic!("{output:?}"),
        }
    };
    for path in [
        "multus.lock",
        "multus.mk",
        "stage.go",
        "embedded/static/static.go",
        "embedded/static/embed/.empty",
    ] {
        assert!(!is_ignored(path), "{path}");
    }
    for path in [
        "consumer",
        "bindata/static/zz_generated_bindata.go",
        "embedded/static/embed/charts/k3s-multus-X.Y.Z.tgz",
        "embedded/deploy/embed/multus.yaml",
    ] {
        assert!(is_ignored(path), "{path}");
    }
}
