//! `build`: static programs for every architecture, the same bytes from every checkout.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use archive::digest::{Digest, sha256};
use serde::{Deserialize, Serialize};
use xshell::cmd;

use crate::{
    arch::{Arch, Arches},
    elf,
    project::{PROGRAMS, Project},
    talk, toolchain,
    tree::Tree,
};

/// Build static multus-shim, multus-daemon, multus-distro and kubectl-multus for each architecture
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask build --install\n  cargo xtask build --arch amd64,arm64 --out /tmp/dist"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Folder to write bin/<arch>/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Get missing Rust targets and, as root on Debian, C compilers
    #[arg(long)]
    install: bool,
}

/// The programs of one architecture by name.
pub(crate) type Binaries = BTreeMap<String, Vec<u8>>;

/// One run of cargo.
struct Run {
    profile: &'static str,
    /// Packages and their programs.
    programs: &'static [(&'static str, &'static str)],
}

/// Cargo unites the features of all that it builds at once; what a person's desk needs must not come into a node's programs.
const RUNS: &[Run] = &[
    Run {
        profile: "release",
        programs: &[("daemon", "multus-daemon"), ("distro", "multus-distro")],
    },
    Run {
        profile: "shim",
        programs: &[("shim", "multus-shim")],
    },
    Run {
        profile: "release",
        programs: &[("kubectl", "kubectl-multus")],
    },
];

/// Bytes that the program for desks may have; nobody starts it a thousand times.
const KUBECTL_BUDGET: u64 = 8_000_000;

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let binaries = all(&project, &args.arches.list(), args.install)?;
    let owned: Vec<_> = binaries
        .keys()
        .map(|arch| format!("bin/{}/", arch.name()))
        .collect();
    let owned: Vec<_> = owned.iter().map(String::as_str).collect();
    tree(&binaries).update(&args.out, &owned)?;
    for (arch, programs) in &binaries {
        for (name, bytes) in programs {
            talk::say(&format!("{} {name}: {} bytes", arch.name(), bytes.len()));
        }
    }
    Ok(())
}

/// The programs in their places.
pub(crate) fn tree(binaries: &BTreeMap<Arch, Binaries>) -> Tree {
    let mut tree = Tree::default();
    for (arch, programs) in binaries {
        for (name, bytes) in programs {
            tree.add_program(format!("bin/{}/{name}", arch.name()), bytes.clone());
        }
    }
    tree
}

/// Builds, or takes what an earlier build of the same sources left.
pub(crate) fn all(
    project: &Project,
    arches: &[Arch],
    install: bool,
) -> anyhow::Result<BTreeMap<Arch, Binaries>> {
    let mut binaries = BTreeMap::new();
    let mut stale = Vec::new();
    for &arch in arches {
        match remembered(project, arch)? {
            Some(programs) => {
                binaries.insert(arch, programs);
            }
            None => stale.push(arch),
        }
    }
    if !stale.is_empty() {
        toolchain::ensure(project, &stale, install)?;
    }
    for arch in stale {
        compile(project, arch)?;
        let programs = read(project, arch)?;
        for (name, bytes) in &programs {
            check(project, arch, name, bytes)
                .with_context(|| format!("{} {name} cannot be shipped", arch.name()))?;
        }
        remember(project, arch, &programs)?;
        binaries.insert(arch, programs);
    }
    Ok(binaries)
}

/// The programs that every architecture has.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let programs = RUNS.iter().flat_map(|run| run.programs);
    programs.map(|(_, name)| *name)
}

/// Bytes that a program may have.
pub(crate) fn budget(arch: Arch, program: &str) -> Option<u64> {
    match program {
        "multus-shim" => Some(arch.facts().shim_budget),
        "kubectl-multus" => Some(KUBECTL_BUDGET),
        _ => None,
    }
}

fn check(project: &Project, arch: Arch, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    elf::check_static(bytes, arch)?;
    let places: Vec<_> = remaps(project)?.into_iter().map(|(from, _)| from).collect();
    let places: Vec<_> = places.iter().map(String::as_str).collect();
    elf::check_silent(bytes, &places)?;
    if let Some(budget) = budget(arch, name) {
        let size = bytes.len() as u64;
        ensure!(
            size <= budget,
            "it has {size} bytes, its budget is {budget}"
        );
    }
    Ok(())
}

/// Folders of this machine and the names that stand for them in programs. A later one wins where both fit.
fn remaps(project: &Project) -> anyhow::Result<Vec<(String, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let text = |path: PathBuf| {
        let path = path.into_os_string().into_string();
        path.map_err(|path| anyhow::anyhow!("the path {} is no text", path.display()))
    };
    Ok(vec![
        (text(project.root.clone())?, "/multus-rs"),
        (text(home)?, "/cargo"),
        (text(project.target.clone())?, "/target"),
    ])
}

