//! `CNI_ARGS` and capability arguments of plugins.

use serde_json::{Value, json};

use super::fixture::{Fixture, pod, request};

const ALL: &str = r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":
    {"ips":true,"mac":true,"portMappings":true,"bandwidth":true,"infinibandGUID":true,"deviceID":true,"other":true}}"#;

#[test]
fn every_requested_capability_reaches_its_plugin_at_add_and_del() {
    let fixture = Fixture::new();
    fixture.nad("a", ALL);
    let requests = json!({
        "name": "a", "mac": "02:aa:00:00:00:05", "ips": ["10.20.0.5/24"], "deviceID": "0000:18:02.5",
        "infiniband-guid": "c2:11:22:33:44:55:66:77",
        "bandwidth": {"ingressRate": 1, "ingressBurst": 2, "egressRate": 3, "egressBurst": 4},
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"}],
    });
    fixture.add("c1", &json!([requests]).to_string()).unwrap();
    fixture.del("c1").unwrap();
    let calls = fixture.calls();
    for index in [2, 3] {
        assert_eq!(
            calls[index].stdin["runtimeConfig"],
            json!({
                "mac": requests["mac"], "ips": requests["ips"], "deviceID": requests["deviceID"],
                "infinibandGUID": requests["infiniband-guid"], "bandwidth": requests["bandwidth"],
                "portMappings": requests["portMappings"],
            }),
            "{}",
            calls[index].text()
        );
    }
}

#[test]
fn empty_cni_args_of_the_runtime_are_filled_in() {
    let fixture = Fixture::new();
    let mut request = request("c1");
    request.args = cni::args::parse(
        "K8S_POD_UID=;K8S_POD_INFRA_CONTAINER_ID=;K8S_POD_NAMESPACE=;MAC=02:00:00:00:00:09;IP=10.9.9.9",
    );
    let add = fixture.engine.add(&request, &fixture.netconf(), &pod("a"));
    add.unwrap();
    let calls = fixture.calls();
    let known = "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=5b0c";
    assert_eq!(
        calls[0].env["CNI_ARGS"],
        format!("{known};MAC=02:00:00:00:00:09;IP=10.9.9.9")
    );
    assert_eq!(
        calls[2].env["CNI_ARGS"], known,
        "addresses are for the default network alone"
    );
}

#[test]
fn undeclared_capability_is_not_passed() {
    let mut fixture = Fixture::new();
    fixture.config["unservedRequests"] = json!("silent");
    fixture.nad(
        "a",
        r#"{"cniVersion":"1.1.0","type":"macvlan","capabilities":{"mac":true,"ips":false}}"#,
    );
    let networks = r#"[{"name":"a","ips":["10.20.0.5/24"],"mac":"02:aa:00:00:00:05"}]"#;
    fixture.add("c1", networks).unwrap();
    let passed: &Value = &fixture.calls()[2].stdin["runtimeConfig"];
    assert_eq!(passed, &json!({"mac": "02:aa:00:00:00:05"}));
}
