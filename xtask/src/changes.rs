//! The packages and suites whose tests a change can break, from the paths of its files.

use std::{collections::BTreeSet, path::Path};

use anyhow::Context as _;
use clap::ValueEnum as _;
use serde_json::Value;
use xshell::cmd;

use crate::{
    cmd::e2e::Suite,
    project::{self, Project},
};

/// The tests of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The packages to test, in order of their names.
    pub(crate) packages: BTreeSet<String>,
    /// The suites to run, as [`Suite`] names them.
    pub(crate) suites: BTreeSet<String>,
}

/// Files that affect every build.
const EVERYTHING: [&str; 5] = [
    ".cargo/",
    "Cargo.lock",
    "Cargo.toml",
    "rust-toolchain.toml",
    "xtask/",
];

/// The suites that run what a package is in.
const SUITES: [(&str, &[Suite]); 8] = [
    (
        "daemon",
        &[
            Suite::Netns,
            Suite::Rules,
            Suite::Faults,
            Suite::Load,
            Suite::Discover,
            Suite::Cri,
            Suite::Devices,
            Suite::Cluster,
            Suite::K3s,
        ],
    ),
    ("ipam", &[Suite::Ipam]),
    (
        "shim",
        &[
            Suite::Netns,
            Suite::Rules,
            Suite::Faults,
            Suite::Load,
            Suite::Cluster,
            Suite::K3s,
        ],
    ),
    (
        "plugins",
        &[Suite::Netns, Suite::Plugins, Suite::Cluster, Suite::K3s],
    ),
    (
        "distro",
        &[
            Suite::Service,
            Suite::Airgap,
            Suite::K3s,
            Suite::Published,
            Suite::Vpn,
        ],
    ),
    ("airgap", &[Suite::Airgap, Suite::Published]),
    (
        "chart",
        &[Suite::Chart, Suite::Cluster, Suite::K3s, Suite::Published],
    ),
    ("kubectl", &[Suite::Chart, Suite::Netns, Suite::Cluster]),
];

/// A package of the workspace.
#[derive(Debug)]
struct Package {
    name: String,
    /// Its directory, relative to the checkout, with a slash at its end.
    dir: String,
    /// The packages of the workspace that its programs or tests are made of.
    dependencies: Vec<String>,
}

