//! `e2e LEVEL`: privileged tests of the built release on real programs.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

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
    after_help = "Examples:\n  cargo xtask e2e netns --install\n  cargo xtask e2e cluster --dist dist\n  cargo xtask e2e rules --case annotation\n  cargo xtask e2e netns --arch arm64 --install\n  cargo xtask e2e rules --peer ../multus/bin\n  cargo xtask e2e faults --part kill --seed 7"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Args {
    /// What to test on
    #[arg(value_enum)]
    level: Level,
    /// Release to test; made unless given
    #[arg(long)]
    dist: Option<PathBuf>,
    /// service, netns, rules, faults: the programs of this architecture, emulated
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
    /// rules: test the programs in this folder instead of the release's; upgrade: upstream's programs
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// rules: exchange the release's programs with the peer's in the middle of pods' lives
    #[arg(long, requires = "peer")]
    exchange: bool,
    /// rules, load: only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// rules: print which case shows which rule, and test nothing
    #[arg(long, conflicts_with_all = ["dist", "install"])]
    table: bool,
    /// rules: without the system calls that the oldest kernel does not have
    #[arg(long)]
    old_kernel: bool,
    /// faults: ten times as many kills; load: a runtime that is silent for two minutes; scale: idle for longer than a watch lasts
    #[arg(long)]
    long: bool,
    /// faults: choose as the run did that printed this seed
    #[arg(long)]
    seed: Option<u64>,
    /// faults: one part alone
    #[arg(long, value_parser = ["kill", "server", "files", "clock"])]
    part: Option<String>,
    /// scale: so many nodes, each with ten pods; 300 unless given
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
}

/// The levels, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What `multus-distro install` does to the distros' units, on a real systemd
    Service,
    /// Real Helm and Go on the charts and bindata
    Chart,
    /// Archives, registries, containerd with empty stores, skopeo, Helm
    Airgap,
    /// Network namespaces, real plugins, a real API server
    Netns,
    /// A full node: bursts, hung plugins, an API server that hangs, a long journal, a silent runtime
    Load,
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
    /// Hundreds of daemons as the nodes of one API server; what that costs is measured
    Scale,
    /// From the published chart to ours and back, under running pods; needs --peer
    Upgrade,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if args.table {
        return start(&project, args.level, &["--table".into()]);
    }
    let here = std::env::current_dir()?;
    let dist = match &args.dist {
        Some(dist) => here.join(dist),
        None => dist_of(&project, args.arch, args.install)?,
    };
    one(
        &project,
        args.level,
        &dist,
        args.install,
        &further(args, &here),
    )
}

/// What the levels are told beside the release; folders as they are seen from here.
fn further(args: &Args, here: &Path) -> Vec<OsString> {
    let switches = [
        ("--exchange", args.exchange),
        ("--long", args.long),
        ("--old-kernel", args.old_kernel),
    ];
    let options = [
        (
            "--peer",
            args.peer.as_ref().map(|peer| here.join(peer).into()),
        ),
        ("--arch", args.arch.map(|arch| arch.name().into())),
        ("--case", args.case.as_ref().map(OsString::from)),
        ("--seed", args.seed.map(|seed| seed.to_string().into())),
        ("--part", args.part.as_ref().map(OsString::from)),
        ("--nodes", args.nodes.map(|nodes| nodes.to_string().into())),
    ];
    let given = switches.into_iter().filter(|(_, is_given)| *is_given);
    let mut words: Vec<OsString> = given.map(|(name, _)| name.into()).collect();
    for (name, value) in options {
        words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    }
    words
}

/// A release for this machine, made anew where sources changed.
pub(crate) fn current_dist(project: &Project, install: bool) -> anyhow::Result<PathBuf> {
    dist_of(project, None, install)
}

/// The same for an architecture.
pub(crate) fn dist_of(
    project: &Project,
    arch: Option<Arch>,
    install: bool,
) -> anyhow::Result<PathBuf> {
    let (arches, name) = match arch {
        None => (arches()?, "e2e-dist".to_owned()),
        Some(arch) => (Arches::of(vec![arch]), format!("e2e-dist-{}", arch.name())),
    };
    let out = project.memory().join(name);
    dist::make(project, &arches, &out, install)?;
    Ok(out)
}

/// This machine's architecture.
pub(crate) fn arches() -> anyhow::Result<Arches> {
    let arch = Arch::host().context("no release is built for this machine's architecture")?;
    Ok(Arches::of(vec![arch]))
}

/// Runs one level on a release, with further arguments of its own.
pub(crate) fn one(
    project: &Project,
    level: Level,
    dist: &Path,
    install: bool,
    further: &[OsString],
) -> anyhow::Result<()> {
    if matches!(level, Level::Chart | Level::Upgrade) && install {
        download::all(project)?;
    }
    let mut words = vec!["--dist".into(), dist.into()];
    words.extend(install.then(|| "--install".into()));
    words.extend_from_slice(further);
    start(project, level, &words)
}

/// Measures a release, with further arguments: the level of `cargo xtask bench`.
pub(crate) fn bench(
    project: &Project,
    dist: &Path,
    install: bool,
    further: &[OsString],
) -> anyhow::Result<()> {
    // The peer's side of a real node is the published chart.
    let has = |name: &str| further.iter().any(|word| word == name);
    if has("--cluster") && has("--peer") && install {
        download::all(project)?;
    }
    let mut words = vec!["--dist".into(), dist.into()];
    words.extend(install.then(|| "--install".into()));
    words.extend_from_slice(further);
    run_level(project, "bench", &words)
}

fn start(project: &Project, level: Level, words: &[OsString]) -> anyhow::Result<()> {
    let level = level
        .to_possible_value()
        .context("every level has a name")?;
    run_level(project, level.get_name(), words)
}

fn run_level(project: &Project, level: &str, words: &[OsString]) -> anyhow::Result<()> {
    talk::say(&format!("e2e {level}"));
    let shell = project.shell()?;
    cmd!(
        shell,
        "cargo run --quiet --locked --package e2e -- {level} {words...}"
    )
    .quiet()
    .run()
    .with_context(|| format!("e2e {level}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(line: &str, expected: &str) {
        let line = Line::try_parse_from(format!("e2e {line}").split(' ')).unwrap();
        let words = further(&line.args, Path::new("/here"));
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_level_is_told_what_it_may_be_told() {
        check("netns", "");
        check("rules --case annotation", "--case annotation");
        check("rules --old-kernel", "--old-kernel");
        check("netns --arch arm64", "--arch arm64");
        check(
            "rules --peer ../bin --exchange --case add",
            "--exchange --peer /here/../bin --case add",
        );
        check(
            "faults --part kill --seed 7 --long",
            "--long --seed 7 --part kill",
        );
        check("load --case journal --long", "--long --case journal");
        check("scale --nodes 30", "--nodes 30");
    }
}
