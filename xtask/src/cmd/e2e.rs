//! `e2e LEVEL`: privileged tests of the built release on real programs.

use std::{ffi::OsString, path::PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use xshell::cmd;

use crate::{
    arch::{Arch, Arches},
    cmd::{dist, download},
    project::Project,
    talk,
};

/// Run one level of privileged tests on real programs; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask e2e netns --install\n  cargo xtask e2e cluster --dist dist\n  cargo xtask e2e rules --peer ../multus/bin"
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
    /// rules: test the programs in this folder instead of the release's; upgrade: upstream's programs
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// rules: exchange the release's programs with the peer's in the middle of pods' lives
    #[arg(long, requires = "peer")]
    exchange: bool,
    /// faults: ten times as many kills
    #[arg(long)]
    long: bool,
}

/// The levels, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Real Helm and Go on the charts and bindata
    Chart,
    /// Archives, registries, containerd with empty stores, skopeo, Helm
    Airgap,
    /// Network namespaces, real plugins, a real API server
    Netns,
    /// The multiplexer's rules one by one, from outside, on ours or on other programs
    Rules,
    /// Kills, a failing API server, a full disk
    Faults,
    /// What is found on each kind of node, and followed when it moves
    Discover,
    /// containerd through CRI
    Cri,
    /// Devices of networks, on a real kubelet with a device plugin and a DRA driver
    Devices,
    /// What multus-distro stages, made into releases by K3s' helm-controller
    Helmchart,
    /// A mixed cluster
    Cluster,
    /// From the published chart to ours and back, under running pods; needs --peer
    Upgrade,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let dist = match &args.dist {
        Some(dist) => std::env::current_dir()?.join(dist),
        None => current_dist(&project, args.install)?,
    };
    let mut further = Vec::new();
    if let Some(peer) = &args.peer {
        let peer = std::env::current_dir()?.join(peer);
        further.extend(["--peer".into(), peer.into_os_string()]);
    }
    if args.exchange {
        further.push("--exchange".into());
    }
    if args.long {
        further.push("--long".into());
    }
    one(&project, args.level, &dist, args.install, &further)
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

/// Runs one level on a release, with further arguments of its own.
pub(crate) fn one(
    project: &Project,
    level: Level,
    dist: &std::path::Path,
    install: bool,
    further: &[OsString],
) -> anyhow::Result<()> {
    if matches!(level, Level::Chart | Level::Upgrade) && install {
        download::all(project)?;
    }
    let level = level
        .to_possible_value()
        .context("every level has a name")?;
    let level = level.get_name();
    let install = install.then_some("--install");
    talk::say(&format!("e2e {level}"));
    let shell = project.shell()?;
    cmd!(
        shell,
        "cargo run --quiet --locked --package e2e -- {level} --dist {dist} {install...} {further...}"
    )
    .quiet()
    .run()
    .with_context(|| format!("e2e {level}"))
}
