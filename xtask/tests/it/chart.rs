//! `chart derive`, `merge`, `index --check` and `oci` on directories of the test's own.

use std::{fs, path::Path, process::Command};

use archive::{digest::sha256, gzip, layout::Layout, tar};
use chart::package::Package;
use serde_json::{Value, json};

use crate::bad_input::{FAILED, output, refused, xtask};

/// Returns a chart packed by another tool, which puts the description last.
pub(crate) fn published(name: &str, version: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let about =
        format!("apiVersion: v2\nname: {name}\nversion: {version}\ndependencies:\n- name: sub\n");
    let files = [
        ("values.yaml", "# ours\na: b\n\nsub:\n  enabled: false\n"),
        ("templates/x.yaml", "{{ .Chart.Name }}\n"),
        ("charts/sub/Chart.yaml", "name: sub\n"),
    ];
    let files = files
        .iter()
        .chain(more)
        .copied()
        .chain([("Chart.yaml", about.as_str())]);
    let entry =
        |(path, text): (&str, &str)| tar::Entry::file(format!("{name}/{path}"), 0o644, text);
    let entries: Vec<_> = files.map(entry).collect();
    gzip::compress(&tar::write_in_order(&entries).expect("plain paths"))
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory of the test");
    fs::write(path, bytes).expect("a directory of the test");
}

/// Runs a command that has to succeed; returns its stdout.
#[track_caller]
fn stdout(mut command: Command) -> String {
    let output = command.output().expect("the built program starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).expect("the program writes UTF-8")
}

fn merge(dir: &Path, layout: &str, charts: &[&str]) -> Command {
    // A repository begins as an empty directory.
    fs::create_dir_all(dir.join("repo")).expect("a directory of the test");
    let args = ["chart", "merge", "--into", "repo", "--layout", layout];
    xtask(dir, &[&args, charts].concat())
}

fn check(dir: &Path) -> Command {
    xtask(dir, &["chart", "index", "--check", "repo"])
}

#[test]
fn chart_is_derived_from_a_locked_archive() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = published("rke2-x", "v4.3.017", &[]);
    write(dir.path(), "mirror/rke2-x-v4.3.017.tgz", &bytes);
    let line = format!(
        "{} v4.3.017 https://host.invalid/rke2-x-v4.3.017.tgz\n",
        sha256(&bytes).hex()
    );
    write(dir.path(), "a.lock", line.as_bytes());
    let derive = |from: &str, name: &str, more: &[&str]| {
        let args = [
            "chart",
            "derive",
            "--from",
            from,
            "--name",
            name,
            "--version",
            "4.3.17+upv4.3.017",
            "--out",
            "out",
        ];
        let mut command = xtask(dir.path(), &[&args, more].concat());
        command.env("MULTUS_MIRROR", dir.path().join("mirror"));
        command
    };
    let lock = ["--lock", "a.lock", "--drop", "sub"];
    let printed = stdout(derive("rke2-x-v4.3.017.tgz", "k3s-x", &lock));
    let made = fs::read(dir.path().join("out/k3s-x-4.3.17+upv4.3.017.tgz")).unwrap();
    assert_eq!(
        printed,
        format!("{}  k3s-x-4.3.17+upv4.3.017.tgz\n", sha256(&made).hex())
    );
    let package = Package::read(&made).unwrap();
    let paths: Vec<_> = package
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(paths, ["values.yaml", "templates/x.yaml", "Chart.yaml"]);
    assert_eq!(package.get("values.yaml"), Some(&b"# ours\na: b\n"[..]));
    let own = ["--drop", "other"];
    let from = "mirror/rke2-x-v4.3.017.tgz";
    refused(
        derive(from, "k3s-x", &own),
        FAILED,
        &["cannot derive a chart from mirror/", "it has sub"],
    );
    refused(
        derive("absent.tgz", "k3s-x", &[]),
        FAILED,
        &["cannot read absent.tgz"],
    );
    refused(
        derive("absent.tgz", "k3s-x", &lock),
        FAILED,
        &["a.lock does not lock absent.tgz: it has rke2-x"],
    );
    write(dir.path(), "bad.tgz", b"x");
    refused(
        derive("bad.tgz", "k3s-x", &[]),
        FAILED,
        &["bad.tgz: damaged gzip stream"],
    );
    assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
}

