//! The source of the reference's suites: a copy of the pinned module in which the tests run a program where they called a function.
//!
//! The copy has its own `go.mod` and `go.sum`, so the test libraries are pinned with the module.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::super::feature::Feature;
use crate::programs::{self, EditedTests, Module};

/// The imports are the plugins.
const TOOLS: &str = include_str!("../../../../tools/plugins/tools.go");
const MODULE: &str = "github.com/containernetworking/plugins";
const EXEC: &str = include_str!("exec.go");
/// How a test builds a plugin that it runs as a program.
const BUILD: &str = "gexec.Build(\"github.com/containernetworking/plugins/plugins/main/";
/// The name of the file that is added to each package.
const EXEC_FILE: &str = "run_program.go";
const VERBS: [(&str, &str); 5] = [
    ("cmdAdd", "ADD"),
    ("cmdCheck", "CHECK"),
    ("cmdDel", "DEL"),
    ("cmdGC", "GC"),
    ("cmdStatus", "STATUS"),
];

/// The built suites.
pub(super) struct Suites {
    programs: PathBuf,
    /// The directory of a plugin in the source, by the plugin's name.
    packages: BTreeMap<String, PathBuf>,
}

impl Suites {
    /// Copies the module and builds the suites, unless the same ones are built already.
    pub(super) fn build(features: &BTreeSet<Feature>) -> anyhow::Result<Self> {
        let recipe = format!("{EXEC}\n{}\n{features:?}", include_str!("source.rs"));
        let module = (Module::Plugins, MODULE);
        let tests = EditedTests::build("plugin-suites", module, &recipe, |source| {
            let directories: Vec<_> = packages(source)?.into_values().collect();
            for directory in &directories {
                edit_package(directory, features)?;
            }
            Ok(directories)
        })?;
        Ok(Self {
            packages: packages(&tests.source)?,
            programs: tests.programs,
        })
    }

    /// Returns the names of the plugins.
    pub(super) fn plugins(&self) -> impl Iterator<Item = &str> {
        self.packages.keys().map(String::as_str)
    }

    /// Returns the program of a suite and the directory in which it runs.
    pub(super) fn program(&self, plugin: &str) -> anyhow::Result<(PathBuf, &Path)> {
        let directory = self.packages.get(plugin);
        let directory = directory.with_context(|| format!("{plugin} has no suite"))?;
        Ok((self.programs.join(format!("{plugin}.test")), directory))
    }
}

/// Returns the directories of the plugins that are built, by name.
fn packages(source: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let directories = programs::packages_of(TOOLS).into_iter().map(|package| {
        let path = package.strip_prefix(MODULE)?.strip_prefix('/')?;
        let (_, name) = path.rsplit_once('/')?;
        Some((name.to_owned(), source.join(path)))
    });
    let packages: Option<_> = directories.collect();
    packages.context("e2e/tools/plugins imports only plugins")
}

/// Returns the names of the plugins that are built.
#[cfg(test)]
pub(super) fn names() -> anyhow::Result<Vec<String>> {
    Ok(packages(Path::new(""))?.into_keys().collect())
}

/// Lets the tests of a package run a program.
fn edit_package(directory: &Path, features: &BTreeSet<Feature>) -> anyhow::Result<()> {
    let mut verbs = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.to_string_lossy();
        if !name.ends_with(".go") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let edited = if name.ends_with("_test.go") {
            edit_test(&text, features)
        } else {
            let (edited, found) = rename_verbs(&text);
            verbs.extend(found);
            edited
        };
        if edited != text {
            fs::write(&path, edited)?;
        }
    }
    ensure!(
        !verbs.is_empty(),
        "{} defines no verb: the module's layout has changed",
        directory.display()
    );
    Ok(fs::write(directory.join(EXEC_FILE), exec_file(&verbs))?)
}

