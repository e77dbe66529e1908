//! The `packages/` tree of rke2-charts and k3s-charts, from which their own scripts build charts: a chart with its description, or the
//! differences of a chart to an archive that is published elsewhere.
//!
//! Their scripts append a package version to the chart's version, move the CRDs of the main chart into a chart made from a template, and fetch
//! subcharts from packages of their own. Here all of this is undone, so that the scripts make the same charts of the tree.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use chart::{
    derive,
    package::{CHART_YAML, File, Package},
};
use similar::TextDiff;

use crate::tree::Tree;

/// The directory of the chart in its package, and in the headers of differences.
const CHARTS: &str = "charts";
/// The directory of the chart before the changes, in the headers of differences.
const ORIGINAL: &str = "charts-original";
/// The directory in which a CRD chart is built, and its template.
const CRD_DIR: &str = "charts-crd";
const CRD_TEMPLATE: &str = "crd-template";
/// The directories of CRDs in a main chart, and in a CRD chart.
const CRDS: &str = "crds/";
const TEMPLATES: &str = "templates/";
/// Where a package has its differences to an archive.
const CHANGES: &str = "generated-changes";

/// The repository whose tree it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Two digits after the chart's version, which the package version begins with 00.
    Rke2,
    /// The last number times 100, plus the package version from 1 on, then `+up` and the chart's version.
    K3s,
}

/// The charts of one package.
#[derive(Debug, Clone)]
pub(crate) struct Charts {
    pub(crate) main: Package,
    pub(crate) crd: Option<Package>,
}

/// A published archive that a package changes.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// The address of the archive.
    pub(crate) url: String,
    pub(crate) package: Package,
}

/// Returns the files of the package, and of packages for its subcharts.
pub(crate) fn tree(
    style: Style,
    charts: Charts,
    base: Option<&Base>,
    package_version: Option<u64>,
) -> anyhow::Result<Tree> {
    let Charts { mut main, mut crd } = charts;
    let name = main.metadata.name.clone();
    let (version, found) = style.split(&main.metadata.version);
    let number = package_version.or(found).unwrap_or(style.first());
    ensure!(
        number < 100,
        "the package version is {number}, the tree has two digits for it: give a smaller one"
    );
    derive::set_version(&mut main, &version)?;
    if let Some(crd) = &mut crd {
        let (version, _) = style.split(&crd.metadata.version);
        derive::set_version(crd, &version)?;
        move_crds(crd, &mut main)?;
    }
    let mut tree = Tree::default();
    let root = format!("packages/{name}");
    let description = description(style, number, base, crd.is_some());
    tree.add(format!("{root}/package.yaml"), description);
    for file in crd.iter().flat_map(|crd| &crd.files) {
        let path = format!("{root}/{TEMPLATES}{CRD_TEMPLATE}/{}", file.path);
        tree.add(path, file.bytes.clone());
    }
    if let Some(base) = base {
        for (path, bytes) in changes(base, &main)? {
            tree.add(format!("{root}/{CHANGES}/{path}"), bytes);
        }
        return Ok(tree);
    }
    for subchart in derive::subcharts(&main) {
        let dependency = format!("{root}/{CHANGES}/dependencies/{subchart}/dependency.yaml");
        tree.add(dependency, format!("url: packages/{subchart}\n"));
        let package = format!("packages/{subchart}/package.yaml");
        let number = style.package_version(style.first());
        tree.add(
            package,
            format!(
                "url: local\nworkingDir: {CHARTS}\npackageVersion: {number}\ndoNotRelease: true\n"
            ),
        );
    }
    for file in &main.files {
        tree.add(place(&root, file)?, file.bytes.clone());
    }
    Ok(tree)
}

impl Style {
    /// Returns the chart's own version and the package version in a published version.
    fn split(self, version: &str) -> (String, Option<u64>) {
        match self {
            Self::Rke2 => {
                let digits =
                    version.len() - version.trim_end_matches(|c: char| c.is_ascii_digit()).len();
                if digits < 3 {
                    return (version.to_owned(), None);
                }
                let (own, number) = version.split_at(version.len() - 2);
                (own.to_owned(), number.parse().ok())
            }
            Self::K3s => match version.split_once("+up") {
                Some((number, own)) => {
                    let last = number.rsplit('.').next();
                    let last = last.and_then(|last| last.parse::<u64>().ok());
                    (own.to_owned(), last.map(|last| last % 100))
                }
                None => (version.to_owned(), None),
            },
        }
    }

