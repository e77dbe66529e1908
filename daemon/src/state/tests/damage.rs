//! State that is damaged: what is left of it.

use std::fs;

use serde_json::{Value, json};

use super::{Place, UPSTREAM, id, state};
use crate::state::StateError;

/// What is left of a file that is damaged: interfaces.
fn left(place: &Place) -> Vec<String> {
    match place.load() {
        Err(error @ StateError::Damaged { .. }) => {
            assert!(error.to_string().contains("/var/lib/cni/multus/c1"));
            let StateError::Damaged { left, .. } = error else {
                unreachable!()
            };
            let ifnames = left.delegates.iter().map(|d| d.ifname.to_string());
            ifnames.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_a_file_that_breaks_off_the_complete_part_is_left() {
    let place = Place::new();
    let mut seen = std::collections::BTreeSet::new();
    for end in 0..UPSTREAM.trim_end().len() {
        place.put("c1", &UPSTREAM.as_bytes()[..end]);
        let left = left(&place);
        assert_eq!(left, ["eth0", "stor0", "net2"][..left.len()], "{end}");
        seen.insert(left.len());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn one_delegate_that_cannot_be_read_spoils_no_other() {
    let place = Place::new();
    let whole: Vec<Value> = serde_json::from_str(UPSTREAM).unwrap();
    for bad in [
        json!(null),
        json!(7),
        json!({"Name": "a"}),
        json!({"Name": "a", "Bytes": "?"}),
        json!({"Name": "a", "Bytes": 7}),
        json!({"Name": "a", "Bytes": "e30="}),
    ] {
        let mut file = whole.clone();
        file[1] = bad;
        place.put("c1", json!(file).to_string().as_bytes());
        assert_eq!(left(&place), ["eth0", "net2"], "{file:?}");
    }
    let mut file = whole.clone();
    file[1]["ifnameRequest"] = json!("not/a/name");
    place.put("c1", json!(file).to_string().as_bytes());
    assert_eq!(left(&place), ["eth0", "net2"]);
}

#[test]
fn what_is_not_needed_may_be_anything() {
    let place = Place::new();
    let mut file: Vec<Value> = serde_json::from_str(UPSTREAM).unwrap();
    file[0]["Conf"] = json!([1]);
    file[1]["ConfList"] = json!("x");
    file[1]["CNINetworkConfigList"] = json!({"Plugins": 7});
    file[2]["IsFilterV4Gateway"] = json!(null);
    file[2]["default-route"] = json!(["10.0.0.1", ""]);
    place.put("c1", json!(file).to_string().as_bytes());
    let state = place.load().unwrap().unwrap();
    assert_eq!(state.delegates.len(), 3);
    assert_eq!(
        state.delegates[2].requested.default_route,
        Some(vec!["10.0.0.1".parse().unwrap()])
    );
}

#[test]
fn what_cannot_be_read_is_damaged_and_can_be_forgotten() {
    let place = Place::new();
    fs::create_dir_all(place.path("c1")).unwrap();
    assert!(left(&place).is_empty());
    place.store.remove(&id()).unwrap();
    assert!(place.path("c1").is_dir(), "whose it is, is not known");
    fs::remove_dir(place.path("c1")).unwrap();
    std::os::unix::fs::symlink("c1", place.path("c1")).unwrap();
    assert!(left(&place).is_empty());
    place.store.record(&state()).unwrap();
    assert_eq!(place.load().unwrap(), Some(state()));
    place.store.remove(&id()).unwrap();
    fs::write(place.path("c1"), vec![b' '; (16 << 20) + 1]).unwrap();
    assert!(left(&place).is_empty());
    place.store.remove(&id()).unwrap();
    assert_eq!(place.load().unwrap(), None);
}

#[test]
fn a_damaged_file_is_replaced_by_its_sidecar() {
    let place = Place::new();
    let state = state();
    place.store.begin(&state).unwrap();
    for content in [
        "",
        "[{",
        "null null",
        "[1]",
        r#"[{"Name":"a"}]"#,
        r#"[{"Bytes":"?"}]"#,
    ] {
        place.put("c1", content.as_bytes());
        assert_eq!(place.load().unwrap().as_ref(), Some(&state), "{content}");
    }
    place.store.record(&state).unwrap();
    fs::remove_file(place.path(".multus-rs/c1.json")).unwrap();
    assert_eq!(place.load().unwrap().unwrap().delegates.len(), 2);
}
