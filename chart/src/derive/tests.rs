//! Charts of both API versions, packed in every way that publishers use, and charts that are refused.

use super::*;
use crate::package::tests::packed;

const CHART: &str = "apiVersion: v2\n# of whom\ndependencies:\n- condition: sub.enabled\n  name: sub\n  repository: file://./charts/sub\nname: rke2-multus\nversion: v4.3.008\n";
const VALUES_YAML: &str = "# values\nimage:\n  tag: v1 # a tag\n\nsub:\n  enabled: false\n";

fn options(name: &str, version: &str, drop: &[&str]) -> DeriveOptions {
    DeriveOptions {
        name: name.to_owned(),
        version: version.to_owned(),
        drop: drop.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn k3s(drop: &[&str]) -> DeriveOptions {
    options("k3s-multus", "4.3.8+upv4.3.008", drop)
}

/// Returns paths and texts of the files.
fn texts(tgz: &[u8]) -> Vec<(String, String)> {
    let files = Package::read(tgz).unwrap().files;
    let text = |file: package::File| (file.path, String::from_utf8(file.bytes).unwrap());
    files.into_iter().map(text).collect()
}

#[test]
fn all_other_files_keep_their_bytes_and_their_order() {
    let source = packed(&[
        ("rke2-multus/values.yaml", VALUES_YAML),
        ("rke2-multus/templates/x.yaml", "app: {{ .Chart.Name }}\r\n"),
        ("rke2-multus/charts/sub/Chart.yaml", "name: other\n"),
        ("rke2-multus/charts/sub/values.yaml.orig", ""),
        ("rke2-multus/.helmignore", "*~\n"),
        ("rke2-multus/Chart.yaml", CHART),
    ]);
    let derived = derive(&source, &k3s(&["sub"])).unwrap();
    assert_eq!(derived.file_name, "k3s-multus-4.3.8+upv4.3.008.tgz");
    let expected = [
        ("values.yaml", "# values\nimage:\n  tag: v1 # a tag\n"),
        ("templates/x.yaml", "app: {{ .Chart.Name }}\r\n"),
        (".helmignore", "*~\n"),
        (
            "Chart.yaml",
            "apiVersion: v2\n# of whom\nname: k3s-multus\nversion: 4.3.8+upv4.3.008\n",
        ),
    ];
    let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(texts(&derived.tgz), expected);
    assert_eq!(
        derived.changes,
        [
            "Chart.yaml: dependency sub removed",
            "charts/sub removed",
            "values.yaml: sub removed",
            "Chart.yaml: name rke2-multus becomes k3s-multus",
            "Chart.yaml: version v4.3.008 becomes 4.3.8+upv4.3.008",
        ]
    );
    assert_eq!(derived, derive(&source, &k3s(&["sub"])).unwrap());
}

#[test]
fn subcharts_are_removed_from_requirements_of_api_version_v1() {
    let chart = "apiVersion: v1\nname: rke2-multus\nversion: v4.3.017\n";
    let one = "dependencies:\n- name: sub\n  condition: sub.enabled\n";
    let two = format!("{one}- name: long\n  alias: short\n");
    let source = |requirements: &str| {
        packed(&[
            ("rke2-multus/Chart.yaml", chart),
            (
                "rke2-multus/values.yaml",
                "sub: {}\nshort:\n  a: b\nlong: c\n",
            ),
            ("rke2-multus/requirements.yaml", requirements),
            ("rke2-multus/charts/sub-0.1.0-rc-1.tgz", "packed"),
            ("rke2-multus/charts/long/x", "x"),
        ])
    };
    let paths = |options: &DeriveOptions, requirements: &str| {
        let derived = derive(&source(requirements), options).unwrap();
        texts(&derived.tgz)
    };
    let found = paths(&k3s(&["sub"]), one);
    assert_eq!(
        found.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(),
        ["Chart.yaml", "values.yaml", "charts/long/x"]
    );
    // A subchart is named by its alias or by its name; its values are below the alias.
    for name in ["short", "long"] {
        let found = paths(&k3s(&[name]), &two);
        assert_eq!(found[1].1, "sub: {}\nlong: c\n");
        assert_eq!(found[2].1, one);
        assert_eq!(found[3].0, "charts/sub-0.1.0-rc-1.tgz");
        assert_eq!(found.len(), 4);
    }
}

#[test]
fn a_subchart_without_a_dependency_entry_is_removed_too() {
    let source = packed(&[
        ("a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n"),
        ("a/charts/sub/x", "x"),
        ("a/templates/y", "{{ .Values.sub }}"),
    ]);
    let derived = derive(&source, &options("a", "1.0.1", &["sub"])).unwrap();
    assert_eq!(derived.mentions, ["templates/y"]);
    assert_eq!(texts(&derived.tgz).len(), 2);
}

#[test]
fn files_of_a_subchart_with_two_aliases_stay_for_the_other_one() {
    let source = packed(&[
        (
            "a/Chart.yaml",
            "apiVersion: v2\nname: a\nversion: 1.0.0\ndependencies:\n- name: sub\n  alias: b\n- name: sub\n  alias: c\n",
        ),
        ("a/values.yaml", "b: 1\nc: 2\n"),
        ("a/charts/sub/x", "x"),
    ]);
    let derived = derive(&source, &options("a", "1.0.1", &["c"])).unwrap();
    let found = texts(&derived.tgz);
    assert_eq!(found[1].1, "b: 1\n");
    assert_eq!(found[2].0, "charts/sub/x");
}

fn check_refused(files: &[(&str, &str)], options: &DeriveOptions, expected: &str) {
    let error = derive(&packed(files), options).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn charts_that_must_not_be_published_are_refused() {
    let chart = ("rke2-multus/Chart.yaml", CHART);
    for name in ["values.yaml.orig", "x.rej", "templates/x~"] {
        let path = format!("rke2-multus/{name}");
        let files = [chart, (path.as_str(), "")];
        check_refused(&files, &k3s(&[]), &format!("`{name}` is a stray file"));
    }
    let other = "it has no subchart `other`: it has sub";
    check_refused(&[chart], &k3s(&["other"]), other);
    let twice = k3s(&["sub", "sub"]);
    check_refused(&[chart], &twice, "it has no subchart `sub`: it has none");
    let same = options("rke2-multus", "4.3.8", &["sub"]);
    check_refused(&[chart], &same, "rke2-multus 4.3.8 is the source itself");
    for name in ["", "K3s", "a/b", "-a", "a--b", ".."] {
        check_refused(
            &[chart],
            &options(name, "1.0.0", &[]),
            "is not a chart name",
        );
    }
    check_refused(&[chart], &options("a", "../1.0.0", &[]), "is not a version");
    let list = CHART.replace(
        "dependencies:\n- condition: sub.enabled\n  name: sub\n  repository: file://./charts/sub\n",
        "dependencies: [{name: sub}, {name: b}]\n",
    );
    let files = [("rke2-multus/Chart.yaml", list.as_str())];
    check_refused(
        &files,
        &k3s(&["sub"]),
        "its Chart.yaml has `dependencies` in a form",
    );
    let two = CHART.replace("name: rke2", "- name: b\nname: rke2");
    let files = [
        ("rke2-multus/Chart.yaml", two.as_str()),
        ("rke2-multus/Chart.lock", ""),
    ];
    check_refused(
        &files,
        &k3s(&["sub"]),
        "its Chart.lock locks subcharts that remain",
    );
}
