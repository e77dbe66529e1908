//! Sidecars of this boot of the kernel and of an earlier one.

use std::fs;
use std::sync::Arc;

use node::root::Root;
use plan::Requested;
use serde_json::{Value, json};

use super::{Place, delegate, id, state};
use crate::state::{Progress, State, Store};

impl Place {
    /// The kernel is started anew; who asks has a store of its own.
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
fn a_record_of_an_earlier_boot_counts_as_begun_in_all_its_networks() {
    let mut place = Place::new();
    place.boot("one");
    let mut written = state();
    written.delegates[0].progress = Progress::Removed;
    place.store.begin(&written).unwrap();
    assert_eq!(place.own()["boot"], "one");
    let same = place.load().unwrap().unwrap();
    assert_eq!(progress(&same), [Progress::Removed, Progress::Planned]);
    assert!(!same.rebooted);
    place.boot("two");
    let later = place.load().unwrap().unwrap();
    assert_eq!(progress(&later), [Progress::Removed, Progress::Started]);
    assert!(later.rebooted);
    // Written again, it stays what it is.
    place.store.record(&later).unwrap();
    assert_eq!(place.load().unwrap().unwrap(), later);
    place.boot("three");
    assert_eq!(place.load().unwrap().unwrap(), later);
}

#[test]
fn a_sidecar_of_an_earlier_boot_counts_alone() {
    let mut place = Place::new();
    place.boot("one");
    place.store.begin(&state()).unwrap();
    fs::remove_file(place.path("c1")).unwrap();
    assert_eq!(place.load().unwrap(), None, "another program detached it");
    place.boot("two");
    let found = place.load().unwrap().unwrap();
    assert_eq!(progress(&found), [Progress::Started; 2]);
    place.store.remove(&id()).unwrap();
    assert_eq!(place.load().unwrap(), None);
    // One without a boot id is of a daemon that synced both files.
    place.store.begin(&state()).unwrap();
    let mut old = place.own();
    old.as_object_mut().unwrap().shift_remove("boot").unwrap();
    place.put(".multus-rs/c1.json", old.to_string().as_bytes());
    place.boot("three");
    assert_eq!(
        progress(&place.load().unwrap().unwrap())[1],
        Progress::Planned
    );
    fs::remove_file(place.path("c1")).unwrap();
    assert_eq!(place.load().unwrap(), None);
}

/// The word is overwritten in a file that is on disk: whatever surrounds it, one sector has all of it.
#[test]
fn progress_is_written_in_place_within_a_sector() {
    let mut place = Place::new();
    place.boot("one");
    for length in (0..600).step_by(3) {
        let wishes = json!({"progress": "planned", "long": "x".repeat(length)});
        let mut state = state();
        let mut third = delegate("c", "net2", r#"{"name":"c","type":"x"}"#, Progress::Planned);
        third.requested = Requested {
            wishes: wishes.as_object().cloned(),
            ..Requested::default()
        };
        state.delegates.insert(1, third);
        let begun = place.store.begin(&state).unwrap();
        let before = fs::read(place.path(".multus-rs/c1.json")).unwrap();
        for started in 1..3 {
            begun.start(started).unwrap();
            state.delegates[started].progress = Progress::Started;
            assert_eq!(place.load().unwrap().as_ref(), Some(&state), "{length}");
        }
        let after = fs::read(place.path(".multus-rs/c1.json")).unwrap();
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
