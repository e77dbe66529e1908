//! What others have put among the manifests, and what it means for ours: the distro goes by names, wherever a file lies.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::manifest::addon;

/// Deeper than anybody nests manifests.
const DEPTH: u32 = 16;

/// Files among the manifests that concern ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// `NAME.skip`: the distro does not read the manifest of that name.
    pub(crate) skips: Vec<PathBuf>,
    /// Other manifests that become the same Addon: the distro would apply now the one, now the other.
    pub(crate) rivals: Vec<PathBuf>,
}

/// Looks through the manifests for what concerns these of ours.
pub(crate) fn beside(manifests: &Path, ours: &[PathBuf]) -> Beside {
    let names: Vec<&str> = ours.iter().filter_map(|path| name(path)).collect();
    let mut found = Beside::default();
    for path in walk(manifests, DEPTH) {
        let Some(file) = name(&path) else { continue };
        let ending = file.rsplit('.').next().unwrap_or_default();
        if ending == "skip" {
            if names.iter().any(|name| file == format!("{name}.skip")) {
                found.skips.push(path);
            }
        } else if matches!(ending, "yaml" | "yml" | "json") && !file.starts_with('.') {
            let same = names.iter().any(|name| addon(name) == addon(file));
            if same && !ours.contains(&path) {
                found.rivals.push(path);
            }
        }
    }
    found
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn walk(dir: &Path, depth: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let below = paths
        .iter()
        .filter(|path| depth > 0 && path.is_dir())
        .flat_map(|path| walk(path, depth - 1))
        .collect::<Vec<_>>();
    paths.extend(below);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_and_rivals_are_found_anywhere() {
        let dir = tempfile::tempdir().unwrap();
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
        let found = beside(dir.path(), &[at("multus.yaml")]);
        assert_eq!(found.skips, [at("own/multus.yaml.skip")]);
        assert_eq!(found.rivals, [at("own/multus.more.yml")]);
        assert_eq!(beside(&at("none"), &[]), Beside::default());
    }
}
