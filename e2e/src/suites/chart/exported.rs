//! The packages tree for rke2-charts: what its scripts would make of it, with `patch` and Helm, are the charts that it was written from.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use super::{derived::xtask, render};
use crate::{
    programs::published_charts::{self, NEW, NEW_CRD, unpacked},
    sh,
    test_env::TestEnv,
};

const LAYOUT: &str = "rke2-charts";
const NAME: &str = "rke2-multus";
const SUBCHART: &str = "rke2-whereabouts";
/// A text that a template cannot have by chance.
const PREFIX: &str = "registry.example/team/hardened-";

/// Exports the published charts, and builds them from the tree.
pub(super) fn of_today(env: &TestEnv) -> anyhow::Result<()> {
    let out = env.dir.join("packages-today");
    let (main, crd) = (
        published_charts::archive(NEW)?,
        published_charts::archive(NEW_CRD)?,
    );
    export(LAYOUT, &out, &[&main, &crd], &[])?;
    let package = out.join("packages").join(NAME);
    let description = fs::read_to_string(package.join("package.yaml"))?;
    let number = description
        .lines()
        .find_map(|line| line.strip_prefix("packageVersion: "));
    let number = number.context("the package has a version")?;
    ensure!(number == "17", "{description}");
    let dependency = package.join(format!(
        "generated-changes/dependencies/{SUBCHART}/dependency.yaml"
    ));
    let dependency = fs::read_to_string(dependency)?;
    ensure!(
        dependency == format!("url: packages/{SUBCHART}\n"),
        "{dependency}"
    );

    let built = env.dir.join("built-today");
    let (of_main, of_crd) = (built.join(NAME), built.join(format!("{NAME}-crd")));
    copy(&package.join("charts"), &of_main)?;
    copy(
        &out.join(format!("packages/{SUBCHART}/charts")),
        &of_main.join("charts").join(SUBCHART),
    )?;
    copy(&package.join("templates/crd-template"), &of_crd)?;
    copy(&of_main.join("crds"), &of_crd.join("templates"))?;
    fs::remove_dir_all(of_main.join("crds"))?;
    for (chart, archive) in [(&of_main, &main), (&of_crd, &crd)] {
        append_version(chart, number)?;
        let expected = unpacked(env, archive)?;
        check_same(&files(chart)?, &files(&expected)?)?;
    }
    Ok(())
}

/// Exports our charts as changes to the published one, applies them as the scripts do, and compares what Helm renders.
pub(super) fn over_today(env: &TestEnv) -> anyhow::Result<()> {
    let (whole, changes) = (
        env.dir.join("packages-whole"),
        env.dir.join("packages-changes"),
    );
    let names = ["--image-prefix", PREFIX];
    export(LAYOUT, &whole, &[], &names)?;
    let main = published_charts::archive(NEW)?;
    let base = main.display().to_string();
    let url = format!("https://rke2-charts.rancher.io/assets/{NAME}/{NEW}");
    export(
        LAYOUT,
        &changes,
        &[],
        &[&names[..], &["--base", &base, "--url", &url]].concat(),
    )?;
    let package = changes.join("packages").join(NAME);
    let result = env.dir.join("built-changes").join(NAME);
    copy(&unpacked(env, &main)?, &result)?;
    let changes = package.join("generated-changes");
    for patch in files(&changes.join("patch"))?.into_values() {
        let mut command = Command::new("patch");
        command.args(["-E", "-p1", "--silent"]).current_dir(&result);
        sh::feed(&mut command, &patch)?;
    }
    copy(&changes.join("overlay"), &result)?;
    for path in files(&changes.join("exclude"))?.into_keys() {
        fs::remove_file(result.join(path))?;
    }
    let expected = files(&whole.join("packages").join(NAME).join("charts"))?;
    ensure!(
        files(&result)? == expected,
        "the changes make another chart"
    );
    // The scripts move the CRDs into a chart of their own.
    fs::remove_dir_all(result.join("crds"))?;
    let packed = env.dir.join("packed");
    let to = packed.display().to_string();
    xtask(&[&["chart", "package", "--out", &to][..], &names].concat())?;
    let version = env.version()?;
    let ours = packed.join(format!("charts/assets/{NAME}/{NAME}-{version}.tgz"));
    let found = render::text(env, NAME, &result, &[])?;
    ensure!(
        found == render::text(env, NAME, &ours, &[])?,
        "Helm renders other objects"
    );
    let image = format!("image: \"{PREFIX}multus:v{version}\"");
    ensure!(found.contains(&image), "no {image} in {found}");
    let mirrored = render::text(
        env,
        NAME,
        &ours,
        &["--set=global.systemDefaultRegistry=mirror.example"],
    )?;
    let image = format!("image: \"mirror.example/team/hardened-multus:v{version}\"");
    ensure!(mirrored.contains(&image), "no {image} in {mirrored}");
    Ok(())
}

/// Writes the packages tree of a repository: of these archives, or else of the checkout's charts.
pub(super) fn export(
    layout: &str,
    out: &Path,
    charts: &[&PathBuf],
    more: &[&str],
) -> anyhow::Result<()> {
    let out = out.display().to_string();
    let charts: Vec<_> = charts
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let charts: Vec<_> = charts.iter().map(String::as_str).collect();
    let args = ["chart", "export", "--layout", layout, "--out", &out];
    xtask(&[&args, more, &charts].concat()).map(drop)
}

/// Puts the number of the package after the chart's version, as the scripts do.
fn append_version(chart: &Path, number: &str) -> anyhow::Result<()> {
    let path = chart.join("Chart.yaml");
    let text = fs::read_to_string(&path)?;
    let line = |line: &str| {
        let suffix = if line.starts_with("version: ") {
            number
        } else {
            ""
        };
        format!("{line}{suffix}\n")
    };
    fs::write(&path, text.lines().map(line).collect::<String>())?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for (path, bytes) in files(from)? {
        let path = to.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        fs::write(path, bytes)?;
    }
    Ok(())
}

/// Files by their paths.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Fails when a file is missing, superfluous or different.
pub(super) fn check_same(found: &Files, expected: &Files) -> anyhow::Result<()> {
    ensure!(
        found.keys().eq(expected.keys()),
        "{:?} and {:?}",
        found.keys(),
        expected.keys()
    );
    for (path, bytes) in expected {
        ensure!(found[path] == *bytes, "{} differs", path.display());
    }
    Ok(())
}

/// Returns the files below a directory by their paths.
pub(super) fn files(dir: &Path) -> anyhow::Result<Files> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        let entries =
            fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}
