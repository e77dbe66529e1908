//! What can never be detached must not keep its pod: delegates whose own ADD failed, and mere guesses.

use cni::types::CniError;
use serde_json::{Value, json};

use super::world::{Call, World, pod, request};

/// A plugin that cannot read its configuration, whatever the verb.
fn broken(plugin: &'static str) -> impl Fn(&Call) -> Result<(), CniError> {
    move |call| {
        if call.plugin == plugin {
            Err(CniError::new(999, "invalid subnet"))
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_delegate_whose_add_failed_is_tried_and_given_up() {
    let world = World::new();
    world.on_call(broken("bridge"));
    let error = world.add("c1", "a,b").unwrap_err();
    assert!(error.msg.contains("(ADD): invalid subnet"), "{}", error.msg);
    world.calls();
    world.forget_nads();
    world.del("c1").unwrap();
    world.check_calls(&["DEL bridge net2"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn what_else_failed_is_asked_for_again() {
    let world = World::new();
    world.fail(&["ADD bridge", "DEL bridge", "DEL macvlan"]);
    world.add("c1", "a,b").unwrap_err();
    world.calls();
    let error = world.del("c1").unwrap_err();
    assert!(
        error.msg.contains("\"neta\"") && !error.msg.contains("\"b\""),
        "{}",
        error.msg
    );
    world.check_calls(&["DEL bridge net2", "DEL macvlan net1"]);
    world.fail(&["DEL bridge"]);
    world.del("c1").unwrap();
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn plugins_before_the_one_that_failed_are_detached_for_sure() {
    let world = World::new();
    world.fail(&["ADD portmap", "DEL portmap", "DEL flannel"]);
    world.add("c1", "").unwrap_err();
    world.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    let error = world.del("c1").unwrap_err();
    assert!(error.msg.contains("\"flannel\""), "{}", error.msg);
    world.fail(&["DEL portmap"]);
    world.calls();
    world.del("c1").unwrap();
    world.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn the_failure_is_written_down_before_anything_is_undone() {
    let world = World::new();
    let sidecar = world
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    world.on_call(move |call| {
        if call.env["CNI_COMMAND"] == "DEL" {
            let text = std::fs::read_to_string(&sidecar).unwrap();
            let state: Value = serde_json::from_str(&text).unwrap();
            let progress = &state["delegates"][2]["progress"];
            assert_eq!(progress, &json!({"failed": {"attached": 0}}));
        }
        broken("bridge")(call)
    });
    world.add("c1", "a,b").unwrap_err();
    assert_eq!(world.calls().len(), 8);
}

#[test]
fn guesses_are_tried_once() {
    let world = World::new();
    world.fail(&["DEL flannel", "DEL macvlan"]);
    let pod = pod("a");
    for _ in 0..2 {
        let guessed = world
            .engine
            .del(&request("c1"), &world.netconf(), Some(&pod));
        guessed.unwrap();
        world.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
        assert!(world.left().is_empty(), "{:?}", world.left());
    }
}

#[test]
fn who_wants_no_second_try_gets_none() {
    let mut world = World::new();
    world.config["retryDeleteOnError"] = json!(false);
    world.add("c1", "a").unwrap();
    world.fail(&["DEL macvlan"]);
    world.del("c1").unwrap_err();
    world.calls();
    world.del("c1").unwrap();
    world.check_calls(&[]);
    let left = world.left();
    assert!(!left.contains(&"/c1".to_owned()), "{left:?}");
}

#[test]
fn who_wants_to_try_for_ever_may() {
    let mut world = World::new();
    world.config["retryDeleteOnError"] = json!(true);
    world.on_call(broken("bridge"));
    world.add("c1", "b").unwrap_err();
    for _ in 0..2 {
        let error = world.del("c1").unwrap_err();
        assert!(error.msg.contains("\"b\""), "{}", error.msg);
    }
    world.on_call(|_| Ok(()));
    world.del("c1").unwrap();
    assert!(world.left().is_empty(), "{:?}", world.left());
}