#[test]
fn signature_of_a_chart_lies_next_to_it_and_never_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (chart, published_at) = ("x-v4.3.017.tgz", "repo/assets/x/x-v4.3.017.tgz.prov");
    write(dir.path(), chart, &published("x", "v4.3.017", &[]));
    // A chart that was published before it was signed gets its signature later.
    assert_eq!(stdout(merge(dir.path(), "rke2", &[chart])), "x v4.3.017\n");
    assert!(!dir.path().join(published_at).exists());
    write(dir.path(), "x-v4.3.017.tgz.prov", b"signature");
    for _ in 0..2 {
        assert_eq!(stdout(merge(dir.path(), "rke2", &[chart])), "");
        let signature = fs::read(dir.path().join(published_at)).unwrap();
        assert_eq!(signature, b"signature");
    }
    stdout(check(dir.path()));
    write(dir.path(), "x-v4.3.017.tgz.prov", b"another");
    refused(
        merge(dir.path(), "rke2", &[chart]),
        FAILED,
        &["x-v4.3.017.tgz.prov is published with other bytes"],
    );
}

#[test]
fn merge_adds_charts_and_changes_nothing_published() {
    let dir = tempfile::tempdir().unwrap();
    for (name, version) in [("x", "v4.3.008"), ("x", "v4.3.017"), ("x-crd", "4.3.017")] {
        let bytes = published(name, version, &[]);
        write(dir.path(), &format!("{name}-{version}.tgz"), &bytes);
    }
    assert_eq!(
        stdout(merge(
            dir.path(),
            "rke2",
            &["x-v4.3.008.tgz", "x-crd-4.3.017.tgz"]
        )),
        "x v4.3.008\nx-crd 4.3.017\n"
    );
    let repo = dir.path().join("repo");
    let before = fs::read_to_string(repo.join("index.yaml")).unwrap();
    write(dir.path(), "before.yaml", before.as_bytes());
    assert_eq!(
        stdout(merge(
            dir.path(),
            "rke2",
            &["x-v4.3.017.tgz", "x-v4.3.008.tgz"]
        )),
        "x v4.3.017\n"
    );
    for path in [
        "assets/x/x-v4.3.017.tgz",
        "assets/x/x-crd-4.3.017.tgz",
        "charts/x/x/v4.3.008/charts/sub/Chart.yaml",
        "charts/x/x-crd/4.3.017/values.yaml",
    ] {
        assert!(repo.join(path).is_file(), "{path}");
    }
    let index = fs::read_to_string(repo.join("index.yaml")).unwrap();
    assert!(
        before
            .lines()
            .all(|line| index.lines().any(|found| found == line))
    );
    assert!(index.find("version: v4.3.017").unwrap() < index.find("version: v4.3.008").unwrap());
    assert_eq!(stdout(merge(dir.path(), "rke2", &["x-v4.3.017.tgz"])), "");
    assert_eq!(fs::read_to_string(repo.join("index.yaml")).unwrap(), index);
    assert_eq!(stdout(check(dir.path())), "");
    let json = |mut command: Command| -> Value {
        command.arg("--json");
        serde_json::from_str(&stdout(command)).unwrap()
    };
    assert_eq!(
        json(merge(dir.path(), "rke2", &["x-v4.3.017.tgz"])),
        json!([])
    );
    let sound = json!({"entries": 3, "archives": 3, "unpacked": 3, "elsewhere": 0, "findings": []});
    assert_eq!(json(check(dir.path())), sound);
    // This project's own.
    let own = stdout(merge(dir.path(), "rke2", &[]));
    assert_eq!(own.lines().count(), 2, "{own}");
    let version = own.lines().next().unwrap().split(' ').nth(1).unwrap();
    let crd = format!("charts/rke2-multus/rke2-multus-crd/{version}/Chart.yaml");
    assert!(repo.join(crd).is_file());
    let mut against = check(dir.path());
    against.args(["--against", "before.yaml"]);
    assert_eq!(stdout(against), "");

    let index = fs::read_to_string(repo.join("index.yaml")).unwrap();
    let other = published("x", "v4.3.017", &[("templates/y.yaml", "")]);
    write(dir.path(), "other.tgz", &other);
    refused(
        merge(dir.path(), "rke2", &["other.tgz"]),
        FAILED,
        &[
            "cannot publish other.tgz",
            "with other bytes: give the chart a new version",
        ],
    );
    // The index alone knows the version.
    fs::remove_dir_all(repo.join("assets/x")).unwrap();
    refused(
        merge(dir.path(), "rke2", &["other.tgz"]),
        FAILED,
        &["charts/x/x/v4.3.017 is published with other files"],
    );
    fs::remove_dir_all(repo.join("charts/x")).unwrap();
    refused(
        merge(dir.path(), "rke2", &["other.tgz"]),
        FAILED,
        &["cannot merge into repo/index.yaml: x v4.3.017 is published with sha256:"],
    );
    let stray = published("x", "v5.0.0", &[("values.yaml.orig", "")]);
    write(dir.path(), "stray.tgz", &stray);
    refused(
        merge(dir.path(), "rke2", &["stray.tgz"]),
        FAILED,
        &["its values.yaml.orig is a stray file"],
    );
    write(dir.path(), "path.tgz", &published("x", "1/../../../y", &[]));
    refused(
        merge(dir.path(), "rke2", &["path.tgz"]),
        FAILED,
        &["is not a version"],
    );
    assert_eq!(fs::read_to_string(repo.join("index.yaml")).unwrap(), index);
    assert!(!repo.join("assets/x").exists());
}

