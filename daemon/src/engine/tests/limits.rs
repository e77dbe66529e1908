//! Annotations that request more than a node may attach for one pod.

use super::fixture::Fixture;

fn many() -> String {
    vec!["a"; 100_000].join(",")
}

#[test]
fn add_of_very_many_networks_is_refused_before_anything_runs() {
    let fixture = Fixture::new();
    let error = fixture.add("c1", &many()).unwrap_err();
    assert!(
        error.msg.contains("100000") && error.msg.contains("64"),
        "{}",
        error.msg
    );
    fixture.check_calls(&[]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn running_pod_keeps_its_networks_when_its_annotation_requests_very_many() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.calls();
    let error = fixture.reconcile("c1", &many()).unwrap_err();
    assert!(error.msg.contains("100000"), "{}", error.msg);
    fixture.check_calls(&[]);
    assert!(fixture.reconcile("c1", "a").unwrap().networks.is_none());
}

#[test]
fn running_pod_gets_no_more_configurations_than_a_starting_one() {
    let fixture = Fixture::new();
    let half = "x".repeat(600 << 10);
    for name in ["large", "larger"] {
        let config = format!(r#"{{"cniVersion":"1.0.0","type":"macvlan","note":"{half}"}}"#);
        fixture.nad(name, &config);
    }
    fixture.add("c1", "large").unwrap();
    let added = fixture.add("c2", "large,larger").unwrap_err();
    let plugged = fixture.reconcile("c1", "large,larger").unwrap_err();
    for error in [added, plugged] {
        assert!(error.msg.contains("1048576"), "{}", error.msg);
    }
}
