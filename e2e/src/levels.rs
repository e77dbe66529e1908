//! The levels, cheapest first.

mod airgap;
mod chart;
pub(crate) mod cluster;
mod cri;
mod devices;
mod discover;
mod helmchart;
mod load;
mod netns;
mod scale;
mod service;
pub(crate) mod upgrade;

use crate::{
    bench, faults,
    report::{Ended, Report},
    rules, scene,
    tools::Needs,
    workplace::Workplace,
};

pub(crate) use self::scale::Options as Scale;

/// What some levels are told beside the release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options<'a> {
    pub(crate) rules: &'a rules::Options,
    pub(crate) faults: &'a faults::Options,
    pub(crate) scale: &'a scale::Options,
    pub(crate) bench: &'a bench::Options,
}

/// What to test on.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
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
    /// Times beside upstream's programs and the floor; `cargo xtask bench` starts it
    Bench,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Chart => "chart",
            Self::Airgap => "airgap",
            Self::Netns => "netns",
            Self::Load => "load",
            Self::Rules => "rules",
            Self::Faults => "faults",
            Self::Discover => "discover",
            Self::Cri => "cri",
            Self::Devices => "devices",
            Self::Helmchart => "helmchart",
            Self::Cluster => "cluster",
            Self::Scale => "scale",
            Self::Upgrade => "upgrade",
            Self::Bench => "bench",
        }
    }

    /// Whether it starts the release's programs by themselves, so that they can be of any architecture.
    pub(crate) fn is_of_programs(self) -> bool {
        matches!(
            self,
            Self::Service | Self::Netns | Self::Rules | Self::Faults
        )
    }

    /// Programs that must be there.
    pub(crate) fn needs(self, options: &bench::Options) -> &'static Needs {
        match self {
            Self::Service => &service::NEEDS,
            Self::Chart => &chart::NEEDS,
            Self::Airgap => &airgap::NEEDS,
            Self::Netns | Self::Rules | Self::Faults | Self::Scale => &scene::NEEDS,
            Self::Load => &load::NEEDS,
            Self::Discover => &discover::NEEDS,
            Self::Cri => &cri::NEEDS,
            Self::Devices => &devices::NEEDS,
            Self::Helmchart => &helmchart::NEEDS,
            Self::Cluster => &cluster::NEEDS,
            Self::Upgrade => &upgrade::NEEDS,
            Self::Bench => options.needs(),
        }
    }

    /// Runs the checks of the level.
    pub(crate) fn run(
        self,
        work: &Workplace,
        options: &Options<'_>,
        report: &mut Report,
    ) -> Result<(), Ended> {
        match self {
            Self::Service => service::run(work, report),
            Self::Chart => chart::run(work, report),
            Self::Airgap => airgap::run(work, report),
            Self::Netns => netns::run(work, report),
            Self::Load => load::run(work, options.rules.case(), options.faults.is_long(), report),
            Self::Rules => rules::run(work, options.rules, report),
            Self::Faults => faults::run(work, options.faults, report),
            Self::Discover => discover::run(work, report),
            Self::Cri => cri::run(work, report),
            Self::Devices => devices::run(work, report),
            Self::Helmchart => helmchart::run(work, report),
            Self::Cluster => cluster::run(work, report),
            Self::Scale => scale::run(work, options.scale, options.faults.is_long(), report),
            Self::Upgrade => upgrade::run(work, options.rules, report),
            Self::Bench => bench::run(work, options.bench, options.rules, report),
        }
    }
}
