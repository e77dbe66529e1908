//! The targets, sources and C compilers that a cross build needs besides the pinned toolchain, their installation, and the record of them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, bail, ensure};
use archive::digest::{self, Digest, sha256};
use release::build::{Build, Target};
use xshell::{Shell, cmd};

use release::workstation::Workstation;

use crate::{
    arch::{Arch, C_FLAGS, Facts, LINKER, Std},
    build_environment,
    c_compiler::{self, CCompiler},
    project::Project,
    sysroot, ui, workstations,
};

const RUSTUP: &str = "get Rust with rustup from https://rustup.rs";

/// The parts that are not installed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    targets: Vec<&'static str>,
    components: Vec<&'static str>,
    /// The lock of the C compiler.
    c_compiler: Option<String>,
}

/// Returns what programs are built with, as the tools report themselves, or `None` when one is not installed or Rust is not. Fails when the
/// Rust compiler is not the pinned one.
pub(crate) fn record(project: &Project, arches: &[Arch]) -> anyhow::Result<Option<Build>> {
    let shell = project.shell()?;
    let is_there = cmd!(shell, "rustc -vV").quiet().ignore_stderr();
    if is_there.read().is_err() {
        return Ok(None);
    }
    let rustc = ensure_pinned(project)?;
    let Some(compiler) = CCompiler::find(project)? else {
        return Ok(None);
    };
    let mut targets = BTreeMap::new();
    for &arch in arches {
        let Some(target) = target(project, &compiler, arch)? else {
            return Ok(None);
        };
        targets.insert(arch.name().to_owned(), target);
    }
    let rustc_field = |name: &str| {
        let mut lines = rustc.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value
            .map(str::to_owned)
            .with_context(|| format!("rustc -vV names no {name}"))
    };
    let lock = project.root.join("Cargo.lock");
    let lock = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let cargo = cmd!(shell, "cargo --version").quiet().read();
    let sysroot = sysroot_dir(&shell)?;
    let host = rustc_field("host")?;
    Ok(Some(Build {
        rustc: rustc_field("release")?,
        rustc_commit: rustc_field("commit-hash")?,
        llvm: rustc_field("LLVM version")?,
        cargo: cargo.context("cannot run cargo")?,
        linker: linker_version(&shell, &linker_path(&sysroot, &host))?,
        tool_files: tool_files(&sysroot, &host)?,
        c_compiler: compiler.version(&shell)?,
        c_compiler_lock: c_compiler::locks_digest(project)?,
        crates: sha256(&lock),
        targets,
    }))
}

/// Returns the part of the record about an architecture, or `None` when its standard library is not installed.
fn target(project: &Project, compiler: &CCompiler, arch: Arch) -> anyhow::Result<Option<Target>> {
    let facts = Facts::of(arch);
    let (std, libc) = match facts.std {
        Std::Component => {
            let libraries = target_libdir(&project.shell()?, facts.triple)?;
            let Ok(libc) = fs::read(libraries.join("self-contained/libc.a")) else {
                return Ok(None);
            };
            let std = libraries_digest(&libraries)?;
            (
                format!("rust-std, {std}"),
                format!("musl of rust-std, {}", sha256(&libc)),
            )
        }
        Std::Built if !sysroot::has_sources(project)? => return Ok(None),
        Std::Built => {
            let version = compiler.musl_version()?;
            (
                "rust-src".to_owned(),
                format!("musl {version} of the C compiler"),
            )
        }
    };
    let mut rustflags: Vec<_> = facts.rustflags.iter().map(|&flag| flag.into()).collect();
    let mut c_flags: Vec<_> = C_FLAGS.iter().map(|&flag| flag.into()).collect();
    c_flags.insert(
        0,
        format!("-target {} -mcpu={}", facts.c_target, facts.c_cpu),
    );
    for (_, to) in build_environment::remaps(project)? {
        rustflags.push(format!("--remap-path-prefix=*={to}"));
        c_flags.push(format!("-ffile-prefix-map=*={to}"));
    }
    Ok(Some(Target {
        triple: facts.triple.to_owned(),
        std,
        libc,
        rustflags,
        c_flags,
    }))
}

fn sysroot_dir(shell: &Shell) -> anyhow::Result<PathBuf> {
    let dir = cmd!(shell, "rustc --print sysroot")
        .quiet()
        .read()
        .with_context(|| format!("cannot run rustc; {RUSTUP}"))?;
    Ok(dir.into())
}

/// Returns the path of the toolchain's own linker.
fn linker_path(sysroot: &Path, host: &str) -> PathBuf {
    let dir = sysroot.join("lib/rustlib").join(host);
    dir.join("bin").join(LINKER)
}

