//! ADD: the order of delegates, their arguments, early refusals and rollback.

use cni::types::CniError;
use plan::Attached;
use serde_json::{Value, json};

use super::fixture::{Fixture, PluginCall, pod, request};
use crate::engine::Engine;

#[test]
fn add_runs_delegates_in_order_and_returns_the_first_result() {
    let fixture = Fixture::new();
    let added = fixture.add("c1", "a@ext0,b").unwrap();
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan ext0",
        "ADD bridge net2",
    ]);
    assert_eq!(added.result.interfaces[0].name, "eth0");
    let names: Vec<_> = added
        .attached
        .iter()
        .map(|a| (a.name.as_str(), a.ifname.as_str(), a.is_default))
        .collect();
    assert_eq!(
        names,
        [
            ("cbr0", "eth0", true),
            ("shop/a", "ext0", false),
            ("shop/b", "net2", false),
        ]
    );
    assert_eq!(
        added.attached[1].event().unwrap(),
        "Add ext0 [10.0.0.9/24] from shop/a"
    );
    assert_eq!(
        fixture.files(),
        [
            ".multus-rs/c1.json",
            "/c1",
            "results/b-c1-net2",
            "results/cbr0-c1-eth0",
            "results/neta-c1-ext0",
        ]
    );
}

#[test]
fn runtime_config_goes_to_the_default_network_and_pod_requests_to_the_others() {
    let fixture = Fixture::new();
    let networks =
        r#"[{"name":"a","ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"},{"name":"b"}]"#;
    fixture.add("c1", networks).unwrap();
    let calls = fixture.calls();
    let runtime_config = |index: usize| calls[index].stdin.get("runtimeConfig").cloned();
    assert_eq!(runtime_config(0), None);
    assert_eq!(
        runtime_config(1),
        Some(json!({"portMappings":[{"hostPort":8080,"containerPort":80}]}))
    );
    assert_eq!(
        runtime_config(2),
        Some(json!({"ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"}))
    );
    assert_eq!(runtime_config(3), None);
}

#[test]
fn cni_args_keep_those_of_the_runtime() {
    let fixture = Fixture::new();
    let networks = r#"[{"name":"a","ips":["10.20.0.5/24","fd00::5/64"],"mac":"02:aa:00:00:00:05"},{"name":"b"}]"#;
    fixture.add("c1", networks).unwrap();
    let calls = fixture.calls();
    let args = |index: usize| calls[index].env["CNI_ARGS"].clone();
    let known = "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=5b0c;VENDOR=x=y";
    assert_eq!(args(0), format!("{known};IP=10.9.9.9"));
    assert_eq!(
        args(2),
        format!("{known};MAC=02:aa:00:00:00:05;IP=10.20.0.5/24,fd00::5/64")
    );
    assert_eq!(args(3), known);
}

#[test]
fn plugins_are_searched_in_bin_dir_before_cni_path() {
    let mut fixture = Fixture::new();
    fixture.config["binDir"] = json!("/custom/bin");
    fixture.add("c1", "").unwrap();
    assert_eq!(
        fixture.calls()[0].env["CNI_PATH"],
        "/custom/bin:/opt/cni/bin:/var/lib/multus/bin:/usr/lib/cni"
    );
    let mut netconf = Fixture::new().netconf();
    for (first, expected) in [
        (false, ["/data/cni", "/var/lib/multus/bin", "/opt/cni/bin"]),
        (true, ["/var/lib/multus/bin", "/data/cni", "/opt/cni/bin"]),
    ] {
        netconf.own_plugins_first = first;
        let path = Engine::search_path(&netconf, &["/data/cni".into(), "relative".into()]);
        assert_eq!(path, expected.map(std::path::PathBuf::from));
    }
}

