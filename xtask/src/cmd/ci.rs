//! `ci`: runs everything that a change must pass, cheapest first.

mod background;

use std::{env, path::Path, process};

use anyhow::Context as _;

use self::background::Background;
use crate::{
    arch::Arch,
    changes,
    cmd::{e2e, fuzz, lint, reproduce, test},
    project::Project,
    ui,
};

/// Run what CI runs on a change: test, lint, every e2e suite, and a short bench
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask ci --install\n  cargo xtask ci --since origin/main --install\n  cargo xtask ci --all --install"
)]
pub(crate) struct Args {
    /// Also run what CI runs each night: a check for arm, fuzzing and faults, the oldest kernel, hundreds of nodes, other architectures, and the release made again in the root of another system
    #[arg(long)]
    all: bool,
    /// Install whatever is missing
    #[arg(long)]
    install: bool,
    /// Run what can notice a difference from where the branch left this revision, and nothing else
    #[arg(long, value_name = "REVISION", conflicts_with = "all")]
    since: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let since = args.since.clone();
    test::run(&test::Args { since })?;
    lint::run(&lint::Args {
        install: args.install,
        arm: false,
    })?;
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
    if suites.is_empty() && !is_touched(e2e::Suite::Bench) {
        return Ok(());
    }
    let dist = e2e::current_dist(&project, args.install)?;
    // Runs in the background while the suites run.
    if args.all {
        // Suites that install packages run at the same time as what follows.
        reproduce::root::ensure_tools(args.install)?;
    }
    let reproduce = args.all.then(|| reproduce(&project, &dist)).transpose()?;
    for suite in suites {
        let words: &[&str] = match suite {
            e2e::Suite::K3s if !args.all => &["--case", "life"],
            _ => &[],
        };
        e2e::one(&project, suite, &dist, args.install, words)?;
    }
    if args.all {
        nightly(&project, &dist, args.install)?;
    }
    if let Some(reproduce) = reproduce {
        ui::note("reproduce");
        ui::note(reproduce.wait().context("reproduce")?.trim());
    }
    // Last, when nothing else runs at the same time.
    let bench = |words: &[&str]| {
        let words = [&["--short"], words].concat();
        e2e::one(&project, e2e::Suite::Bench, &dist, args.install, &words)
    };
    bench(&[])?;
    if args.all {
        bench(&["--cni-plugins"])?;
        bench(&["--cluster"])?;
    }
    if !has_k3s() {
        ui::note(&format!(
            "not run: e2e k3s, because {} names no directory with K3s",
            e2e::K3S
        ));
    }
    Ok(())
}

/// Returns whether the environment names a directory with K3s, which no registry has.
fn has_k3s() -> bool {
    env::var_os(e2e::K3S).is_some()
}

/// Every suite that needs no other programs than the release's and what registries have, cheapest first.
const SUITES: [e2e::Suite; 15] = [
    e2e::Suite::Service,
    e2e::Suite::Chart,
    e2e::Suite::Airgap,
    e2e::Suite::Netns,
    e2e::Suite::Plugins,
    e2e::Suite::Rules,
    e2e::Suite::Faults,
    e2e::Suite::Load,
    e2e::Suite::Discover,
    e2e::Suite::Cri,
    e2e::Suite::Devices,
    e2e::Suite::Helmchart,
    e2e::Suite::Cluster,
    e2e::Suite::Published,
    e2e::Suite::Vpn,
];

/// The system in whose root the release is made again. CI itself runs on an older one.
const ANOTHER_SYSTEM: &str = "debian:trixie";

/// Architectures that are emulated, each with suites that start the programs without containers.
const EMULATED: [(Arch, &[e2e::Suite]); 2] = [
    (
        Arch::Arm64,
        &[e2e::Suite::Netns, e2e::Suite::Plugins, e2e::Suite::Rules],
    ),
    (
        Arch::Arm,
        &[e2e::Suite::Netns, e2e::Suite::Plugins, e2e::Suite::Rules],
    ),
];

/// Runs what is too slow for every change.
fn nightly(project: &Project, dist: &Path, install: bool) -> anyhow::Result<()> {
    lint::run(&lint::Args { install, arm: true })?;
    // Each target starts; the job of the nightly workflow goes on for longer.
    fuzz::run(&fuzz::Args {
        targets: Vec::new(),
        seconds: 10,
        install,
    })?;
    for suite in [e2e::Suite::Faults, e2e::Suite::Plugins] {
        e2e::one(project, suite, dist, install, &["--long"])?;
    }
    e2e::one(project, e2e::Suite::Rules, dist, install, &["--old-kernel"])?;
    for suite in [e2e::Suite::Cosign, e2e::Suite::Scale, e2e::Suite::Upgrade] {
        e2e::one(project, suite, dist, install, &[])?;
    }
    for (arch, suites) in EMULATED {
        let dist = e2e::dist_of(project, Some(arch), install)?;
        for suite in suites {
            e2e::one(project, *suite, &dist, install, &["--arch", arch.name()])?;
        }
    }
    Ok(())
}

/// Starts the second release in the background, since the suites wait more than they compute.
fn reproduce(project: &Project, dist: &Path) -> anyhow::Result<Background> {
    let arches = e2e::arches()?.list();
    let arch = arches.first().context("this machine has an architecture")?;
    let dist = dist
        .to_str()
        .context("the path of the release is not UTF-8")?;
    Background::start(
        &project.cache_dir().join("reproduce.log"),
        // This program's file may have been rebuilt since the start.
        &Path::new("/proc")
            .join(process::id().to_string())
            .join("exe"),
        &[
            "reproduce",
            "--arch",
            arch.name(),
            "--first",
            dist,
            "--root",
            ANOTHER_SYSTEM,
        ],
    )
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// Returns the suites that the release workflow runs on a kind of machine.
    #[track_caller]
    fn of_release(runner: &str) -> &'static str {
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
        assert_eq!(of_release("ubuntu-24.04"), names(&SUITES));
        let (_, emulated) = EMULATED
            .iter()
            .find(|(arch, _)| *arch == Arch::Arm64)
            .unwrap();
        assert_eq!(of_release("ubuntu-24.04-arm"), names(emulated));
    }
}