/// Renames the functions of the verbs where they are defined; returns which the file defines.
fn rename_verbs(text: &str) -> (String, Vec<(&'static str, &'static str)>) {
    let mut edited = text.to_owned();
    let mut found = Vec::new();
    for verb in VERBS {
        let (from, to) = (
            format!("\nfunc {}(", verb.0),
            format!("\nfunc original_{}(", verb.0),
        );
        if edited.contains(&from) {
            edited = edited.replace(&from, &to);
            found.push(verb);
        }
    }
    (edited, found)
}

/// Returns the file that defines the verbs of a package again.
fn exec_file(verbs: &[(&str, &str)]) -> String {
    let functions = verbs.iter().map(|(function, verb)| {
        format!("\nfunc {function}(args *skel.CmdArgs) error {{ return runProgram(\"{verb}\", args) }}\n")
    });
    std::iter::once(EXEC.to_owned()).chain(functions).collect()
}

/// Replaces in a test what would not reach the program, a race of the test itself, and links that the kernel cannot make.
fn edit_test(text: &str, features: &BTreeSet<Feature>) -> String {
    let mut edited = text.to_owned();
    if edited.contains(BUILD) {
        // The first program of the name in the PATH is the one under test.
        edited = edited.replace(BUILD, "exec.LookPath(\"").replacen(
            "import (\n",
            "import (\n\t\"os/exec\"\n",
            1,
        );
    }
    edited = edited
        // The private bus of a test.
        .replace(
            "\t\ttestConn = conn\n",
            "\t\ttestConn = conn\n\t\tprogramEnvironment = []string{\"DBUS_SYSTEM_BUS_ADDRESS=\" + busAddr}\n",
        )
        // Around a verb stdout is a pipe that the test reads to its end. A DHCP server that starts in that moment would keep it open
        // for ever.
        .replace("s.cmd.Stdout = os.Stdout", "s.cmd.Stdout = os.Stderr");
    if !features.contains(&Feature::Dummy) {
        edited = edited
            .replace("netlink.Dummy{", "netlink.Ifb{")
            .replace("*netlink.Dummy)", "*netlink.Ifb)");
    }
    edited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_verbs_are_renamed_where_they_are_defined() {
        let text = "package main\n\nfunc main() { run(cmdAdd) }\n\nfunc cmdAdd(args *skel.CmdArgs) error {\n";
        let (edited, verbs) = rename_verbs(text);
        assert_eq!(verbs, [("cmdAdd", "ADD")]);
        assert!(edited.contains("\nfunc original_cmdAdd(args"), "{edited}");
        assert!(edited.contains("run(cmdAdd)"), "{edited}");
        assert!(exec_file(&verbs).contains("\nfunc cmdAdd(args"));
    }

    #[test]
    fn tests_find_the_program_that_they_would_build() {
        let text = format!(
            "package a_test\n\nimport (\n\t\"testing\"\n)\n\nvar path, err = {BUILD}dummy\")\n"
        );
        let edited = edit_test(&text, &BTreeSet::new());
        assert!(
            edited.contains("path, err = exec.LookPath(\"dummy\")"),
            "{edited}"
        );
        assert!(edited.contains("import (\n\t\"os/exec\"\n"), "{edited}");
    }

    #[test]
    fn server_of_a_test_does_not_hold_the_pipe_of_a_verb() {
        let edited = edit_test("\ts.cmd.Stdout = os.Stdout\n", &BTreeSet::new());
        assert_eq!(edited, "\ts.cmd.Stdout = os.Stderr\n");
    }

    #[test]
    fn links_are_replaced_only_where_the_kernel_lacks_them() {
        let text = "a := &netlink.Dummy{}; b.(*netlink.Dummy)";
        let without = edit_test(text, &BTreeSet::new());
        assert_eq!(without, "a := &netlink.Ifb{}; b.(*netlink.Ifb)");
        assert_eq!(edit_test(text, &BTreeSet::from([Feature::Dummy])), text);
    }
}
