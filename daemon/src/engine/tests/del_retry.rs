//! A network that can never be detached must not keep its pod Terminating: retries of DEL, and when they end.

use cni::exec::ExecError;
use cni::types::CniError;
use serde_json::{Value, json};

use super::fixture::{Fixture, PluginCall, pod, request};

/// Makes a plugin reject its configuration at every verb.
fn broken(plugin: &'static str) -> impl Fn(&PluginCall) -> Result<(), CniError> {
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
    let fixture = Fixture::new();
    fixture.on_call(broken("bridge"));
    let error = fixture.add("c1", "a,b").unwrap_err();
    assert!(error.msg.contains("(ADD): invalid subnet"), "{}", error.msg);
    fixture.calls();
    fixture.delete_nads();
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn attached_delegates_of_a_failed_add_are_retried() {
    let fixture = Fixture::new();
    fixture.fail(&["ADD bridge", "DEL bridge", "DEL macvlan"]);
    fixture.add("c1", "a,b").unwrap_err();
    fixture.calls();
    let error = fixture.del("c1").unwrap_err();
    assert!(
        error.msg.contains("\"neta\"") && !error.msg.contains("\"b\""),
        "{}",
        error.msg
    );
    fixture.check_calls(&["DEL bridge net2", "DEL macvlan net1"]);
    fixture.fail(&["DEL bridge"]);
    fixture.del("c1").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn plugins_before_the_failed_one_are_retried() {
    let fixture = Fixture::new();
    fixture.fail(&["ADD portmap", "DEL portmap", "DEL flannel"]);
    fixture.add("c1", "").unwrap_err();
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    let error = fixture.del("c1").unwrap_err();
    assert!(error.msg.contains("\"flannel\""), "{}", error.msg);
    fixture.fail(&["DEL portmap"]);
    fixture.calls();
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn failure_of_add_is_recorded_before_the_rollback() {
    let fixture = Fixture::new();
    let sidecar = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    fixture.on_call(move |call| {
        if call.env["CNI_COMMAND"] == "DEL" {
            let text = std::fs::read_to_string(&sidecar).unwrap();
            let state: Value = serde_json::from_str(&text).unwrap();
            let progress = &state["delegates"][2]["progress"];
            assert_eq!(progress, &json!({"failed": {"attached": 0}}));
        }
        broken("bridge")(call)
    });
    fixture.add("c1", "a,b").unwrap_err();
    assert_eq!(fixture.calls().len(), 8);
}

#[test]
fn failed_guess_does_not_fail_del() {
    let fixture = Fixture::new();
    fixture.fail(&["DEL flannel", "DEL macvlan"]);
    let pod = pod("a");
    for _ in 0..2 {
        let guessed = fixture
            .engine
            .del(&request("c1"), &fixture.netconf(), Some(&pod));
        guessed.unwrap();
        fixture.check_calls(&["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]);
        assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    }
}

#[test]
fn retry_disabled_forgets_failed_delegates() {
    let mut fixture = Fixture::new();
    fixture.config["retryDeleteOnError"] = json!(false);
    fixture.add("c1", "a").unwrap();
    fixture.fail(&["DEL macvlan"]);
    fixture.del("c1").unwrap_err();
    fixture.calls();
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
    let files = fixture.files();
    assert!(!files.contains(&"/c1".to_owned()), "{files:?}");
}

#[test]
fn retry_enabled_keeps_failed_delegates_for_ever() {
    let mut fixture = Fixture::new();
    fixture.config["retryDeleteOnError"] = json!(true);
    fixture.on_call(broken("bridge"));
    fixture.add("c1", "b").unwrap_err();
    for _ in 0..2 {
        let error = fixture.del("c1").unwrap_err();
        assert!(error.msg.contains("\"b\""), "{}", error.msg);
    }
    fixture.on_call(|_| Ok(()));
    fixture.del("c1").unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

/// Repeats DEL at once, after nine minutes and after ten, as a runtime does.
#[track_caller]
fn check_abandoned_after_ten_minutes(mut fixture: Fixture, error: &str) {
    for minutes in [0, 9] {
        fixture.advance_minutes(minutes);
        let failed = fixture.del("c1").unwrap_err();
        assert!(failed.msg.contains(error), "{}", failed.msg);
        assert!(fixture.abandoned().is_empty());
    }
    // A restart of the daemon does not restart the time.
    fixture.restart();
    fixture.advance_minutes(1);
    fixture.del("c1").unwrap();
    assert_eq!(fixture.abandoned(), ["neta net1 10.0.0.9/24"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    fixture.calls();
    fixture.del("c1").unwrap();
    fixture.check_calls(&[]);
    assert!(fixture.abandoned().is_empty());
}

#[test]
fn network_with_missing_plugin_is_abandoned_after_ten_minutes() {
    let fixture = Fixture::new();
    fixture.add("c1", "a,b").unwrap();
    fixture.uninstall("macvlan");
    check_abandoned_after_ten_minutes(fixture, "put the plugin back");
}

/// The plugin in front of the missing one holds the addresses.
#[test]
fn abandoned_network_is_undone_as_far_as_its_plugins_are_there() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "").unwrap();
    fixture.uninstall("portmap");
    fixture.calls();
    fixture.del("c1").unwrap_err();
    fixture.check_calls(&[]);
    fixture.advance_minutes(10);
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL flannel eth0"]);
    assert_eq!(fixture.abandoned(), ["cbr0 eth0 10.0.0.9/24"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());

    fixture.install_all();
    fixture.add("c2", "").unwrap();
    fixture.uninstall("portmap");
    fixture.config["retryDeleteOnError"] = json!(false);
    fixture.calls();
    fixture.del("c2").unwrap_err();
    fixture.check_calls(&["DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn network_with_deleted_netns_is_abandoned_after_ten_minutes() {
    let fixture = Fixture::new();
    fixture.add("c1", "a,b").unwrap();
    fixture.fail(&["DEL macvlan"]);
    std::fs::remove_file(fixture.dir.path().join("var/run/netns/x")).unwrap();
    check_abandoned_after_ten_minutes(fixture, "no more addresses");
}

#[test]
fn refused_network_is_abandoned_after_an_hour_without_delaying_others() {
    let fixture = Fixture::new();
    fixture.add("c1", "a,b").unwrap();
    fixture.fail(&["DEL bridge"]);
    fixture.uninstall("macvlan");
    fixture.del("c1").unwrap_err();
    fixture.advance_minutes(10);
    let error = fixture.del("c1").unwrap_err();
    assert!(!error.msg.contains("macvlan"), "{}", error.msg);
    assert_eq!(fixture.abandoned(), ["neta net1 10.0.0.9/24"]);
    fixture.advance_minutes(49);
    fixture.del("c1").unwrap_err();
    fixture.advance_minutes(1);
    fixture.del("c1").unwrap();
    assert_eq!(fixture.abandoned(), ["b net2 10.0.0.9/24"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn reboot_restarts_the_time_and_retry_enabled_ignores_it() {
    let mut fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    fixture.uninstall("macvlan");
    fixture.del("c1").unwrap_err();
    fixture.reboot();
    fixture.advance_minutes(9);
    fixture.del("c1").unwrap_err();
    fixture.advance_minutes(9);
    fixture.del("c1").unwrap_err();
    fixture.config["retryDeleteOnError"] = json!(true);
    fixture.advance_minutes(10_000);
    fixture.del("c1").unwrap_err();
    assert!(fixture.abandoned().is_empty());
}

#[test]
fn network_that_was_never_attached_is_not_reported_as_abandoned() {
    let fixture = Fixture::new();
    // The plugin is missing: ADD is refused before any plugin runs, and the runtime's DEL can only guess.
    fixture.uninstall("macvlan");
    fixture.add("c1", "a").unwrap_err();
    let del = || {
        let pod = pod("a");
        fixture
            .engine
            .del(&request("c1"), &fixture.netconf(), Some(&pod))
    };
    del().unwrap();
    assert!(fixture.abandoned().is_empty());
    // The plugin rejects its configuration at every verb.
    fixture.install_all();
    fixture.on_call(broken("macvlan"));
    fixture.add("c1", "a").unwrap_err();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    del().unwrap();
    assert!(fixture.abandoned().is_empty());
}

#[test]
fn uncertain_delegate_of_a_failed_add_is_reported_as_abandoned() {
    let fixture = Fixture::new();
    fixture.on_call(|call| match call.text().as_str() {
        "ADD bridge net2" => Err(CniError::new(7, "no luck")),
        "DEL bridge net2" => Err(CniError::new(7, "nothing there")),
        _ => Ok(()),
    });
    fixture.add("c1", "a,b").unwrap_err();
    fixture.del("c1").unwrap();
    assert_eq!(fixture.abandoned(), ["b net2 "]);
}

#[test]
fn network_whose_plugin_was_killed_in_its_add_is_retried() {
    for killed in [
        || ExecError::Killed(CniError::new(999, "signal: 9 (SIGKILL)").into()),
        || ExecError::Unavailable {
            path: "/opt/cni/bin/bridge".into(),
            reason: "the process that starts plugins has ended".to_owned(),
        },
    ] {
        let fixture = Fixture::new();
        fixture.on_run(move |call| match call.text().as_str() {
            "ADD bridge net2" => Err(killed()),
            "DEL bridge net2" => Err(CniError::new(7, "not now").into()),
            _ => Ok(()),
        });
        fixture.add("c1", "a,b").unwrap_err();
        let error = fixture.del("c1").unwrap_err();
        assert!(error.msg.contains("not now"), "{}", error.msg);
        assert!(fixture.abandoned().is_empty());
        fixture.on_call(|_| Ok(()));
        fixture.calls();
        fixture.del("c1").unwrap();
        fixture.check_calls(&["DEL bridge net2"]);
        assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    }
}
