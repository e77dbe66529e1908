//! A failing disk or a crash at every single step of a verb: the next DEL, GC or start cleans up.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cni::types::CniError;
use serde_json::json;

use super::fixture::{Fixture, PluginCall};
use crate::state::faults::{self, Fault};

type Verb<'a> = &'a dyn Fn(&mut Fixture) -> Result<(), CniError>;

/// Returns the attachments that plugins still have after these calls.
fn attached(calls: &[PluginCall]) -> BTreeSet<String> {
    let mut attached = BTreeSet::new();
    for call in calls {
        let text = call.text();
        match text.split_once(' ') {
            Some(("ADD", which)) => attached.insert(which.to_owned()),
            Some(("DEL", which)) => attached.remove(which),
            _ => true,
        };
    }
    attached
}

/// Lets every step of `verb` fail once, after `before`, and checks that `after` leaves nothing. Returns the number of steps.
fn at_every_step(before: Verb<'_>, verb: Verb<'_>, after: Verb<'_>) -> u32 {
    let mut most = 0;
    for fault in [Fault::Failure, Fault::End] {
        for step in 0.. {
            let mut fixture = Fixture::new();
            fixture.on_call(|call| {
                faults::step()
                    .map_err(|error| CniError::new(5, format!("{}: {error}", call.text())))
            });
            before(&mut fixture).unwrap();
            faults::plan(step, fault);
            let outcome = catch_unwind(AssertUnwindSafe(|| verb(&mut fixture)));
            if !faults::happened() {
                outcome.unwrap().unwrap();
                most = most.max(step);
                break;
            }
            after(&mut fixture).unwrap_or_else(|error| panic!("{fault:?} at {step}: {error}"));
            let calls = fixture.calls();
            let attached = attached(&calls);
            assert!(attached.is_empty(), "{fault:?} at {step}: {attached:?}");
            let files = fixture.files();
            assert!(files.is_empty(), "{fault:?} at {step}: {files:?}");
        }
    }
    most
}

fn add(fixture: &mut Fixture) -> Result<(), CniError> {
    fixture.add("c1", "a,b").map(drop)
}

fn del(fixture: &mut Fixture) -> Result<(), CniError> {
    fixture.del("c1")
}

fn gc(fixture: &mut Fixture) -> Result<(), CniError> {
    fixture.gc(json!([]))
}

fn stale(fixture: &mut Fixture) -> Result<(), CniError> {
    let path = ["/opt/cni/bin".into()];
    let errors = fixture
        .engine
        .detach_stale(&path, &fixture.netconf(), &|_, _| true);
    errors.into_iter().next().map_or(Ok(()), Err)
}

#[test]
fn fault_in_add_leaves_nothing() {
    // Four plugins, two files, and the sidecar before each further delegate.
    for after in [&del as Verb<'_>, &gc, &stale] {
        assert_eq!(at_every_step(&|_| Ok(()), &add, after), 8);
    }
}

#[test]
fn fault_in_a_failing_add_leaves_nothing() {
    let failing = |fixture: &mut Fixture| {
        fixture.on_call(|call| match call.text().as_str() {
            "ADD bridge net2" => Err(CniError::new(7, "no")),
            text => faults::step().map_err(|error| CniError::new(5, format!("{text}: {error}"))),
        });
        add(fixture).unwrap_err();
        Ok(())
    };
    for after in [&del as Verb<'_>, &gc, &stale] {
        assert!(at_every_step(&|_| Ok(()), &failing, after) > 8);
    }
}

#[test]
fn fault_in_del_leaves_nothing() {
    for after in [&del as Verb<'_>, &gc, &stale] {
        assert_eq!(at_every_step(&add, &del, after), 6);
    }
}

#[test]
fn fault_in_gc_or_in_detaching_stale_containers_leaves_nothing() {
    for verb in [&gc as Verb<'_>, &stale] {
        assert!(at_every_step(&add, verb, &del) >= 6);
        assert!(at_every_step(&add, verb, verb) >= 6);
    }
}

/// One network has changed requests, one stays, one is new.
const WANTED: &str = r#"[{"name": "a", "mac": "02:00:00:00:00:07"}, {"name": "b", "interface": "new"}, {"name": "b"}]"#;

fn reconcile(fixture: &mut Fixture) -> Result<(), CniError> {
    let reconciled = fixture.reconcile("c1", WANTED)?;
    if let Some(failure) = reconciled.failure {
        return Err(failure.into());
    }
    reconciled
        .detach_errors
        .into_iter()
        .next()
        .map_or(Ok(()), |failure| Err(failure.into()))
}

#[test]
fn fault_in_hot_plug_leaves_nothing_or_is_reconciled() {
    let before = |fixture: &mut Fixture| fixture.add("c1", "a,b@old").map(drop);
    for after in [&del as Verb<'_>, &gc, &stale] {
        // A new network, a detached one and one in its place: each takes one plugin and two files.
        assert_eq!(at_every_step(&before, &reconcile, after), 9);
    }
    // The next reconciliation finishes the change.
    let again = |fixture: &mut Fixture| {
        reconcile(fixture)?;
        let state = fixture.state("c1");
        let names: Vec<_> = state["delegates"].as_array().unwrap().iter().collect();
        let of = |key: &str| names.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
        let mut networks: Vec<_> = of("name").iter().map(ToString::to_string).collect();
        networks.sort();
        assert_eq!(
            networks,
            [r#""cbr0""#, r#""shop/a""#, r#""shop/b""#, r#""shop/b""#]
        );
        assert!(of("progress").iter().all(|one| one == "started"), "{state}");
        fixture.status_written("c1")?;
        assert!(
            fixture.reconcile("c1", WANTED)?.networks.is_none(),
            "the status is written"
        );
        del(fixture)
    };
    at_every_step(&before, &reconcile, &again);
}

#[test]
fn result_that_cannot_be_cached_undoes_add() {
    let fixture = Fixture::new();
    let taken = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/results/neta-c1-net1");
    std::fs::create_dir_all(&taken).unwrap();
    let error = fixture.add("c1", "a,b").unwrap_err();
    assert_eq!(error.code, 5, "{}", error.msg);
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan net1",
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    std::fs::remove_dir(taken).unwrap();
    fixture.del("c1").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}
