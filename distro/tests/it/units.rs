//! `install` on a node with a unit.

use std::fs;

use super::{path, run};

const UNIT: &str = "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n";

#[test]
fn a_drop_in_comes_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let root = path(dir.path());
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let error = |words: &[&str]| String::from_utf8(run(words).stderr).unwrap();
    let install = ["install", "--root", root, "--program", "/opt/multus-distro"];
    assert!(error(&install).contains("install the distro first"));
    fs::create_dir_all(at("/etc/systemd/system")).unwrap();
    fs::write(at("/etc/systemd/system/k3s.service"), UNIT).unwrap();
    let place = "/etc/systemd/system/k3s.service.d/90-multus.conf";
    let output = run(&install);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("systemctl daemon-reload && systemctl restart k3s.service"),
        "{told}"
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{place}\n")
    );
    let text = fs::read_to_string(at(place)).unwrap();
    assert!(
        text.ends_with(
            "ExecStart=/opt/multus-distro server --multus -- /usr/local/bin/k3s server\n"
        ),
        "{text}"
    );
    assert!(error(&install).contains("is as it should be"));
    fs::write(at("/etc/systemd/system/k3s-agent.service"), UNIT).unwrap();
    assert!(error(&install).contains("say which starts with Multus, with --unit"));
    // What is staged goes with it.
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
    assert!(!hint.exists(), "nobody writes it any more");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("plan: empty ")
    );
    assert!(!at("/etc/systemd/system/k3s.service.d").exists());
    let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    assert!(manifest.starts_with("# removed"));
    assert!(error(&remove).contains("has no drop-in of ours"));
}