    /// Returns the package version of a chart's first package.
    fn first(self) -> u64 {
        match self {
            Self::Rke2 => 0,
            Self::K3s => 1,
        }
    }

    fn package_version(self, number: u64) -> String {
        match self {
            Self::Rke2 => format!("{number:02}"),
            Self::K3s => number.to_string(),
        }
    }
}

/// Returns `package.yaml`.
fn description(style: Style, number: u64, base: Option<&Base>, has_crd: bool) -> String {
    let from = match base {
        Some(base) => format!("url: {}\n", base.url),
        None => format!("url: local\nworkingDir: {CHARTS}\n"),
    };
    let number = style.package_version(number);
    let crds = if has_crd {
        format!(
            "additionalCharts:\n  - workingDir: {CRD_DIR}\n    crdOptions:\n      templateDirectory: {CRD_TEMPLATE}\n      crdDirectory: {}\n      addCRDValidationToMainChart: false\n",
            TEMPLATES.trim_end_matches('/')
        )
    } else {
        String::new()
    };
    format!("{from}packageVersion: {number}\n{crds}")
}

/// Moves the CRDs from their own chart to the place where the scripts look for them.
fn move_crds(crd: &mut Package, main: &mut Package) -> anyhow::Result<()> {
    let name = &crd.metadata.name;
    let expected = format!("{}-crd", main.metadata.name);
    ensure!(
        *name == expected,
        "{name} is not the chart with the CRDs of {}, which is {expected}",
        main.metadata.name
    );
    let (crds, rest): (Vec<File>, Vec<File>) = crd
        .files
        .drain(..)
        .partition(|file| file.path.starts_with(TEMPLATES));
    crd.files = rest;
    for file in crds {
        let path = file.path.replacen(TEMPLATES, CRDS, 1);
        ensure!(
            !main.files.iter().any(|one| one.path == path),
            "both charts have {path}: a CRD is in one of them"
        );
        main.files.push(File { path, ..file });
    }
    Ok(())
}

/// Returns the place of a file of a chart that is kept whole: a subchart is a package of its own.
fn place(root: &str, file: &File) -> anyhow::Result<String> {
    let path = &file.path;
    let Some(subchart) = derive::subchart(path) else {
        return Ok(format!("{root}/{CHARTS}/{path}"));
    };
    let within = path.strip_prefix(&format!("charts/{subchart}/"));
    let within = within.with_context(|| {
        format!("{path} is a packed subchart: give an archive whose subcharts are unpacked")
    })?;
    Ok(format!("packages/{subchart}/{CHARTS}/{within}"))
}

/// Returns the differences of the chart to the archive: a patch for each file of both, the new files, and those that are left out.
fn changes(base: &Base, main: &Package) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let own = files(main);
    let published = files(&base.package);
    let mut found = BTreeMap::new();
    for (path, bytes) in &published {
        match own.get(path) {
            None => drop(found.insert(format!("exclude/{path}"), (*bytes).clone())),
            Some(other) if other == bytes => {}
            Some(other) => {
                let patch = patch(path, bytes, other)?;
                found.insert(format!("patch/{path}.patch"), patch.into_bytes());
            }
        }
    }
    for (path, bytes) in own {
        if !published.contains_key(path) {
            found.insert(format!("overlay/{path}"), bytes.clone());
        }
    }
    // The scripts look for each subchart of the archive before they leave its files out.
    for subchart in derive::subcharts(&base.package) {
        let path = format!("dependencies/{subchart}/dependency.yaml");
        let text = format!("url: {}\nsubdirectory: charts/{subchart}\n", base.url);
        found.insert(path, text.into_bytes());
    }
    Ok(found)
}

fn files(package: &Package) -> BTreeMap<&str, &Vec<u8>> {
    let files = package.files.iter();
    files
        .map(|file| (file.path.as_str(), &file.bytes))
        .collect()
}

