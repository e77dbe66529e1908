//! Suite `discover`: the daemon discovers the directories of real containerds of both versions with different configurations, and follows
//! one whose directories change while the daemon runs. No file of a node changes except ours.

mod fixture;
mod kinds;
mod moving;
mod nested;

use crate::{
    programs::Needs,
    report::{Checked, Report},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = super::cri::NEEDS;

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    kinds::run(env, report)?;
    report.check(
        "the runtime of a node in a container is rejected by name, and found below --root",
        || nested::run(env),
    )?;
    moving::run(env, report)
}
