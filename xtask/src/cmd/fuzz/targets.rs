//! The targets: the programs of `fuzz/Cargo.toml`, each named after the crate whose reader it runs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use archive::digest::sha256;
use serde::Deserialize;

/// A fuzz target.
#[derive(Debug)]
pub(super) struct Target {
    /// Its name, `<crate>_<reader>`.
    pub(super) name: String,
    /// The hash of the sources that it runs: of its crate, of the crates below, and of the versions of all others.
    pub(super) sources: String,
}

/// The targets in the order of their names.
#[derive(Debug)]
pub(super) struct Targets(pub(super) Vec<Target>);

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    bin: Vec<Bin>,
    #[serde(default)]
    dependencies: toml::Table,
}

#[derive(Deserialize)]
struct Bin {
    name: String,
}

impl Targets {
    /// Reads the targets of a checkout.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let manifest = manifest(&root.join("fuzz/Cargo.toml"))?;
        let mut names: Vec<_> = manifest.bin.into_iter().map(|bin| bin.name).collect();
        names.sort();
        let target = |name: String| {
            let sources = sources(root, &name)?;
            anyhow::Ok(Target { name, sources })
        };
        Ok(Self(
            names.into_iter().map(target).collect::<Result<_, _>>()?,
        ))
    }

    /// Returns the targets with these names; all of them without a name.
    pub(super) fn only(mut self, names: &[String]) -> anyhow::Result<Self> {
        for name in names {
            ensure!(
                self.0.iter().any(|target| target.name == *name),
                "there is no fuzz target {name}: fuzz/Cargo.toml has {}",
                self.names().join(", ")
            );
        }
        self.0
            .retain(|target| names.is_empty() || names.contains(&target.name));
        Ok(self)
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|target| target.name.as_str()).collect()
    }
}

fn manifest(path: &Path) -> anyhow::Result<Manifest> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not a manifest", path.display()))
}

/// Returns the hash of what a target runs. Another version of the workspace alone does not change it.
fn sources(root: &Path, target: &str) -> anyhow::Result<String> {
    let (name, _) = target
        .split_once('_')
        .with_context(|| format!("the name of the fuzz target {target} is not <crate>_<reader>"))?;
    let mut files = vec![root.join("fuzz/fuzz_targets").join(format!("{target}.rs"))];
    for name in with_dependencies(root, name)? {
        files.push(root.join(&name).join("Cargo.toml"));
        add_files(&root.join(&name).join("src"), &mut files)?;
    }
    files.sort();
    let mut lines = third_party(root)?;
    for file in files {
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).context("a file of the checkout")?;
        lines.push(format!("{} {}", name.display(), sha256(&bytes)));
    }
    Ok(sha256(lines.join("\n").as_bytes()).hex())
}

/// Returns a crate of the workspace and those that it depends on.
fn with_dependencies(root: &Path, name: &str) -> anyhow::Result<BTreeSet<String>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = open.pop() {
        let manifest = manifest(&root.join(&name).join("Cargo.toml"))?;
        let own = manifest.dependencies.keys();
        open.extend(
            own.filter(|name| {
                root.join(name).join("Cargo.toml").exists() && !found.contains(*name)
            })
            .cloned(),
        );
        found.insert(name);
    }
    Ok(found)
}

fn add_files(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            add_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the digests of all crates that are not ours.
fn third_party(root: &Path) -> anyhow::Result<Vec<String>> {
    let path = root.join("fuzz/Cargo.lock");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let digests = text.lines().filter(|line| line.starts_with("checksum = "));
    Ok(digests.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        let targets = Targets::read(root()).unwrap();
        let listed = |dir: &str| {
            let entries = fs::read_dir(root().join(dir)).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().path())
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(targets.names(), listed("fuzz/fuzz_targets"));
        assert_eq!(targets.names(), listed("fuzz/corpus"));
    }

    #[test]
    fn corpora_are_small() {
        let mut files = Vec::new();
        add_files(&root().join("fuzz/corpus"), &mut files).unwrap();
        let sizes = files.iter().map(|file| fs::metadata(file).unwrap().len());
        let size: u64 = sizes.sum();
        assert!(size < 300_000, "{size} bytes: remove what teaches nothing");
    }

    #[test]
    fn every_target_runs_as_a_bounded_test() {
        let targets = Targets::read(root()).unwrap();
        for target in &targets.0 {
            let (name, _) = target.name.split_once('_').unwrap();
            let mut files = Vec::new();
            add_files(&root().join(name).join("src"), &mut files).unwrap();
            let call = format!("run(\"{}\"", target.name);
            let runs =
                |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&call));
            assert!(files.iter().any(runs), "{name} has no test with {call}");
        }
    }

    #[test]
    fn sources_are_those_of_the_crate_and_of_the_crates_below() {
        let found = with_dependencies(root(), "plan").unwrap();
        let found: Vec<_> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["api", "cni", "plan"]);
        assert_ne!(
            sources(root(), "plan_annotations").unwrap(),
            sources(root(), "cni_results").unwrap()
        );
    }

    #[test]
    fn unknown_target_is_named() {
        let targets = Targets::read(root()).unwrap();
        let error = targets.only(&["plan_x".to_owned()]).unwrap_err();
        assert!(
            error.to_string().contains("no fuzz target plan_x"),
            "{error}"
        );
        let targets = Targets::read(root()).unwrap();
        let one = targets.only(&["plan_definitions".to_owned()]).unwrap();
        assert_eq!(one.names(), ["plan_definitions"]);
    }

    /// The fuzzed crates are the shipped ones, and `cargo deny` of the one lock file has seen the crates of the other.
    #[test]
    fn both_lock_files_have_the_same_crates() {
        let packages = |path: &str| -> BTreeSet<String> {
            let text = fs::read_to_string(root().join(path)).unwrap();
            let packages = text.split("[[package]]").skip(1);
            packages
                .map(|package| {
                    package
                        .lines()
                        .skip(1)
                        .take(2)
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        let ours = packages("Cargo.lock");
        let own = ["arbitrary", "fuzz", "libfuzzer-sys"];
        let fuzzed = packages("fuzz/Cargo.lock");
        let other = fuzzed.difference(&ours).filter(|package| {
            !own.iter()
                .any(|name| package.starts_with(&format!("name = \"{name}\"")))
        });
        assert_eq!(
            other.collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "run `cp Cargo.lock fuzz/ && cargo update --workspace --manifest-path fuzz/Cargo.toml`"
        );
    }
}
