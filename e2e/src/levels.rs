//! The levels, cheapest first.

mod chart;
mod cluster;
mod cri;
mod netns;

use crate::{
    report::{Ended, Report},
    tools::Needs,
    workplace::Workplace,
};

/// What to test on.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Level {
    /// Real Helm and Go on the charts and bindata
    Chart,
    /// Network namespaces, real plugins, a real API server
    Netns,
    /// containerd through CRI
    Cri,
    /// A mixed cluster
    Cluster,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chart => "chart",
            Self::Netns => "netns",
            Self::Cri => "cri",
            Self::Cluster => "cluster",
        }
    }

    /// Programs that must be there.
    pub(crate) fn needs(self) -> &'static Needs {
        match self {
            Self::Chart => &chart::NEEDS,
            Self::Netns => &netns::NEEDS,
            Self::Cri => &cri::NEEDS,
            Self::Cluster => &cluster::NEEDS,
        }
    }

    /// Runs every check of the level, up to the first that fails.
    pub(crate) fn run(self, work: &Workplace, report: &mut Report) -> Result<(), Ended> {
        match self {
            Self::Chart => chart::run(work, report),
            Self::Netns => netns::run(work, report),
            Self::Cri => cri::run(work, report),
            Self::Cluster => cluster::run(work, report),
        }
    }
}
