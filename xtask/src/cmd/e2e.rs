//! `e2e LEVEL`: privileged tests of the built release on real programs.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use xshell::cmd;

use crate::{
    arch::{Arch, Arches},
    cmd::dist,
    project::Project,
    talk,
};

/// Run one level of privileged tests on real programs; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask e2e netns --install\n  cargo xtask e2e cluster --dist dist"
)]
pub(crate) struct Args {
    /// What to test on
    #[arg(value_enum)]
    level: Level,
    /// Release to test; made for this machine's architecture unless given
    #[arg(long)]
    dist: Option<PathBuf>,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
    /// faults: ten times as many kills
    #[arg(long)]
    long: bool,
}

/// The levels, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Real Helm and Go on the charts and bindata
    Chart,
    /// Network namespaces, real plugins, a real API server
    Netns,
    /// Kills, a failing API server, a full disk
    Faults,
    /// containerd through CRI
    Cri,
    /// A mixed cluster
    Cluster,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let dist = match &args.dist {
        Some(dist) => std::env::current_dir()?.join(dist),
        None => current_dist(&project, args.install)?,
    };
    one(&project, args.level, &dist, args.install, args.long)
}

/// A release for this machine, made anew where sources changed.
pub(crate) fn current_dist(project: &Project, install: bool) -> anyhow::Result<PathBuf> {
    let out = project.memory().join("e2e-dist");
    dist::make(project, &arches()?, &out, install)?;
    Ok(out)
}

/// This machine's architecture, which is all that can be tested on it.
pub(crate) fn arches() -> anyhow::Result<Arches> {
    let arch = Arch::host().context("no release is built for this machine's architecture")?;
    Ok(Arches::of(vec![arch]))
}

/// Runs one level on a release.
pub(crate) fn one(
    project: &Project,
    level: Level,
    dist: &std::path::Path,
    install: bool,
    long: bool,
) -> anyhow::Result<()> {
    let level = level
        .to_possible_value()
        .context("every level has a name")?;
    let level = level.get_name();
    let install = install.then_some("--install");
    let long = long.then_some("--long");
    talk::say(&format!("e2e {level}"));
    let shell = project.shell()?;
    cmd!(
        shell,
        "cargo run --quiet --locked --package e2e -- {level} --dist {dist} {install...} {long...}"
    )
    .quiet()
    .run()
    .with_context(|| format!("e2e {level}"))
}