/// Returns the digests of the toolchain's files that write programs, by their names.
///
/// They have hundreds of megabytes, and are read once by a process: a toolchain is replaced by another of another version, which is asked
/// for each time.
fn tool_files(sysroot: &Path, host: &str) -> anyhow::Result<BTreeMap<String, Digest>> {
    static KNOWN: Mutex<BTreeMap<PathBuf, Digest>> = Mutex::new(BTreeMap::new());
    let mut paths = files_with(&sysroot.join("lib"), &["librustc_driver-", "libLLVM"], "")?;
    ensure!(
        !paths.is_empty(),
        "{} has no compiler in lib/; {RUSTUP}",
        sysroot.display()
    );
    paths.push(linker_path(sysroot, host));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut digests = BTreeMap::new();
    for path in paths {
        let digest = match known.get(&path) {
            Some(digest) => *digest,
            None => digest_of(&path)?,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        digests.insert(name.into_owned(), digest);
        known.insert(path, digest);
    }
    Ok(digests)
}

/// Returns a digest over the libraries of a target that are linked into programs: names and bytes.
fn libraries_digest(dir: &Path) -> anyhow::Result<Digest> {
    let mut lines = Vec::new();
    for path in files_with(dir, &["lib"], ".rlib")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        lines.push(format!("{name} {}\n", digest_of(&path)?));
    }
    Ok(sha256(lines.concat().as_bytes()))
}

/// Returns the files of a directory whose names begin and end so, in the order of their names.
fn files_with(dir: &Path, starts: &[&str], end: &str) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("cannot read {}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if starts.iter().any(|start| name.starts_with(start)) && name.ends_with(end) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn digest_of(path: &Path) -> anyhow::Result<Digest> {
    let context = || format!("cannot read {}", path.display());
    let file = fs::File::open(path).with_context(context)?;
    digest::hash(file).with_context(context)
}

/// Gets the crates of this workspace, also those that only the lists of a release name, and those of the standard library where one is built.
pub(crate) fn fetch_crates(project: &Project, arches: &[Arch]) -> anyhow::Result<()> {
    let shell = project.shell()?;
    let mut manifests = vec![project.root.join("Cargo.toml")];
    let mut built = arches.iter();
    if built.any(|arch| Facts::of(*arch).std == Std::Built) && sysroot::has_sources(project)? {
        manifests.push(sysroot::manifest(project)?);
    }
    for manifest in manifests {
        cmd!(
            shell,
            "cargo fetch --quiet --locked --manifest-path {manifest}"
        )
        // The standard library is written in what is unstable in Rust, its manifest too.
        .env("RUSTC_BOOTSTRAP", "1")
        .quiet()
        .run()
        .with_context(|| {
            format!(
                "cannot get the crates that {} names: run this once with a network, which nothing after it needs",
                manifest.display()
            )
        })?;
    }
    Ok(())
}

/// Returns what the toolchain's own linker says of itself.
fn linker_version(shell: &Shell, linker: &Path) -> anyhow::Result<String> {
    cmd!(shell, "{linker} -flavor gnu --version")
        .quiet()
        .read()
        .with_context(|| format!("cannot run {}", linker.display()))
}

