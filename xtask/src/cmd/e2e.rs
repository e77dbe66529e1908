//! `e2e SUITE`: runs a suite of privileged tests of the built release on real programs.

pub(crate) mod k3s;
#[path = "../../../e2e/src/options.rs"]
pub(crate) mod options;

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::Context as _;
use clap::{Parser as _, ValueEnum as _};
use rustix::process::{Pid, Signal, kill_process_group};
use xshell::{Shell, cmd};

use self::options::Options;
pub(crate) use self::options::Suite;
use crate::{
    arch::{Arch, Arches},
    cmd::{build::workstations::Workstations, dist, download},
    project::Project,
    ui,
};

/// The variable that names the directory with K3s for its suite, or a release to fetch.
pub(crate) const K3S: &str = "MULTUS_K3S";

/// Run one suite of privileged tests on real programs; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask e2e netns --install\n  cargo xtask e2e cluster --dist dist\n  cargo xtask e2e rules --case annotation\n  cargo xtask e2e netns --arch arm64 --install\n  cargo xtask e2e rules --peer ../multus/bin\n  cargo xtask e2e plugins --plugins DIR --case macvlan\n  cargo xtask e2e faults --part kill --seed 7\n  cargo xtask e2e ipam --simulate\n  cargo xtask e2e k3s --k3s DIR\n  cargo xtask e2e k3s --k3s v1.36.2+k3s1 --install"
)]
pub(crate) struct Args {
    /// The suite
    #[arg(value_enum)]
    suite: Suite,
    /// ipam: a million addresses of 128 nodes in memory, with a new seed unless one is set, in place of real programs
    #[arg(long, conflicts_with_all = ["dist", "install", "case", "long"])]
    simulate: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let options = &args.options;
    if args.simulate {
        anyhow::ensure!(
            args.suite == Suite::Ipam,
            "only the nodes of e2e ipam are simulated: leave --simulate out"
        );
        return simulate(&project, options.seed, &["million_simulated"]);
    }
    if options.install {
        fetch(&project, args)?;
    }
    let mut words: Vec<_> = env::args_os().skip(2).collect();
    if options.dist.is_none() && options.plugins.is_none() && !options.table {
        let arch = options.arch.as_deref().and_then(Arch::parse);
        let dist = dist_of(&project, arch, options.install)?;
        words.extend(["--dist".into(), dist.into()]);
    }
    start(&project, &words)
}

/// Runs the tests of addresses that take too long for a change, or those with such a name. Their random choices have a seed, which is printed.
pub(crate) fn simulate(project: &Project, seed: Option<u64>, names: &[&str]) -> anyhow::Result<()> {
    let shell = project.shell()?;
    let _seed = seed.map(|seed| shell.push_env("IPAM_SEED", seed.to_string()));
    let tests = ["--package=ipam", "--lib", "--", "--ignored", "--nocapture"];
    cmd!(shell, "cargo test --locked --release {tests...} {names...}").run()?;
    Ok(())
}

/// The words after `e2e` on the command line.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    args: Args,
}

/// Fetches the third-party files that a suite needs.
fn fetch(project: &Project, args: &Args) -> anyhow::Result<()> {
    match args.suite {
        Suite::Chart if args.options.long => {
            download::all(project)?;
            download::older_charts(project)
        }
        Suite::Chart | Suite::Rke2 | Suite::Upgrade => download::all(project).map(drop),
        Suite::K3s => {
            download::all(project)?;
            let variable = env::var_os(K3S).map(PathBuf::from);
            let name = args.options.k3s.clone().or(variable);
            name.map_or(Ok(()), |name| k3s::Releases::of(project)?.fetch(&name))
        }
        _ => Ok(()),
    }
}

/// Returns a release for an architecture, or for this machine without one, made again when sources changed.
pub(crate) fn dist_of(
    project: &Project,
    arch: Option<Arch>,
    install: bool,
) -> anyhow::Result<PathBuf> {
    let (arches, name) = match arch {
        None => (arches()?, "e2e-dist".to_owned()),
        Some(arch) => (Arches::of(vec![arch]), format!("e2e-dist-{}", arch.name())),
    };
    let out = project.cache_dir().join(name);
    dist::make(project, &arches, Workstations::default(), &out, install)?;
    Ok(out)
}

/// Returns this machine's architecture, as the option `--arch`.
pub(crate) fn arches() -> anyhow::Result<Arches> {
    let arch = Arch::host().context("no release is built for this machine's architecture")?;
    Ok(Arches::of(vec![arch]))
}

/// Runs one suite on a release.
pub(crate) fn one(
    project: &Project,
    suite: Suite,
    dist: &Path,
    install: bool,
    extra_args: &[&str],
) -> anyhow::Result<()> {
    let name = suite.to_possible_value().context("a suite has a name")?;
    let mut words: Vec<OsString> = vec![name.get_name().into(), "--dist".into(), dist.into()];
    words.extend(install.then(|| "--install".into()));
    words.extend(extra_args.iter().map(OsString::from));
    if install {
        fetch(project, &Words::try_parse_from(&words)?.args)?;
    }
    start(project, &words)
}

/// Builds the programs of suites while others run, where those leave a processor idle.
pub(crate) struct Builder(Child);

impl Builder {
    /// Starts the build with e2e, which is built: others would wait for cargo's lock meanwhile.
    pub(crate) fn start(project: &Project, suites: &[Suite]) -> anyhow::Result<Self> {
        let names = suites.iter().filter_map(Suite::to_possible_value);
        let mut command = Command::new("nice");
        command
            .args(["-n", "19", "cargo", "run", "--quiet", "--locked"])
            .args(["--package", "e2e", "--", "build-programs"])
            .args(names.map(|name| name.get_name().to_owned()))
            .current_dir(&project.root)
            .process_group(0);
        Ok(Self(command.spawn().context("cannot start nice")?))
    }
}

impl Drop for Builder {
    /// Ends it with all that it has started. What a suite waits for is built by then.
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id())
            && let Some(group) = Pid::from_raw(pid)
        {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Starts e2e in the current directory, to which paths on the command line are relative.
pub(crate) fn start(project: &Project, words: &[OsString]) -> anyhow::Result<()> {
    let suite = words.first().map(|word| word.to_string_lossy());
    let suite = suite.unwrap_or_default();
    ui::note(&format!("e2e {suite}"));
    let shell = Shell::new()?;
    let manifest = project.root.join("Cargo.toml");
    cmd!(
        shell,
        "cargo run --quiet --locked --manifest-path {manifest} --package e2e -- {words...}"
    )
    .quiet()
    .run()
    .with_context(|| format!("e2e {suite} failed"))
}