fn compile(project: &Project, arch: Arch) -> anyhow::Result<()> {
    let facts = arch.facts();
    let triple = facts.triple;
    let mut rustflags: Vec<String> = facts.rustflags.iter().map(|&flag| flag.into()).collect();
    let mut cflags = Vec::new();
    for (from, to) in remaps(project)? {
        rustflags.push(format!("--remap-path-prefix={from}={to}"));
        cflags.push(format!("-ffile-prefix-map={from}={to}"));
    }
    let lower = triple.replace('-', "_");
    let upper = lower.to_uppercase();
    let shell = project.shell()?;
    shell.set_var("CARGO_TARGET_DIR", &project.target);
    shell.set_var(format!("CARGO_TARGET_{upper}_LINKER"), facts.linker);
    shell.set_var(format!("CC_{lower}"), facts.cc);
    shell.set_var(format!("CFLAGS_{lower}"), cflags.join(" "));
    shell.set_var("CARGO_ENCODED_RUSTFLAGS", rustflags.join("\u{1f}"));
    shell.set_var("CARGO_INCREMENTAL", "0");
    // Programs carry no time; a commit that changes no source must not rebuild what C compilers were asked for.
    shell.set_var("SOURCE_DATE_EPOCH", "0");
    shell.set_var("LC_ALL", "C");
    shell.set_var("TZ", "UTC");
    for Run { profile, programs } in RUNS {
        let packages = programs
            .iter()
            .flat_map(|(package, _)| ["--package", package]);
        let packages: Vec<_> = packages.collect();
        talk::say(&format!("building {} {}", arch.name(), packages.join(" ")));
        let mut build = cmd!(
            shell,
            "cargo build --locked --profile {profile} --target {triple} {packages...} --bins"
        );
        for name in foreign_variables() {
            build = build.env_remove(name);
        }
        build
            .quiet()
            .run()
            .with_context(|| format!("cannot build for {}", arch.name()))?;
    }
    Ok(())
}

/// What a user may have set for other builds, and what must not change these.
fn foreign_variables() -> impl Iterator<Item = std::ffi::OsString> {
    let decides = |name: &str| {
        let prefixes = ["CARGO_PROFILE_", "CARGO_BUILD_RUST", "CFLAGS", "CXXFLAGS"];
        prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "RUSTFLAGS"
    };
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(move |name| decides(&name.to_string_lossy()))
}

fn read(project: &Project, arch: Arch) -> anyhow::Result<Binaries> {
    let mut programs = Binaries::new();
    for run in RUNS {
        let dir = project.target.join(arch.facts().triple).join(run.profile);
        for (_, name) in run.programs {
            let path = dir.join(name);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            programs.insert((*name).to_owned(), bytes);
        }
    }
    Ok(programs)
}

/// What an earlier build read and made.
#[derive(Serialize, Deserialize)]
struct Memory {
    key: Digest,
    programs: BTreeMap<String, Digest>,
}

fn memory_path(project: &Project, arch: Arch) -> PathBuf {
    project
        .memory()
        .join(format!("programs-{}.json", arch.name()))
}

fn key(project: &Project, arch: Arch) -> anyhow::Result<Digest> {
    let remaps: Vec<_> = remaps(project)?.into_iter().map(|(from, _)| from).collect();
    let own = concat!(include_str!("build.rs"), include_str!("../arch.rs"));
    project.key(PROGRAMS, &[arch.name(), own, &remaps.join("\n")])
}

/// The programs, if their sources are those of the remembered build and nobody changed them since.
fn remembered(project: &Project, arch: Arch) -> anyhow::Result<Option<Binaries>> {
    let memory = fs::read(memory_path(project, arch)).ok();
    let Some(memory) = memory.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok())
    else {
        return Ok(None);
    };
    if memory.key != key(project, arch)? {
        return Ok(None);
    }
    let Ok(programs) = read(project, arch) else {
        return Ok(None);
    };
    let found = programs
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)));
    Ok((found.collect::<BTreeMap<_, _>>() == memory.programs).then_some(programs))
}

fn remember(project: &Project, arch: Arch, programs: &Binaries) -> anyhow::Result<()> {
    let hashes = programs
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)));
    let memory = Memory {
        key: key(project, arch)?,
        programs: hashes.collect(),
    };
    let mut tree = Tree::default();
    tree.add(
        format!("programs-{}.json", arch.name()),
        serde_json::to_vec(&memory)?,
    );
    tree.update(&project.memory(), &[])
}
