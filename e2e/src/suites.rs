//! The suites, cheapest first: each starts what it needs of nodes, control plane and programs, and runs its checks.

mod airgap;
pub(crate) mod bench;
pub(crate) mod chart;
mod cluster;
mod cri;
mod devices;
mod discover;
pub(crate) mod faults;
mod features;
mod ipam;
mod k3s;
mod kubevirt;
mod load;
mod netns;
pub(crate) mod plugins;
mod published;
mod rke2;
mod scale;
pub(crate) mod service;
pub(crate) mod upgrade;
mod vpn;
mod whereabouts;

use clap::ValueEnum as _;

use crate::{
    options::{BenchOptions, Options, Suite},
    programs::Needs,
    report::{Checked, Report},
    rules, single_node,
    test_env::TestEnv,
};

impl Suite {
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether the suite starts the release's programs without images, so that they can be of any architecture.
    pub(crate) fn runs_bare_programs(self) -> bool {
        matches!(
            self,
            Self::Service | Self::Netns | Self::Plugins | Self::Rules | Self::Faults
        )
    }

    /// The Debian packages and Go modules whose programs the suite runs.
    pub(crate) fn needs(self, options: &BenchOptions) -> &'static Needs {
        match self {
            Self::Service => &service::NEEDS,
            Self::Chart => &chart::NEEDS,
            Self::Airgap => &airgap::NEEDS,
            Self::Cosign => &airgap::COSIGN_NEEDS,
            Self::Netns | Self::Rules | Self::Faults => &single_node::NEEDS,
            Self::Scale => &scale::NEEDS,
            Self::Plugins => &plugins::NEEDS,
            Self::Load => &load::NEEDS,
            Self::Discover => &discover::NEEDS,
            Self::Cri => &cri::NEEDS,
            Self::Devices => &devices::NEEDS,
            Self::Cluster => &cluster::NEEDS,
            Self::Ipam => &ipam::NEEDS,
            Self::K3s => &k3s::NEEDS,
            Self::Published => &published::NEEDS,
            Self::Rke2 => &rke2::NEEDS,
            Self::Vpn => &vpn::NEEDS,
            Self::Upgrade => &upgrade::NEEDS,
            Self::Features => &features::NEEDS,
            Self::Whereabouts => &whereabouts::NEEDS,
            Self::Kubevirt => &kubevirt::NEEDS,
            Self::Bench => options.needs(),
        }
    }

    /// Runs the checks of the suite.
    pub(crate) fn run(self, env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
        match self {
            Self::Service => service::run(env, report),
            Self::Chart => chart::run(env, options, report),
            Self::Airgap => airgap::run(env, report),
            Self::Cosign => airgap::run_cosign(env, report),
            Self::Netns => netns::run(env, report),
            Self::Plugins => plugins::run(env, options, report),
            Self::Load => load::run(env, options, report),
            Self::Rules => rules::run(env, options, report),
            Self::Faults => faults::run(env, options, report),
            Self::Discover => discover::run(env, report),
            Self::Cri => cri::run(env, report),
            Self::Devices => devices::run(env, report),
            Self::Cluster => cluster::run(env, report),
            Self::K3s => k3s::run(env, options, report),
            Self::Published => published::run(env, report),
            Self::Rke2 => rke2::run(env, options, report),
            Self::Vpn => vpn::run(env, options, report),
            Self::Ipam => ipam::run(env, options, report),
            Self::Scale => scale::run(env, options, report),
            Self::Upgrade => upgrade::run(env, options, report),
            Self::Features => features::run(env, report),
            Self::Whereabouts => whereabouts::run(env, report),
            Self::Kubevirt => kubevirt::run(env, report),
            Self::Bench => bench::run(env, &options.bench, options.peer.as_deref(), report),
        }
    }
}
