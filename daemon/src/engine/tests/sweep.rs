//! Detaching stale containers, which were deleted without a DEL.

use std::sync::Mutex;

use super::recall::attach;
use super::world::World;
use crate::engine::Namespace;

type Checked = Vec<(String, Option<String>)>;

/// Detaches stale containers, which are those in `stale`. Returns errors and the containers that were asked about, with their
/// namespaces.
fn sweep(world: &World, stale: &[&str]) -> (Vec<cni::types::CniError>, Checked) {
    let checked = Mutex::default();
    let path = ["/opt/cni/bin".into()];
    let errors = world.engine.sweep(&path, &world.netconf(), &|id, netns| {
        let checked: &Mutex<Checked> = &checked;
        let mut checked = checked.lock().unwrap();
        let netns = match netns {
            Namespace::At(netns) => Some(netns.to_owned()),
            Namespace::Unknown | Namespace::Lost => None,
        };
        checked.push((id.to_string(), netns));
        stale.contains(&id.as_str())
    });
    (errors, checked.into_inner().unwrap())
}

#[test]
fn stale_containers_are_detached_and_forgotten() {
    let world = World::new();
    for id in ["c1", "c2"] {
        world.add(id, "a").unwrap();
    }
    attach(&world, "c3", "cbr0", "eth0", "flannel");
    world.put("var/lib/cni/multus/.multus-rs/c4.json", "{}");
    world.put("var/lib/cni/multus/.multus-rs-c5.tmp", "[");
    world.put("var/lib/cni/multus/results/.cbr0-c1-eth0.tmp", "{");
    world.put("var/lib/cni/multus/results/.cbr0-c2-eth0.tmp", "{");
    world.calls();
    let (errors, checked) = sweep(&world, &["c1", "c3"]);
    assert!(errors.is_empty(), "{errors:?}");
    let netns = Some("/var/run/netns/x".to_owned());
    // Nothing shows that the others were ever attached.
    let expected = [("c1", netns.clone()), ("c2", netns.clone()), ("c3", netns)];
    assert_eq!(checked, expected.map(|(id, netns)| (id.to_owned(), netns)));
    world.check_calls(&[
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
        "DEL flannel eth0",
    ]);
    assert_eq!(
        world.left(),
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
    let world = World::new();
    world
        .add("c1", r#"[{"name":"a","ips":["10.20.0.5/24"]}]"#)
        .unwrap();
    let added = world.calls();
    sweep(&world, &["c1"]);
    let removed = world.calls();
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
    let world = std::sync::Arc::new(World::new());
    world.add("c1", "").unwrap();
    let other = std::sync::Arc::clone(&world);
    world.on_call(move |call| {
        if call.env["CNI_CONTAINERID"] == "c2" {
            let (errors, checked) = sweep(&other, &[]);
            assert!(errors.is_empty());
            let checked: Vec<_> = checked.into_iter().map(|(id, _)| id).collect();
            assert_eq!(checked, ["c1"]);
        }
        Ok(())
    });
    world.add("c2", "").unwrap();
    world.on_call(|_| Ok(()));
}

#[test]
fn failed_stale_container_stays_and_the_others_are_detached() {
    let world = World::new();
    world.add("c1", "a").unwrap();
    world.add("c2", "").unwrap();
    world.fail(&["DEL macvlan"]);
    let (errors, _) = sweep(&world, &["c1", "c2"]);
    assert_eq!(errors.len(), 1);
    assert_eq!(
        world.left(),
        [".multus-rs/c1.json", "/c1", "results/neta-c1-net1"]
    );
    world.on_call(|_| Ok(()));
    let (errors, _) = sweep(&world, &["c1", "c2"]);
    assert!(errors.is_empty() && world.left().is_empty());
}
