//! `ci`: runs everything that a change must pass, cheapest first.

use std::{env, panic::resume_unwind, path::Path, thread};

use anyhow::Context as _;
use clap::ValueEnum;

use crate::{
    arch::Arch,
    changes,
    cmd::{e2e, fuzz, lint, reproduce, test},
    project::{ImageNames, Project},
    ui,
};

/// Run what CI runs on a change: test, lint, every e2e suite, and a short bench
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask ci --install\n  cargo xtask ci --since origin/main --install\n  cargo xtask ci --all --install\n  cargo xtask ci --part arm64 --part arm --install"
)]
pub(crate) struct Args {
    /// Run every part, one after the other
    #[arg(long)]
    all: bool,
    /// Run this part of what CI runs each night, in place of what it runs on a change; several machines share the night so
    #[arg(long, conflicts_with = "all")]
    part: Vec<Part>,
    /// Install whatever is missing
    #[arg(long)]
    install: bool,
    /// Run what can notice a difference from where the branch left this revision, and nothing else
    #[arg(long, value_name = "REVISION", conflicts_with_all = ["all", "part"])]
    since: Option<String>,
}

/// A part of what CI runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// What a change must pass
    Change,
    /// A check for arm, fuzzing, simulated addresses, faults, the oldest kernel, migrations, hundreds of nodes, cosign
    Long,
    /// Suites on the programs for arm64, emulated
    Arm64,
    /// Suites on the programs for arm, emulated
    Arm,
    /// The release made again in the root of another system
    Reproduce,
    /// The plugins and a real node next to the floor
    Bench,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let parts = match &args.part[..] {
        _ if args.all => Part::value_variants(),
        [] => &[Part::Change],
        parts => parts,
    };
    for part in parts {
        match part {
            Part::Change => change(args)?,
            Part::Long => long(args.install)?,
            Part::Arm64 => emulated(Arch::Arm64, args.install)?,
            Part::Arm => emulated(Arch::Arm, args.install)?,
            Part::Reproduce => again(args.install)?,
            Part::Bench => bench(args.install)?,
        }
    }
    Ok(())
}

fn change(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let touched = args.since.as_deref();
    let touched = touched
        .map(|since| changes::since(&project, since))
        .transpose()?;
    let is_touched = |suite: e2e::Suite| {
        let touched = touched.as_ref();
        touched.is_none_or(|touched| touched.suites.contains(&changes::name(suite)))
    };
    let k3s = has_k3s().then_some(e2e::Suite::K3s);
    let suites = SUITES.into_iter().chain(k3s);
    let suites: Vec<_> = suites.filter(|&suite| is_touched(suite)).collect();
    let has_suites = !suites.is_empty() || is_touched(e2e::Suite::Bench);
    let test = test::Args {
        since: args.since.clone(),
    };
    // It builds while tests wait, which they do most of their time.
    let _builder = (args.install && has_suites)
        .then(|| {
            test::build_with_e2e(&project, &test)?;
            e2e::Builder::start(&project, &suites)
        })
        .transpose()?;
    test::run(&test)?;
    let lint = || {
        lint::run(&lint::Args {
            install: args.install,
            arm: false,
        })
    };
    if !has_suites {
        return lint();
    }
    // Clippy and the release share no artifact, and neither keeps two cores busy to its end.
    let dist = thread::scope(|scope| {
        let dist = scope.spawn(|| e2e::dist_of(&project, None, args.install));
        let linted = lint();
        if linted.is_err() {
            ui::note("lint has failed; the release is still being built");
        }
        let dist = dist.join().unwrap_or_else(|panic| resume_unwind(panic));
        linted.and(dist)
    })?;
    for suite in suites {
        // Their other cases are the night's.
        let words: &[&str] = match suite {
            e2e::Suite::K3s => &["--case", "life"],
            e2e::Suite::Vpn => &["--case", "tailscale"],
            _ => &[],
        };
        e2e::one(&project, suite, &dist, args.install, words)?;
    }
    e2e::one(
        &project,
        e2e::Suite::Bench,
        &dist,
        args.install,
        &["--short"],
    )?;
    if !has_k3s() {
        ui::note(&format!(
            "not run: e2e k3s, because {} names neither a directory with K3s nor a release in e2e/k3s",
            e2e::K3S
        ));
    }
    Ok(())
}

/// Returns whether the environment names K3s, which no registry has.
fn has_k3s() -> bool {
    env::var_os(e2e::K3S).is_some()
}

