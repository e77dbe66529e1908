//! The targets and C compilers that a cross build needs besides the pinned toolchain, and their installation.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use xshell::{Shell, cmd};

use airgap::desk::Desk;

use crate::{
    arch::{Arch, Facts},
    desks,
    project::Project,
    ui,
};

const RUSTUP: &str = "get Rust with rustup from https://rustup.rs";

/// The parts that are not installed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    targets: Vec<&'static str>,
    packages: Vec<&'static str>,
}

/// Returns the versions of the compilers that programs are built with, or fails when the Rust compiler is not the pinned one.
///
/// A C compiler that is not installed has no version; [`ensure_installed`] reports it before a build.
pub(crate) fn versions(project: &Project, arches: &[Arch]) -> anyhow::Result<String> {
    let shell = project.shell()?;
    let rustc = ensure_pinned(project)?;
    let mut versions = vec![rustc];
    for arch in arches {
        let facts = Facts::of(*arch);
        let programs = [facts.cc, facts.linker].into_iter();
        versions.extend(programs.map(|program| version(&shell, program)));
    }
    Ok(versions.join("\n"))
}

/// Returns the versions of the C compilers for these desks.
pub(crate) fn versions_for_desks(project: &Project, desks: &[Desk]) -> anyhow::Result<String> {
    let shell = project.shell()?;
    let compilers = desks.iter().map(|desk| desks::Facts::of(*desk).cc);
    let versions: Vec<_> = compilers.map(|cc| version(&shell, cc)).collect();
    Ok(versions.join("\n"))
}

/// Returns a program's name with what it prints of its version: nothing where it is not installed.
fn version(shell: &Shell, program: &str) -> String {
    let version = cmd!(shell, "{program} --version")
        .quiet()
        .ignore_stderr()
        .read();
    format!("{program}: {}", version.unwrap_or_default())
}

/// Fails when the Rust compiler is not the pinned one; returns what it prints of itself.
pub(crate) fn ensure_pinned(project: &Project) -> anyhow::Result<String> {
    let shell = project.shell()?;
    let rustc = cmd!(shell, "rustc -vV")
        .quiet()
        .read()
        .with_context(|| format!("cannot run rustc; {RUSTUP}"))?;
    check_pinned(&rustc, &project.toolchain)?;
    Ok(rustc)
}

/// Fails unless the text of `rustc -vV` is that of the pinned release.
fn check_pinned(rustc: &str, pinned: &str) -> anyhow::Result<()> {
    let mut lines = rustc.lines();
    let found = lines.find_map(|line| line.strip_prefix("release: "));
    let found = found.with_context(|| format!("rustc -vV names no release; {RUSTUP}"))?;
    ensure!(
        found == pinned,
        "rustc is {found}, rust-toolchain.toml pins {pinned}, and other compilers write other bytes: \
         run `rustup toolchain install {pinned}`, and unset RUSTUP_TOOLCHAIN or leave out `+...` after cargo"
    );
    Ok(())
}

/// Fails unless everything for these architectures is installed; with `install`, installs it first.
pub(crate) fn ensure_installed(
    project: &Project,
    arches: &[Arch],
    install: bool,
) -> anyhow::Result<()> {
    let find = |shell: &Shell| find_missing(shell, arches);
    ensure_found(project, install, &find, &|missing| {
        complaint(arches, missing)
    })
}

/// Fails unless everything for these desks is installed; with `install`, installs it first.
pub(crate) fn ensure_installed_for_desks(
    project: &Project,
    desks: &[Desk],
    install: bool,
) -> anyhow::Result<()> {
    let find = |shell: &Shell| find_missing_for_desks(shell, desks);
    ensure_found(project, install, &find, &|missing| {
        let commands = missing.commands().join(" and ");
        format!("cannot build for desks: run {commands}, or add --install, or leave out --desks")
    })
}

fn ensure_found(
    project: &Project,
    install: bool,
    find: &dyn Fn(&Shell) -> anyhow::Result<Missing>,
    complaint: &dyn Fn(&Missing) -> String,
) -> anyhow::Result<()> {
    let shell = project.shell()?;
    let missing = find(&shell)?;
    if missing == Missing::default() {
        return Ok(());
    }
    if install {
        install_missing(&shell, &missing)?;
        let rest = find(&shell)?;
        if rest == Missing::default() {
            return Ok(());
        }
        bail!(
            "still missing after the installation: {}",
            rest.commands().join(" and ")
        );
    }
    bail!("{}", complaint(&missing))
}

fn complaint(arches: &[Arch], missing: &Missing) -> String {
    format!(
        "cannot build for {}: run {}, or add --install, or leave the architecture out with --arch",
        names(arches),
        missing.commands().join(" and ")
    )
}

fn names(arches: &[Arch]) -> String {
    arches
        .iter()
        .map(|arch| arch.name())
        .collect::<Vec<_>>()
        .join(", ")
}