/// Returns a unified difference as `diff -u` writes it, with the directories that the scripts expect.
fn patch(path: &str, from: &[u8], to: &[u8]) -> anyhow::Result<String> {
    let text = |bytes| {
        std::str::from_utf8(bytes)
            .with_context(|| format!("{path} is not text, so it has no difference"))
    };
    let diff = TextDiff::from_lines(text(from)?, text(to)?);
    let (from, to) = (format!("{ORIGINAL}/{path}"), format!("{CHARTS}/{path}"));
    Ok(diff.unified_diff().header(&from, &to).to_string())
}

/// Reads the archives of a main chart and, in any order, its CRD chart.
pub(crate) fn charts(archives: &[(String, Vec<u8>)]) -> anyhow::Result<Charts> {
    let (mut main, mut crd) = (None, None);
    for (name, bytes) in archives {
        let package = Package::read(bytes).with_context(|| name.clone())?;
        let place = if package.metadata.name.ends_with("-crd") {
            &mut crd
        } else {
            &mut main
        };
        if place.replace(package).is_some() {
            bail!("{name} is a second chart: a package is one chart, and the chart with its CRDs");
        }
    }
    let main = main.with_context(|| format!("no archive has a main chart ({CHART_YAML})"))?;
    Ok(Charts { main, crd })
}

#[cfg(test)]
mod tests {
    use archive::{gzip, tar};

    use super::*;

    fn packed(files: &[(&str, &str)]) -> Vec<u8> {
        let entry = |&(path, text): &(&str, &str)| tar::Entry::file(path, 0o644, text);
        let entries: Vec<_> = files.iter().map(entry).collect();
        gzip::compress(&tar::write_in_order(&entries).unwrap())
    }

    /// Returns a chart with a subchart and a CRD chart, in the form of those that rke2-charts publishes.
    fn published() -> Vec<(String, Vec<u8>)> {
        let main = packed(&[
            (
                "a/Chart.yaml",
                "apiVersion: v1\nname: a\nversion: v4.3.017\n",
            ),
            (
                "a/requirements.yaml",
                "dependencies:\n- name: sub\n  repository: file://./charts/sub\n",
            ),
            ("a/values.yaml", "x: 1\ny: 2\n"),
            (
                "a/charts/sub/Chart.yaml",
                "apiVersion: v2\nname: sub\nversion: 0.9.4\n",
            ),
            ("a/charts/sub/values.yaml", "z: 3\n"),
        ]);
        let crd = packed(&[
            (
                "a-crd/Chart.yaml",
                "apiVersion: v1\nname: a-crd\nversion: 4.3.017\n",
            ),
            (
                "a-crd/templates/crd.yaml",
                "kind: CustomResourceDefinition\n",
            ),
        ]);
        vec![("crd".into(), crd), ("main".into(), main)]
    }