#[test]
fn state_is_written_before_each_delegate_runs() {
    let fixture = Fixture::new();
    let sidecar = fixture
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    fixture.on_call(move |call| {
        let text = std::fs::read_to_string(&sidecar).expect("state before any plugin");
        let state: Value = serde_json::from_str(&text).unwrap();
        let progress: Vec<_> = state["delegates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["progress"].as_str().unwrap())
            .collect();
        let expected = match call.env["CNI_IFNAME"].as_str() {
            "eth0" => ["started", "planned", "planned"],
            "net1" => ["started", "started", "planned"],
            _ => ["started", "started", "started"],
        };
        assert_eq!(progress, expected);
        Ok(())
    });
    fixture.add("c1", "a,b").unwrap();
    assert_eq!(fixture.calls().len(), 4);
}

#[test]
fn failed_add_is_undone_in_reverse_and_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.fail(&["ADD bridge"]);
    let error = fixture.add("c1", "a,b").unwrap_err();
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan net1",
        "ADD bridge net2",
        "DEL bridge net2",
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert_eq!(error.code, 123);
    assert_eq!(error.details, "range full");
    assert!(
        error.msg.starts_with("error configuring pod [shop/cart-0] networking: [shop/cart-0/5b0c:b]: error adding container to network \"b\": "),
        "{}", error.msg
    );
    assert!(error.msg.contains("no more addresses"));
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn refused_master_has_a_cure() {
    let refused = |text: &'static str| {
        let fixture = Fixture::new();
        fixture.on_call(move |call| match call.text().as_str() {
            "ADD macvlan net1" => Err(CniError::new(999, text)),
            _ => Ok(()),
        });
        fixture.add("c1", "a").unwrap_err().msg
    };
    let cure = "; its master has to be an Ethernet interface, unlike those of VPNs and tunnels: name one that has a MAC address";
    let refusal = "failed to create macvlan: invalid argument";
    assert!(refused(refusal).ends_with(&format!("{refusal}{cure}")));
    // Our own plugin has the cure already, and other refusals have other causes.
    for other in [
        "failed to create macvlan: invalid argument; tailscale0 is no Ethernet interface",
        "failed to create macvlan: device or resource busy",
    ] {
        assert!(refused(other).ends_with(other));
    }
}

#[test]
fn delegate_that_cannot_be_undone_stays_for_the_next_del() {
    let fixture = Fixture::new();
    fixture.fail(&["ADD bridge", "DEL macvlan"]);
    let error = fixture.add("c1", "a,b").unwrap_err();
    assert!(
        error.msg.contains("network \"b\""),
        "the first error: {}",
        error.msg
    );
    fixture.calls();
    fixture.on_call(|_| Ok(()));
    fixture.delete_nads();
    fixture.del("c1").unwrap();
    fixture.check_calls(&["DEL macvlan net1"]);
    assert!(fixture.files().is_empty());
}

#[test]
fn missing_plugin_fails_add_before_any_plugin_runs() {
    let fixture = Fixture::new();
    fixture.uninstall("bridge");
    let error = fixture.add("c1", "a,b").unwrap_err();
    fixture.check_calls(&[]);
    for part in [
        "error adding container to network \"b\"",
        "\"bridge\"",
        "/opt/cni/bin",
    ] {
        assert!(error.msg.contains(part), "{}", error.msg);
    }
    assert!(fixture.files().is_empty());
}

#[test]
fn taken_ifname_fails_add_before_any_plugin_runs() {
    let fixture = Fixture::new();
    fixture.link("net1");
    let error = fixture.add("c1", "a").unwrap_err();
    assert!(
        error.msg.contains("DelegateAdd: cannot set \"macvlan\" interface name to \"net1\": interface name net1 already exists"),
        "{}", error.msg
    );
    let error = fixture.add("c1", "b@x0,b@x0").unwrap_err();
    assert!(error.msg.contains("interface name x0 already exists"));
    fixture.check_calls(&[]);
    assert!(fixture.files().is_empty());
}

#[test]
fn ifname_taken_by_an_earlier_delegate_undoes_add() {
    let fixture = Fixture::new();
    let plugins = std::sync::Arc::clone(&fixture.plugins);
    fixture.on_call(move |call| {
        if call.text() == "ADD macvlan net1" {
            plugins.links.lock().unwrap().insert("net2".to_owned());
        }
        Ok(())
    });
    let error = fixture.add("c1", "a,b").unwrap_err();
    assert!(error.msg.contains("interface name net2 already exists"));
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan net1",
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(fixture.files().is_empty());
}

#[test]
fn second_add_of_an_attached_container_is_refused() {
    let fixture = Fixture::new();
    fixture.add("c1", "a").unwrap();
    let before = fixture.files();
    fixture.calls();
    let error = fixture.add("c1", "b").unwrap_err();
    assert!(error.msg.contains("container c1 has attachments already"));
    fixture.check_calls(&[]);
    assert_eq!(fixture.files(), before);
}

#[test]
fn add_without_netns_is_refused() {
    let fixture = Fixture::new();
    let mut request = request("c1");
    request.netns = None;
    let failure = fixture.engine.add(&request, &fixture.netconf(), &pod(""));
    assert_eq!(failure.unwrap_err().error.code, 4);
    fixture.check_calls(&[]);
}

#[test]
fn unwritable_state_fails_add_before_any_plugin_runs() {
    let fixture = Fixture::new();
    fixture.put(
        "var/lib/cni/multus/.multus-rs",
        "a file where the directory should be",
    );
    let error = fixture.add("c1", "").unwrap_err();
    assert_eq!(error.code, 5, "{}", error.msg);
    fixture.check_calls(&[]);
}

