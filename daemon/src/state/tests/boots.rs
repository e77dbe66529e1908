//! Sidecars of the present boot of the kernel and of an earlier one.

use std::fs;
use std::sync::Arc;

use node::root::Root;
use plan::Requested;
use serde_json::{Value, json};

use super::{Fixture, delegate, id, state};
use crate::state::{Progress, State, Store};

impl Fixture {
    /// Reboots the node with this boot id, which takes a new store.
    fn boot(&mut self, id: &str) {
        let path = self.dir.path().join("proc/sys/kernel/random");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("boot_id"), format!("{id}\n")).unwrap();
        let root = Arc::new(Root::open(self.dir.path()).unwrap());
        self.store = Store::new(root, "/var/lib/cni/multus");
    }

    fn own(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path(".multus-rs/c1.json")).unwrap()).unwrap()
    }
}

fn progress(state: &State) -> Vec<Progress> {
    state.delegates.iter().map(|one| one.progress).collect()
}

#[test]
fn planned_networks_of_an_earlier_boot_count_as_started() {
    let mut fixture = Fixture::new();
    fixture.boot("one");
    let mut written = state();
    written.delegates[0].progress = Progress::Removed;
    fixture.store.begin(&written).unwrap();
    assert_eq!(fixture.own()["boot"], "one");
    let same = fixture.load().unwrap().unwrap();
    assert_eq!(progress(&same), [Progress::Removed, Progress::Planned]);
    assert!(!same.rebooted);
    fixture.boot("two");
    let later = fixture.load().unwrap().unwrap();
    assert_eq!(progress(&later), [Progress::Removed, Progress::Started]);
    assert!(later.rebooted);
    // A record that is written again stays one of an earlier boot.
    fixture.store.record(&later).unwrap();
    assert_eq!(fixture.load().unwrap().unwrap(), later);
    fixture.boot("three");
    assert_eq!(fixture.load().unwrap().unwrap(), later);
}

#[test]
fn sidecar_of_an_earlier_boot_counts_without_upstreams_file() {
    let mut fixture = Fixture::new();
    fixture.boot("one");
    fixture.store.begin(&state()).unwrap();
    fs::remove_file(fixture.path("c1")).unwrap();
    assert_eq!(fixture.load().unwrap(), None, "another program detached it");
    fixture.boot("two");
    let found = fixture.load().unwrap().unwrap();
    assert_eq!(progress(&found), [Progress::Started; 2]);
    fixture.store.remove(&id()).unwrap();
    assert_eq!(fixture.load().unwrap(), None);
    // A sidecar without a boot id is of a daemon that synced both files.
    fixture.store.begin(&state()).unwrap();
    let mut old = fixture.own();
    old.as_object_mut().unwrap().shift_remove("boot").unwrap();
    fixture.put(".multus-rs/c1.json", old.to_string().as_bytes());
    fixture.boot("three");
    assert_eq!(
        progress(&fixture.load().unwrap().unwrap())[1],
        Progress::Planned
    );
    fs::remove_file(fixture.path("c1")).unwrap();
    assert_eq!(fixture.load().unwrap(), None);
}

/// The word for progress is overwritten in place, so one sector has to hold all of it, whatever surrounds it.
#[test]
fn progress_is_written_in_place_within_a_sector() {
    let mut fixture = Fixture::new();
    fixture.boot("one");
    for length in (0..600).step_by(3) {
        let requests = json!({"progress": "planned", "long": "x".repeat(length)});
        let mut state = state();
        let mut third = delegate("c", "net2", r#"{"name":"c","type":"x"}"#, Progress::Planned);
        third.requested = Requested {
            annotation_keys: requests.as_object().cloned(),
            ..Requested::default()
        };
        state.delegates.insert(1, third);
        let begun = fixture.store.begin(&state).unwrap();
        let before = fs::read(fixture.path(".multus-rs/c1.json")).unwrap();
        for started in 1..3 {
            begun.start(started).unwrap();
            state.delegates[started].progress = Progress::Started;
            assert_eq!(fixture.load().unwrap().as_ref(), Some(&state), "{length}");
        }
        let after = fs::read(fixture.path(".multus-rs/c1.json")).unwrap();
        assert_eq!(after.len(), before.len());
        let changed = (0..after.len()).filter(|at| after[*at] != before[*at]);
        let mut changed: Vec<_> = changed.collect();
        let second = changed.split_off(changed.len() / 2);
        for word in [changed, second] {
            let (first, last) = (word[0], word[word.len() - 1]);
            assert_eq!(first / 512, last / 512, "{length}: {first} to {last}");
        }
    }
}
