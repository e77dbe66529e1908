//! The suites, cheapest first: each starts what it needs of nodes, control plane and programs, and runs its checks.

mod airgap;
pub(crate) mod bench;
pub(crate) mod chart;
mod cluster;
mod cri;
mod devices;
mod discover;
pub(crate) mod faults;
mod helmchart;
pub(crate) mod k3s;
mod load;
mod netns;
pub(crate) mod plugins;
mod published;
pub(crate) mod scale;
pub(crate) mod service;
mod upgrade;
mod vpn;

use crate::{
    programs::Needs,
    report::{CheckFailed, Report},
    rules, single_node,
    test_env::TestEnv,
};

/// Options of single suites.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options<'a> {
    pub(crate) rules: &'a rules::Options,
    pub(crate) faults: &'a faults::Options,
    pub(crate) scale: &'a scale::Options,
    pub(crate) bench: &'a bench::Options,
    pub(crate) plugins: &'a plugins::Options,
    pub(crate) k3s: &'a k3s::Options,
    /// Whether missing programs may be built.
    pub(crate) install: bool,
}

/// A suite, by its name on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Suite {
    /// `multus-distro install` on the distros' units, with a real systemd
    Service,
    /// Charts and bindata with real Helm and Go
    Chart,
    /// Archives and registries with containerd's empty stores, skopeo and Helm
    Airgap,
    /// Signatures of a release, read by the real cosign
    Cosign,
    /// Shim and daemon with real plugins in network namespaces and a real API server
    Netns,
    /// Our CNI plugins against the reference's: its own suites, equal kernel state, mixed lives, kills
    Plugins,
    /// A full node: bursts, hung plugins, a hung API server, a long journal, a silent runtime
    Load,
    /// Every rule of the multiplexer as a black-box test, of our programs or of other ones
    Rules,
    /// Killed processes, a failing API server, a full disk, a wrong clock
    Faults,
    /// Discovery of the runtime's directories on each kind of node, also when they change
    Discover,
    /// The image and the daemon on both versions of containerd, through CRI
    Cri,
    /// Networks with devices, on a real kubelet with a device plugin and a DRA driver
    Devices,
    /// Files that multus-distro stages, installed by K3s' helm-controller
    Helmchart,
    /// A cluster of different kinds of nodes
    Cluster,
    /// Real K3s, a server and an agent; needs --k3s or `MULTUS_K3S`
    K3s,
    /// A release and its successor, published to a registry and installed from it, and from a medium without a network
    Published,
    /// Nodes that meet over a VPN: tailscale, flannel and a cluster on a LAN that is blocked
    Vpn,
    /// Hundreds of daemons and one API server, whose load is measured
    Scale,
    /// Upgrade from the published chart to ours and back under running pods; needs --peer
    Upgrade,
    /// Times of our programs, upstream's programs and the plugins alone; started by `cargo xtask bench`
    Bench,
}

impl Suite {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Chart => "chart",
            Self::Airgap => "airgap",
            Self::Cosign => "cosign",
            Self::Netns => "netns",
            Self::Plugins => "plugins",
            Self::Load => "load",
            Self::Rules => "rules",
            Self::Faults => "faults",
            Self::Discover => "discover",
            Self::Cri => "cri",
            Self::Devices => "devices",
            Self::Helmchart => "helmchart",
            Self::Cluster => "cluster",
            Self::K3s => "k3s",
            Self::Published => "published",
            Self::Vpn => "vpn",
            Self::Scale => "scale",
            Self::Upgrade => "upgrade",
            Self::Bench => "bench",
        }
    }

    /// Returns whether the suite starts the release's programs without images, so that they can be of any architecture.
    pub(crate) fn runs_bare_programs(self) -> bool {
        matches!(
            self,
            Self::Service | Self::Netns | Self::Plugins | Self::Rules | Self::Faults
        )
    }

    /// The Debian packages and Go modules whose programs the suite runs.
    pub(crate) fn needs(self, options: &bench::Options) -> &'static Needs {
        match self {
            Self::Service => &service::NEEDS,
            Self::Chart => &chart::NEEDS,
            Self::Airgap => &airgap::NEEDS,
            Self::Cosign => &airgap::COSIGN_NEEDS,
            Self::Netns | Self::Rules | Self::Faults | Self::Scale => &single_node::NEEDS,
            Self::Plugins => &plugins::NEEDS,
            Self::Load => &load::NEEDS,
            Self::Discover => &discover::NEEDS,
            Self::Cri => &cri::NEEDS,
            Self::Devices => &devices::NEEDS,
            Self::Helmchart => &helmchart::NEEDS,
            Self::Cluster => &cluster::NEEDS,
            Self::K3s => &k3s::NEEDS,
            Self::Published => &published::NEEDS,
            Self::Vpn => &vpn::NEEDS,
            Self::Upgrade => &upgrade::NEEDS,
            Self::Bench => options.needs(),
        }
    }

    /// Runs the checks of the suite.
    pub(crate) fn run(
        self,
        env: &TestEnv,
        options: &Options<'_>,
        report: &mut Report,
    ) -> Result<(), CheckFailed> {
        match self {
            Self::Service => service::run(env, report),
            Self::Chart => chart::run(env, report),
            Self::Airgap => airgap::run(env, report),
            Self::Cosign => airgap::run_cosign(env, report),
            Self::Netns => netns::run(env, report),
            Self::Plugins => plugins::run(
                env,
                options.plugins,
                options.faults,
                options.rules.case(),
                report,
            ),
            Self::Load => load::run(env, options.rules.case(), options.faults.is_long(), report),
            Self::Rules => rules::run(env, options.rules, report),
            Self::Faults => faults::run(env, options.faults, report),
            Self::Discover => discover::run(env, report),
            Self::Cri => cri::run(env, report),
            Self::Devices => devices::run(env, report),
            Self::Helmchart => helmchart::run(env, report),
            Self::Cluster => cluster::run(env, report),
            Self::K3s => k3s::run(env, options.k3s, options.install, report),
            Self::Published => published::run(env, report),
            Self::Vpn => vpn::run(env, report),
            Self::Scale => scale::run(env, options.scale, options.faults.is_long(), report),
            Self::Upgrade => upgrade::run(env, options.rules, report),
            Self::Bench => bench::run(env, options.bench, options.rules, report),
        }
    }
}