#[test]
fn failed_plan_carries_an_event() {
    let fixture = Fixture::new();
    let failure = fixture
        .engine
        .add(&request("c1"), &fixture.netconf(), &pod("nope"))
        .unwrap_err();
    assert_eq!(failure.event, Some("NoNetworkFound"));
    assert!(failure.to_string().starts_with("error configuring pod [shop/cart-0] networking: cannot find a network-attachment-definition (nope) in namespace (shop)"));
    assert!(fixture.files().is_empty());
}

#[test]
fn add_and_status_fail_until_the_readiness_indicator_exists() {
    let mut fixture = Fixture::new();
    fixture.config["readinessindicatorfile"] = json!("/run/ready");
    let netconf = |fixture: &Fixture| {
        plan::netconf::Netconf::effective(
            fixture.config.to_string().as_bytes(),
            &serde_json::Map::new(),
            false,
        )
        .unwrap()
    };
    let add = |fixture: &Fixture| {
        fixture
            .engine
            .add(&request("c1"), &netconf(fixture), &pod(""))
    };
    let error = CniError::from(add(&fixture).unwrap_err());
    assert_eq!(error.code, 11);
    assert!(
        error
            .msg
            .contains("still waiting for readinessindicatorfile @ /run/ready")
    );
    let path = ["/opt/cni/bin".into()];
    assert_eq!(
        fixture
            .engine
            .status(&path, &netconf(&fixture))
            .unwrap_err()
            .code,
        50
    );
    fixture.put("run/ready", "");
    add(&fixture).unwrap();
    fixture.engine.status(&path, &netconf(&fixture)).unwrap();
}

#[test]
fn concurrent_adds_of_one_container_attach_it_once() {
    let fixture = Fixture::new();
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| fixture.add("c1", "a,b").is_ok()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|ok| **ok).count(), 1);
    assert_eq!(fixture.calls().len(), 4);
}

#[test]
fn event_omits_missing_parts() {
    let fixture = Fixture::new();
    let mut attached: Attached = fixture.add("c1", "").unwrap().attached.remove(0);
    assert_eq!(
        attached.event().unwrap(),
        "Add eth0 [10.0.0.9/24] from cbr0"
    );
    attached.name.clear();
    assert_eq!(attached.event().unwrap(), "Add eth0 [10.0.0.9/24]");
    attached.result.interfaces.clear();
    assert!(attached.event().is_some());
    attached.result.ips.clear();
    assert_eq!(attached.event(), None, "an empty result");
}

/// Whichever verb comes first, no plugin of one runs between those of the other, and nothing is forgotten.
#[test]
fn concurrent_add_and_del_of_one_container_do_not_interleave() {
    for _ in 0..8 {
        let fixture = Fixture::new();
        let (added, deleted) = std::thread::scope(|scope| {
            let added = scope.spawn(|| fixture.add("c1", "a,b").map(drop));
            let deleted = scope.spawn(|| fixture.del("c1"));
            (added.join().unwrap(), deleted.join().unwrap())
        });
        added.unwrap();
        deleted.unwrap();
        let verbs: Vec<_> = fixture
            .calls()
            .iter()
            .map(|call: &PluginCall| call.env["CNI_COMMAND"].clone())
            .collect();
        match verbs.len() {
            4 => assert_eq!(fixture.files().len(), 5),
            8 => assert!(fixture.files().is_empty()),
            other => panic!("{other} calls"),
        }
        assert!(verbs.is_sorted(), "{verbs:?}");
        fixture.del("c1").unwrap();
        assert!(fixture.files().is_empty());
    }
}

#[test]
fn network_whose_results_cannot_be_cached_is_refused_before_anything_runs() {
    let fixture = Fixture::new();
    let config = |length| {
        let name = "n".repeat(length);
        format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"macvlan"}}"#)
    };
    let id = "c".repeat(64);
    fixture.nad("fits", &config(180));
    fixture.nad("long", &config(181));
    fixture.add(&id, "fits").unwrap();
    fixture.calls();
    let plugged = fixture.reconcile(&id, "fits,long").unwrap_err();
    fixture.del(&id).unwrap();
    fixture.calls();
    let added = fixture.add(&id, "long").unwrap_err();
    for error in [plugged, added] {
        assert!(
            error.msg.contains("181 characters") && error.msg.contains("shorter \"name\""),
            "{}",
            error.msg
        );
    }
    fixture.check_calls(&[]);
    fixture.del(&id).unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}
