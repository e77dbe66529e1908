//! The built program, from outside.

mod bad_input;
mod images;
mod units;
mod vpn;
mod vpn_life;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(args)
        .output()
        .expect("the built program starts")
}

fn path(path: &Path) -> &str {
    path.to_str()
        .expect("temporary directories have plain names")
}

/// Writes a fake distro, which prints its arguments and the first line of the manifest, and exits with 7.
fn fake(dir: &Path, name: &str) -> PathBuf {
    let program = dir.join(name);
    let text =
        "#!/bin/sh\necho \"$@\"\nhead -1 \"$DATA/server/manifests/multus.yaml\" 2>&1\nexit 7\n";
    fs::write(&program, text).expect("a directory of the test");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of the test");
    program
}

/// Runs `multus-distro` with a fake distro; returns what the fake printed.
fn start(data: &Path, args: &[&str], program: &Path, distro_args: &[&str]) -> String {
    let hint = data.with_file_name("node.json");
    let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(args)
        .args(["--hint", path(&hint), "--", path(program)])
        .args(distro_args)
        .args(["--data-dir", path(data)])
        .env("DATA", data)
        .output()
        .expect("the built program starts");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    String::from_utf8(output.stdout).expect("the program writes UTF-8")
}

#[test]
fn server_stages_then_becomes_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), fake(dir.path(), "k3s"));
    let manifest = data.join("server/manifests/multus.yaml");
    let printed = start(&data, &["run", "--multus"], &program, &["server"]);
    let first = "apiVersion: helm.cattle.io/v1";
    assert_eq!(
        printed,
        format!("server --data-dir {}\n{first}\n", data.display())
    );
    let hint = fs::read(dir.path().join("node.json")).unwrap();
    let hint: serde_json::Value = serde_json::from_slice(&hint).unwrap();
    assert_eq!(hint["dataDir"], path(&data));
    // Without --multus the distro is made to remove the manifest and what it installed from it, and only once.
    let off = || start(&data, &["run"], &program, &["server"]);
    let expected = format!(
        "server --data-dir {} --disable=multus\n{first}\n",
        data.display()
    );
    assert_eq!(off(), expected);
    assert!(!dir.path().join("node.json").exists());
    assert_eq!(
        fs::read_dir(data.join("server/static/charts"))
            .unwrap()
            .count(),
        0
    );
    fs::remove_file(&manifest).unwrap();
    assert!(off().starts_with(&format!("server --data-dir {}\n", data.display())));
    assert!(!data.join("server/.multus-distro.json").exists());
}

#[test]
fn server_starts_whatever_keeps_multus_from_being_staged() {
    let dir = tempfile::tempdir().unwrap();
    let program = fake(dir.path(), "k3s");
    let hint = dir.path().join("node.json");
    let write = |file: &Path, text: &str| {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let manifest = "server/manifests/multus.yaml";
    for (name, file, args, reason) in [
        (
            "foreign",
            manifest,
            &[][..],
            "objectset.rio.cattle.io/prune=false",
        ),
        (
            "record",
            "server/.multus-distro.json",
            &[],
            ".multus-distro.json",
        ),
        ("directory", "server/static", &[], "server/static"),
        (
            "off",
            "x",
            &["--disable=multus"],
            "take it out of its disable list",
        ),
        (
            "registry",
            "x",
            &["--system-default-registry=<registry>"],
            "a template",
        ),
    ] {
        let data = dir.path().join(name);
        write(&data.join(file), "theirs");
        let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
            .args([
                "run",
                "--multus",
                "--hint",
                path(&hint),
                "--",
                path(&program),
                "server",
            ])
            .args(["--data-dir", path(&data)])
            .args(args)
            .env("DATA", &data)
            .output()
            .unwrap();
        let notes = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{name}: {output:?}");
        assert!(
            notes.contains("and k3s starts") && notes.contains(reason),
            "{name}: {notes}"
        );
        assert_eq!(fs::read(data.join(file)).unwrap(), b"theirs");
        assert_eq!(data.join(manifest).exists(), name == "foreign");
    }
}

/// What the distro's reader makes of these files is the distro's to say, so none of them keeps a node down.
#[test]
fn server_starts_with_every_configuration_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    for (name, text, staged) in [
        ("k3s", "tls-san: a\ntls-san: b\n", true),
        ("k3s", "tls-san: a\n---\n[x]\n", true),
        ("k3s", "tls-san: [a\n", false),
        ("k3s", "[a]\n", false),
        ("rke2", "cni: [multus, canal]\n", false),
    ] {
        let data = tempfile::tempdir_in(dir.path()).unwrap();
        fs::write(&config, text).unwrap();
        let program = fake(dir.path(), name);
        let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
            .args(["run", "--multus", "--hint", path(&dir.path().join("hint"))])
            .args(["--", path(&program), "server", "--config", path(&config)])
            .args(["--data-dir", path(data.path())])
            .env("DATA", data.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(7), "{text}: {output:?}");
        let notes = String::from_utf8_lossy(&output.stderr);
        let is_named = notes.contains(&format!("Multus is left as it is, and {name} starts"));
        assert_eq!(is_named, !staged, "{text}: {notes}");
        assert_eq!(
            data.path().join("server/manifests").exists(),
            staged,
            "{text}"
        );
    }
    // A relative directory is below the working directory, as it is for the distro.
    let program = fake(dir.path(), "k3s");
    let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(["run", "--multus", "--hint", path(&dir.path().join("hint"))])
        .args(["--", path(&program), "server", "--data-dir", "relative"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(
        dir.path()
            .join("relative/server/manifests/multus.yaml")
            .exists()
    );
}

/// Other programs look for files of theirs in the directories above, whatever the umask of the one that made them.
#[test]
fn directories_above_the_data_are_for_every_user() {
    let dir = tempfile::tempdir().unwrap();
    let program = fake(dir.path(), "k3s");
    let hint = dir.path().join("node.json");
    let staged = ["stage", "--multus", "--distro", "k3s"];
    let server = ["run", "--multus", "--hint", path(&hint)];
    let started = ["--", path(&program), "server"];
    for (name, before, after) in [("a", &staged[..], &[][..]), ("b", &server, &started)] {
        let above = dir.path().join(name);
        let data = above.join("lib/rancher/k3s");
        Command::new("/bin/sh")
            .args(["-c", "umask 077; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_multus-distro"))
            .args(before)
            .args(["--data-dir", path(&data)])
            .args(after)
            .env("DATA", &data)
            .output()
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for dir in [&above.join("lib"), &above.join("lib/rancher"), &data] {
            assert_eq!(mode(dir), 0o755, "{}", dir.display());
        }
        assert_eq!(mode(&data.join("server")), 0o700, "{name}");
    }
}

#[test]
fn start_without_multus_keeps_the_disable_list_of_the_distro() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), fake(dir.path(), "rke2"));
    let config = dir.path().join("config.yaml");
    fs::write(&config, "disable: [rke2-ingress-nginx]\n").unwrap();
    let args = ["server", "--config", path(&config)];
    start(&data, &["run", "--multus"], &program, &args);
    let printed = start(&data, &["run"], &program, &args);
    let expected = "--disable=rke2-ingress-nginx --disable=multus-crd --disable=multus";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn agent_stages_nothing_but_writes_the_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), fake(dir.path(), "k3s"));
    let printed = start(&data, &["run", "--multus"], &program, &["agent"]);
    assert!(printed.starts_with("agent --data-dir"), "{printed}");
    assert!(!data.exists());
    let hint = fs::read(dir.path().join("node.json")).unwrap();
    let hint: serde_json::Value = serde_json::from_slice(&hint).unwrap();
    let config = data.join("agent/etc/containerd/config.toml");
    assert_eq!(hint["containerdConfig"], path(&config));
    assert_eq!(hint["distro"], "k3s");
}