/// Every suite that needs no other programs than the release's and what registries have, cheapest first; before those, the ones that
/// need no Kubernetes, which is built meanwhile.
const SUITES: [e2e::Suite; 15] = [
    e2e::Suite::Service,
    e2e::Suite::Plugins,
    e2e::Suite::Airgap,
    e2e::Suite::Chart,
    e2e::Suite::Netns,
    e2e::Suite::Rules,
    e2e::Suite::Faults,
    e2e::Suite::Ipam,
    e2e::Suite::Load,
    e2e::Suite::Discover,
    e2e::Suite::Cri,
    e2e::Suite::Devices,
    e2e::Suite::Cluster,
    e2e::Suite::Published,
    e2e::Suite::Vpn,
];

/// The system in whose root the release is made again. CI itself runs on an older one.
const ANOTHER_SYSTEM: &str = "debian:trixie";

/// Suites that start the programs without containers, which an emulated architecture runs.
const EMULATED: [e2e::Suite; 3] = [e2e::Suite::Netns, e2e::Suite::Plugins, e2e::Suite::Rules];

fn long(install: bool) -> anyhow::Result<()> {
    lint::run(&lint::Args { install, arm: true })?;
    // Each target starts; the job of the nightly workflow goes on for longer.
    fuzz::run(&fuzz::Args {
        targets: Vec::new(),
        seconds: 10,
        install,
    })?;
    let project = Project::open()?;
    // A million allocations of a new seed, which is printed, and histories that are too many for a change.
    e2e::simulate(&project, None, &[])?;
    let dist = e2e::dist_of(&project, None, install)?;
    let one = |suite, words: &[&str]| e2e::one(&project, suite, &dist, install, words);
    one(e2e::Suite::Chart, &["--long"])?;
    one(e2e::Suite::Faults, &["--long"])?;
    one(e2e::Suite::Ipam, &["--long"])?;
    one(e2e::Suite::Plugins, &["--long"])?;
    one(e2e::Suite::Rules, &["--old-kernel"])?;
    one(e2e::Suite::Upgrade, &[])?;
    one(e2e::Suite::Features, &[])?;
    one(e2e::Suite::Whereabouts, &[])?;
    one(e2e::Suite::Kubevirt, &[])?;
    one(e2e::Suite::Vpn, &[])?;
    if let Some(k3s) = env::var_os(e2e::K3S) {
        one(e2e::Suite::K3s, &[])?;
        let is_dir = Path::new(&k3s).is_dir();
        // RKE2 is built of its sources, which no release of K3s has.
        if Path::new(&k3s).join("rke2-src.tar.zst").is_file() {
            one(e2e::Suite::Rke2, &[])?;
        }
        // With a release, also the life of the other ones.
        for other in e2e::k3s::Releases::of(&project)?.versions {
            if !is_dir && *k3s != *other {
                one(e2e::Suite::K3s, &["--case", "life", "--k3s", &other])?;
            }
        }
    }
    one(e2e::Suite::Cosign, &[])?;
    one(e2e::Suite::Scale, &[])
}

fn emulated(arch: Arch, install: bool) -> anyhow::Result<()> {
    let project = Project::open()?;
    let dist = e2e::dist_of(&project, Some(arch), install)?;
    let words = ["--arch", arch.name()];
    let mut suites = EMULATED.into_iter();
    suites.try_for_each(|suite| e2e::one(&project, suite, &dist, install, &words))
}

fn again(install: bool) -> anyhow::Result<()> {
    let project = Project::open()?;
    reproduce::run(&reproduce::Args {
        arches: e2e::arches()?,
        first: Some(e2e::dist_of(&project, None, install)?),
        root: Some(ANOTHER_SYSTEM.parse().context("a system has a release")?),
        install,
        names: ImageNames::default(),
    })
}

fn bench(install: bool) -> anyhow::Result<()> {
    let project = Project::open()?;
    let dist = e2e::dist_of(&project, None, install)?;
    for row in ["--cni-plugins", "--cluster"] {
        let words = ["--short", row];
        e2e::one(&project, e2e::Suite::Bench, &dist, install, &words)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// Returns the suites that the release workflow runs on a kind of machine.
    #[track_caller]
    fn release_suites(runner: &str) -> &'static str {
        let text = include_str!("../../../.github/workflows/release.yaml");
        let start = format!("          - runner: {runner}\n            suites: ");
        let (_, rest) = text.split_once(&start).expect("the runner has suites");
        rest.lines().next().unwrap()
    }

    fn names(suites: &[e2e::Suite]) -> String {
        let names = suites
            .iter()
            .map(|suite| suite.to_possible_value().unwrap());
        let names: Vec<_> = names.map(|name| name.get_name().to_owned()).collect();
        names.join(" ")
    }

    #[test]
    fn release_is_made_again_in_another_system() {
        ANOTHER_SYSTEM.parse::<reproduce::root::Suite>().unwrap();
    }

    #[test]
    fn release_is_published_after_the_suites_of_a_change() {
        assert_eq!(release_suites("ubuntu-24.04"), names(&SUITES));
        assert_eq!(release_suites("ubuntu-24.04-arm"), names(&EMULATED));
    }
}