    fn texts(tree: &Tree) -> BTreeMap<&str, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let files = tree.0.iter();
        files
            .map(|(path, file)| (path.as_str(), text(&file.bytes)))
            .collect()
    }

    #[test]
    fn published_charts_become_the_tree_that_they_were_made_of() {
        let tree = tree(Style::Rke2, charts(&published()).unwrap(), None, None).unwrap();
        let expected = [
            (
                "packages/a/charts/Chart.yaml",
                "apiVersion: v1\nname: a\nversion: v4.3.0\n",
            ),
            (
                "packages/a/charts/crds/crd.yaml",
                "kind: CustomResourceDefinition\n",
            ),
            (
                "packages/a/charts/requirements.yaml",
                "dependencies:\n- name: sub\n  repository: file://./charts/sub\n",
            ),
            ("packages/a/charts/values.yaml", "x: 1\ny: 2\n"),
            (
                "packages/a/generated-changes/dependencies/sub/dependency.yaml",
                "url: packages/sub\n",
            ),
            (
                "packages/a/package.yaml",
                "url: local\nworkingDir: charts\npackageVersion: 17\nadditionalCharts:\n  - workingDir: charts-crd\n    crdOptions:\n      templateDirectory: crd-template\n      crdDirectory: templates\n      addCRDValidationToMainChart: false\n",
            ),
            (
                "packages/a/templates/crd-template/Chart.yaml",
                "apiVersion: v1\nname: a-crd\nversion: 4.3.0\n",
            ),
            (
                "packages/sub/charts/Chart.yaml",
                "apiVersion: v2\nname: sub\nversion: 0.9.4\n",
            ),
            ("packages/sub/charts/values.yaml", "z: 3\n"),
            (
                "packages/sub/package.yaml",
                "url: local\nworkingDir: charts\npackageVersion: 00\ndoNotRelease: true\n",
            ),
        ];
        let expected = expected.map(|(path, text)| (path, text.to_owned()));
        assert_eq!(texts(&tree), expected.into());
    }

    #[test]
    fn chart_over_an_archive_is_patches_overlays_and_exclusions() {
        let base = Base {
            url: "https://r.example/a-v4.3.017.tgz".to_owned(),
            package: charts(&published()).unwrap().main,
        };
        let own = [
            (
                "main".to_owned(),
                packed(&[
                    ("a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 5.0.0\n"),
                    ("a/values.yaml", "x: 1\ny: 3"),
                    ("a/templates/new.yaml", "new: true\n"),
                ]),
            ),
            (
                "crd".to_owned(),
                packed(&[
                    (
                        "a-crd/Chart.yaml",
                        "apiVersion: v2\nname: a-crd\nversion: 5.0.0\n",
                    ),
                    (
                        "a-crd/templates/crd.yaml",
                        "kind: CustomResourceDefinition\n",
                    ),
                ]),
            ),
        ];
        let tree = tree(Style::K3s, charts(&own).unwrap(), Some(&base), Some(2)).unwrap();
        let texts = texts(&tree);
        let changes = "packages/a/generated-changes";
        let paths: Vec<_> = texts
            .keys()
            .map(|path| path.trim_start_matches(changes))
            .collect();
        assert_eq!(
            paths,
            [
                "/dependencies/sub/dependency.yaml",
                "/exclude/charts/sub/Chart.yaml",
                "/exclude/charts/sub/values.yaml",
                "/exclude/requirements.yaml",
                "/overlay/crds/crd.yaml",
                "/overlay/templates/new.yaml",
                "/patch/Chart.yaml.patch",
                "/patch/values.yaml.patch",
                "packages/a/package.yaml",
                "packages/a/templates/crd-template/Chart.yaml",
            ]
        );
        let patch = &texts[format!("{changes}/patch/values.yaml.patch").as_str()];
        assert_eq!(
            patch,
            "--- charts-original/values.yaml\n+++ charts/values.yaml\n@@ -1,2 +1,2 @@\n x: 1\n-y: 2\n+y: 3\n\\ No newline at end of file\n"
        );
        let description = &texts["packages/a/package.yaml"];
        assert!(
            description.starts_with("url: https://r.example/a-v4.3.017.tgz\npackageVersion: 2\n"),
            "{description}"
        );
    }

    #[test]
    fn version_of_the_package_is_taken_off() {
        let check = |style: Style, version: &str, own: &str, number: Option<u64>| {
            assert_eq!(style.split(version), (own.to_owned(), number), "{version}");
        };
        check(Style::Rke2, "v4.3.017", "v4.3.0", Some(17));
        check(Style::Rke2, "v4.2.202", "v4.2.2", Some(2));
        check(
            Style::Rke2,
            "v4.0.2-build2024020802",
            "v4.0.2-build20240208",
            Some(2),
        );
        check(Style::Rke2, "5.0.0", "5.0.0", None);
        check(
            Style::K3s,
            "4.0.201+upv4.0.2-build2024020801",
            "v4.0.2-build2024020801",
            Some(1),
        );
        check(Style::K3s, "5.0.0", "5.0.0", None);
    }

    #[test]
    fn charts_that_are_not_of_one_package_are_refused() {
        let mut twice = published();
        twice.push(twice[1].clone());
        let error = charts(&twice).unwrap_err().to_string();
        assert!(error.contains("is a second chart"), "{error}");
        let error = charts(&published()[..1]).unwrap_err().to_string();
        assert!(error.contains("no archive has a main chart"), "{error}");
        let mut other = charts(&published()).unwrap();
        other.main.metadata.name = "b".to_owned();
        let text = b"name: b\nversion: 1.0.0\napiVersion: v1\n".to_vec();
        other.main.files[0].bytes = text;
        let error = tree(Style::Rke2, other, None, None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("a-crd is not the chart with the CRDs of b"),
            "{error}"
        );
        let charts = charts(&published()).unwrap();
        let error = tree(Style::Rke2, charts, None, Some(100)).unwrap_err();
        assert!(error.to_string().contains("two digits"), "{error}");
    }
}
