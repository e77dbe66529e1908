//! What plugins are given beyond the plain case, what events say, and verbs at the same moment.

use plan::Attached;
use serde_json::{Value, json};

use super::world::{Call, World, pod, request};

const ALL: &str = r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":
    {"ips":true,"mac":true,"portMappings":true,"bandwidth":true,"infinibandGUID":true,"deviceID":true,"other":true}}"#;

#[test]
fn every_capability_of_a_pod_s_wishes_reaches_its_plugin_at_both_ends() {
    let world = World::new();
    world.nad("a", ALL);
    let wishes = json!({
        "name": "a", "mac": "02:aa:00:00:00:05", "ips": ["10.20.0.5/24"], "deviceID": "0000:18:02.5",
        "infiniband-guid": "c2:11:22:33:44:55:66:77",
        "bandwidth": {"ingressRate": 1, "ingressBurst": 2, "egressRate": 3, "egressBurst": 4},
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"}],
    });
    world.add("c1", &json!([wishes]).to_string()).unwrap();
    world.del("c1").unwrap();
    let calls = world.calls();
    for index in [2, 3] {
        assert_eq!(
            calls[index].stdin["runtimeConfig"],
            json!({
                "mac": wishes["mac"], "ips": wishes["ips"], "deviceID": wishes["deviceID"],
                "infinibandGUID": wishes["infiniband-guid"], "bandwidth": wishes["bandwidth"],
                "portMappings": wishes["portMappings"],
            }),
            "{}",
            calls[index].text()
        );
    }
}

#[test]
fn arguments_that_the_runtime_left_empty_are_filled_in() {
    let world = World::new();
    let mut request = request("c1");
    request.args = cni::args::parse(
        "K8S_POD_UID=;K8S_POD_INFRA_CONTAINER_ID=;K8S_POD_NAMESPACE=;MAC=02:00:00:00:00:09;IP=10.9.9.9",
    );
    let add = world.engine.add(&request, &world.netconf(), &pod("a"));
    add.unwrap();
    let calls = world.calls();
    let known = "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=5b0c";
    assert_eq!(
        calls[0].env["CNI_ARGS"],
        format!("{known};MAC=02:00:00:00:00:09;IP=10.9.9.9")
    );
    assert_eq!(
        calls[2].env["CNI_ARGS"], known,
        "they are the runtime's interface's"
    );
}

#[test]
fn an_event_names_what_there_is() {
    let world = World::new();
    let mut attached: Attached = world.add("c1", "").unwrap().attached.remove(0);
    assert_eq!(
        attached.event().unwrap(),
        "Add eth0 [10.0.0.9/24] from cbr0"
    );
    attached.name.clear();
    assert_eq!(attached.event().unwrap(), "Add eth0 [10.0.0.9/24]");
    attached.result.interfaces.clear();
    assert!(attached.event().is_some());
    attached.result.ips.clear();
    assert_eq!(attached.event(), None, "a network that gave nothing");
}

/// Whichever comes first: no plugin of the one runs between those of the other, and nothing is forgotten.
#[test]
fn add_and_del_of_one_container_take_turns() {
    for _ in 0..8 {
        let world = World::new();
        let (added, deleted) = std::thread::scope(|scope| {
            let added = scope.spawn(|| world.add("c1", "a,b").map(drop));
            let deleted = scope.spawn(|| world.del("c1"));
            (added.join().unwrap(), deleted.join().unwrap())
        });
        added.unwrap();
        deleted.unwrap();
        let verbs: Vec<_> = world
            .calls()
            .iter()
            .map(|call: &Call| call.env["CNI_COMMAND"].clone())
            .collect();
        match verbs.len() {
            4 => assert_eq!(world.left().len(), 5),
            8 => assert!(world.left().is_empty()),
            other => panic!("{other} calls"),
        }
        assert!(verbs.is_sorted(), "{verbs:?}");
        world.del("c1").unwrap();
        assert!(world.left().is_empty());
    }
}

#[test]
fn a_wish_that_nobody_declares_is_not_given() {
    let mut world = World::new();
    world.config["unservedRequests"] = json!("silent");
    world.nad(
        "a",
        r#"{"cniVersion":"1.1.0","type":"macvlan","capabilities":{"mac":true,"ips":false}}"#,
    );
    let networks = r#"[{"name":"a","ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"}]"#;
    world.add("c1", networks).unwrap();
    let given: &Value = &world.calls()[2].stdin["runtimeConfig"];
    assert_eq!(given, &json!({"mac": "02:aa:00:00:00:05"}));
}
