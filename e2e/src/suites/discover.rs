//! Suite `discover`: real containerds of both generations with unlike configurations, and what is found on each node;
//! then one node whose runtime moves its directories while the daemon runs. No file of a node changes that is not ours.

mod fixture;
mod kinds;
mod moving;
mod nested;

use crate::{
    programs::Needs,
    report::{CheckFailed, Report},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = super::cri::NEEDS;

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    kinds::run(env, report)?;
    report.check("a node in a container is named, and found as told", || {
        nested::run(env)
    })?;
    moving::run(env, report)
}