#[test]
fn registry_comes_before_every_image() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), fake(dir.path(), "k3s"));
    let flag = ["server", "--system-default-registry=reg.example:5000"];
    start(&data, &["run", "--multus"], &program, &flag);
    let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
    let line = "global.systemDefaultRegistry: \"reg.example:5000\"";
    assert!(manifest.contains(line), "{manifest}");
}

#[test]
fn jobs_of_a_server_without_agent_need_no_server_node() {
    let dir = tempfile::tempdir().unwrap();
    let (data, program) = (dir.path().join("data"), fake(dir.path(), "k3s"));
    let bootstraps = || {
        let manifest = fs::read_to_string(data.join("server/manifests/multus.yaml")).unwrap();
        manifest.matches("bootstrap: true").count()
    };
    start(&data, &["run", "--multus"], &program, &["server"]);
    assert_eq!(bootstraps(), 2);
    let args = ["server", "--disable-agent"];
    start(&data, &["run", "--multus"], &program, &args);
    assert_eq!(bootstraps(), 0);
    let verified = run(&["verify", "--distro", "k3s", "--data-dir", path(&data)]);
    assert!(verified.status.success(), "{verified:?}");
    let stage = |more: &[&str]| {
        let args = ["stage", "--multus", "--distro", "k3s", "--data-dir"];
        let output = run(&[&args[..], &[path(&data)], more].concat());
        assert!(output.status.success(), "{output:?}");
    };
    stage(&[]);
    assert_eq!(bootstraps(), 2);
    stage(&["--disable-agent"]);
    assert_eq!(bootstraps(), 0);
}

#[test]
fn staged_chart_is_the_embedded_one() {
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
        fs::read(&staged).unwrap(),
        run(&["chart", "get", "k3s-multus"]).stdout
    );
    let plan = run(&["unstage", "--data-dir", data, "--dry-run"]);
    let printed = String::from_utf8(plan.stderr).unwrap();
    assert!(
        printed.contains("plan: empty ") && printed.contains("plan: delete "),
        "{printed}"
    );
    assert!(plan.stdout.is_empty() && staged.exists());
    assert!(run(&["unstage", "--data-dir", data]).status.success());
    let manifest = fs::read_to_string(dir.path().join("server/manifests/multus.yaml"));
    assert!(manifest.unwrap().starts_with("# removed"));
    assert!(
        run(&["unstage", "--purge", "--data-dir", data])
            .status
            .success()
    );
    assert_eq!(
        fs::read_dir(dir.path().join("server/manifests"))
            .unwrap()
            .count(),
        0
    );
}
