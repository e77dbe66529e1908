//! A machine in a pod, whose network is the pod's: it loses no packet while daemons are killed and replaced.

use super::fixture::FaultsFixture;
use crate::{
    guest::Guest,
    node::inspect,
    plumbing::Plumbing,
    report::{Checked, Report},
    test_env::TestEnv,
};

const POD: &str = "guest";
const INTERFACE: &str = "net1";
const KILLS: u32 = 1_000;
const UPDATES: u32 = 20;

pub(super) fn run(env: &TestEnv, fixture: &FaultsFixture, report: &mut Report) -> Checked {
    let node = &fixture.single_node;
    let pod = Plumbing {
        node: &node.node,
        namespace: POD.to_owned(),
    };
    let guest = report.check("a machine starts behind the interface of a pod", || {
        fixture.with_log(node.add(POD, Some("storage")).map(drop))?;
        Guest::start(env, &pod, INTERFACE)
    })?;
    let loses_nothing = |count: u32, act: &dyn Fn() -> anyhow::Result<()>| {
        let packets = guest.ping(&node.node)?;
        for _ in 0..count {
            act()?;
            fixture.with_log(fixture.wait_for_one_ready_daemon())?;
        }
        packets.end(&node.node)
    };
    report.check(
        &format!("it loses no packet while the daemon is killed {KILLS} times"),
        || loses_nothing(KILLS, &|| fixture.crash()),
    )?;
    report.check(
        &format!("it loses no packet while {UPDATES} rolling updates replace the daemon"),
        || loses_nothing(UPDATES, &|| fixture.update(true)),
    )?;
    report.check("its pod is deleted, and nothing is left", || {
        guest.end(&pod, INTERFACE)?;
        node.remove(POD)?;
        inspect::nothing_left(&node.node)
    })
}
