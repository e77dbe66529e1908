//! Damaged state: the part of it that is still loaded.

use std::fs;

use serde_json::{Value, json};

use super::{Fixture, UPSTREAM, id, state};
use crate::state::StateError;

/// Returns the interfaces that are still loaded from a damaged file.
fn left(fixture: &Fixture) -> Vec<String> {
    match fixture.load() {
        Err(error @ StateError::Damaged { .. }) => {
            assert!(error.to_string().contains("/var/lib/cni/multus/c1"));
            let StateError::Damaged { partial, .. } = error else {
                unreachable!()
            };
            let ifnames = partial.delegates.iter().map(|d| d.ifname.to_string());
            ifnames.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn complete_delegates_of_a_truncated_file_are_loaded() {
    let fixture = Fixture::new();
    let mut seen = std::collections::BTreeSet::new();
    for end in 0..UPSTREAM.trim_end().len() {
        fixture.put("c1", &UPSTREAM.as_bytes()[..end]);
        let left = left(&fixture);
        assert_eq!(left, ["eth0", "stor0", "net2"][..left.len()], "{end}");
        seen.insert(left.len());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn unreadable_delegate_does_not_affect_the_others() {
    let fixture = Fixture::new();
    let complete: Vec<Value> = serde_json::from_str(UPSTREAM).unwrap();
    for bad in [
        json!(null),
        json!(7),
        json!({"Name": "a"}),
        json!({"Name": "a", "Bytes": "?"}),
        json!({"Name": "a", "Bytes": 7}),
        json!({"Name": "a", "Bytes": "e30="}),
    ] {
        let mut file = complete.clone();
        file[1] = bad;
        fixture.put("c1", json!(file).to_string().as_bytes());
        assert_eq!(left(&fixture), ["eth0", "net2"], "{file:?}");
    }
    let mut file = complete.clone();
    file[1]["ifnameRequest"] = json!("not/a/name");
    fixture.put("c1", json!(file).to_string().as_bytes());
    assert_eq!(left(&fixture), ["eth0", "net2"]);
}

#[test]
fn fields_that_are_not_needed_may_have_any_type() {
    let fixture = Fixture::new();
    let mut file: Vec<Value> = serde_json::from_str(UPSTREAM).unwrap();
    file[0]["Conf"] = json!([1]);
    file[1]["ConfList"] = json!("x");
    file[1]["CNINetworkConfigList"] = json!({"Plugins": 7});
    file[2]["IsFilterV4Gateway"] = json!(null);
    file[2]["default-route"] = json!(["10.0.0.1", ""]);
    fixture.put("c1", json!(file).to_string().as_bytes());
    let state = fixture.load().unwrap().unwrap();
    assert_eq!(state.delegates.len(), 3);
    assert_eq!(
        state.delegates[2].requested.default_route,
        Some(vec!["10.0.0.1".parse().unwrap()])
    );
}

#[test]
fn unreadable_file_is_damaged_and_can_be_replaced_or_removed() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("c1")).unwrap();
    assert!(left(&fixture).is_empty());
    fixture.store.remove(&id()).unwrap();
    assert!(fixture.path("c1").is_dir(), "a directory is not ours");
    fs::remove_dir(fixture.path("c1")).unwrap();
    std::os::unix::fs::symlink("c1", fixture.path("c1")).unwrap();
    assert!(left(&fixture).is_empty());
    fixture.store.record(&state()).unwrap();
    assert_eq!(fixture.load().unwrap(), Some(state()));
    fixture.store.remove(&id()).unwrap();
    fs::write(fixture.path("c1"), vec![b' '; (16 << 20) + 1]).unwrap();
    assert!(left(&fixture).is_empty());
    fixture.store.remove(&id()).unwrap();
    assert_eq!(fixture.load().unwrap(), None);
}

#[test]
fn sidecar_replaces_a_damaged_file() {
    let fixture = Fixture::new();
    let state = state();
    fixture.store.begin(&state).unwrap();
    for content in [
        "",
        "[{",
        "null null",
        "[1]",
        r#"[{"Name":"a"}]"#,
        r#"[{"Bytes":"?"}]"#,
    ] {
        fixture.put("c1", content.as_bytes());
        assert_eq!(fixture.load().unwrap().as_ref(), Some(&state), "{content}");
    }
    fixture.store.record(&state).unwrap();
    fs::remove_file(fixture.path(".multus-rs/c1.json")).unwrap();
    assert_eq!(fixture.load().unwrap().unwrap().delegates.len(), 2);
}
