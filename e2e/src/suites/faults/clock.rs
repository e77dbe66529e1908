//! A daemon whose wall clock jumps years ahead or back to 1970 and becomes right again, and one that starts with a wrong clock, as on
//! a machine without a battery.
//!
//! With such a clock no certificate is valid, so the daemon cannot reach the API server; nothing else may depend on the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

use super::{
    container::Container,
    fixture::{FaultsFixture, Pod},
    outage::{Outage, RECOVERED_WITHIN},
};
use crate::{
    control_plane::tcp_proxy::Condition,
    daemon,
    report::{Checked, Report},
    sh,
    single_node::BIN_DIR,
};

const YEAR: i64 = 31_556_952;
const YEARS_AHEAD: i64 = 20;

const JUMPS: &[Outage] = &[
    Outage {
        name: "jumps twenty years ahead and back",
        begin: |fixture| begin_jump(fixture, YEARS_AHEAD * YEAR),
        end: end_jump,
        error: None,
    },
    Outage {
        name: "jumps back to 1970 and returns",
        begin: |fixture| begin_jump(fixture, -now()?),
        end: end_jump,
        error: None,
    },
];

pub(super) fn run(fixture: &FaultsFixture, report: &mut Report) -> Checked {
    let [early, late] = &report.check("two pods for wrong clocks", || {
        fixture.create_pods(["early", "late"])
    })?;
    for outage in JUMPS {
        report.check(&format!("a clock that {}", outage.name), || {
            fixture.with_log(outage.check(fixture, early, late))
        })?;
    }
    report.check("a daemon that starts in 1970", || {
        fixture.with_log(starts_in_1970(fixture, early, late))
    })
}

/// Moves the daemon's clock, and waits until its log shows the new time.
fn jump(fixture: &FaultsFixture, seconds: i64) -> anyhow::Result<()> {
    fixture.set_clock_offset(seconds)?;
    let expected = (now()? + seconds) / YEAR + 1970;
    // The daemon logs every request, also one that fails.
    sh::until(30, "the daemon's clock has jumped", || {
        let env = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)];
        fixture.single_node.shim(&env)?;
        let year = fixture.year_of_log()?;
        ensure!(
            (expected - 1..=expected + 1).contains(&year),
            "the last line of the log is from {year}, not from {expected}"
        );
        Ok(())
    })
}

/// Moves the clock, and invalidates the token that the daemon has read.
fn begin_jump(fixture: &FaultsFixture, seconds: i64) -> anyhow::Result<()> {
    jump(fixture, seconds)?;
    let namespace = "--namespace=kube-system";
    fixture.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
    fixture.apply(&daemon::service_account()?)
}

/// Sets the clock right and writes a new token, which the daemon has to read although by its clock it has just read one.
fn end_jump(fixture: &FaultsFixture) -> anyhow::Result<()> {
    jump(fixture, 0)?;
    fixture.write_token()
}

/// For a daemon that starts in 1970 the API server's certificate is not valid yet; when the clock is set, the daemon becomes ready without a
/// restart.
fn starts_in_1970(fixture: &FaultsFixture, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let first = Container::new(fixture, before, "before 1970")?;
    first.add_complete()?;
    // The daemon must not reach the API server before its clock is wrong.
    fixture.proxy.set(Condition::Silent);
    fixture.crash()?;
    jump(fixture, -now()?)?;
    fixture.proxy.set(Condition::Open);
    sh::until(60, "the daemon reports the cause", || {
        let reason = fixture.not_ready_reason().context("it is ready")?;
        ensure!(reason.contains("API server"), "the reason is {reason}");
        ensure!(
            fixture.log()?.contains("certificate not valid yet"),
            "the log does not name the certificate"
        );
        Ok(())
    })?;
    first.remove()?;
    jump(fixture, 0)?;
    sh::until(RECOVERED_WITHIN, "the daemon is ready", || {
        fixture
            .not_ready_reason()
            .map_or(Ok(()), |reason| anyhow::bail!(reason))
    })?;
    let second = Container::new(fixture, after, "after 1970")?;
    second.add_complete()?;
    second.remove()?;
    fixture.is_clean()
}

fn now() -> anyhow::Result<i64> {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs().try_into()?)
}
