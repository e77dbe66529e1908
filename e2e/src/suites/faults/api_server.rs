//! An API server that is unreachable, silent, slow, unsteady, or that refuses: no pod starts with fewer networks than it requested, and
//! every pod can be deleted.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use super::{
    container::{Container, Outcome},
    fixture::{FaultsFixture, Pod},
    outage::Outage,
};
use crate::{
    control_plane::{Components, tcp_proxy::Condition},
    daemon,
    report::{Checked, Report},
    single_node::TRY_AGAIN_LATER,
};

/// Time in which a shim that waits for a daemon gives up.
const WAIT_WITHIN: Duration = Duration::from_mins(1);

const OUTAGES: &[Outage] = &[
    Outage {
        name: "refuses connections",
        begin: |fixture| set_proxy(fixture, Condition::Refusing),
        end: open_proxy,
        error: None,
    },
    Outage {
        name: "accepts connections and sends nothing",
        begin: |fixture| set_proxy(fixture, Condition::Silent),
        end: open_proxy,
        error: None,
    },
    Outage {
        name: "is slow",
        begin: |fixture| set_proxy(fixture, Condition::Slow),
        end: open_proxy,
        error: None,
    },
    Outage {
        name: "is reachable and unreachable in turn",
        begin: |fixture| set_proxy(fixture, Condition::Flapping),
        end: open_proxy,
        error: None,
    },
    Outage {
        name: "was killed",
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
        error: None,
    },
    Outage {
        name: "grants the daemon nothing (403)",
        begin: |fixture| {
            let names = ["rke2-multus", "rke2-multus-published"];
            fixture.kubectl(&[&["delete", "clusterrolebinding"][..], &names].concat())
        },
        end: |fixture| fixture.apply(&daemon::service_account()?),
        error: None,
    },
    Outage {
        name: "has no network definitions (404)",
        begin: |fixture| {
            let name = "network-attachment-definitions.k8s.cni.cncf.io";
            fixture.kubectl(&["delete", "crd", name])?;
            fixture.wait_until_noted("CRD", true)
        },
        // A direct request finds the definition before the watch has it, which the next outage needs.
        end: |fixture| {
            fixture.create_definitions()?;
            fixture.wait_until_noted("CRD", false)
        },
        error: Some("storage"),
    },
    Outage {
        name: "rejects the daemon's token (401)",
        begin: |fixture| {
            let namespace = "--namespace=kube-system";
            fixture.kubectl(&["delete", "serviceaccount", "multus", namespace])?;
            fixture.apply(&daemon::service_account()?)
        },
        end: |fixture| fixture.write_token(),
        error: None,
    },
    Outage {
        name: "has the certificate of another authority",
        begin: |fixture| {
            let single_node = &fixture.single_node;
            single_node
                .control
                .replace_authority(&single_node.node, Components::ApiServer)
        },
        end: |fixture| fixture.write_token(),
        error: None,
    },
];

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of many steps, and the others fail"
)]
fn set_proxy(fixture: &FaultsFixture, way: Condition) -> anyhow::Result<()> {
    fixture.proxy.set(way);
    Ok(())
}

fn open_proxy(fixture: &FaultsFixture) -> anyhow::Result<()> {
    set_proxy(fixture, Condition::Open)
}

/// Checks every outage; with `long` also an ADD that waits until the shim gives up.
pub(super) fn run(fixture: &FaultsFixture, long: bool, report: &mut Report) -> Checked {
    let [existing, new] = &report.check("two pods for outages of the API server", || {
        fixture.create_pods(["existing", "new"])
    })?;
    for outage in OUTAGES {
        report.check(&format!("an API server that {}", outage.name), || {
            fixture.with_log(outage.check(fixture, existing, new))
        })?;
    }
    report.check(
        "ADD waits while the daemon waits for its API server",
        || fixture.with_log(add_waits(fixture, existing, new)),
    )?;
    if long {
        report.check("an ADD that waits fails within a minute", || {
            fixture.with_log(add_gives_up(fixture, new))
        })?;
    }
    Ok(())
}

/// A daemon that was started without its API server serves DEL at once, and ADD when the API server is back.
fn add_waits(fixture: &FaultsFixture, existing: &Pod, new: &Pod) -> anyhow::Result<()> {
    let (before, after) = (
        Container::new(fixture, existing, "before the wait")?,
        Container::new(fixture, new, "waits")?,
    );
    before.add_complete()?;
    fixture.proxy.set(Condition::Silent);
    fixture.crash()?;
    thread::scope(|scope| {
        let adding = scope.spawn(|| after.add_complete());
        let removed = before.remove();
        let too_early = adding.is_finished();
        open_proxy(fixture)?;
        removed.context("while the daemon waits")?;
        let added = adding.join();
        added.map_err(|_| anyhow::anyhow!("an ADD panicked"))??;
        ensure!(!too_early, "ADD did not wait");
        anyhow::Ok(())
    })?;
    after.remove()?;
    fixture.wait_for_one_ready_daemon()?;
    fixture.is_clean()
}

/// A shim stops to wait earlier than a kubelet does.
fn add_gives_up(fixture: &FaultsFixture, new: &Pod) -> anyhow::Result<()> {
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
    open_proxy(fixture)?;
    fixture.wait_for_one_ready_daemon()?;
    fixture.is_clean()
}
