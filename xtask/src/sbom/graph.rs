//! The crates of each program, for one target and the features that are really built: cargo resolves them, this module reads its answer.
//!
//! `cargo tree` uses the resolver of the build, so it knows which features a run of cargo unites; `cargo metadata` unites those of the whole
//! workspace, and is asked for the licence and origin of each crate alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Context as _, ensure};
use release::{kubectl_archives::PROGRAM, workstation::Workstation};
use serde::Deserialize;
use xshell::cmd;

use crate::{
    arch::{Arch, Facts},
    programs::{self, CARGO_RUNS, CargoRun},
    project::Project,
    workstations,
};

/// A crate of one version. A release has crates of one registry and of this workspace, so that both together are unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CrateId {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The relation of a crate to one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The crate only ran during the build: a procedural macro, a build script's dependency, and what these need.
    pub(crate) is_build_only: bool,
    pub(crate) features: BTreeSet<String>,
}

/// The crates of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Graph {
    /// The program's own crate.
    pub(crate) root: CrateId,
    pub(crate) crates: BTreeMap<CrateId, Usage>,
    /// From a crate to those that are linked into it, or that it needs for its build.
    pub(crate) edges: BTreeSet<(CrateId, CrateId)>,
}

/// The facts about a crate that do not depend on a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrateFacts {
    /// The licence as its manifest states it.
    pub(crate) licence: Option<String>,
    pub(crate) licence_file: Option<PathBuf>,
    pub(crate) authors: Vec<String>,
    pub(crate) repository: Option<String>,
    /// The sha256 of its archive in the registry, `None` for a crate of this workspace.
    pub(crate) checksum: Option<String>,
    /// The directory of its sources.
    pub(crate) directory: PathBuf,
}

/// Lines of `cargo tree` with these options are read by [`Tree::parse`]: depth, blank, package, bar, features.
const FORMAT: &str = " {p}|{f}";
/// The mark of a crate whose dependencies were printed before.
const REPEATED: &str = " (*)";

/// The dependencies that `cargo tree` printed, of all its roots together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tree {
    features: BTreeMap<CrateId, BTreeSet<String>>,
    edges: BTreeSet<(CrateId, CrateId)>,
}

impl Tree {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        let mut path: Vec<CrateId> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (depth, id, features) =
                parse_line(line).with_context(|| format!("cargo tree printed `{line}`"))?;
            ensure!(
                depth <= path.len(),
                "cargo tree printed `{line}` below nothing"
            );
            path.truncate(depth);
            if let Some(parent) = path.last() {
                tree.edges.insert((parent.clone(), id.clone()));
            }
            let known = tree.features.entry(id.clone()).or_default();
            known.extend(features.map(str::to_owned));
            path.push(id);
        }
        Ok(tree)
    }

    /// Returns the crates that a crate leads to, itself included.
    fn reachable(&self, root: &CrateId) -> BTreeSet<CrateId> {
        let mut found = BTreeSet::from([root.clone()]);
        let mut todo = vec![root];
        while let Some(from) = todo.pop() {
            for (_, to) in self.edges.iter().filter(|(parent, _)| parent == from) {
                if found.insert(to.clone()) {
                    todo.push(to);
                }
            }
        }
        found
    }
}

fn parse_line(line: &str) -> Option<(usize, CrateId, impl Iterator<Item = &str>)> {
    let (depth, rest) = line.split_once(' ')?;
    let (package, features) = rest.split_once('|')?;
    // The package is followed by `(proc-macro)` or its directory, where it has one.
    let mut words = package.split(' ');
    let id = CrateId {
        name: words.next()?.to_owned(),
        version: words.next()?.strip_prefix('v')?.to_owned(),
    };
    let features = features.strip_suffix(REPEATED).unwrap_or(features);
    let features = features.split(',').filter(|feature| !feature.is_empty());
    Some((depth.parse().ok()?, id, features))
}

/// Returns the graph of one program from what `cargo tree` printed of a run of cargo: linked crates alone, and all crates.
fn graph(linked: &Tree, all: &Tree, root: &CrateId) -> anyhow::Result<Graph> {
    ensure!(
        linked.features.contains_key(root),
        "cargo tree printed no {} {}",
        root.name,
        root.version
    );
    let linked_crates = linked.reachable(root);
    let crates = all.reachable(root).into_iter().map(|id| {
        let is_build_only = !linked_crates.contains(&id);
        let tree = if is_build_only { all } else { linked };
        let features = tree.features.get(&id).cloned().unwrap_or_default();
        let usage = Usage {
            is_build_only,
            features,
        };
        (id, usage)
    });
    let crates: BTreeMap<_, _> = crates.collect();
    let edges = all.edges.iter();
    let edges = edges.filter(|(from, _)| crates.contains_key(from));
    Ok(Graph {
        root: root.clone(),
        edges: edges.cloned().collect(),
        crates,
    })
}

