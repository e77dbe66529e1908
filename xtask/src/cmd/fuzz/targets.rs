//! The targets: the programs of `fuzz/Cargo.toml`, each named after the crate whose reader it runs: `<crate>_<reader>`.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Bin>,
}

#[derive(Deserialize)]
struct Bin {
    name: String,
}

/// Returns the sorted names of the targets of a checkout: these, or all of them when none is named.
pub(super) fn read(root: &Path, only: &[String]) -> anyhow::Result<Vec<String>> {
    let path = root.join("fuzz/Cargo.toml");
    let context = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(&path).with_context(context)?;
    let manifest: Manifest = toml::from_str(&text).with_context(context)?;
    let mut names: Vec<_> = manifest.bin.into_iter().map(|bin| bin.name).collect();
    names.sort();
    for name in only {
        ensure!(
            names.contains(name),
            "there is no fuzz target {name}: fuzz/Cargo.toml has {}",
            names.join(", ")
        );
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    fn add_files(dir: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add_files(&path, files);
            } else {
                files.push(path);
            }
        }
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        let targets = read(root(), &[]).unwrap();
        let listed = |dir: &str| {
            let entries = fs::read_dir(root().join(dir)).unwrap();
            let mut names: Vec<_> = entries
                .map(|entry| entry.unwrap().path())
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(targets, listed("fuzz/fuzz_targets"));
        assert_eq!(targets, listed("fuzz/corpus"));
    }

    #[test]
    fn corpora_are_small() {
        let mut files = Vec::new();
        add_files(&root().join("fuzz/corpus"), &mut files);
        let sizes = files.iter().map(|file| fs::metadata(file).unwrap().len());
        let size: u64 = sizes.sum();
        assert!(size < 300_000, "{size} bytes: remove what teaches nothing");
    }

    #[test]
    fn every_target_runs_as_a_bounded_test() {
        for target in read(root(), &[]).unwrap() {
            let (name, _) = target.split_once('_').unwrap();
            let mut files = Vec::new();
            add_files(&root().join(name).join("src"), &mut files);
            let call = format!("run(\"{target}\"");
            let runs =
                |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&call));
            assert!(files.iter().any(runs), "{name} has no test with {call}");
        }
    }

    #[test]
    fn unknown_target_is_named() {
        let error = read(root(), &["plan_x".to_owned()]).unwrap_err();
        assert!(
            error.to_string().contains("no fuzz target plan_x"),
            "{error}"
        );
        let one = read(root(), &["plan_definitions".to_owned()]).unwrap();
        assert_eq!(one, ["plan_definitions"]);
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
        // The build script of libfuzzer-sys compiles in parallel, with jobserver.
        let own = ["arbitrary", "fuzz", "jobserver", "libfuzzer-sys"];
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
