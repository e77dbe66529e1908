//! Definitions and workloads, and the faults of their addresses.

use plan::NETWORKS_ANNOTATION;
use serde_json::{Map, Value, json};

use super::*;
use crate::object::{Object, read};

const ANY: ClusterFacts = ClusterFacts {
    nodes: None,
    is_ipam_on: None,
};

fn nad(name: &str, kind: &str, ipam: &Value) -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": kind, "ipam": ipam});
    json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name}, "spec": {"config": config.to_string()}})
}

fn lan(kind: &str) -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.40.0.0/24", "rangeStart": "10.40.0.200", "rangeEnd": "10.40.0.220"});
    nad("lan", kind, &ipam)
}

fn metadata(name: &str, networks: &str) -> Value {
    json!({"name": name, "annotations": {NETWORKS_ANNOTATION: networks}})
}

fn pod(name: &str, networks: &str, node: &str) -> Value {
    let mut spec = json!({"containers": []});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    json!({"kind": "Pod", "metadata": metadata(name, networks), "spec": spec})
}

/// A controller whose pods are where `spec` says.
fn controller(kind: &str, replicas: Option<u64>, networks: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["containers"] = json!([{}]);
    let template = json!({"metadata": metadata("", networks), "spec": spec});
    json!({"kind": kind, "metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": template}})
}

fn found(facts: ClusterFacts, objects: &[Value]) -> Vec<(NetworkName, AddressFault)> {
    let netconf = validate::netconf(Map::new()).unwrap();
    let objects = objects.iter().flat_map(|one| read(one, "shop").unwrap());
    let objects: Vec<_> = objects.collect();
    let mut known = KnownDefinitions::default();
    for object in &objects {
        if let Object::Definition(definition) = object {
            known.add(&definition.nad);
        }
    }
    faults(
        &known,
        objects.iter().filter_map(Object::pod),
        &netconf,
        facts,
    )
}

/// Each expectation is a network, and parts of the text.
#[track_caller]
fn check_with(facts: ClusterFacts, objects: &[Value], expected: &[(&str, &[&str])]) {
    let found = found(facts, objects);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (((_, name), fault), (network, parts)) in found.iter().zip(expected) {
        assert_eq!(name, network);
        let text = format!("{}: {fault}", fault.severity());
        for part in *parts {
            assert!(text.contains(part), "no {part:?} in {text:?}");
        }
    }
}

#[track_caller]
fn check(objects: &[Value], expected: &[(&str, &[&str])]) {
    check_with(ANY, objects, expected);
}

#[test]
fn a_range_that_several_nodes_give_is_a_warning() {
    let several = [
        (
            vec![controller("Deployment", Some(3), "lan", json!({}))],
            "Deployment shop/web has 3 replicas",
        ),
        (
            vec![controller("DaemonSet", None, "lan", json!({}))],
            "DaemonSet shop/web runs on every node",
        ),
        (
            vec![pod("a", "lan", ""), pod("b", "shop/lan@net9", "n1")],
            "Pod shop/a and Pod shop/b can be on different nodes",
        ),
        (
            vec![
                pod("a", "lan", "n1"),
                pod("b", "lan", "n1"),
                pod("c", "lan", "n2"),
            ],
            "Pod shop/a and Pod shop/c are on different nodes",
        ),
    ];
    for (pods, text) in several {
        let objects = [vec![lan("macvlan")], pods].concat();
        let range = "warning: each node gives 10.40.0.200-10.40.0.220 by itself";
        check(&objects, &[("lan", &[range, text])]);
    }
}

#[test]
fn pods_of_one_node_get_no_address_twice() {
    let pinned = json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}});
    for pods in [
        vec![],
        vec![pod("a", "lan", "")],
        vec![pod("a", "lan", ""), pod("b", "other", "")],
        vec![pod("a", "lan,lan", "")],
        vec![pod("a", "lan", "n1"), pod("b", "lan", "n1")],
        vec![controller("Deployment", None, "lan", json!({}))],
        vec![
            controller("Deployment", Some(0), "lan", json!({})),
            pod("a", "lan", ""),
        ],
        vec![controller("Deployment", Some(3), "lan", pinned.clone())],
        vec![controller("DaemonSet", None, "lan", pinned)],
        vec![controller(
            "DaemonSet",
            None,
            "lan",
            json!({"hostNetwork": true}),
        )],
    ] {
        check(&[vec![lan("macvlan")], pods].concat(), &[]);
    }
    let facts = ClusterFacts {
        nodes: Some(1),
        ..ANY
    };
    let set = controller("DaemonSet", None, "lan", json!({}));
    check_with(facts, &[lan("macvlan"), set], &[]);
}

#[test]
fn networks_within_a_node_need_no_common_range() {
    for kind in ["bridge", "ptp", "dummy"] {
        check(
            &[lan(kind), controller("DaemonSet", None, "lan", json!({}))],
            &[],
        );
    }
}

#[test]
fn cure_names_the_switch_where_it_is_not_on() {
    let objects = [
        lan("macvlan"),
        controller("DaemonSet", None, "lan", json!({})),
    ];
    let cure = "change \"host-local\" to \"multus-ipam\"";
    for (is_ipam_on, end) in [
        (Some(true), ""),
        (
            Some(false),
            ", and set ipam.enabled=true in the chart's values",
        ),
        (None, ", and set ipam.enabled=true in the chart's values"),
    ] {
        let facts = ClusterFacts { is_ipam_on, ..ANY };
        let text = found(facts, &objects)[0].1.to_string();
        assert!(text.ends_with(&format!("{cure}{end}")), "{text}");
    }
}