/// Asks cargo for the graph of every program of an architecture, by the program's name.
pub(super) fn arch_graphs(
    project: &Project,
    arch: Arch,
) -> anyhow::Result<BTreeMap<String, Graph>> {
    run_graphs(project, Facts::of(arch).triple, CARGO_RUNS)
}

/// Asks cargo for the graph of the kubectl plugin for a workstation.
pub(super) fn workstation_graph(
    project: &Project,
    workstation: Workstation,
) -> anyhow::Result<Graph> {
    let target = workstations::Facts::of(workstation).triple;
    let graphs = run_graphs(project, target, &[programs::run_of(PROGRAM)?])?;
    let graph = graphs.into_values().next();
    graph.with_context(|| format!("cargo listed no crates for {}", workstation.name()))
}

/// Asks cargo for the graph of every program of these runs for a target, by the program's name.
fn run_graphs(
    project: &Project,
    target: &str,
    runs: &[CargoRun],
) -> anyhow::Result<BTreeMap<String, Graph>> {
    let mut graphs = BTreeMap::new();
    for CargoRun { programs, .. } in runs {
        let tree = |edges: &str| {
            let shell = project.shell()?;
            let packages = programs
                .iter()
                .flat_map(|(package, _)| ["--package", package]);
            let text = cmd!(
                shell,
                "cargo tree --locked --offline --target {target} {packages...} --edges {edges} --prefix depth --format {FORMAT}"
            );
            let text = text.env("CARGO_TERM_COLOR", "never").quiet().read();
            let text = text.with_context(|| format!("cannot list the crates for {target}"))?;
            Tree::parse(&text)
        };
        let linked = tree("normal,no-proc-macro")?;
        let all = tree("normal,build")?;
        for (package, program) in *programs {
            let root = CrateId {
                name: (*package).to_owned(),
                version: project.version.clone(),
            };
            graphs.insert((*program).to_owned(), graph(&linked, &all, &root)?);
        }
    }
    Ok(graphs)
}

/// The part of `cargo metadata` that is read.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    /// `None` for a crate of this workspace.
    source: Option<String>,
}

/// The part of `Cargo.lock` that is read.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Returns the checksums of all crates in a `Cargo.lock`; those of this workspace have none.
pub(super) fn checksums(lock: &str) -> anyhow::Result<BTreeMap<CrateId, Option<String>>> {
    let lock: Lock = toml::from_str(lock).context("Cargo.lock is damaged")?;
    let entry = |one: Locked| {
        let id = CrateId {
            name: one.name,
            version: one.version,
        };
        (id, one.checksum)
    };
    Ok(lock.package.into_iter().map(entry).collect())
}

/// Returns the facts about all crates from the output of `cargo metadata` and the text of `Cargo.lock`.
fn parse_facts(metadata: &str, lock: &str) -> anyhow::Result<BTreeMap<CrateId, CrateFacts>> {
    let metadata: Metadata =
        serde_json::from_str(metadata).context("cargo metadata printed something else")?;
    let checksums = checksums(lock)?;
    let mut facts = BTreeMap::new();
    for package in metadata.packages {
        let id = CrateId {
            name: package.name,
            version: package.version,
        };
        let checksum = checksums.get(&id).cloned().flatten();
        ensure!(
            package.source.is_none() == checksum.is_none(),
            "Cargo.lock and the sources of {} {} do not agree: run `cargo fetch --locked`",
            id.name,
            id.version
        );
        let directory = package.manifest_path.parent().map(PathBuf::from);
        let one = CrateFacts {
            licence: package.license,
            licence_file: package.license_file,
            authors: package.authors,
            repository: package.repository,
            checksum,
            directory: directory.context("a manifest is in a directory")?,
        };
        facts.insert(id, one);
    }
    Ok(facts)
}

