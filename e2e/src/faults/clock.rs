//! A daemon whose wall clock jumps: years ahead, back to 1970, and to where it should be; also one that starts with a wrong clock,
//! as a machine without a battery does.
//!
//! No certificate is valid then, so the API server is out of reach at most; nothing else may depend on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};

use super::{
    container::{Container, Pod},
    server::{Fault, WELL_WITHIN, stand},
    world::{World, account},
};
use crate::{
    proxy::Way,
    report::{Ended, Report},
    scene::BIN_DIR,
    sh,
};

const YEAR: i64 = 31_556_952;
const YEARS_AHEAD: i64 = 20;

const JUMPS: &[Fault] = &[
    Fault {
        name: "jumps twenty years ahead and back",
        begin: |world| astray(world, YEARS_AHEAD * YEAR),
        end: back,
        cause: Some("network status"),
        passes: true,
    },
    Fault {
        name: "jumps back to 1970 and returns",
        begin: |world| astray(world, -now()?),
        end: back,
        cause: Some("network status"),
        passes: true,
    },
];

/// Runs all of them.
pub(super) fn run(world: &World, report: &mut Report) -> Result<(), Ended> {
    let pods = report.check("two pods for clocks", || world.pods(&["early", "late"]))?;
    let [early, late] = pods.as_slice() else {
        return Err(Ended);
    };
    for fault in JUMPS {
        report.check(&format!("a clock that {}", fault.name), || {
            world.told(stand(fault, world, early, late))
        })?;
    }
    report.check("a daemon that starts in 1970", || {
        world.told(starts_wrong(world, early, late))
    })
}

/// The daemon's clock jumps; its log shows it.
fn jump(world: &World, seconds: i64) -> anyhow::Result<()> {
    world.set_clock_off(seconds)?;
    let expected = (now()? + seconds) / YEAR + 1970;
    // What it is asked it tells in its log, whatever its answer is.
    sh::until(30, "the daemon's clock has jumped", || {
        let env = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)];
        let config = world.scene.config()?.to_string();
        world.scene.call(&env, config.as_bytes())?;
        let year = world.year()?;
        ensure!(
            (expected - 1..=expected + 1).contains(&year),
            "its log is of {year}, not of {expected}"
        );
        Ok(())
    })
}

/// The clock jumps, and the token that the daemon has read is replaced: it counts no more.
fn astray(world: &World, seconds: i64) -> anyhow::Result<()> {
    jump(world, seconds)?;
    let namespace = "--namespace=kube-system";
    world.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
    world.apply(&account())
}

/// The clock is right again, and there is a token, which has to be read although hardly any time has gone by since the last one was.
fn back(world: &World) -> anyhow::Result<()> {
    jump(world, 0)?;
    world.token()
}

/// The API server's certificate is not valid yet, for this daemon; once the clock has been set, all is well without another start.
fn starts_wrong(world: &World, before: &Pod, after: &Pod) -> anyhow::Result<()> {
    let first = Container::new(world, before, "before 1970")?;
    first.is_added()?;
    // It hears nothing of the API server before its clock is wrong.
    world.proxy.be(Way::Silent);
    world.crash()?;
    jump(world, -now()?)?;
    world.proxy.be(Way::Open);
    sh::until(60, "the daemon tells what is wrong", || {
        let complaint = world.complaint().context("it is ready")?;
        ensure!(complaint.contains("API server"), "it tells {complaint}");
        ensure!(
            world.log()?.contains("certificate not valid yet"),
            "the log tells nothing of a certificate"
        );
        Ok(())
    })?;
    first.remove()?;
    jump(world, 0)?;
    sh::until(WELL_WITHIN, "the daemon is ready", || {
        world
            .complaint()
            .map_or(Ok(()), |complaint| anyhow::bail!(complaint))
    })?;
    let second = Container::new(world, after, "after 1970")?;
    second.is_added()?;
    second.remove()?;
    world.is_clean()
}

fn now() -> anyhow::Result<i64> {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs().try_into()?)
}
