//! A daemon whose wall clock jumps: years ahead, back to 1970, and to where it should be; also one that starts with a wrong clock,
//! as a machine without a battery does.
//!
//! No certificate is valid then, so the API server is out of reach at most; nothing else may depend on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

use super::{
    container::{Container, Pod},
    fixture::{FaultsFixture, account},
    server::{Outage, WELL_WITHIN, stand},
};
use crate::{
    control_plane::tcp_proxy::Condition,
    report::{CheckFailed, Report},
    sh,
    single_node::BIN_DIR,
};

const YEAR: i64 = 31_556_952;
const YEARS_AHEAD: i64 = 20;

const JUMPS: &[Outage] = &[
    Outage {
        name: "jumps twenty years ahead and back",
        begin: |fixture| astray(fixture, YEARS_AHEAD * YEAR),
        end: back,
        cause: Some("network status"),
        passes: true,
    },
    Outage {
        name: "jumps back to 1970 and returns",
        begin: |fixture| astray(fixture, -now()?),
        end: back,
        cause: Some("network status"),
        passes: true,
    },
];

/// Runs all of them.
pub(super) fn run(fixture: &FaultsFixture, report: &mut Report) -> Result<(), CheckFailed> {
    let pods = report.check("two pods for clocks", || fixture.pods(&["early", "late"]))?;
    let [early, late] = pods.as_slice() else {
        return Err(CheckFailed);
    };
    for outage in JUMPS {
        report.check(&format!("a clock that {}", outage.name), || {
            fixture.told(stand(outage, fixture, early, late))
        })?;
    }
    report.check("a daemon that starts in 1970", || {
        fixture.told(starts_wrong(fixture, early, late))
    })
}

/// The daemon's clock jumps; its log shows it.
fn jump(fixture: &FaultsFixture, seconds: i64) -> anyhow::Result<()> {
    fixture.set_clock_off(seconds)?;
    let expected = (now()? + seconds) / YEAR + 1970;
    // What it is asked it tells in its log, whatever its answer is.
    sh::until(30, "the daemon's clock has jumped", || {
        let env = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)];
        let config = fixture.single_node.config()?.to_string();
        fixture.single_node.call(&env, config.as_bytes())?;
        let year = fixture.year()?;
        ensure!(
            (expected - 1..=expected + 1).contains(&year),
            "its log is of {year}, not of {expected}"
        );
        Ok(())
    })
}

/// The clock jumps, and the token that the daemon has read is replaced: it counts no more.
fn astray(fixture: &FaultsFixture, seconds: i64) -> anyhow::Result<()> {
    jump(fixture, seconds)?;
    let namespace = "--namespace=kube-system";
    fixture.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
    fixture.apply(&account())
}

/// The clock is right again, and there is a token, which has to be read although hardly any time has gone by since the last one was.
fn back(fixture: &FaultsFixture) -> anyhow::Result<()> {
    jump(fixture, 0)?;
    fixture.token()
}

/// The API server's certificate is not valid yet, for this daemon; once the clock has been set, all is well without another start.
fn starts_wrong(fixture: &FaultsFixture, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let first = Container::new(fixture, before, "before 1970")?;
    first.is_added()?;
    // It hears nothing of the API server before its clock is wrong.
    fixture.proxy.set(Condition::Silent);
    fixture.crash()?;
    jump(fixture, -now()?)?;
    fixture.proxy.set(Condition::Open);
    sh::until(60, "the daemon tells what is wrong", || {
        let complaint = fixture.complaint().context("it is ready")?;
        ensure!(complaint.contains("API server"), "it tells {complaint}");
        ensure!(
            fixture.log()?.contains("certificate not valid yet"),
            "the log tells nothing of a certificate"
        );
        Ok(())
    })?;
    first.remove()?;
    jump(fixture, 0)?;
    sh::until(WELL_WITHIN, "the daemon is ready", || {
        fixture
            .complaint()
            .map_or(Ok(()), |complaint| anyhow::bail!(complaint))
    })?;
    let second = Container::new(fixture, after, "after 1970")?;
    second.is_added()?;
    second.remove()?;
    fixture.is_clean()
}

fn now() -> anyhow::Result<i64> {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs().try_into()?)
}