#[test]
fn merge_refuses_what_is_not_a_repository_of_the_layout() {
    let dir = tempfile::tempdir().unwrap();
    let into = |into: &str, layout: &str| {
        xtask(
            dir.path(),
            &["chart", "merge", "--into", into, "--layout", layout],
        )
    };
    refused(
        into("rpeo", "k3s"),
        FAILED,
        &["there is no directory rpeo: name another one, or make it, empty, for a new repository"],
    );
    assert!(!dir.path().join("rpeo").exists());
    write(dir.path(), "other/notes.txt", b"");
    refused(
        into("other", "k3s"),
        FAILED,
        &["other is not a charts repository"],
    );
    write(dir.path(), "source/Cargo.toml", b"");
    write(
        dir.path(),
        "source/index.yaml",
        b"apiVersion: v1\nentries: {}\n",
    );
    refused(
        into("source", "k3s"),
        FAILED,
        &["source is not a charts repository"],
    );
    for (own, other) in [("k3s", "rke2"), ("rke2", "k3s")] {
        write(dir.path(), &format!("{own}/.git/config"), b"");
        stdout(into(own, own));
        let expected = format!("{own} is laid out as {own}-charts: give --layout {own}");
        refused(into(own, other), FAILED, &[&expected]);
        assert_eq!(stdout(into(own, own)), "");
        // Unpacked charts, entries of the index and archives show the layout, each without the others.
        let index = fs::read(dir.path().join(own).join("index.yaml")).unwrap();
        fs::remove_dir_all(dir.path().join(own).join("charts")).unwrap();
        let empty = b"apiVersion: v1\nentries: {}\n";
        write(dir.path(), &format!("{own}/index.yaml"), empty);
        refused(into(own, other), FAILED, &[&expected]);
        write(dir.path(), &format!("{own}/index.yaml"), &index);
        fs::remove_dir_all(dir.path().join(own).join("assets")).unwrap();
        refused(into(own, other), FAILED, &[&expected]);
        assert_eq!(stdout(into(own, own)), "");
    }
}