/// Asks cargo for the facts about all crates that any architecture may need.
pub(super) fn facts(project: &Project) -> anyhow::Result<BTreeMap<CrateId, CrateFacts>> {
    let shell = project.shell()?;
    let nodes = Arch::ALL.into_iter().map(|arch| Facts::of(arch).triple);
    let workstations = Workstation::ALL.into_iter();
    let workstations = workstations.map(|workstation| workstations::Facts::of(workstation).triple);
    let targets = nodes
        .chain(workstations)
        .flat_map(|triple| ["--filter-platform", triple]);
    let metadata = cmd!(
        shell,
        "cargo metadata --locked --offline --format-version 1 {targets...}"
    );
    let metadata = metadata.quiet().read();
    let metadata = metadata.context("cannot read the manifests of the crates")?;
    let lock = shell.read_file("Cargo.lock")?;
    parse_facts(&metadata, &lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as cargo prints them: a shim and a daemon that share `serde`, whose macro needs `syn` while `time` is linked and a part of the build.
    const LINKED: &str = "\
0 shim v1.0.0 (/w/shim)|
1 serde v1.0.229|derive,std
2 serde_core v1.0.229|std

0 daemon v1.0.0 (/w/daemon)|
1 serde v1.0.229|derive,std (*)
1 ring v0.17.14|
1 time v0.3.0|std
";
    const ALL: &str = "\
0 shim v1.0.0 (/w/shim)|
1 serde v1.0.229|derive,std
2 serde_core v1.0.229|std
2 serde_derive v1.0.229 (proc-macro)|default
3 syn v3.0.9|full,parsing

0 daemon v1.0.0 (/w/daemon)|
1 serde v1.0.229|derive,std (*)
1 ring v0.17.14|
2 cc v1.2.0|
3 time v0.3.0|alloc,std
1 time v0.3.0|std
";

    fn id(name: &str, version: &str) -> CrateId {
        CrateId {
            name: name.into(),
            version: version.into(),
        }
    }

    fn graph_of(root: &str) -> Graph {
        let (linked, all) = (Tree::parse(LINKED).unwrap(), Tree::parse(ALL).unwrap());
        graph(&linked, &all, &id(root, "1.0.0")).unwrap()
    }

    fn names(graph: &Graph, is_build_only: bool) -> Vec<&str> {
        let crates = graph.crates.iter();
        let crates = crates.filter(|(_, usage)| usage.is_build_only == is_build_only);
        crates.map(|(id, _)| id.name.as_str()).collect()
    }

    #[test]
    fn programs_have_their_own_crates_and_not_those_of_the_same_run() {
        let shim = graph_of("shim");
        assert_eq!(names(&shim, false), ["serde", "serde_core", "shim"]);
        assert_eq!(names(&shim, true), ["serde_derive", "syn"]);
        let daemon = graph_of("daemon");
        let linked = ["daemon", "ring", "serde", "serde_core", "time"];
        assert_eq!(names(&daemon, false), linked);
        assert_eq!(names(&daemon, true), ["cc", "serde_derive", "syn"]);
        // The features are those of the instance that is linked.
        let time = &daemon.crates[&id("time", "0.3.0")];
        assert_eq!(time.features, BTreeSet::from(["std".to_owned()]));
    }

    #[test]
    fn edges_are_those_of_the_program_and_its_build() {
        let daemon = graph_of("daemon");
        let edges = daemon.edges.iter();
        let edges = edges.map(|(from, to)| format!("{} {}", from.name, to.name));
        let expected = [
            "cc time",
            "daemon ring",
            "daemon serde",
            "daemon time",
            "ring cc",
            "serde serde_core",
            "serde serde_derive",
            "serde_derive syn",
        ];
        assert_eq!(edges.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_output_of_cargo_is_refused() {
        for text in ["warning: x", "0 x|", "1 x v1.0.0|", "0 x v1.0.0"] {
            let error = Tree::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("cargo tree printed `"), "{error}");
        }
        let tree = Tree::parse(LINKED).unwrap();
        let error = graph(&tree, &tree, &id("kubectl", "1.0.0")).unwrap_err();
        assert_eq!(error.to_string(), "cargo tree printed no kubectl 1.0.0");
    }

    const LOCK: &str = "version = 4\n
[[package]]\nname = \"serde\"\nversion = \"1.0.229\"\nsource = \"registry+x\"\nchecksum = \"ab\"\n
[[package]]\nname = \"shim\"\nversion = \"1.0.0\"\n";

    fn metadata(checked: &str) -> String {
        let package = |name: &str, version: &str, source: Option<&str>| {
            serde_json::json!({
                "name": name, "version": version, "source": source, "license": "MIT/Apache-2.0", "license_file": null,
                "authors": ["A <a@b>"], "repository": "https://x/y", "manifest_path": format!("/r/{name}/Cargo.toml"), "edition": "2024",
            })
        };
        let packages = [
            package(checked, "1.0.229", Some("registry+x")),
            package("shim", "1.0.0", None),
        ];
        serde_json::json!({"packages": packages, "version": 1}).to_string()
    }

    #[test]
    fn facts_come_from_manifests_and_the_lock() {
        let facts = parse_facts(&metadata("serde"), LOCK).unwrap();
        let serde = &facts[&id("serde", "1.0.229")];
        assert_eq!(serde.checksum.as_deref(), Some("ab"));
        assert_eq!(serde.directory, PathBuf::from("/r/serde"));
        assert_eq!(facts[&id("shim", "1.0.0")].checksum, None);
        let error = parse_facts(&metadata("other"), LOCK).unwrap_err();
        let expected = "Cargo.lock and the sources of other 1.0.229 do not agree";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