fn target_libdir(shell: &Shell, triple: &str) -> anyhow::Result<PathBuf> {
    let dir = cmd!(shell, "rustc --print target-libdir --target {triple}")
        .quiet()
        .read()
        .with_context(|| format!("cannot run rustc; {RUSTUP}"))?;
    Ok(dir.into())
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

/// Fails unless everything for these architectures is installed; returns the C compiler.
pub(crate) fn ensure_installed(project: &Project, arches: &[Arch]) -> anyhow::Result<CCompiler> {
    let missing = find_missing(project, &arch_targets(arches))?;
    match CCompiler::find(project)? {
        Some(compiler) if missing == Missing::default() => Ok(compiler),
        _ => bail!("{}", complaint(arches, &missing)),
    }
}

/// Returns the C compiler, unless something for these workstations is not installed.
pub(crate) fn ensure_installed_for_workstations(
    project: &Project,
    workstations: &[Workstation],
) -> anyhow::Result<CCompiler> {
    let missing = find_missing(project, &workstation_targets(workstations))?;
    match CCompiler::find(project)? {
        Some(compiler) if missing == Missing::default() => Ok(compiler),
        _ => bail!(
            "cannot build for workstations: run {}, or add --install, or leave out --workstations",
            missing.commands().join(" and ")
        ),
    }
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
        let lock: Vec<_> = self.c_compiler.iter().map(String::as_str).collect();
        [
            command("rustup target add", &self.targets),
            command("rustup component add", &self.components),
            command("cargo xtask download --lock", &lock),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Rust's name of a target, and the source of its standard library.
type TargetStd = (&'static str, Std);

fn arch_targets(arches: &[Arch]) -> Vec<TargetStd> {
    let facts = arches.iter().map(|arch| Facts::of(*arch));
    facts.map(|facts| (facts.triple, facts.std)).collect()
}

fn workstation_targets(workstations: &[Workstation]) -> Vec<TargetStd> {
    let facts = workstations.iter().map(|one| workstations::Facts::of(*one));
    facts.map(|facts| (facts.triple, Std::Component)).collect()
}

fn find_missing(project: &Project, targets: &[TargetStd]) -> anyhow::Result<Missing> {
    let shell = project.shell()?;
    let mut missing = Missing::default();
    for &(triple, std) in targets {
        match std {
            Std::Component if !target_libdir(&shell, triple)?.is_dir() => {
                missing.targets.push(triple);
            }
            Std::Built if !sysroot::has_sources(project)? => missing.components.push("rust-src"),
            Std::Component | Std::Built => {}
        }
    }
    if CCompiler::find(project)?.is_none() {
        missing.c_compiler = Some(c_compiler::lock()?);
    }
    Ok(missing)
}

/// Installs what rustup has of what is missing for nodes, or for workstations. The C compiler is downloaded.
pub(crate) fn install(
    project: &Project,
    arches: &[Arch],
    workstations: &[Workstation],
) -> anyhow::Result<()> {
    let targets = [arch_targets(arches), workstation_targets(workstations)].concat();
    let (shell, missing) = (project.shell()?, find_missing(project, &targets)?);
    let (targets, components) = (&missing.targets, &missing.components);
    if !targets.is_empty() {
        ui::note(&format!("installing Rust targets {}", targets.join(" ")));
        cmd!(shell, "rustup target add {targets...}")
            .quiet()
            .run()
            .with_context(|| format!("cannot add Rust targets; {RUSTUP}"))?;
    }
    if !components.is_empty() {
        ui::note(&format!("installing {}", components.join(" ")));
        cmd!(shell, "rustup component add {components...}")
            .quiet()
            .run()
            .with_context(|| format!("cannot add parts of the toolchain; {RUSTUP}"))?;
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
            components: vec!["rust-src"],
            c_compiler: Some("xtask/zig-x.lock".to_owned()),
        };
        assert_eq!(
            complaint(&[Arch::Amd64, Arch::Arm], &missing),
            "cannot build for amd64, arm: run `rustup target add a-b-c` and `rustup component add rust-src` \
             and `cargo xtask download --lock xtask/zig-x.lock`, \
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
    fn linker_reports_itself() {
        let project = Project::open().unwrap();
        let shell = project.shell().unwrap();
        let rustc = ensure_pinned(&project).unwrap();
        let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
        let sysroot = sysroot_dir(&shell).unwrap();
        let version = |host| linker_version(&shell, &linker_path(&sysroot, host));
        let host = host.unwrap();
        assert!(version(host).unwrap().starts_with("LLD "));
        let error = version("no-such-host").unwrap_err();
        assert!(error.to_string().contains("no-such-host"), "{error}");
        let names: Vec<_> = tool_files(&sysroot, host).unwrap().into_keys().collect();
        assert!(names.contains(&LINKER.to_owned()), "{names:?}");
        assert!(names.len() > 1, "{names:?}");
    }

    #[test]
    fn files_of_the_toolchain_are_known_by_their_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let error = tool_files(dir.path(), "a").unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        write("lib/other.so", "other");
        let error = tool_files(dir.path(), "a").unwrap_err();
        assert!(error.to_string().contains("has no compiler"), "{error}");
        write("lib/librustc_driver-1.so", "driver");
        write("lib/rustlib/a/bin/rust-lld", "linker");
        let expected = [
            ("librustc_driver-1.so".to_owned(), sha256(b"driver")),
            (LINKER.to_owned(), sha256(b"linker")),
        ];
        assert_eq!(tool_files(dir.path(), "a").unwrap(), expected.into());
        write("std/libstd-1.rlib", "std");
        write("std/libstd-1.so", "shared");
        let std = dir.path().join("std");
        let before = libraries_digest(&std).unwrap();
        write("std/libstd-1.so", "unused");
        assert_eq!(libraries_digest(&std).unwrap(), before);
        write("std/libstd-1.rlib", "another");
        assert_ne!(libraries_digest(&std).unwrap(), before);
    }
}
