//! `e2e LEVEL`: runs a suite of privileged tests of the built release on real programs.

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
    ui,
};

/// The variable that names the directory with K3s for its suite.
pub(crate) const K3S: &str = "MULTUS_K3S";

/// Run one suite of privileged tests on real programs; needs root
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask e2e netns --install\n  cargo xtask e2e cluster --dist dist\n  cargo xtask e2e rules --case annotation\n  cargo xtask e2e netns --arch arm64 --install\n  cargo xtask e2e rules --peer ../multus/bin\n  cargo xtask e2e plugins --plugins DIR --case macvlan\n  cargo xtask e2e faults --part kill --seed 7\n  cargo xtask e2e k3s --k3s DIR"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Args {
    /// The suite
    #[arg(value_enum, value_name = "LEVEL")]
    suite: Suite,
    /// Release to test; made unless set
    #[arg(long)]
    dist: Option<PathBuf>,
    /// service, netns, plugins, rules, faults: test the programs of this architecture, emulated
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Install whatever is missing
    #[arg(long)]
    install: bool,
    /// rules: test the programs in this directory instead of the release's; upgrade: upstream's programs
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,
    /// rules: exchange the release's programs with the peer's while pods run
    #[arg(long, requires = "peer")]
    exchange: bool,
    /// plugins: test the plugins in this directory instead of the release's
    #[arg(long, value_name = "DIR", conflicts_with = "dist")]
    plugins: Option<PathBuf>,
    /// k3s: the directory with K3s; the one of the variable `MULTUS_K3S` unless set
    #[arg(long, value_name = "DIR")]
    k3s: Option<PathBuf>,
    /// rules, load, plugins, upgrade: run only cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// rules: print which case shows which rule, and test nothing
    #[arg(long, conflicts_with_all = ["dist", "install"])]
    table: bool,
    /// rules: test without the system calls that the oldest kernel lacks
    #[arg(long)]
    old_kernel: bool,
    /// faults: ten times as many kills; plugins: fifty times as many, and the slow specs of dhcp; load: a runtime that is silent for two minutes; scale: idle for longer than a watch lasts
    #[arg(long)]
    long: bool,
    /// faults: repeat the choices of the run that printed this seed
    #[arg(long)]
    seed: Option<u64>,
    /// faults: run one part alone
    #[arg(long, value_parser = ["kill", "server", "files", "clock"])]
    part: Option<String>,
    /// scale: number of nodes, each with ten pods; 300 unless set
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
}

/// The suites, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// The changes of `multus-distro install` to the distros' units, on a real systemd
    Service,
    /// Real Helm and Go on the charts and bindata
    Chart,
    /// Archives, registries, containerd with empty stores, skopeo, Helm
    Airgap,
    /// Signatures of a release, read by the real cosign, which takes minutes to build
    Cosign,
    /// Network namespaces, real plugins, a real API server
    Netns,
    /// Our CNI plugins against the reference's
    Plugins,
    /// A full node: bursts, hung plugins, an API server that hangs, a long journal, a silent runtime
    Load,
    /// The multiplexer's rules one by one, from outside, on the release's or on other programs
    Rules,
    /// Kills, a failing API server, a full disk
    Faults,
    /// The runtime and its directories on each kind of node, also when they move
    Discover,
    /// containerd through CRI
    Cri,
    /// Networks with devices, on a real kubelet with a device plugin and a DRA driver
    Devices,
    /// The files that multus-distro stages, installed by K3s' helm-controller
    Helmchart,
    /// A mixed cluster
    Cluster,
    /// Real K3s, a server and an agent; needs --k3s or `MULTUS_K3S`
    K3s,
    /// A release and its successor, published to a registry and installed from it, and from a medium without a network
    Published,
    /// Nodes that meet over a VPN
    Vpn,
    /// Hundreds of daemons as the nodes of one API server, and what that costs
    Scale,
    /// From the published chart to this release's and back, under running pods; needs --peer
    Upgrade,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if args.table {
        return start(&project, args.suite, &["--table".into()]);
    }
    let here = std::env::current_dir()?;
    if args.plugins.is_some() {
        let mut plugins = suite_args(args, &here);
        plugins.extend(args.install.then(|| "--install".into()));
        return start(&project, args.suite, &plugins);
    }
    let dist = match &args.dist {
        Some(dist) => here.join(dist),
        None => dist_of(&project, args.arch, args.install)?,
    };
    one(
        &project,
        args.suite,
        &dist,
        args.install,
        &suite_args(args, &here),
    )
}

