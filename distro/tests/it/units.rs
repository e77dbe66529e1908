//! `install` on a node with a unit.

use std::fs;

use super::{path, run};

const UNIT: &str = "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n";

#[test]
fn install_writes_a_drop_in_and_remove_deletes_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let error = |args: &[&str]| String::from_utf8(run(args).stderr).unwrap();
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    assert!(error(&install).contains("install the distro first"));
    fs::create_dir_all(at("/etc/systemd/system")).unwrap();
    fs::write(at("/etc/systemd/system/k3s.service"), UNIT).unwrap();
    let drop_in = "/etc/systemd/system/k3s.service.d/90-multus.conf";
    let output = run(&install);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        notes.contains("systemctl daemon-reload && systemctl restart k3s.service"),
        "{notes}"
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{drop_in}\n")
    );
    let text = fs::read_to_string(at(drop_in)).unwrap();
    assert!(
        text.ends_with(
            "ExecStart=/opt/multus-distro server --multus -- /usr/local/bin/k3s server\n"
        ),
        "{text}"
    );
    assert!(error(&install).contains("is up to date"));
    fs::write(at("/etc/systemd/system/k3s-agent.service"), UNIT).unwrap();
    assert!(error(&install).contains("choose the one that starts with Multus, with --unit"));
    // Removing the drop-in also unstages.
    let data = at("/var/lib/rancher/k3s");
    let stage = [
        "stage",
        "--multus",
        "--distro",
        "k3s",
        "--data-dir",
        path(&data),
    ];
    assert!(run(&stage).status.success());
    let remove = [
        "install",
        "--remove",
        "--root",
        root,
        "--unit",
        "k3s.service",
    ];
    let hint = at("/run/multus-distro/node.json");
    fs::create_dir_all(hint.parent().unwrap()).unwrap();
    fs::write(&hint, "{}").unwrap();
    let output = run(&remove);
    assert!(output.status.success(), "{output:?}");
    assert!(!hint.exists(), "the next start does not write it");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("plan: empty ")
    );
    assert!(!at("/etc/systemd/system/k3s.service.d").exists());
    let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    assert!(manifest.starts_with("# removed"));
    assert!(error(&remove).contains("has no drop-in of multus-distro"));
}
