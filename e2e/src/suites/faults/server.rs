//! An API server that is away, silent, slow, unsteady, or that refuses: pods wait, none comes up with less, and all go.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{
    container::{Container, Outcome, Pod, TRY_AGAIN_LATER},
    fixture::{FaultsFixture, account, binding},
};
use crate::{
    control_plane::Components,
    control_plane::tcp_proxy::Condition,
    node::inspect,
    report::{CheckFailed, Report},
    sh,
};

/// No ADD takes longer while a daemon is there.
const ADD_WITHIN: Duration = Duration::from_secs(30);
/// A shim that waits for a daemon gives up by then.
const WAIT_WITHIN: Duration = Duration::from_mins(1);
/// No DEL needs the API server.
const DEL_WITHIN: Duration = Duration::from_secs(10);
/// Until all is well after a outage: a token is believed for a minute, and watches come back after half of one.
pub(super) const WELL_WITHIN: u64 = 90;

pub(super) type Step = fn(&FaultsFixture) -> anyhow::Result<()>;

/// How an API server can be.
pub(super) struct Outage {
    pub(super) name: &'static str,
    pub(super) begin: Step,
    pub(super) end: Step,
    /// What the error tells beside the pod; none if an ADD may stand it.
    pub(super) cause: Option<&'static str>,
    /// Whether the error asks to try again.
    pub(super) passes: bool,
}

const FAULTS: &[Outage] = &[
    Outage {
        name: "refuses connections",
        begin: |fixture| be(fixture, Condition::Refusing),
        end: open,
        cause: Some("onnect"),
        passes: true,
    },
    Outage {
        name: "takes connections and says nothing",
        begin: |fixture| be(fixture, Condition::Silent),
        end: open,
        cause: Some("no answer within"),
        passes: true,
    },
    Outage {
        name: "is slow",
        begin: |fixture| be(fixture, Condition::Slow),
        end: open,
        cause: None,
        passes: true,
    },
    Outage {
        name: "comes and goes",
        begin: |fixture| be(fixture, Condition::Flapping),
        end: open,
        cause: None,
        passes: true,
    },
    Outage {
        name: "has ended",
        begin: |fixture| {
            fixture
                .single_node
                .control
                .stop_server(&fixture.single_node.node)
        },
        end: |fixture| {
            let single_node = &fixture.single_node;
            single_node
                .control
                .start_server(&single_node.node, Components::ApiServer)
        },
        cause: Some("network status"),
        passes: true,
    },
    Outage {
        name: "grants the daemon nothing (403)",
        begin: |fixture| fixture.kubectl(&["delete", "clusterrolebinding", "multus"]),
        end: |fixture| fixture.apply(&[binding()]),
        cause: Some("403"),
        passes: true,
    },
    Outage {
        name: "does not know of networks (404)",
        begin: |fixture| {
            let name = "network-attachment-definitions.k8s.cni.cncf.io";
            fixture.kubectl(&["delete", "crd", name])
        },
        end: |fixture| fixture.define(),
        cause: Some("storage"),
        passes: false,
    },
    Outage {
        name: "does not know the daemon's token (401)",
        begin: |fixture| {
            let namespace = "--namespace=kube-system";
            fixture.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
            fixture.apply(&account())
        },
        end: |fixture| fixture.token(),
        cause: Some("401"),
        passes: true,
    },
    Outage {
        name: "has the certificate of another authority",
        begin: |fixture| {
            let single_node = &fixture.single_node;
            single_node
                .control
                .replace_authority(&single_node.node, Components::ApiServer)
        },
        end: |fixture| fixture.token(),
        cause: Some("certificate"),
        passes: true,
    },
];

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of many steps, and the others fail"
)]
fn be(fixture: &FaultsFixture, way: Condition) -> anyhow::Result<()> {
    fixture.proxy.set(way);
    Ok(())
}

fn open(fixture: &FaultsFixture) -> anyhow::Result<()> {
    be(fixture, Condition::Open)
}

