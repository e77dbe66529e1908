//! The standard library of a target that the toolchain has no component for everywhere: built from the toolchain's own sources, once for
//! each toolchain and C compiler.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use archive::{digest::sha256, durable};
use xshell::cmd;

use crate::{
    arch::{Arch, Facts},
    build_environment,
    c_compiler::{self, CCompiler},
    project::Project,
    ui,
};

/// Features of the crate that stands for the whole library, as the components have them.
const FEATURES: &str = "panic-unwind,backtrace";

/// Flags of the library, besides the target's own: fat link-time optimisation needs its bitcode, and only the library may use what is
/// unstable.
const RUSTFLAGS: &[&str] = &[
    "-Cembed-bitcode=yes",
    "-Ccodegen-units=1",
    "-Zforce-unstable-if-unmarked",
];

/// Returns whether the sources are installed.
pub(crate) fn has_sources(project: &Project) -> anyhow::Result<bool> {
    Ok(manifest(project)?.is_file())
}

/// Returns the manifest of the whole library.
pub(crate) fn manifest(project: &Project) -> anyhow::Result<PathBuf> {
    let (sources, _) = build_environment::rust_sources(project)?;
    Ok(sources.join("library/sysroot/Cargo.toml"))
}

/// Returns the directory that `rustc --sysroot` takes for an architecture, whether it was made or not.
pub(crate) fn dir(project: &Project, arch: Arch) -> anyhow::Result<PathBuf> {
    let shell = project.shell()?;
    let rustc = cmd!(shell, "rustc -vV").quiet().read()?;
    let parts = [
        rustc,
        c_compiler::locks_digest(project)?.hex(),
        include_str!("sysroot.rs").to_owned(),
        include_str!("c_compiler.rs").to_owned(),
        include_str!("arch.rs").to_owned(),
    ];
    let key = sha256(parts.join("\n").as_bytes()).hex();
    let name = format!("sysroot-{}-{}", arch.name(), &key[..16]);
    Ok(project.cache_dir().join(name))
}

/// Returns the directory of a target's libraries in a sysroot.
fn libraries(sysroot: &Path, arch: Arch) -> PathBuf {
    let triple = Facts::of(arch).triple;
    sysroot.join("lib/rustlib").join(triple).join("lib")
}

/// Makes the sysroot of an architecture, unless it is there.
pub(crate) fn ensure(
    project: &Project,
    compiler: &CCompiler,
    arch: Arch,
) -> anyhow::Result<PathBuf> {
    let dir = dir(project, arch)?;
    if !dir.is_dir() {
        let step = format!("standard library for {}", arch.name());
        ui::step(&step, || make(project, compiler, arch, &dir))?;
    }
    Ok(dir)
}

fn make(project: &Project, compiler: &CCompiler, arch: Arch, dir: &Path) -> anyhow::Result<()> {
    let cache = project.cache_dir();
    fs::create_dir_all(&cache)?;
    let staging = tempfile::Builder::new()
        .prefix("sysroot-")
        .tempdir_in(&cache)?;
    let root = staging.path().join("root");
    let libraries = libraries(&root, arch);
    let built = build(project, arch, &staging.path().join("target"))?;
    let libc = libraries.join("self-contained");
    fs::create_dir_all(&libc)?;
    for library in built {
        let to = libraries.join(library.file_name().unwrap_or_default());
        fs::copy(&library, &to).with_context(|| format!("cannot copy {}", library.display()))?;
    }
    compiler.make_libc(&project.shell()?, arch, &libc)?;
    durable::rename(&root, dir).with_context(|| format!("cannot write {}", dir.display()))
}

/// Builds the library and returns its files.
fn build(project: &Project, arch: Arch, target: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let facts = Facts::of(arch);
    let (shell, triple) = (project.shell()?, facts.triple);
    let manifest = manifest(project)?;
    let flags = facts.rustflags.iter().chain(RUSTFLAGS);
    let mut flags: Vec<_> = flags.map(|&flag| flag.to_owned()).collect();
    for (from, to) in build_environment::remaps(project)? {
        flags.push(format!("--remap-path-prefix={from}={to}"));
    }
    let variables = [
        ("CARGO_TARGET_DIR".to_owned(), target.into()),
        (
            "CARGO_ENCODED_RUSTFLAGS".to_owned(),
            flags.join("\u{1f}").into(),
        ),
        // The library itself is written in what is unstable in Rust.
        ("RUSTC_BOOTSTRAP".to_owned(), "1".into()),
    ];
    let build = cmd!(
        shell,
        "cargo build --quiet --locked --offline --release --target {triple} --manifest-path {manifest} --features {FEATURES}"
    );
    // The compiler's warnings about its own library are of no use here.
    let output = build_environment::apply(build, &variables)
        .quiet()
        .ignore_status()
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cannot build Rust's standard library for {}: {}",
        arch.name(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let dir = target.join(triple).join("release/deps");
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "rlib"));
    Ok(paths)
}
