//! One valid repository, and every fault that it can have.

use super::*;

const INDEX: &str = "apiVersion: v1
entries:
  a:
  - name: a
    version: 5.0.0
    digest: @5
    urls: [assets/a/a-5.0.0.tgz]
  - name: a
    version: v4.3.017
    digest: @4
    urls: [./assets/a/a-v4.3.017.tgz, https://mirror.example/a-v4.3.017.tgz]
  a-crd:
  - name: a-crd
    version: 5.0.0
    digest: @c
    urls: [assets/a/a-crd-5.0.0.tgz]
";

fn unpacked(name: &str, version: &str) -> Unpacked {
    Unpacked {
        name: name.to_owned(),
        version: version.to_owned(),
        files: sha256(version.as_bytes()),
    }
}

fn index(text: &str) -> Index {
    let digests = ["5", "4", "c"].map(|mark| (format!("@{mark}"), sha256(mark.as_bytes()).hex()));
    let text = digests
        .iter()
        .fold(text.to_owned(), |text, (mark, hex)| text.replace(mark, hex));
    Index::read(&text).unwrap()
}

fn valid() -> Repository {
    let charts = [
        ("a", "5.0.0", "5"),
        ("a", "v4.3.017", "4"),
        ("a-crd", "5.0.0", "c"),
    ];
    let asset = |(name, version, mark): (&str, &str, &str)| {
        let asset = Asset {
            digest: sha256(mark.as_bytes()),
            chart: Ok(unpacked(name, version)),
        };
        (format!("assets/a/{name}-{version}.tgz"), asset)
    };
    let directories = [
        ("charts/a/a/5.0.0", Ok(unpacked("a", "5.0.0"))),
        ("charts/a/v4.3.017", Ok(unpacked("a", "v4.3.017"))),
        ("charts/a/a-crd/5.0.0", Ok(unpacked("a-crd", "5.0.0"))),
    ];
    Repository {
        name: "../charts".to_owned(),
        index: index(INDEX),
        assets: charts.into_iter().map(asset).collect(),
        directories: directories
            .into_iter()
            .map(|(path, one)| (path.to_owned(), one))
            .collect(),
    }
}

fn check_found(change: impl Fn(&mut Repository), expected: &[&str]) {
    let mut repository = valid();
    change(&mut repository);
    let found: Vec<_> = check(&repository).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for text in expected {
        assert!(
            found.iter().any(|line| line.contains(text)),
            "no `{text}` in {found:#?}"
        );
    }
}

#[test]
fn a_valid_repository_has_no_findings() {
    check_found(|_| {}, &[]);
    assert_eq!(external_urls(&valid().index), 1);
}

#[test]
fn archives_and_entries_are_compared() {
    let path = "assets/a/a-5.0.0.tgz";
    let rename = |repository: &mut Repository| {
        let asset = repository.assets.remove(path).unwrap();
        repository.assets.insert("assets/x.tgz".to_owned(), asset);
    };
    check_found(
        rename,
        &[
            "assets/x.tgz is in no entry of the index: remove it",
            "a 5.0.0 points to assets/a/a-5.0.0.tgz, which does not exist",
        ],
    );
    let asset = |change: fn(&mut Asset)| {
        move |repository: &mut Repository| change(repository.assets.get_mut(path).unwrap())
    };
    let digest = sha256(b"x").hex();
    let text = format!("a 5.0.0: assets/a/a-5.0.0.tgz has the sha256 {digest}, but the index has");
    check_found(asset(|asset| asset.digest = sha256(b"x")), &[&text]);
    check_found(
        asset(|asset| asset.chart = Ok(unpacked("b", "5.0.0"))),
        &[
            "a 5.0.0: assets/a/a-5.0.0.tgz has the chart b 5.0.0",
            "charts/a/a/5.0.0 is a directory without its archive",
        ],
    );
    check_found(
        asset(|asset| asset.chart = Err("damaged".to_owned())),
        &[
            "assets/a/a-5.0.0.tgz is not a chart: damaged",
            "charts/a/a/5.0.0 is a directory without its archive",
        ],
    );
}

#[test]
fn archive_without_entry_is_listed_by_the_command_for_its_layout() {
    let hint = |layout: &str, path: &str| {
        format!(
            "{path} is in no entry of the index: list it with `cargo xtask chart merge --into ../charts --layout {layout} ../charts/{path}`"
        )
    };
    let add = |name: &'static str, path: &'static str| {
        move |repository: &mut Repository| {
            let asset = Asset {
                digest: sha256(b"new"),
                chart: Ok(unpacked(name, "6.0.0")),
            };
            repository.assets.insert(path.to_owned(), asset);
        }
    };
    // The path is the same in both layouts.
    let both = "assets/b/b-6.0.0.tgz";
    check_found(add("b", both), &[&hint("rke2", both)]);
    let crd = "assets/b/b-crd-6.0.0.tgz";
    check_found(add("b-crd", crd), &[&hint("rke2", crd)]);
    let crd = "assets/b-crd/b-crd-6.0.0.tgz";
    check_found(add("b-crd", crd), &[&hint("k3s", crd)]);
    for (name, layout) in [("rke2-b", "rke2"), ("b", "k3s")] {
        let path = format!("assets/{name}/{name}-6.0.0.tgz");
        let repository = Repository {
            directories: BTreeMap::new(),
            ..valid()
        };
        let found = layout_of(&repository, &path, &unpacked(name, "6.0.0"));
        assert_eq!(found.map(RepositoryLayout::as_str), Some(layout));
    }
}

#[test]
fn versions_are_listed_once_and_newest_first() {
    let with = |from: &'static str, to: &'static str| {
        move |repository: &mut Repository| repository.index = index(&INDEX.replace(from, to))
    };
    let other = "has the chart a";
    check_found(
        with("version: v4.3.017", "version: v6.0.0"),
        &["a: v6.0.0 comes after an older", other],
    );
    check_found(
        with("version: v4.3.017", "version: v5.0.0"),
        &["a v5.0.0 and a 5.0.0 are the same version", other],
    );
    check_found(
        with("version: v4.3.017", "version: latest"),
        &["a latest: Helm cannot compare this version", other],
    );
    check_found(with("    digest: @c\n", ""), &["a-crd 5.0.0 has no digest"]);
    let crd = "assets/a/a-crd-5.0.0.tgz";
    check_found(
        with("    urls: [assets/a/a-crd-5.0.0.tgz]\n", ""),
        &["a-crd 5.0.0 has no address", crd],
    );
    check_found(
        with("- name: a-crd", "- name: b"),
        &["b 5.0.0 is listed below a-crd", crd],
    );
}

#[test]
fn directories_are_compared_with_their_archives() {
    let directory = |change: fn(&mut Repository)| change;
    check_found(
        directory(|repository| {
            let chart = Ok(unpacked("a", "5.0.1"));
            repository
                .directories
                .insert("charts/a/a/5.0.1".to_owned(), chart);
        }),
        &["charts/a/a/5.0.1 is a directory without its archive"],
    );
    for content in [
        Err("damaged".to_owned()),
        Ok(Unpacked {
            files: sha256(b"x"),
            ..unpacked("a", "5.0.0")
        }),
    ] {
        let mut repository = valid();
        repository
            .directories
            .insert("charts/a/a/5.0.0".to_owned(), content);
        let found: Vec<_> = check(&repository).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["charts/a/a/5.0.0 differs from assets/a/a-5.0.0.tgz: unpack the archive again"]
        );
    }
}

#[test]
fn removed_and_changed_entries_are_reported() {
    let before = index(INDEX);
    assert_eq!(compare(&before, &before), BTreeSet::new());
    let changed = index(&INDEX.replace("version: v4.3.017\n", "version: v4.3.017\n    icon: x\n"));
    assert_eq!(
        compare(&before, &changed),
        [Finding::Changed("a v4.3.017".to_owned())].into()
    );
    // A release may add entries, but not remove them.
    let fewer = index(&INDEX.replace(
        "- name: a-crd\n    version: 5.0.0",
        "- name: a-crd\n    version: 5.0.1",
    ));
    assert_eq!(
        compare(&before, &fewer),
        [Finding::Removed("a-crd 5.0.0".to_owned())].into()
    );
}