/// Runs all of them; `long` also has an ADD wait until the shim gives up.
pub(super) fn run(
    fixture: &FaultsFixture,
    long: bool,
    report: &mut Report,
) -> Result<(), CheckFailed> {
    let pods = report.check("two pods", || fixture.pods(&["kept", "new"]))?;
    let [kept, new] = pods.as_slice() else {
        return Err(CheckFailed);
    };
    for outage in FAULTS {
        report.check(&format!("an API server that {}", outage.name), || {
            fixture.told(stand(outage, fixture, kept, new))
        })?;
    }
    report.check(
        "ADD waits for a daemon that waits for its API server",
        || fixture.told(waits(fixture, kept, new)),
    )?;
    if long {
        report.check("and does not wait for ever", || {
            fixture.told(gives_up(fixture, new))
        })?;
    }
    Ok(())
}

/// The container from before goes, a new one is refused, and afterwards all is well without anybody's help.
pub(super) fn stand(
    outage: &Outage,
    fixture: &FaultsFixture,
    kept: &Pod,
    new: &Pod,
) -> anyhow::Result<()> {
    let before = Container::new(fixture, kept, outage.name)?;
    before.is_added().context("before the fault")?;
    (outage.begin)(fixture)?;
    let start = Instant::now();
    before.remove().context("during the fault")?;
    let took = start.elapsed();
    ensure!(took < DEL_WITHIN, "DEL took {took:?}");
    let mut attempt = 0;
    // A fault may take a moment to arrive.
    sh::until(60, "ADD is refused", || {
        attempt += 1;
        let name = format!("{} during {attempt}", outage.name);
        match during(outage, fixture, new, &name) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => bail!("ADD succeeded"),
            // This does not pass by being tried again.
            Err(wrong) => Ok(Err(wrong)),
        }
    })??;
    (outage.end)(fixture)?;
    sh::until(WELL_WITHIN, "all is well after the fault", || {
        attempt += 1;
        let container = Container::new(fixture, new, &format!("{} after {attempt}", outage.name))?;
        let added = container.is_added();
        container.remove()?;
        added
    })?;
    fixture.settle()?;
    fixture.is_clean()
}

/// One ADD during a outage, whole or without a trace; whether it went as it has to once the fault has arrived.
fn during(outage: &Outage, fixture: &FaultsFixture, pod: &Pod, name: &str) -> anyhow::Result<bool> {
    let container = Container::new(fixture, pod, name)?;
    let start = Instant::now();
    let added = container.add()?;
    let took = start.elapsed();
    ensure!(took < ADD_WITHIN, "ADD took {took:?}");
    let is_as_it_has_to = match added {
        Outcome::Done(result) => {
            container.is_whole(&result)?;
            outage.cause.is_none()
        }
        Outcome::Refused { code, text } => {
            let words = [pod.name.as_str()].into_iter().chain(outage.cause);
            for word in words {
                ensure!(
                    text.contains(word),
                    "the error does not tell {word}: {text}"
                );
            }
            ensure!(
                !outage.passes || code == TRY_AGAIN_LATER,
                "not code 11: {text}"
            );
            let left = inspect::leftovers(&fixture.single_node.node)?;
            ensure!(left.is_empty(), "a failed ADD left {}", left.join(", "));
            true
        }
        Outcome::Lost(words) => bail!("the shim answered with no document: {words}"),
    };
    container.remove().context("during the fault")?;
    Ok(is_as_it_has_to)
}

/// Also a daemon that has never heard of its API server serves DEL at once, and ADD once it has.
fn waits(fixture: &FaultsFixture, kept: &Pod, new: &Pod) -> anyhow::Result<()> {
    let (before, after) = (
        Container::new(fixture, kept, "before the wait")?,
        Container::new(fixture, new, "waits")?,
    );
    before.is_added()?;
    fixture.proxy.set(Condition::Silent);
    fixture.crash()?;
    thread::scope(|scope| {
        let adding = scope.spawn(|| after.is_added());
        let removed = before.remove();
        let too_early = adding.is_finished();
        open(fixture)?;
        removed.context("while the daemon waits")?;
        let added = adding.join();
        added.map_err(|_| anyhow::anyhow!("an ADD panicked"))??;
        ensure!(!too_early, "ADD did not wait");
        anyhow::Ok(())
    })?;
    after.remove()?;
    fixture.settle()?;
    fixture.is_clean()
}

/// The wait of an ADD is shorter than a kubelet's.
fn gives_up(fixture: &FaultsFixture, new: &Pod) -> anyhow::Result<()> {
    fixture.proxy.set(Condition::Silent);
    fixture.crash()?;
    let container = Container::new(fixture, new, "gives up")?;
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
    open(fixture)?;
    fixture.settle()?;
    fixture.is_clean()
}
