//! `build`: builds static programs for every architecture, with the same bytes from every checkout.

pub(crate) mod workstations;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use api::version;
use archive::digest::{Digest, sha256};
use release::{build::Build, compose, workstation};
use serde::{Deserialize, Serialize};
use xshell::cmd;

use crate::{
    arch::{Arch, Arches, C_FLAGS, Facts, LINKER, Std},
    build_environment::{self, Remap},
    c_compiler::{self, CCompiler},
    cmd::download,
    elf,
    programs::{self, Binaries, CARGO_RUNS, CargoRun},
    project::{ImageNames, PROGRAMS, Project, TRUSTED_KEY},
    sysroot, toolchain,
    tree::Tree,
    ui,
};

/// Build static multus-shim, multus-daemon, multus-distro, multus-cni-plugins, kubectl-multus and multus-airgap for each architecture
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask build --install\n  cargo xtask build --arch amd64,arm64 --out /tmp/dist\n  cargo xtask build --workstations --install\n  MULTUS_TRUSTED_KEY=release.pub cargo xtask build      multus-distro takes images that this key signed, and no others"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory to write bin/<arch>/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    workstations: workstations::Workstations,
    /// Install what is missing: Rust targets, the sources of Rust's standard library, and the C compiler
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    let arches = args.arches.list();
    fetch(&project, &arches, args.workstations, args.install)?;
    let (binaries, _) = all(&project, &arches)?;
    let plugins = args.workstations.build(&project)?;
    let workstations = plugins.keys().map(|workstation| workstation.name());
    let owned: Vec<_> = binaries
        .keys()
        .map(|arch| arch.name())
        .chain(workstations)
        .map(|name| format!("bin/{name}/"))
        .collect();
    let owned: Vec<_> = owned.iter().map(String::as_str).collect();
    let mut tree = compose::programs(&binaries);
    tree.extend(workstation::tree(&plugins));
    tree.update(&args.out, &owned)?;
    for (arch, programs) in &binaries {
        for (name, bytes) in programs {
            ui::note(&format!("{} {name}: {} bytes", arch.name(), bytes.len()));
        }
    }
    for (workstation, bytes) in &plugins {
        let (name, program) = (workstation.name(), workstation.program());
        ui::note(&format!("{name} {program}: {} bytes", bytes.len()));
    }
    Ok(())
}

/// Gets everything that builds and the lists of a release need: with `install` what is missing of the tools, which are an error otherwise,
/// and the crates. Nothing after this uses a network.
pub(crate) fn fetch(
    project: &Project,
    arches: &[Arch],
    workstations: workstations::Workstations,
    install: bool,
) -> anyhow::Result<()> {
    toolchain::ensure_pinned(project)?;
    if install {
        toolchain::install(project, arches, workstations.list())?;
        install_compiler(project)?;
    }
    toolchain::ensure_installed(project, arches)?;
    if !workstations.list().is_empty() {
        toolchain::ensure_installed_for_workstations(project, workstations.list())?;
    }
    toolchain::fetch_crates(project, arches)
}

/// Builds the programs, or takes those of an earlier build of the same sources, and writes the commit into them. Returns also what they
/// were built with.
pub(crate) fn all(
    project: &Project,
    arches: &[Arch],
) -> anyhow::Result<(BTreeMap<Arch, Binaries>, Build)> {
    toolchain::ensure_pinned(project)?;
    let mut binaries = BTreeMap::new();
    let mut stale = Vec::new();
    for &arch in arches {
        match cached(project, arch)? {
            Some(programs) => {
                binaries.insert(arch, programs);
            }
            None => stale.push(arch),
        }
    }
    if !stale.is_empty() {
        let compiler = toolchain::ensure_installed(project, &stale)?;
        compile(project, &compiler, &stale)?;
    }
    for arch in stale {
        let programs = read(project, arch)?;
        for (name, bytes) in &programs {
            check(project, arch, name, bytes)
                .with_context(|| format!("cannot ship {} {name}", arch.name()))?;
        }
        write_cache(project, arch, &programs)?;
        binaries.insert(arch, programs);
    }
    let build = toolchain::record(project, arches)?;
    let build = build.context("a tool disappeared during the build; start again")?;
    let stamp = stamp(project)?;
    for (arch, programs) in &mut binaries {
        for (name, bytes) in programs {
            stamp
                .write(bytes)
                .with_context(|| format!("cannot write the commit into {} {name}", arch.name()))?;
        }
    }
    Ok((binaries, build))
}

/// Returns what programs say of their build: the commit of the checkout, and its day.
pub(crate) fn stamp(project: &Project) -> anyhow::Result<version::Stamp> {
    let time = api::time::rfc3339(project.epoch);
    let day = time.split_once('T').map_or(&*time, |(day, _)| day);
    Ok(version::Stamp::new(&project.commit, day)?)
}