impl Missing {
    /// Returns the commands that install the parts.
    fn commands(&self) -> Vec<String> {
        let command = |command: &str, parts: &[&str]| {
            (!parts.is_empty()).then(|| format!("`{command} {}`", parts.join(" ")))
        };
        [
            command("rustup target add", &self.targets),
            command("apt-get install --yes", &self.packages),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn find_missing(shell: &Shell, arches: &[Arch]) -> anyhow::Result<Missing> {
    let mut missing = Missing::default();
    for arch in arches {
        let facts = Facts::of(*arch);
        if !has_std(shell, facts.triple)? {
            missing.targets.push(facts.triple);
        }
        if !has_library(shell, facts.cc, "libc.a") {
            missing.packages.extend(facts.packages);
        }
    }
    Ok(missing)
}

fn find_missing_for_desks(shell: &Shell, desks: &[Desk]) -> anyhow::Result<Missing> {
    let mut missing = Missing::default();
    for facts in desks.iter().map(|desk| desks::Facts::of(*desk)) {
        if !has_std(shell, facts.triple)? {
            missing.targets.push(facts.triple);
        }
        if !has_library(shell, facts.cc, facts.library) {
            missing.packages.push(facts.package);
        }
    }
    Ok(missing)
}

/// Returns whether Rust's standard library is installed for a target.
fn has_std(shell: &Shell, triple: &str) -> anyhow::Result<bool> {
    let dir = cmd!(shell, "rustc --print target-libdir --target {triple}")
        .quiet()
        .read()
        .with_context(|| format!("cannot run rustc; {RUSTUP}"))?;
    Ok(Path::new(&dir).is_dir())
}

/// Returns whether the compiler is installed and finds a static library: it prints the bare name of a file that it cannot find.
fn has_library(shell: &Shell, cc: &str, library: &str) -> bool {
    let found = cmd!(shell, "{cc} -print-file-name={library}")
        .quiet()
        .ignore_stderr()
        .read();
    found.is_ok_and(|path| path.contains('/'))
}

fn install_missing(shell: &Shell, missing: &Missing) -> anyhow::Result<()> {
    let (targets, packages) = (&missing.targets, &missing.packages);
    if !targets.is_empty() {
        ui::note(&format!("installing Rust targets {}", targets.join(" ")));
        cmd!(shell, "rustup target add {targets...}")
            .quiet()
            .run()
            .with_context(|| format!("cannot add Rust targets; {RUSTUP}"))?;
    }
    if packages.is_empty() {
        return Ok(());
    }
    let is_root = cmd!(shell, "id -u").quiet().read()? == "0";
    if !is_root || !Path::new("/etc/debian_version").exists() {
        bail!(
            "packages are installed as root on Debian or Ubuntu only; elsewhere install the equivalent of: {}",
            packages.join(" ")
        );
    }
    debian(shell, packages)
}

/// Installs Debian packages; updates the package lists only if the present ones do not suffice.
fn debian(shell: &Shell, packages: &[&str]) -> anyhow::Result<()> {
    ui::note(&format!("installing packages {}", packages.join(" ")));
    let install = || {
        cmd!(
            shell,
            "apt-get install --yes --no-install-recommends --quiet=2 {packages...}"
        )
        .env("DEBIAN_FRONTEND", "noninteractive")
        .quiet()
        .ignore_stdout()
        .run()
    };
    let context = || format!("cannot install packages {}", packages.join(" "));
    if install().is_err() {
        cmd!(shell, "apt-get update --quiet=2")
            .quiet()
            .ignore_stdout()
            .run()
            .with_context(context)?;
        install().with_context(context)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_reported_with_commands() {
        let missing = Missing {
            targets: vec!["a-b-c"],
            packages: vec!["gcc-x", "libc-x"],
        };
        assert_eq!(
            complaint(&[Arch::Amd64, Arch::Arm], &missing),
            "cannot build for amd64, arm: run `rustup target add a-b-c` and `apt-get install --yes gcc-x libc-x`, \
             or add --install, or leave the architecture out with --arch"
        );
    }

    #[test]
    fn other_toolchain_than_the_pinned_one_is_refused() {
        let rustc = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nrelease: 1.95.0\nLLVM version: 21.1.8";
        check_pinned(rustc, "1.95.0").unwrap();
        for (pinned, found) in [("1.96.0", rustc), ("1.95.0", "release: 1.95.0-nightly")] {
            let error = check_pinned(found, pinned).unwrap_err().to_string();
            let expected = format!("rust-toolchain.toml pins {pinned}");
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains("rustup toolchain install"), "{error}");
        }
    }

    #[test]
    fn versions_name_every_compiler() {
        let project = Project::open().unwrap();
        let versions = versions(&project, &[Arch::Amd64, Arch::Arm]).unwrap();
        let release = format!("release: {}", project.toolchain);
        assert!(versions.lines().any(|line| line == release), "{versions}");
        let shell = project.shell().unwrap();
        for program in ["musl-gcc", "arm-linux-gnueabihf-gcc"] {
            assert!(versions.contains(&version(&shell, program)), "{versions}");
        }
        // One that is installed wherever Rust programs are linked.
        let cc = version(&shell, "cc");
        let number = cc.strip_prefix("cc: ").unwrap();
        assert!(number.contains(|c: char| c.is_ascii_digit()), "{cc}");
        assert_eq!(version(&shell, "no-such-compiler"), "no-such-compiler: ");
    }

    #[test]
    fn absent_compiler_has_no_static_libc() {
        let shell = Shell::new().unwrap();
        assert!(!has_library(&shell, "no-such-compiler-gcc", "libc.a"));
    }
}
