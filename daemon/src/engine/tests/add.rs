//! ADD: order, what delegates are given, what is refused beforehand, what is undone.

use serde_json::{Value, json};

use super::world::{World, pod, request};
use crate::engine::Engine;

#[test]
fn delegates_run_in_order_and_the_first_result_counts() {
    let world = World::new();
    let added = world.add("c1", "a@ext0,b").unwrap();
    world.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan ext0",
        "ADD bridge net2",
    ]);
    assert_eq!(added.result.interfaces[0].name, "eth0");
    let names: Vec<_> = added
        .attached
        .iter()
        .map(|a| (a.name.as_str(), a.ifname.as_str(), a.master))
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
        world.left(),
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
fn runtime_config_is_for_the_default_network_and_the_pod_s_wishes_for_the_others() {
    let world = World::new();
    let networks =
        r#"[{"name":"a","ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"},{"name":"b"}]"#;
    world.add("c1", networks).unwrap();
    let calls = world.calls();
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
fn arguments_keep_what_the_runtime_sent() {
    let world = World::new();
    let networks = r#"[{"name":"a","ips":["10.20.0.5/24","fd00::5/64"],"mac":"02:aa:00:00:00:05"},{"name":"b"}]"#;
    world.add("c1", networks).unwrap();
    let calls = world.calls();
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
fn plugins_are_searched_where_someone_said_then_where_the_runtime_looks() {
    let mut world = World::new();
    world.config["binDir"] = json!("/custom/bin");
    world.add("c1", "").unwrap();
    assert_eq!(
        world.calls()[0].env["CNI_PATH"],
        "/custom/bin:/opt/cni/bin:/var/lib/multus/bin:/usr/lib/cni"
    );
    let own = Engine::search_path(
        &World::new().netconf(),
        &["/opt/cni/bin".into(), "relative".into()],
    );
    assert_eq!(
        own,
        [
            std::path::Path::new("/opt/cni/bin"),
            std::path::Path::new("/var/lib/multus/bin")
        ]
    );
}

#[test]
fn state_is_written_before_the_step_it_describes() {
    let world = World::new();
    let sidecar = world
        .dir
        .path()
        .join("var/lib/cni/multus/.multus-rs/c1.json");
    world.on_call(move |call| {
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
    world.add("c1", "a,b").unwrap();
    assert_eq!(world.calls().len(), 4);
}

#[test]
fn a_failure_undoes_everything_in_reverse_and_leaves_nothing() {
    let world = World::new();
    world.fail(&["ADD bridge"]);
    let error = world.add("c1", "a,b").unwrap_err();
    world.check_calls(&[
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
    assert!(world.left().is_empty(), "{:?}", world.left());
}

#[test]
fn what_cannot_be_undone_stays_known_for_the_runtime_s_del() {
    let world = World::new();
    world.fail(&["ADD bridge", "DEL macvlan"]);
    let error = world.add("c1", "a,b").unwrap_err();
    assert!(
        error.msg.contains("network \"b\""),
        "the first error: {}",
        error.msg
    );
    world.calls();
    world.on_call(|_| Ok(()));
    world.forget_nads();
    world.del("c1").unwrap();
    world.check_calls(&["DEL macvlan net1"]);
    assert!(world.left().is_empty());
}

#[test]
fn a_missing_plugin_stops_it_before_the_first_runs() {
    let world = World::new();
    world.missing("bridge");
    let error = world.add("c1", "a,b").unwrap_err();
    world.check_calls(&[]);
    for part in [
        "error adding container to network \"b\"",
        "\"bridge\"",
        "/opt/cni/bin",
    ] {
        assert!(error.msg.contains(part), "{}", error.msg);
    }
    assert!(world.left().is_empty());
}

#[test]
fn a_taken_interface_name_stops_it_before_the_first_runs() {
    let world = World::new();
    world.link("net1");
    let error = world.add("c1", "a").unwrap_err();
    assert!(
        error.msg.contains("DelegateAdd: cannot set \"macvlan\" interface name to \"net1\": interface name net1 already exists"),
        "{}", error.msg
    );
    let error = world.add("c1", "b@x0,b@x0").unwrap_err();
    assert!(error.msg.contains("interface name x0 already exists"));
    world.check_calls(&[]);
    assert!(world.left().is_empty());
}

#[test]
fn a_name_that_an_earlier_delegate_took_is_undone() {
    let world = World::new();
    let plugins = std::sync::Arc::clone(&world.plugins);
    world.on_call(move |call| {
        if call.text() == "ADD macvlan net1" {
            plugins.links.lock().unwrap().insert("net2".to_owned());
        }
        Ok(())
    });
    let error = world.add("c1", "a,b").unwrap_err();
    assert!(error.msg.contains("interface name net2 already exists"));
    world.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "ADD macvlan net1",
        "DEL macvlan net1",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert!(world.left().is_empty());
}

#[test]
fn a_container_with_attachments_is_not_added_again() {
    let world = World::new();
    world.add("c1", "a").unwrap();
    let before = world.left();
    world.calls();
    let error = world.add("c1", "b").unwrap_err();
    assert!(error.msg.contains("container c1 has attachments already"));
    world.check_calls(&[]);
    assert_eq!(world.left(), before);
}

#[test]
fn there_is_no_add_without_a_namespace() {
    let world = World::new();
    let mut request = request("c1");
    request.netns = None;
    let failure = world.engine.add(&request, &world.netconf(), &pod(""));
    assert_eq!(failure.unwrap_err().error.code, 4);
    world.check_calls(&[]);
}

#[test]
fn state_that_cannot_be_written_stops_it_before_the_first_runs() {
    let world = World::new();
    world.put(
        "var/lib/cni/multus/.multus-rs",
        "a file where the directory should be",
    );
    let error = world.add("c1", "").unwrap_err();
    assert_eq!(error.code, 5, "{}", error.msg);
    world.check_calls(&[]);
}

#[test]
fn what_cannot_be_planned_carries_its_event() {
    let world = World::new();
    let failure = world
        .engine
        .add(&request("c1"), &world.netconf(), &pod("nope"))
        .unwrap_err();
    assert_eq!(failure.event.unwrap().0, "NoNetworkFound");
    assert!(failure.error.msg.starts_with("error configuring pod [shop/cart-0] networking: cannot find a network-attachment-definition (nope) in namespace (shop)"));
    assert!(world.left().is_empty());
}

#[test]
fn the_readiness_indicator_is_waited_for() {
    let mut world = World::new();
    world.config["readinessindicatorfile"] = json!("/run/ready");
    let netconf = |world: &World| {
        plan::netconf::Netconf::effective(
            world.config.to_string().as_bytes(),
            &serde_json::Map::new(),
            false,
        )
        .unwrap()
    };
    let add = |world: &World| world.engine.add(&request("c1"), &netconf(world), &pod(""));
    let error = add(&world).unwrap_err().error;
    assert_eq!(error.code, 11);
    assert!(
        error
            .msg
            .contains("still waiting for readinessindicatorfile @ /run/ready")
    );
    let path = ["/opt/cni/bin".into()];
    assert_eq!(
        world
            .engine
            .status(&path, &netconf(&world))
            .unwrap_err()
            .code,
        50
    );
    world.put("run/ready", "");
    add(&world).unwrap();
    world.engine.status(&path, &netconf(&world)).unwrap();
}

/// Two ADDs for one container at once: one is refused, none is torn.
#[test]
fn one_container_at_a_time() {
    let world = World::new();
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| world.add("c1", "a,b").is_ok()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|ok| **ok).count(), 1);
    assert_eq!(world.calls().len(), 4);
}
