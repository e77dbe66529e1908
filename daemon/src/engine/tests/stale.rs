//! Detaching stale containers, which were deleted without a DEL.

use std::sync::Mutex;

use super::cached_results::attach;
use super::fixture::Fixture;
use crate::engine::NetnsState;

type Checked = Vec<(String, Option<String>)>;

/// Detaches stale containers, which are those in `stale`. Returns errors and the containers that were asked about, with their
/// namespaces.
fn detach_stale(fixture: &Fixture, stale: &[&str]) -> (Vec<cni::types::CniError>, Checked) {
    let checked = Mutex::default();
    let path = ["/opt/cni/bin".into()];
    let errors = fixture
        .engine
        .detach_stale(&path, &fixture.netconf(), &|id, netns| {
            let checked: &Mutex<Checked> = &checked;
            let mut checked = checked.lock().unwrap();
            let netns = match netns {
                NetnsState::At(netns) => Some(netns.to_owned()),
                NetnsState::Unknown | NetnsState::Lost => None,
            };
            checked.push((id.to_string(), netns));
            stale.contains(&id.as_str())
        });
    (errors, checked.into_inner().unwrap())
}

#[test]
fn stale_containers_are_detached_and_forgotten() {
    let fixture = Fixture::new();
    for id in ["c1", "c2"] {
        fixture.add(id, "a").unwrap();
    }
    attach(&fixture, "c3", "cbr0", "eth0", "flannel");
    fixture.put("var/lib/cni/multus/.multus-rs/c4.json", "{}");
    fixture.put("var/lib/cni/multus/.multus-rs-c5.tmp", "[");
    fixture.put("var/lib/cni/multus/results/.cbr0-c1-eth0.tmp", "{");
    fixture.put("var/lib/cni/multus/results/.cbr0-c2-eth0.tmp", "{");
    fixture.calls();
    let (errors, checked) = detach_stale(&fixture, &["c1", "c3"]);
    assert!(errors.is_empty(), "{errors:?}");
    let netns = Some("/var/run/netns/x".to_owned());
    // Nothing shows that the others were ever attached.
    let expected = [("c1", netns.clone()), ("c2", netns.clone()), ("c3", netns)];
    assert_eq!(checked, expected.map(|(id, netns)| (id.to_owned(), netns)));
    fixture.check_calls(&[
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
        "DEL flannel eth0",
    ]);
    assert_eq!(
        fixture.files(),
        [
            ".multus-rs/c2.json",
            "/c2",
            "results/.cbr0-c2-eth0.tmp",
            "results/cbr0-c2-eth0",
            "results/neta-c2-net1",
        ]
    );
}

#[test]
fn stale_containers_get_the_arguments_of_add() {
    let fixture = Fixture::new();
    fixture
        .add("c1", r#"[{"name":"a","ips":["10.20.0.5/24"]}]"#)
        .unwrap();
    let added = fixture.calls();
    detach_stale(&fixture, &["c1"]);
    let removed = fixture.calls();
    assert_eq!(removed.len(), 3);
    for (add, del) in added.iter().zip(removed.iter().rev()) {
        for key in ["CNI_ARGS", "CNI_NETNS", "CNI_IFNAME"] {
            assert_eq!(add.env[key], del.env[key]);
        }
        assert_eq!(
            add.stdin.get("runtimeConfig"),
            del.stdin.get("runtimeConfig")
        );
    }
}

#[test]
fn locked_container_is_skipped() {
    let fixture = std::sync::Arc::new(Fixture::new());
    fixture.add("c1", "").unwrap();
    let other = std::sync::Arc::clone(&fixture);
    fixture.on_call(move |call| {
        if call.env["CNI_CONTAINERID"] == "c2" {
            let (errors, checked) = detach_stale(&other, &[]);
            assert!(errors.is_empty());
            let checked: Vec<_> = checked.into_iter().map(|(id, _)| id).collect();
            assert_eq!(checked, ["c1"]);
        }
        Ok(())
    });
    fixture.add("c2", "").unwrap();
    fixture.on_call(|_| Ok(()));
}

#[test]
fn failed_stale_container_stays_and_the_others_are_detached() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.add("c2", "").unwrap();
    fixture.fail(&["DEL macvlan"]);
    let (errors, _) = detach_stale(&fixture, &["c1", "c2"]);
    assert_eq!(errors.len(), 1);
    assert_eq!(
        fixture.files(),
        [".multus-rs/c1.json", "/c1", "results/neta-c1-net1"]
    );
    fixture.on_call(|_| Ok(()));
    let (errors, _) = detach_stale(&fixture, &["c1", "c2"]);
    assert!(errors.is_empty() && fixture.files().is_empty());
}
