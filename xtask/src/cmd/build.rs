//! `build`: builds static programs for every architecture, with the same bytes from every checkout.

pub(crate) mod desks;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use archive::digest::{Digest, sha256};
use serde::{Deserialize, Serialize};
use xshell::cmd;

use crate::{
    arch::{Arch, Arches, Facts},
    elf,
    programs::{self, Binaries, CARGO_RUNS, CargoRun},
    project::{ImageNames, PROGRAMS, Project, TRUSTED_KEY},
    toolchain,
    tree::Tree,
    ui,
};

/// Build static multus-shim, multus-daemon, multus-distro, multus-cni-plugins, kubectl-multus and multus-airgap for each architecture
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask build --install\n  cargo xtask build --arch amd64,arm64 --out /tmp/dist\n  cargo xtask build --desks --install\n  MULTUS_TRUSTED_KEY=release.pub cargo xtask build      multus-distro takes images that this key signed, and no others"
)]
pub(crate) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory to write bin/<arch>/ into
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    #[command(flatten)]
    desks: desks::Desks,
    /// Install missing Rust targets and, as root on Debian, C compilers
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    names: ImageNames,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    let binaries = all(&project, &args.arches.list(), args.install)?;
    let plugins = args.desks.build(&project, args.install)?;
    let desks = plugins.keys().map(|desk| desk.name());
    let owned: Vec<_> = binaries
        .keys()
        .map(|arch| arch.name())
        .chain(desks)
        .map(|name| format!("bin/{name}/"))
        .collect();
    let owned: Vec<_> = owned.iter().map(String::as_str).collect();
    let mut tree = programs::tree(&binaries);
    tree.extend(desks::tree(&plugins));
    tree.update(&args.out, &owned)?;
    for (arch, programs) in &binaries {
        for (name, bytes) in programs {
            ui::note(&format!("{} {name}: {} bytes", arch.name(), bytes.len()));
        }
    }
    for (desk, bytes) in &plugins {
        let (name, program) = (desk.name(), desk.program());
        ui::note(&format!("{name} {program}: {} bytes", bytes.len()));
    }
    Ok(())
}

/// Builds the programs, or takes those of an earlier build of the same sources.
pub(crate) fn all(
    project: &Project,
    arches: &[Arch],
    install: bool,
) -> anyhow::Result<BTreeMap<Arch, Binaries>> {
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
        toolchain::ensure_installed(project, &stale, install)?;
    }
    for arch in stale {
        compile(project, arch)?;
        let programs = read(project, arch)?;
        for (name, bytes) in &programs {
            check(project, arch, name, bytes)
                .with_context(|| format!("cannot ship {} {name}", arch.name()))?;
        }
        write_cache(project, arch, &programs)?;
        binaries.insert(arch, programs);
    }
    Ok(binaries)
}

fn check(project: &Project, arch: Arch, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    elf::check_static(bytes, arch)?;
    let paths: Vec<_> = remaps(project)?.into_iter().map(|(from, _)| from).collect();
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

/// Returns directories of this machine with the names that replace them in programs. Where two fit, the later one counts.
fn remaps(project: &Project) -> anyhow::Result<Vec<(String, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    let text = |path: PathBuf| {
        let path = path.into_os_string().into_string();
        path.map_err(|path| anyhow::anyhow!("the path {} is not UTF-8", path.display()))
    };
    Ok(vec![
        (text(project.root.clone())?, "/multus-rs"),
        (text(home)?, "/cargo"),
        (text(project.target.clone())?, "/target"),
    ])
}

fn compile(project: &Project, arch: Arch) -> anyhow::Result<()> {
    let facts = Facts::of(arch);
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
    // multus-distro carries the charts and names the image.
    shell.set_var(chart::images::VARIABLE, project.images.to_string());
    // Programs carry no time, and a commit that changes no source must not rebuild the parts in C.
    shell.set_var("SOURCE_DATE_EPOCH", "0");
    shell.set_var(TRUSTED_KEY, write_trusted_key(project)?);
    shell.set_var("LC_ALL", "C");
    shell.set_var("TZ", "UTC");
    for CargoRun { profile, programs } in CARGO_RUNS {
        let packages = programs
            .iter()
            .flat_map(|(package, _)| ["--package", package]);
        let packages: Vec<_> = packages.collect();
        ui::note(&format!("building {} {}", arch.name(), packages.join(" ")));
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

/// Returns environment variables that a user may have set for other builds, and that must not change these.
fn foreign_variables() -> impl Iterator<Item = std::ffi::OsString> {
    let decides = |name: &str| {
        let prefixes = ["CARGO_PROFILE_", "CARGO_BUILD_RUST", "CFLAGS", "CXXFLAGS"];
        let names = [
            "RUSTFLAGS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
        ];
        prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name)
    };
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(move |name| decides(&name.to_string_lossy()))
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

fn key(project: &Project, arch: Arch) -> anyhow::Result<Digest> {
    key_with(project, arch, &toolchain::versions(project, &[arch])?)
}

/// Returns a hash over everything that the programs follow from, the versions of compilers included.
fn key_with(project: &Project, arch: Arch, compilers: &str) -> anyhow::Result<Digest> {
    let remaps: Vec<_> = remaps(project)?.into_iter().map(|(from, _)| from).collect();
    let own = concat!(
        include_str!("build.rs"),
        include_str!("../programs.rs"),
        include_str!("../arch.rs")
    );
    let images = project.images.to_string();
    let trusted_key = project.trusted_key.as_ref().map(|key| key.pem.as_str());
    let remaps = remaps.join("\n");
    let mut more = vec![arch.name(), own, &remaps, compilers, &images];
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
    if entry.key != key(project, arch)? {
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
    let entry = CacheEntry {
        key: key(project, arch)?,
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
    fn key_covers_the_compilers() {
        let project = Project::open().unwrap();
        let key = |arch, compilers| key_with(&project, arch, compilers).unwrap();
        let first = key(Arch::Amd64, "rustc 1.95.0\ngcc 13");
        assert_eq!(key(Arch::Amd64, "rustc 1.95.0\ngcc 13"), first);
        assert_ne!(key(Arch::Amd64, "rustc 1.95.0\ngcc 14"), first);
        assert_ne!(key(Arch::Amd64, "rustc 1.95.1\ngcc 13"), first);
        assert_ne!(key(Arch::Arm, "rustc 1.95.0\ngcc 13"), first);
        let other = Project::open().unwrap().with_images(&ImageNames {
            image_prefix: "rancher/".parse().unwrap(),
        });
        let renamed = key_with(&other, Arch::Amd64, "rustc 1.95.0\ngcc 13").unwrap();
        assert_ne!(renamed, first);
        let of_this_machine = toolchain::versions(&project, &[Arch::Arm]).unwrap();
        assert_eq!(
            super::key(&project, Arch::Arm).unwrap(),
            key(Arch::Arm, &of_this_machine)
        );
    }
}