#[test]
fn merge_adds_what_the_release_holds() {
    let dir = tempfile::tempdir().unwrap();
    let chart = published("rke2-multus", "5.9.9", &[]);
    let path = "charts/assets/rke2-multus/rke2-multus-5.9.9.tgz";
    write(dir.path(), &format!("dist/{path}"), &chart);
    let entry = |name: &str, path: &str| json!({"name": name, "version": "5.9.9", "path": path, "digest": sha256(&chart)});
    let release = json!({
        "schema": 2, "version": "5.9.9", "commit": "c", "epoch": 1_000_000_000, "toolchain": "t", "architectures": [],
        "images": [], "charts": [entry("rke2-multus", path), entry("k3s-multus", "none")], "budgets": [], "files": [],
    });
    write(
        dir.path(),
        "dist/release.json",
        release.to_string().as_bytes(),
    );
    let release = || {
        let mut command = merge(dir.path(), "rke2", &[]);
        command.args(["--release", "dist"]);
        command
    };
    assert_eq!(stdout(release()), "rke2-multus 5.9.9\n");
    let merged = fs::read(dir.path().join("repo").join(&path["charts/".len()..]));
    assert_eq!(merged.unwrap(), chart);
    // The entry has the release's time.
    let index = fs::read_to_string(dir.path().join("repo/index.yaml")).unwrap();
    assert!(
        index.contains("created: \"2001-09-09T01:46:40Z\""),
        "{index}"
    );
    write(dir.path(), &format!("dist/{path}"), b"damaged");
    refused(
        release(),
        FAILED,
        &[
            "dist/charts/assets/",
            "is not the chart that release.json names",
        ],
    );
    fs::remove_file(dir.path().join("dist/release.json")).unwrap();
    refused(release(), FAILED, &["dist/release.json", "--release"]);
}

#[test]
fn merge_and_check_name_the_same_command_for_an_archive_that_no_index_lists() {
    let dir = tempfile::tempdir().unwrap();
    for (layout, name, orphan) in [
        ("k3s", "a", "assets/a/a-1.0.1.tgz"),
        ("rke2", "a-crd", "assets/a/a-crd-1.0.1.tgz"),
    ] {
        let repo = dir.path().join("repo");
        write(dir.path(), "a.tgz", &published("a", "1.0.0", &[]));
        stdout(merge(dir.path(), layout, &["a.tgz"]));
        let before = fs::read(repo.join("index.yaml")).unwrap();
        write(&repo, orphan, &published(name, "1.0.1", &[]));
        let checked = check(dir.path()).output().unwrap();
        let found = String::from_utf8(checked.stdout).unwrap();
        let stderr = String::from_utf8(checked.stderr).unwrap();
        assert!(stderr.ends_with(": 1 finding\n"), "{stderr}");
        write(dir.path(), "b.tgz", &published(name, "1.0.1", &[("x", "")]));
        refused(
            merge(dir.path(), layout, &["b.tgz"]),
            FAILED,
            &[found.trim()],
        );
        assert_eq!(fs::read(repo.join("index.yaml")).unwrap(), before);
        // What both name is carried out.
        let command = found.split('`').nth(1).unwrap();
        let args: Vec<&str> = command.split(' ').skip(2).collect();
        assert_eq!(stdout(xtask(dir.path(), &args)), format!("{name} 1.0.1\n"));
        assert_eq!(stdout(check(dir.path())), "");
        // The same for an unpacked chart without archive, and one that differs from its archive.
        let index = fs::read_to_string(repo.join("index.yaml")).unwrap();
        let directory = match layout {
            "k3s" => format!("charts/{name}"),
            _ => format!("charts/a/{name}"),
        };
        write(
            &repo,
            &format!("{directory}/1.0.1/values.yaml"),
            b"changed: 1\n",
        );
        let found = String::from_utf8(check(dir.path()).output().unwrap().stdout).unwrap();
        assert!(found.contains("unpack the archive again"), "{found}");
        refused(xtask(dir.path(), &args), FAILED, &[found.trim()]);
        fs::remove_file(repo.join(orphan)).unwrap();
        fs::write(repo.join("index.yaml"), &before).unwrap();
        let found = String::from_utf8(check(dir.path()).output().unwrap().stdout).unwrap();
        assert!(found.contains("without its archive"), "{found}");
        refused(
            merge(dir.path(), layout, &["b.tgz"]),
            FAILED,
            &[found.trim()],
        );
        fs::write(repo.join("index.yaml"), &index).unwrap();
        fs::remove_dir_all(&repo).unwrap();
    }
}

