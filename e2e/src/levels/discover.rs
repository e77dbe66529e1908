//! Level `discover`: real containerds of both generations with unlike configurations, and what is found on each node;
//! then one node whose runtime moves its directories while the daemon runs. No file of a node changes that is not ours.

mod kinds;
mod machine;
mod moving;
mod nested;

use crate::{
    report::{Ended, Report},
    tools::Needs,
    workplace::Workplace,
};

pub(crate) const NEEDS: Needs = super::cri::NEEDS;

pub(crate) fn run(work: &Workplace, report: &mut Report) -> Result<(), Ended> {
    kinds::run(work, report)?;
    report.check("a node in a container is named, and found as told", || {
        nested::run(work)
    })?;
    moving::run(work, report)
}