/// Returns the tests of all files that differ from where the branch left a revision.
pub(crate) fn since(project: &Project, revision: &str) -> anyhow::Result<Selection> {
    let shell = project.shell()?;
    let git = |args: &[&str]| project::git(&shell, args).ignore_stderr().read();
    let base = git(&["merge-base", "--end-of-options", revision, "HEAD"]).with_context(|| {
        format!("this checkout has no revision {revision} with a commit in common: fetch it")
    })?;
    let changed = git(&["diff", "--name-only", "--no-renames", &base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let metadata = cmd!(
        shell,
        "cargo metadata --locked --no-deps --format-version 1"
    )
    .quiet()
    .read()
    .context("cannot ask cargo for the packages of the workspace")?;
    let packages = packages(
        &serde_json::from_str(&metadata)?,
        &format!("{}/", project.root.display()),
    )
    .context("cargo describes the packages in another form")?;
    let mut selection = Selection::default();
    for path in changed.lines().chain(new.lines()) {
        let text = if is_page(path) {
            // A page that was deleted names no check.
            std::fs::read_to_string(project.root.join(path)).unwrap_or_default()
        } else {
            String::new()
        };
        add(&mut selection, path, &text, &packages);
    }
    Ok(selection)
}

/// Reads the packages in what `cargo metadata` writes.
fn packages(metadata: &Value, root: &str) -> Option<Vec<Package>> {
    let packages = metadata["packages"].as_array()?.iter().map(|package| {
        let manifest = package["manifest_path"].as_str()?;
        let dependencies = package["dependencies"].as_array()?.iter();
        let own = dependencies.filter(|dependency| dependency["path"].is_string());
        Some(Package {
            name: package["name"].as_str()?.to_owned(),
            dir: manifest
                .strip_prefix(root)?
                .strip_suffix("Cargo.toml")?
                .to_owned(),
            dependencies: own
                .map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
                .collect::<Option<_>>()?,
        })
    });
    packages.collect()
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == "md")
}

/// Adds the tests of a changed file. A page has its text, which names the suites that follow it.
fn add(selection: &mut Selection, path: &str, text: &str, packages: &[Package]) {
    if EVERYTHING.iter().any(|prefix| path.starts_with(prefix)) {
        selection
            .packages
            .extend(packages.iter().map(|package| package.name.clone()));
        selection
            .suites
            .extend(Suite::value_variants().iter().copied().map(name));
        return;
    }
    if path.starts_with("e2e/") {
        // Other directories there may have a suite's name, and serve several.
        let part = path.strip_prefix("e2e/src/suites/");
        let part = part.or_else(|| path.starts_with("e2e/src/rules").then_some("rules"));
        let suite = part.and_then(|part| part.split(['/', '.']).next());
        let suite = Suite::value_variants()
            .iter()
            .find(|known| suite == Some(&name(**known)));
        match suite {
            Some(suite) => drop(selection.suites.insert(name(*suite))),
            None => selection
                .suites
                .extend(Suite::value_variants().iter().copied().map(name)),
        }
    }
    if is_page(path) {
        let followed = Suite::value_variants().iter().copied().map(name);
        let followed = followed.filter(|suite| text.contains(&format!(" {suite}:")));
        selection.suites.extend(followed);
        // The tests that read pages have this package.
        selection.packages.extend(dependents("docs", packages));
        return;
    }
    let owner = packages
        .iter()
        .find(|package| path.starts_with(&package.dir));
    let Some(owner) = owner else { return };
    let touched = dependents(&owner.name, packages);
    for (package, suites) in SUITES {
        if touched.contains(package) && owner.name != "docs" {
            selection.suites.extend(suites.iter().copied().map(name));
        }
    }
    selection.packages.extend(touched);
}

/// Returns a package and all that are made of it.
fn dependents(name: &str, packages: &[Package]) -> BTreeSet<String> {
    let mut found = BTreeSet::from([name.to_owned()]);
    loop {
        let more: Vec<_> = packages
            .iter()
            .filter(|package| !found.contains(&package.name))
            .filter(|package| package.dependencies.iter().any(|own| found.contains(own)))
            .map(|package| package.name.clone())
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Returns the name of a suite on the command line.
pub(crate) fn name(suite: Suite) -> String {
    let value = suite.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the present packages of the workspace say about a changed file.
    fn selected(path: &str, text: &str) -> Selection {
        let project = Project::open().unwrap();
        let shell = project.shell().unwrap();
        let metadata = cmd!(
            shell,
            "cargo metadata --locked --offline --no-deps --format-version 1"
        );
        let metadata = serde_json::from_str(&metadata.quiet().read().unwrap()).unwrap();
        let root = format!("{}/", project.root.display());
        let mut selection = Selection::default();
        add(
            &mut selection,
            path,
            text,
            &packages(&metadata, &root).unwrap(),
        );
        selection
    }

    #[track_caller]
    fn check(path: &str, packages: &[&str], suites: &[&str], others: &[&str]) {
        let selection = selected(path, "");
        for package in packages {
            assert!(selection.packages.contains(*package), "{selection:?}");
        }
        for suite in suites {
            assert!(selection.suites.contains(*suite), "{selection:?}");
        }
        for other in others {
            assert!(!selection.suites.contains(*other), "{selection:?}");
            assert!(!selection.packages.contains(*other), "{selection:?}");
        }
    }

    #[test]
    fn library_touches_its_dependents() {
        check(
            "dhcp/src/client.rs",
            &["daemon", "dhcp", "plugins"],
            &["plugins", "rules"],
            &["shim", "vpn"],
        );
        check(
            "vpn/src/rule.rs",
            &["distro", "vpn"],
            &["service", "vpn"],
            &["daemon", "netns", "plugins"],
        );
        check(
            "registry/src/client.rs",
            &["airgap", "registry", "xtask"],
            &["airgap", "published"],
            &["distro", "release", "service"],
        );
        check(
            "release/src/verify.rs",
            &["airgap", "distro", "release", "xtask"],
            &["airgap", "published"],
            &["daemon", "registry", "netns"],
        );
        check(
            "shim/src/main.rs",
            &["shim"],
            &["netns", "rules"],
            &["daemon", "vpn", "airgap"],
        );
    }

    #[test]
    fn file_of_a_suite_touches_that_suite() {
        check(
            "e2e/src/suites/vpn/faults.rs",
            &["e2e"],
            &["vpn"],
            &["netns", "shim"],
        );
        check("e2e/src/rules/cases/add.rs", &["e2e"], &["rules"], &["vpn"]);
        check("e2e/src/suites/k3s.rs", &["e2e"], &["k3s"], &["vpn"]);
        check(
            "e2e/src/node/runtime.rs",
            &["e2e"],
            &["netns", "vpn"],
            &["shim"],
        );
        check(
            "e2e/src/cluster/pods.rs",
            &["e2e"],
            &["cluster", "k3s", "vpn"],
            &["shim"],
        );
    }

    #[test]
    fn build_touches_everything() {
        let everything = selected("Cargo.lock", "");
        assert_eq!(everything.suites.len(), Suite::value_variants().len());
        assert!(everything.packages.contains("shim"));
        assert_eq!(selected("xtask/src/main.rs", ""), everything);
    }

    #[test]
    fn page_touches_the_suites_that_follow_it() {
        let page = selected("docs/vpn.md", "```sh vpn:files\n```\n```yaml netns:pod\n");
        assert!(page.suites.iter().eq(["netns", "vpn"]), "{page:?}");
        assert!(page.packages.contains("kubectl"));
        let other = selected("CHANGELOG.md", "- A sentence.\n");
        assert!(other.suites.is_empty(), "{other:?}");
        assert_eq!(selected("LICENSE", ""), Selection::default());
    }
}