#[test]
fn faults_of_a_repository_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a-1.0.0", "a-1.0.1", "a-1.0.2"];
    for name in names {
        write(
            dir.path(),
            &format!("{name}.tgz"),
            &published("a", &name[2..], &[]),
        );
    }
    let files = names.map(|name| format!("{name}.tgz"));
    stdout(merge(
        dir.path(),
        "k3s",
        &files.each_ref().map(String::as_str),
    ));
    stdout(check(dir.path()));
    fs::copy(
        dir.path().join("repo/index.yaml"),
        dir.path().join("before.yaml"),
    )
    .unwrap();
    let repo = dir.path().join("repo");
    fs::rename(
        repo.join("assets/a/a-1.0.0.tgz"),
        repo.join("assets/a/orphan.tgz"),
    )
    .unwrap();
    fs::write(
        repo.join("assets/a/a-1.0.1.tgz"),
        published("a", "1.0.1", &[("x", "")]),
    )
    .unwrap();
    fs::write(repo.join("charts/a/1.0.2/values.yaml"), "a: changed\n").unwrap();
    let index = fs::read_to_string(repo.join("index.yaml")).unwrap();
    fs::write(
        repo.join("index.yaml"),
        index.replace("version: 1.0.2", "version: v1.0.1"),
    )
    .unwrap();
    let found = |more: &[&str]| {
        let mut command = check(dir.path());
        let found = command
            .args(["--against", "before.yaml"])
            .args(more)
            .output()
            .unwrap();
        assert_eq!(found.status.code(), Some(FAILED));
        String::from_utf8(found.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&found(&["--json"])).unwrap();
    let found = found(&[]);
    let lines: Vec<_> = found.lines().collect();
    assert_eq!(json["findings"], json!(lines));
    for part in [
        "assets/a/orphan.tgz is in no entry",
        "a 1.0.0 points to assets/a/a-1.0.0.tgz, which does not exist",
        "a 1.0.1: assets/a/a-1.0.1.tgz has the sha256",
        "a 1.0.1 and a v1.0.1 are the same version",
        "charts/a/1.0.2 differs from assets/a/a-1.0.2.tgz",
        "a 1.0.2 was published and has been removed",
    ] {
        assert!(found.contains(part), "no `{part}` in {found}");
    }
    fs::write(repo.join("index.yaml"), "a: [").unwrap();
    refused(
        check(dir.path()),
        FAILED,
        &["repo/index.yaml: the index does not parse"],
    );
    fs::remove_file(repo.join("index.yaml")).unwrap();
    refused(
        check(dir.path()),
        FAILED,
        &["name the directory of a charts repository"],
    );
}

#[test]
fn packed_charts_are_a_sound_repository() {
    let dir = tempfile::tempdir().unwrap();
    stdout(xtask(dir.path(), &["chart", "package"]));
    let (status, stderr) = output(xtask(dir.path(), &["chart", "index", "--check"]));
    assert_eq!(status, 0, "{stderr}");
    assert!(
        stderr.contains("dist/charts: 6 entries, 6 archives, 0 unpacked"),
        "{stderr}"
    );
}

#[test]
fn charts_are_written_as_a_layout_of_artifacts() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = published("x", "1.0.0+up1", &[]);
    write(dir.path(), "x.tgz", &bytes);
    let args = ["chart", "oci", "--out", "oci", "x.tgz"];
    let printed = stdout(xtask(dir.path(), &args));
    let layout = Layout::read(&dir.path().join("oci")).unwrap();
    assert_eq!(
        printed,
        format!("x:1.0.0_up1 {}\n", layout.images[0].digest)
    );
    assert_eq!(layout.blobs.get(&sha256(&bytes)), Some(&bytes));
    assert_eq!(layout.blobs.len(), 3);
    refused(
        xtask(dir.path(), &args),
        FAILED,
        &["oci exists already: name a new directory"],
    );
    let own = stdout(xtask(dir.path(), &["chart", "oci", "--out", "own"]));
    assert_eq!(own.lines().count(), 6, "{own}");
}
