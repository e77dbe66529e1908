//! An API server that is away, silent, slow, unsteady, or that refuses: pods wait, none comes up with less, and all go.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    container::{Container, Outcome, Pod, TRY_AGAIN_LATER},
    world::{World, account, binding},
};
use crate::{
    control::Extent,
    inspect,
    proxy::Way,
    report::{Ended, Report},
    sh,
};

/// No ADD takes longer while a daemon is there.
const ADD_WITHIN: Duration = Duration::from_secs(30);
/// A shim that waits for a daemon gives up by then.
const WAIT_WITHIN: Duration = Duration::from_mins(1);
/// No DEL needs the API server.
const DEL_WITHIN: Duration = Duration::from_secs(10);
/// Until all is well after a fault: a token is believed for a minute, and watches come back after half of one.
pub(super) const WELL_WITHIN: u64 = 90;

pub(super) type Step = fn(&World) -> anyhow::Result<()>;

/// How an API server can be.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: Step,
    pub(super) end: Step,
    /// What the error tells beside the pod; none if an ADD may stand it.
    pub(super) cause: Option<&'static str>,
    /// Whether the error asks to try again.
    pub(super) passes: bool,
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "refuses connections",
        begin: |world| be(world, Way::Refusing),
        end: open,
        cause: Some("onnect"),
        passes: true,
    },
    Fault {
        name: "takes connections and says nothing",
        begin: |world| be(world, Way::Silent),
        end: open,
        cause: Some("no answer within"),
        passes: true,
    },
    Fault {
        name: "is slow",
        begin: |world| be(world, Way::Slow),
        end: open,
        cause: None,
        passes: true,
    },
    Fault {
        name: "comes and goes",
        begin: |world| be(world, Way::Flapping),
        end: open,
        cause: None,
        passes: true,
    },
    Fault {
        name: "has ended",
        begin: |world| world.scene.control.stop_server(&world.scene.node),
        end: |world| {
            let scene = &world.scene;
            scene.control.start_server(&scene.node, Extent::Server)
        },
        cause: Some("network status"),
        passes: true,
    },
    Fault {
        name: "grants the daemon nothing (403)",
        begin: |world| world.kubectl(&["delete", "clusterrolebinding", "multus"]),
        end: |world| world.apply(&[binding()]),
        cause: Some("403"),
        passes: true,
    },
    Fault {
        name: "does not know of networks (404)",
        begin: |world| {
            let name = "network-attachment-definitions.k8s.cni.cncf.io";
            world.kubectl(&["delete", "crd", name])
        },
        end: |world| world.define(),
        cause: Some("storage"),
        passes: false,
    },
    Fault {
        name: "does not know the daemon's token (401)",
        begin: |world| {
            let namespace = "--namespace=kube-system";
            world.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
            world.apply(&account())
        },
        end: |world| world.token(),
        cause: Some("401"),
        passes: true,
    },
    Fault {
        name: "has the certificate of another authority",
        begin: |world| {
            let scene = &world.scene;
            scene.control.replace_authority(&scene.node, Extent::Server)
        },
        end: |world| world.token(),
        cause: Some("certificate"),
        passes: true,
    },
];

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of many steps, and the others fail"
)]
fn be(world: &World, way: Way) -> anyhow::Result<()> {
    world.proxy.be(way);
    Ok(())
}

fn open(world: &World) -> anyhow::Result<()> {
    be(world, Way::Open)
}

/// Runs all of them; `long` also has an ADD wait until the shim gives up.
pub(super) fn run(world: &World, long: bool, report: &mut Report) -> Result<(), Ended> {
    let pods = report.check("two pods", || world.pods(&["kept", "new"]))?;
    let [kept, new] = pods.as_slice() else {
        return Err(Ended);
    };
    for fault in FAULTS {
        report.check(&format!("an API server that {}", fault.name), || {
            world.told(stand(fault, world, kept, new))
        })?;
    }
    report.check(
        "ADD waits for a daemon that waits for its API server",
        || world.told(waits(world, kept, new)),
    )?;
    if long {
        report.check("and does not wait for ever", || {
            world.told(gives_up(world, new))
        })?;
    }
    Ok(())
}

