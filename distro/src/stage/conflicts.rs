//! Files of others among the manifests that keep ours from working: the distro goes by names, in whatever directory a file is.

use std::path::{Path, PathBuf};

use node::root::{Kind, Root};

use super::MAX;
use crate::manifest::{self, addon_name};

/// Deeper than manifests are nested in practice.
const DEPTH: u32 = 16;

/// Files among the manifests that conflict with ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflicts {
    /// `NAME.skip`: the distro does not read the manifest of that name.
    pub(crate) skips: Vec<PathBuf>,
    /// Other manifests that become the same Addon: the distro applies now the one, now the other.
    pub(crate) duplicates: Vec<PathBuf>,
    /// Manifests with a HelmChart or DaemonSet of another Multus, and its name: both write the same configuration on each node.
    pub(crate) others: Vec<(PathBuf, String)>,
}

impl Conflicts {
    /// Returns one line for the user about each file.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let skips = self.skips.iter().map(|path| {
            format!(
                "{} keeps the distro from reading the staged manifest: remove it",
                path.display()
            )
        });
        let duplicates = self.duplicates.iter().map(|path| {
            format!(
                "{} becomes the same Addon as the staged manifest, and the two take turns: rename it",
                path.display()
            )
        });
        let others = self.others.iter().map(|(path, other)| {
            format!(
                "{} has {other}, and two of them write the same configuration on each node: `kubectl multus preflight` prints how one replaces the other",
                path.display()
            )
        });
        skips.chain(duplicates).chain(others)
    }
}

/// Searches the manifests directory for files that conflict with these of ours.
pub(crate) fn conflicts(root: &Root, manifests: &Path, ours: &[PathBuf]) -> Conflicts {
    let names: Vec<&str> = ours.iter().filter_map(|path| name(path)).collect();
    let mut found = Conflicts::default();
    for path in walk(root, manifests, DEPTH) {
        let Some(file) = name(&path) else { continue };
        let ending = file.rsplit('.').next().unwrap_or_default();
        if ending == "skip" {
            if names.iter().any(|name| file == format!("{name}.skip")) {
                found.skips.push(path);
            }
        } else if matches!(ending, "yaml" | "yml" | "json") && !file.starts_with('.') {
            let is_same = names
                .iter()
                .any(|name| addon_name(name) == addon_name(file));
            if ours.contains(&path) {
                continue;
            }
            let bytes = root.read(&path, MAX).unwrap_or_default();
            let others = manifest::multus(&bytes).into_iter();
            found
                .others
                .extend(others.map(|other| (path.clone(), other)));
            if is_same {
                found.duplicates.push(path);
            }
        }
    }
    found
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Lists the files, and those of each directory below. As for the distro, only a link in the first directory may lead to another one.
fn walk(root: &Root, dir: &Path, depth: u32) -> Vec<PathBuf> {
    let is_dir = |path: &Path| match depth {
        0 => false,
        DEPTH => root.is_dir(path),
        _ => matches!(root.kind(path), Ok(Some(Kind::Dir))),
    };
    let names = root.list(dir).unwrap_or_default();
    let mut paths: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
    let below = paths
        .iter()
        .filter(|path| is_dir(path))
        .flat_map(|path| walk(root, path, depth - 1))
        .collect::<Vec<_>>();
    paths.extend(below);
    paths
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn skips_and_duplicates_are_found_in_any_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open("/").unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("own")).unwrap();
        for name in [
            "multus.yaml",
            "own/multus.yaml.skip",
            "own/multus.more.yml",
            "multus.txt",
            "traefik.yaml",
            "traefik.yaml.skip",
            ".multus.yaml",
        ] {
            fs::write(at(name), "").unwrap();
        }
        let found = conflicts(&root, dir.path(), &[at("multus.yaml")]);
        assert_eq!(found.skips, [at("own/multus.yaml.skip")]);
        assert_eq!(found.duplicates, [at("own/multus.more.yml")]);
        assert_eq!(found.others, []);
        let documented = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: multus}\nspec: {chart: rke2-multus}\n";
        fs::write(at("own/multus-config.yaml"), documented).unwrap();
        let found = conflicts(&root, dir.path(), &[at("multus.yaml")]);
        let other = (at("own/multus-config.yaml"), "HelmChart multus".to_owned());
        assert_eq!(found.others, [other]);
        assert_eq!(conflicts(&root, &at("none"), &[]), Conflicts::default());
        // Two links to the directory itself are followed once each.
        for name in ["a", "b"] {
            symlink(".", at(name)).unwrap();
        }
        let found = conflicts(&root, dir.path(), &[at("multus.yaml")]);
        let skips = ["own", "a/own", "b/own"].map(|dir| at(dir).join("multus.yaml.skip"));
        let sorted: BTreeSet<_> = found.skips.into_iter().collect();
        assert_eq!(sorted, skips.into());
    }
}
