//! Runs of cargo share the crates that they build: those that make a release, where a third of the work depends on it, and those that test
//! everything and build the tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

/// The packages of each run whose crates the others can use.
const RUNS: [&[&str]; 3] = [&["daemon", "distro"], &["kubectl"], &["airgap"]];

/// Stands for all packages.
const WORKSPACE: &str = "--workspace";

/// Crates by the edges of the graph that lead to them: those in programs that most others depend on, with the types of the Kubernetes API,
/// which are the largest, and those below our own libraries; and that of most procedural macros.
const SHARED: [(&str, &[&str]); 2] = [
    (
        "normal,no-proc-macro",
        &[
            "ctutils",
            "digest",
            "flate2",
            "hybrid-array",
            "indexmap",
            "k8s-openapi",
            "libc",
            "mio",
            "num-traits",
            "rustix",
            "serde",
            "serde_core",
            "serde_json",
            "sha2",
            "socket2",
            "subtle",
            "tokio",
            "zlib-rs",
        ],
    ),
    ("normal,build", &["syn"]),
];

/// Returns the features of each crate, by its name and version, that cargo builds for these packages.
fn features(packages: &[&str], edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().expect("xtask is in the workspace");
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--prefix=none", "--format={p}|{f}"]);
    cargo.args(["--target=x86_64-unknown-linux-musl", "--edges", edges]);
    cargo.args(packages.iter().map(|package| match *package {
        WORKSPACE => package.to_string(),
        package => format!("--package={package}"),
    }));
    let output = cargo.current_dir(root).output().expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    for line in text.lines() {
        // Groups of edges have headings.
        let Some((name, features)) = line.split_once('|') else {
            continue;
        };
        let name = name.split(" (").next().unwrap_or_default().to_owned();
        let features = features.trim_end_matches(" (*)").to_owned();
        found.entry(name).or_default().insert(features);
    }
    found
}

#[test]
fn crates_have_the_same_features_in_every_run() {
    for (edges, shared) in SHARED {
        let runs = RUNS.map(|packages| features(packages, edges));
        let mut compared = BTreeSet::new();
        let pairs = (0..RUNS.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        for (one, other) in pairs {
            for (name, features) in &runs[one] {
                let plain = name.split(' ').next().unwrap();
                let theirs = runs[other].get(name).filter(|_| shared.contains(&plain));
                if let Some(theirs) = theirs {
                    compared.insert(plain);
                    assert_eq!(
                        features, theirs,
                        "{name} of {:?} and of {:?}: add what is missing to features/Cargo.toml",
                        RUNS[one], RUNS[other]
                    );
                }
            }
        }
        assert_eq!(compared.len(), shared.len(), "{compared:?}");
    }
}

#[test]
fn tools_are_built_of_the_crates_that_tests_have() {
    let tests = features(&[WORKSPACE], "normal,build,dev");
    for tool in ["e2e", "xtask"] {
        for (name, features) in features(&[tool], "normal,build") {
            let theirs = &tests[&name];
            assert!(
                features.is_subset(theirs),
                "{name} of {tool} has {features:?}, and of all tests {theirs:?}: add what is missing to `tools` in features/Cargo.toml"
            );
        }
    }
}