/// Downloads the C compiler, unless it is there.
fn install_compiler(project: &Project) -> anyhow::Result<()> {
    if CCompiler::find(project)?.is_none() {
        let lock = project.root.join(c_compiler::lock()?);
        let item = c_compiler::pinned(project)?;
        download::locked(&lock, Path::new(&item.name), &project.download_dir())?;
    }
    Ok(())
}

fn check(project: &Project, arch: Arch, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    elf::check_static(bytes, arch)?;
    let remaps = build_environment::remaps(project)?;
    let paths: Vec<_> = remaps.into_iter().map(|(from, _)| from).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    elf::check_has_none(bytes, &paths)?;
    if let Some(budget) = programs::budget(arch, name) {
        let size = bytes.len() as u64;
        ensure!(
            size <= budget,
            "it has {size} bytes, its budget is {budget}"
        );
    }
    Ok(())
}

/// Builds all programs for several architectures.
///
/// Each run of cargo has all architectures, so that one links while another compiles: most of the linking of a program is one thread.
fn compile(project: &Project, compiler: &CCompiler, arches: &[Arch]) -> anyhow::Result<()> {
    let triples: Vec<_> = arches.iter().map(|arch| Facts::of(*arch).triple).collect();
    build_environment::check_settings(project, &triples)?;
    let remaps = build_environment::remaps(project)?;
    let mut options = Vec::new();
    let mut variables = vec![
        ("CARGO_TARGET_DIR".to_owned(), project.target.clone().into()),
        // Without it the crate `cc` adds flags by the kind of compiler that it takes this one for.
        ("CRATE_CC_NO_DEFAULTS".to_owned(), "1".into()),
        // multus-distro carries the charts and names the image.
        (
            chart::images::VARIABLE.to_owned(),
            project.images.to_string().into(),
        ),
        (TRUSTED_KEY.to_owned(), write_trusted_key(project)?.into()),
    ];
    for &arch in arches {
        let triple = Facts::of(arch).triple;
        let rustflags = rustflags(project, compiler, arch, &remaps)?;
        // A list of strings is the same in JSON and in TOML.
        let rustflags = serde_json::to_string(&rustflags)?;
        options.push(format!("--target={triple}"));
        options.push(format!("--config=target.{triple}.rustflags={rustflags}"));
        variables.extend(variables_of(compiler, arch, &remaps));
    }
    let shell = project.shell()?;
    let names: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    let names = names.join(", ");
    for CargoRun { profile, programs } in CARGO_RUNS {
        let packages = programs
            .iter()
            .flat_map(|(package, _)| ["--package", package]);
        let packages: Vec<_> = packages.collect();
        ui::note(&format!("building {} for {names}", packages.join(" ")));
        let options = &options;
        let build = cmd!(
            shell,
            "cargo build --locked --offline --profile {profile} {options...} {packages...} --bins"
        );
        build_environment::apply(build, &variables)
            .quiet()
            .run()
            .with_context(|| format!("cannot build for {names}"))?;
    }
    Ok(())
}

/// The file in xtask's cache with the key that is built in.
const TRUSTED_KEY_FILE: &str = "trusted-key.pem";

/// Writes the key that is built into `multus-distro`, and returns its path: empty without one.
fn write_trusted_key(project: &Project) -> anyhow::Result<PathBuf> {
    let Some(key) = &project.trusted_key else {
        return Ok(PathBuf::new());
    };
    let mut tree = Tree::default();
    tree.add(TRUSTED_KEY_FILE, key.pem.as_str());
    tree.update(&project.cache_dir(), &[])?;
    Ok(std::path::absolute(
        project.cache_dir().join(TRUSTED_KEY_FILE),
    )?)
}

fn rustflags(
    project: &Project,
    compiler: &CCompiler,
    arch: Arch,
    remaps: &[Remap],
) -> anyhow::Result<Vec<String>> {
    let facts = Facts::of(arch);
    let mut flags: Vec<String> = facts.rustflags.iter().map(|&flag| flag.into()).collect();
    if facts.std == Std::Built {
        let sysroot = sysroot::ensure(project, compiler, arch)?;
        flags.push(format!("--sysroot={}", sysroot.display()));
    }
    for (from, to) in remaps {
        flags.push(format!("--remap-path-prefix={from}={to}"));
    }
    Ok(flags)
}

/// Returns the variables with the tools and flags of an architecture.
fn variables_of(compiler: &CCompiler, arch: Arch, remaps: &[Remap]) -> Vec<(String, OsString)> {
    let mut c_flags: Vec<String> = C_FLAGS.iter().map(|&flag| flag.into()).collect();
    for (from, to) in remaps {
        c_flags.push(format!("-ffile-prefix-map={from}={to}"));
    }
    let lower = Facts::of(arch).triple.replace('-', "_");
    let upper = lower.to_uppercase();
    vec![
        (format!("CARGO_TARGET_{upper}_LINKER"), LINKER.into()),
        (format!("CC_{lower}"), compiler.cc(arch).into()),
        (format!("AR_{lower}"), compiler.ar().into()),
        (format!("CFLAGS_{lower}"), c_flags.join(" ").into()),
    ]
}

