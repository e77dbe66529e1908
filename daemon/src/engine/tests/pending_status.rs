//! A pod's status, from the end of its ADD until it is written.

use std::time::{Duration, Instant};

use plan::PodView;
use serde_json::{Value, json};

use super::fixture::{Fixture, pod};
use crate::statuses::{PodStatus, Statuses};

/// Takes the statuses that were handed over.
fn take(statuses: &Statuses) -> Vec<PodStatus> {
    statuses.take(Instant::now() + Duration::from_hours(1))
}

/// Returns the networks that a status reports.
fn networks(status: &PodStatus) -> Vec<String> {
    let text: Value = serde_json::from_str(&status.text).unwrap();
    let networks = text.as_array().unwrap().iter();
    networks
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn status_is_pending_in_the_state_until_it_is_written() {
    let mut fixture = Fixture::new();
    let statuses = fixture.with_statuses();
    fixture.add("c1", "a,b").unwrap();
    let taken = take(&statuses);
    assert_eq!(networks(&taken[0]), ["cbr0", "shop/a", "shop/b"]);
    let before = fixture.state("c1");
    assert_eq!(before["untold"], true);
    assert!(fixture.engine.is_status_pending(&taken[0]));
    fixture.engine.status_written(&taken[0]).unwrap();
    let mut after = fixture.state("c1");
    assert_eq!(after["untold"], false);
    after["untold"] = json!(true);
    assert_eq!(after, before);
    assert!(!fixture.engine.is_status_pending(&taken[0]));
    assert!(statuses.is_empty());
    let pending = fixture.engine.pending_statuses(&fixture.netconf());
    assert!(pending.unwrap().is_empty());
}

#[test]
fn next_daemon_sends_the_same_status_again() {
    let mut fixture = Fixture::new();
    let first = fixture.with_statuses();
    fixture.add("c1", "a,b").unwrap();
    let sent = take(&first);
    let second = fixture.with_statuses();
    let pending = fixture.engine.pending_statuses(&fixture.netconf()).unwrap();
    let [(id, owner)] = &pending[..] else {
        panic!("{pending:?}");
    };
    assert_eq!((id.as_str(), owner.name.as_str()), ("c1", "cart-0"));
    let netconf = fixture.netconf();
    let resend = |pod: &PodView| fixture.engine.resend_status(id, &netconf, pod).unwrap();
    let store = fixture.engine.store(&netconf);
    let locked = fixture.engine.locks.lock(&store, id);
    assert!(!resend(&pod("a,b")));
    assert!(second.is_empty());
    drop(locked);
    assert!(resend(&pod("a,b")));
    assert_eq!(take(&second)[0].text, sent[0].text);
    // Another pod of the same name has no part in it.
    let third = fixture.with_statuses();
    let mut other = pod("a,b");
    other.uid = "6c1d".to_owned();
    fixture.engine.resend_status(id, &netconf, &other).unwrap();
    assert!(third.is_empty());
}

#[test]
fn failed_add_and_del_leave_no_status() {
    let mut fixture = Fixture::new();
    let statuses = fixture.with_statuses();
    fixture.fail(&["ADD bridge"]);
    fixture.add("c1", "a,b").unwrap_err();
    assert!(statuses.is_empty());
    fixture.add("c2", "a").unwrap();
    let taken = take(&statuses);
    fixture.del("c2").unwrap();
    assert!(statuses.is_empty());
    assert!(!fixture.engine.is_status_pending(&taken[0]));
    fixture.engine.status_written(&taken[0]).unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn state_stays_pending_while_hot_plug_has_a_newer_status() {
    let mut fixture = Fixture::new();
    let statuses = fixture.with_statuses();
    fixture.add("c1", "a").unwrap();
    let old = take(&statuses);
    fixture.reconcile("c1", "a,b").unwrap();
    fixture.engine.status_written(&old[0]).unwrap();
    assert_eq!(fixture.state("c1")["untold"], true);
    statuses.done(&old[0], true, Instant::now());
    let new = take(&statuses);
    assert_eq!(networks(&new[0]), ["cbr0", "shop/a", "shop/b"]);
    fixture.engine.status_written(&new[0]).unwrap();
    assert_eq!(fixture.state("c1")["untold"], false);
}