/// Returns the arguments that suites take besides the release, with relative paths made absolute.
fn suite_args(args: &Args, here: &Path) -> Vec<OsString> {
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
        (
            "--plugins",
            args.plugins
                .as_ref()
                .map(|plugins| here.join(plugins).into()),
        ),
        ("--k3s", args.k3s.as_ref().map(|dir| here.join(dir).into())),
        ("--arch", args.arch.map(|arch| arch.name().into())),
        ("--case", args.case.as_ref().map(OsString::from)),
        ("--seed", args.seed.map(|seed| seed.to_string().into())),
        ("--part", args.part.as_ref().map(OsString::from)),
        ("--nodes", args.nodes.map(|nodes| nodes.to_string().into())),
    ];
    let switches = switches.into_iter().filter(|(_, is_set)| *is_set);
    let mut suite_args: Vec<OsString> = switches.map(|(name, _)| name.into()).collect();
    for (name, value) in options {
        suite_args.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    }
    suite_args
}

/// Returns a release for this machine, made again when sources changed.
pub(crate) fn current_dist(project: &Project, install: bool) -> anyhow::Result<PathBuf> {
    dist_of(project, None, install)
}

/// Returns a release for an architecture, or for this machine without one.
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
    dist::make(project, &arches, &out, install)?;
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
    extra_args: &[OsString],
) -> anyhow::Result<()> {
    if matches!(suite, Suite::Chart | Suite::Upgrade) && install {
        download::all(project)?;
    }
    let mut args = vec!["--dist".into(), dist.into()];
    args.extend(install.then(|| "--install".into()));
    args.extend_from_slice(extra_args);
    start(project, suite, &args)
}

/// Measures a release: the suite of `cargo xtask bench`.
pub(crate) fn bench(
    project: &Project,
    dist: &Path,
    install: bool,
    extra_args: &[OsString],
) -> anyhow::Result<()> {
    // On a real node the peer is installed by the published chart.
    let has = |name: &str| extra_args.iter().any(|arg| arg == name);
    if has("--cluster") && has("--peer") && install {
        download::all(project)?;
    }
    let mut args = vec!["--dist".into(), dist.into()];
    args.extend(install.then(|| "--install".into()));
    args.extend_from_slice(extra_args);
    run_suite(project, "bench", &args)
}

fn start(project: &Project, suite: Suite, args: &[OsString]) -> anyhow::Result<()> {
    let suite = suite
        .to_possible_value()
        .context("every suite has a name")?;
    run_suite(project, suite.get_name(), args)
}

fn run_suite(project: &Project, suite: &str, args: &[OsString]) -> anyhow::Result<()> {
    ui::note(&format!("e2e {suite}"));
    let shell = project.shell()?;
    cmd!(
        shell,
        "cargo run --quiet --locked --package e2e -- {suite} {args...}"
    )
    .quiet()
    .run()
    .with_context(|| format!("e2e {suite} failed"))
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
        let args = suite_args(&line.args, Path::new("/here"));
        let args: Vec<_> = args.iter().filter_map(|arg| arg.to_str()).collect();
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn options_are_passed_on_with_absolute_paths() {
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
        check("k3s --k3s ../k3s", "--k3s /here/../k3s");
        check("scale --nodes 30", "--nodes 30");
        check(
            "plugins --plugins bin --case macvlan",
            "--plugins /here/bin --case macvlan",
        );
    }
}