fn read(project: &Project, arch: Arch) -> anyhow::Result<Binaries> {
    let mut programs = Binaries::new();
    for run in CARGO_RUNS {
        let dir = project
            .target
            .join(Facts::of(arch).triple)
            .join(run.profile);
        for (_, name) in run.programs {
            let path = dir.join(name);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            programs.insert((*name).to_owned(), bytes);
        }
    }
    Ok(programs)
}

/// The key of an earlier build's inputs, and the digests of its programs.
#[derive(Serialize, Deserialize)]
struct CacheEntry {
    key: Digest,
    programs: BTreeMap<String, Digest>,
}

fn cache_path(project: &Project, arch: Arch) -> PathBuf {
    project
        .cache_dir()
        .join(format!("programs-{}.json", arch.name()))
}

/// Returns a hash over everything that the programs follow from, or `None` when a tool is not installed.
fn key(project: &Project, arch: Arch) -> anyhow::Result<Option<Digest>> {
    let build = toolchain::record(project, &[arch])?;
    build
        .map(|build| key_with(project, arch, &build))
        .transpose()
}

fn key_with(project: &Project, arch: Arch, build: &Build) -> anyhow::Result<Digest> {
    let remaps = build_environment::remaps(project)?;
    let remaps: Vec<_> = remaps.into_iter().map(|(from, _)| from).collect();
    let own = concat!(
        include_str!("build.rs"),
        include_str!("../build_environment.rs"),
        include_str!("../c_compiler.rs"),
        include_str!("../sysroot.rs"),
        include_str!("../programs.rs"),
        include_str!("../arch.rs")
    );
    let build = serde_json::to_string(build)?;
    let images = project.images.to_string();
    let trusted_key = project.trusted_key.as_ref().map(|key| key.pem.as_str());
    let remaps = remaps.join("\n");
    let mut more = vec![arch.name(), own, &remaps, &build, &images];
    more.extend(trusted_key);
    project.key(PROGRAMS, &more)
}

/// Returns the programs of the last build, if its sources are the present ones and the programs did not change since.
fn cached(project: &Project, arch: Arch) -> anyhow::Result<Option<Binaries>> {
    let entry = fs::read(cache_path(project, arch)).ok();
    let Some(entry) = entry.and_then(|bytes| serde_json::from_slice::<CacheEntry>(&bytes).ok())
    else {
        return Ok(None);
    };
    if Some(entry.key) != key(project, arch)? {
        return Ok(None);
    }
    let Ok(programs) = read(project, arch) else {
        return Ok(None);
    };
    let found = programs
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)));
    Ok((found.collect::<BTreeMap<_, _>>() == entry.programs).then_some(programs))
}

fn write_cache(project: &Project, arch: Arch, programs: &Binaries) -> anyhow::Result<()> {
    let hashes = programs
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)));
    let key = key(project, arch)?;
    let entry = CacheEntry {
        key: key.context("a tool disappeared during the build; start again")?,
        programs: hashes.collect(),
    };
    let mut tree = Tree::default();
    tree.add(
        format!("programs-{}.json", arch.name()),
        serde_json::to_vec(&entry)?,
    );
    tree.update(&project.cache_dir(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_commit_and_day_of_the_checkout() {
        let project = Project {
            commit: "abc-dirty".to_owned(),
            epoch: 951_782_399,
            ..Project::open().unwrap()
        };
        assert_eq!(stamp(&project).unwrap().as_str(), "abc-dirty 2000-02-28");
    }

    #[test]
    fn key_covers_the_tools_and_the_architecture() {
        let project = Project::open().unwrap();
        let build = |c_compiler: &str| Build {
            rustc: String::new(),
            rustc_commit: String::new(),
            llvm: String::new(),
            cargo: String::new(),
            linker: String::new(),
            tool_files: BTreeMap::new(),
            c_compiler: c_compiler.to_owned(),
            c_compiler_lock: sha256(b""),
            crates: sha256(b""),
            targets: BTreeMap::new(),
        };
        let key = |arch, c_compiler| key_with(&project, arch, &build(c_compiler)).unwrap();
        let first = key(Arch::Amd64, "clang 18");
        assert_eq!(key(Arch::Amd64, "clang 18"), first);
        assert_ne!(key(Arch::Amd64, "clang 19"), first);
        assert_ne!(key(Arch::Arm, "clang 18"), first);
        let other = Project::open().unwrap().with_images(&ImageNames {
            image_prefix: "rancher/".parse().unwrap(),
        });
        let renamed = key_with(&other, Arch::Amd64, &build("clang 18")).unwrap();
        assert_ne!(renamed, first);
    }
}