/// The container from before goes, a new one is refused, and afterwards all is well without anybody's help.
pub(super) fn stand(fault: &Fault, world: &World, kept: &Pod, new: &Pod) -> anyhow::Result<()> {
    let before = Container::new(world, kept, fault.name)?;
    before.is_added().context("before the fault")?;
    (fault.begin)(world)?;
    let start = Instant::now();
    before.remove().context("during the fault")?;
    let took = start.elapsed();
    ensure!(took < DEL_WITHIN, "DEL took {took:?}");
    let mut attempt = 0;
    // A fault may take a moment to arrive.
    sh::until(60, "ADD is refused", || {
        attempt += 1;
        let name = format!("{} during {attempt}", fault.name);
        match during(fault, world, new, &name) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => bail!("ADD succeeded"),
            // This does not pass by being tried again.
            Err(wrong) => Ok(Err(wrong)),
        }
    })??;
    (fault.end)(world)?;
    sh::until(WELL_WITHIN, "all is well after the fault", || {
        attempt += 1;
        let container = Container::new(world, new, &format!("{} after {attempt}", fault.name))?;
        let added = container.is_added();
        container.remove()?;
        added
    })?;
    world.settle()?;
    world.is_clean()
}

/// One ADD during a fault, whole or without a trace; whether it went as it has to once the fault has arrived.
fn during(fault: &Fault, world: &World, pod: &Pod, name: &str) -> anyhow::Result<bool> {
    let container = Container::new(world, pod, name)?;
    let start = Instant::now();
    let added = container.add()?;
    let took = start.elapsed();
    ensure!(took < ADD_WITHIN, "ADD took {took:?}");
    let is_as_it_has_to = match added {
        Outcome::Done(result) => {
            container.is_whole(&result)?;
            fault.cause.is_none()
        }
        Outcome::Refused { code, text } => {
            let words = [pod.name.as_str()].into_iter().chain(fault.cause);
            for word in words {
                ensure!(
                    text.contains(word),
                    "the error does not tell {word}: {text}"
                );
            }
            ensure!(
                !fault.passes || code == TRY_AGAIN_LATER,
                "not code 11: {text}"
            );
            let left = inspect::leftovers(&world.scene.node)?;
            ensure!(left.is_empty(), "a failed ADD left {}", left.join(", "));
            true
        }
        Outcome::Lost(words) => bail!("the shim answered with no document: {words}"),
    };
    container.remove().context("during the fault")?;
    Ok(is_as_it_has_to)
}

/// Also a daemon that has never heard of its API server serves DEL at once, and ADD once it has.
fn waits(world: &World, kept: &Pod, new: &Pod) -> anyhow::Result<()> {
    let (before, after) = (
        Container::new(world, kept, "before the wait")?,
        Container::new(world, new, "waits")?,
    );
    before.is_added()?;
    world.proxy.be(Way::Silent);
    world.crash()?;
    thread::scope(|scope| {
        let adding = scope.spawn(|| after.is_added());
        let removed = before.remove();
        let too_early = adding.is_finished();
        open(world)?;
        removed.context("while the daemon waits")?;
        let added = adding.join();
        added.map_err(|_| anyhow::anyhow!("an ADD panicked"))??;
        ensure!(!too_early, "ADD did not wait");
        anyhow::Ok(())
    })?;
    after.remove()?;
    world.settle()?;
    world.is_clean()
}

/// The wait of an ADD is shorter than a kubelet's.
fn gives_up(world: &World, new: &Pod) -> anyhow::Result<()> {
    world.proxy.be(Way::Silent);
    world.crash()?;
    let container = Container::new(world, new, "gives up")?;
    let start = Instant::now();
    let added = container.add()?;
    ensure!(
        start.elapsed() < WAIT_WITHIN,
        "ADD took {:?}",
        start.elapsed()
    );
    ensure!(
        matches!(
            &added,
            Outcome::Refused {
                code: TRY_AGAIN_LATER,
                ..
            }
        ),
        "ADD gave {added:?}"
    );
    container.remove()?;
    open(world)?;
    world.settle()?;
    world.is_clean()
}
