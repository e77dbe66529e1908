//! A network that can never be detached must not keep its pod Terminating: retries of DEL, and when they end.

use cni::types::CniError;
use serde_json::{Value, json};

use super::world::{Call, World, pod, request};

/// Makes a plugin reject its configuration at every verb.
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
fn delegate_that_refuses_del_as_it_refused_add_is_forgotten() {
    let world = World::new();
    world.on_call(broken("bridge"));
    let error = world.add("c1", "a,b").unwrap_err();
    assert!(error.msg.contains("(ADD): invalid subnet"), "{}", error.msg);
    world.calls();
    world.forget_nads();
    world.del("c1").unwrap();
    world.check_calls(&[]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn attached_delegates_of_a_failed_add_are_retried() {
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
fn plugins_before_the_failed_one_are_retried() {
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
fn failure_of_add_is_recorded_before_the_rollback() {
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
fn failed_guess_does_not_fail_del() {
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
fn retry_disabled_forgets_failed_delegates() {
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
fn retry_enabled_keeps_failed_delegates_for_ever() {
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

/// Repeats DEL at once, after nine minutes and after ten, as a runtime does.
#[track_caller]
fn check_abandoned_after_ten_minutes(mut world: World, error: &str) {
    for minutes in [0, 9] {
        world.pass(minutes);
        let failed = world.del("c1").unwrap_err();
        assert!(failed.msg.contains(error), "{}", failed.msg);
        assert!(world.given_up().is_empty());
    }
    // A restart of the daemon does not restart the time.
    world.restart();
    world.pass(1);
    world.del("c1").unwrap();
    assert_eq!(world.given_up(), ["neta net1 10.0.0.9/24"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
    world.calls();
    world.del("c1").unwrap();
    world.check_calls(&[]);
    assert!(world.given_up().is_empty());
}

#[test]
fn network_with_missing_plugin_is_abandoned_after_ten_minutes() {
    let world = World::new();
    world.add("c1", "a,b").unwrap();
    world.missing("macvlan");
    check_abandoned_after_ten_minutes(world, "put the plugin back");
}

#[test]
fn network_with_deleted_netns_is_abandoned_after_ten_minutes() {
    let world = World::new();
    world.add("c1", "a,b").unwrap();
    world.fail(&["DEL macvlan"]);
    std::fs::remove_file(world.dir.path().join("var/run/netns/x")).unwrap();
    check_abandoned_after_ten_minutes(world, "no more addresses");
}

#[test]
fn refused_network_is_abandoned_after_an_hour_without_delaying_others() {
    let world = World::new();
    world.add("c1", "a,b").unwrap();
    world.fail(&["DEL bridge"]);
    world.missing("macvlan");
    world.del("c1").unwrap_err();
    world.pass(10);
    let error = world.del("c1").unwrap_err();
    assert!(!error.msg.contains("macvlan"), "{}", error.msg);
    assert_eq!(world.given_up(), ["neta net1 10.0.0.9/24"]);
    world.pass(49);
    world.del("c1").unwrap_err();
    world.pass(1);
    world.del("c1").unwrap();
    assert_eq!(world.given_up(), ["b net2 10.0.0.9/24"]);
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn reboot_restarts_the_time_and_retry_enabled_ignores_it() {
    let mut world = World::new();
    world.add("c1", "a").unwrap();
    world.missing("macvlan");
    world.del("c1").unwrap_err();
    world.reboot();
    world.pass(9);
    world.del("c1").unwrap_err();
    world.pass(9);
    world.del("c1").unwrap_err();
    world.config["retryDeleteOnError"] = json!(true);
    world.pass(10_000);
    world.del("c1").unwrap_err();
    assert!(world.given_up().is_empty());
}

#[test]
fn network_that_was_never_attached_is_not_reported_as_abandoned() {
    let world = World::new();
    // The plugin is missing: ADD is refused before any plugin runs, and the runtime's DEL can only guess.
    world.missing("macvlan");
    world.add("c1", "a").unwrap_err();
    let del = || {
        let pod = pod("a");
        world
            .engine
            .del(&request("c1"), &world.netconf(), Some(&pod))
    };
    del().unwrap();
    assert!(world.given_up().is_empty());
    // The plugin rejects its configuration at every verb.
    world.all_there();
    world.on_call(broken("macvlan"));
    world.add("c1", "a").unwrap_err();
    assert!(world.left().is_empty(), "{:?}", world.left());
    del().unwrap();
    assert!(world.given_up().is_empty());
}

#[test]
fn uncertain_delegate_of_a_failed_add_is_reported_as_abandoned() {
    let world = World::new();
    world.on_call(|call| match call.text().as_str() {
        "ADD bridge net2" => Err(CniError::new(7, "no luck")),
        "DEL bridge net2" => Err(CniError::new(7, "nothing there")),
        _ => Ok(()),
    });
    world.add("c1", "a,b").unwrap_err();
    world.del("c1").unwrap();
    assert_eq!(world.given_up(), ["b net2 "]);
}
