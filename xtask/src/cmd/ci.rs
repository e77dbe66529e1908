//! `ci`: everything that a change must pass, cheapest first.

mod beside;

use std::{path::Path, process};

use anyhow::Context as _;
use xshell::cmd;

use self::beside::Beside;
use crate::{
    arch::Arch,
    cmd::{bench, e2e, lint, test},
    project::Project,
    talk,
};

/// Run what CI runs on a change: test, lint, every e2e level, and a short bench
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask ci --install\n  cargo xtask ci --all --install")]
pub(crate) struct Args {
    /// What takes long as well, as each night: long fuzzing and faults, the oldest kernel, hundreds of nodes, other architectures, the release once more elsewhere
    #[arg(long)]
    all: bool,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    test::run(&test::Args {})?;
    lint::run(&lint::Args {
        install: args.install,
    })?;
    let project = Project::open()?;
    let dist = e2e::current_dist(&project, args.install)?;
    // It takes the time that levels leave, so only its end is waited for.
    let again = args.all.then(|| again(&project, &dist)).transpose()?;
    for level in LEVELS {
        e2e::one(&project, level, &dist, args.install, &[])?;
    }
    if args.all {
        long(&project, &dist, args.install)?;
    }
    if let Some(again) = again {
        talk::say("reproduce");
        talk::say(again.end().context("reproduce")?.trim());
    }
    // Last, when nothing else runs beside it.
    bench::short(&project, &dist, args.install)?;
    if args.all {
        bench::short_cluster(&project, &dist, args.install)?;
    }
    Ok(())
}

/// Every level that needs no other programs than the release's, cheapest first.
const LEVELS: [e2e::Level; 12] = [
    e2e::Level::Service,
    e2e::Level::Chart,
    e2e::Level::Airgap,
    e2e::Level::Netns,
    e2e::Level::Rules,
    e2e::Level::Faults,
    e2e::Level::Load,
    e2e::Level::Discover,
    e2e::Level::Cri,
    e2e::Level::Devices,
    e2e::Level::Helmchart,
    e2e::Level::Cluster,
];

/// Architectures that are emulated, and the levels that start programs by themselves.
const EMULATED: [(Arch, &[e2e::Level]); 2] = [
    (Arch::Arm64, &[e2e::Level::Netns, e2e::Level::Rules]),
    (Arch::Arm, &[e2e::Level::Netns]),
];

/// What a change does not wait for.
fn long(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    fuzz(project)?;
    e2e::one(
        project,
        e2e::Level::Faults,
        dist,
        install,
        &["--long".into()],
    )?;
    e2e::one(
        project,
        e2e::Level::Rules,
        dist,
        install,
        &["--old-kernel".into()],
    )?;
    e2e::one(project, e2e::Level::Scale, dist, install, &[])?;
    for (arch, levels) in EMULATED {
        let dist = e2e::dist_of(project, Some(arch), install)?;
        for level in levels {
            let further = ["--arch".into(), arch.name().into()];
            e2e::one(project, *level, &dist, install, &further)?;
        }
    }
    Ok(())
}

/// A minute for each fuzz target, from another seed each time.
fn fuzz(project: &Project) -> anyhow::Result<()> {
    talk::say("fuzz");
    let shell = project.shell()?;
    shell.set_var("FUZZ_SECONDS", "60");
    cmd!(
        shell,
        "cargo test --quiet --locked -p chart -p daemon -p node -p distro -p xtask fuzz"
    )
    .quiet()
    .run()
    .context("fuzzing")
}

/// Levels wait for programs more than they work; a second release is made meanwhile.
fn again(project: &Project, dist: &Path) -> anyhow::Result<Beside> {
    let arches = e2e::arches()?.list();
    let arch = arches.first().context("this machine has an architecture")?;
    let dist = dist.to_str().context("the release's path is no text")?;
    Beside::start(
        &project.memory().join("reproduce.log"),
        // Its file may have been built anew since it was started.
        &Path::new("/proc")
            .join(process::id().to_string())
            .join("exe"),
        &["reproduce", "--arch", arch.name(), "--first", dist],
    )
}
