//! Definitions and workloads, and the faults of their addresses.

use plan::NETWORKS_ANNOTATION;
use serde_json::{Map, Value, json};

use super::*;
use crate::object::{Object, read};

const ANY: ClusterFacts = ClusterFacts {
    nodes: None,
    is_ipam_on: None,
    has_claims: None,
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

/// A definition of addresses that all nodes share; the keys besides `type` are `more`.
fn shared(name: &str, more: Value) -> Value {
    let mut ipam = more;
    ipam["type"] = json!("multus-ipam");
    nad(name, "macvlan", &ipam)
}

#[test]
fn sticky_addresses_need_the_kind_of_claims() {
    let facts = |has_claims| ClusterFacts { has_claims, ..ANY };
    let sticky = shared("lan", json!({"subnet": "10.20.0.0/16", "sticky": "owner"}));
    let used = [sticky.clone(), pod("a", "lan", "")];
    let text = "the cluster has no ipamclaims.k8s.cni.cncf.io";
    check_with(facts(Some(false)), &used, &[("lan", &["error: ", text])]);
    check_with(
        facts(Some(false)),
        &used[..1],
        &[("lan", &["warning: ", text])],
    );
    check_with(facts(Some(true)), &used, &[]);
    check_with(facts(None), &used, &[]);
    let plain = [
        shared("lan", json!({"subnet": "10.20.0.0/16"})),
        pod("a", "lan", ""),
    ];
    check_with(facts(Some(false)), &plain, &[]);
}

#[test]
fn shared_addresses_of_a_cluster_that_gives_none_fail_the_pods() {
    let facts = |is_ipam_on| ClusterFacts { is_ipam_on, ..ANY };
    let lan = shared("lan", json!({"subnet": "10.20.0.0/16"}));
    let text = "multus-ipam gives no address here: set ipam.enabled=true";
    let used = [lan.clone(), pod("a", "lan", "")];
    check_with(facts(Some(false)), &used, &[("lan", &["error: ", text])]);
    check_with(facts(Some(false)), &[lan], &[("lan", &["warning: ", text])]);
    check_with(facts(Some(true)), &used, &[]);
    check_with(facts(None), &used, &[]);
}

#[test]
fn definitions_that_share_addresses_agree_on_the_subnet() {
    let wide = shared("wide", json!({"subnet": "10.20.0.0/16"}));
    let narrow = |more: Value| {
        let mut ipam = more;
        ipam["subnet"] = json!("10.20.3.0/24");
        shared("narrow", ipam)
    };
    let with = "and pods get them with different prefix lengths";
    check(
        &[wide.clone(), narrow(json!({}))],
        &[
            (
                "narrow",
                &[
                    "10.20.3.0/24 shares addresses with 10.20.0.0/16 of network shop/wide",
                    with,
                ],
            ),
            (
                "wide",
                &[
                    "10.20.0.0/16 shares addresses with 10.20.3.0/24 of network shop/narrow",
                    with,
                ],
            ),
        ],
    );
    check(&[wide.clone(), narrow(json!({"space": "lab"}))], &[]);
    let outside = json!({"subnet": "10.20.0.0/16", "exclude": ["10.20.3.0/24"]});
    check(&[shared("wide", outside), narrow(json!({}))], &[]);
    // Other limits of one subnet only divide it.
    let part =
        json!({"subnet": "10.20.0.0/16", "rangeStart": "10.20.9.0", "rangeEnd": "10.20.9.99"});
    check(&[wide, shared("part", part)], &[]);
}

#[test]
fn no_pod_gets_the_gateway_of_another_definition() {
    let first = shared("first", json!({"subnet": "10.20.0.0/24"}));
    let last = |more: Value| {
        let mut ipam = more;
        ipam["subnet"] = json!("10.20.0.0/24");
        ipam["gateway"] = json!("10.20.0.254");
        shared("last", ipam)
    };
    check(
        &[first.clone(), last(json!({}))],
        &[
            (
                "first",
                &[
                    "10.20.0.0/24 has 10.20.0.254 for a pod, and that is the gateway of network shop/last",
                ],
            ),
            (
                "last",
                &[
                    "10.20.0.0/24 has 10.20.0.1 for a pod, and that is the gateway of network shop/first",
                ],
            ),
        ],
    );
    let above = last(json!({"rangeStart": "10.20.0.100"}));
    check(&[first.clone(), above], &[("first", &["10.20.0.254"])]);
    check(&[first, last(json!({"space": "lab"}))], &[]);
}

#[test]
fn pods_of_a_changed_definition_keep_addresses_that_it_does_not_give() {
    let lan = nad(
        "lan",
        "macvlan",
        &json!({"type": "multus-ipam", "subnet": "10.40.0.0/24", "exclude": ["10.40.0.0/28"]}),
    );
    let with = |address: &str| {
        let mut pod = pod("web", "lan", "a");
        let status = json!([{"name": "cbr0", "ips": ["10.42.0.5"]}, {"name": "shop/lan", "interface": "net1", "ips": [address]}]);
        pod["metadata"]["annotations"][plan::network_status::ANNOTATION] =
            status.to_string().into();
        pod
    };
    check(&[lan.clone(), with("10.40.0.16")], &[]);
    for address in ["10.40.0.9", "10.41.0.9"] {
        let text =
            format!("warning: Pod shop/web has {address}, which the definition does not give");
        check(&[lan.clone(), with(address)], &[("lan", &[&text])]);
    }
}

#[test]
fn a_range_has_an_address_for_each_pod() {
    // 13 addresses: network, broadcast and gateway addresses are not given.
    let few = shared("few", json!({"subnet": "10.30.0.0/28"}));
    let deployment =
        |replicas, networks| controller("Deployment", Some(replicas), networks, json!({}));
    check(&[few.clone(), deployment(13, "few")], &[]);
    let text = "10.30.0.0/28 has 13 addresses for pods, and 14 are requested, 14 of them by Deployment shop/web";
    check(
        &[few.clone(), deployment(14, "few")],
        &[("few", &["warning: ", text])],
    );
    check(
        &[few.clone(), deployment(7, "few,few")],
        &[(
            "few",
            &["and 14 are requested, 14 of them by Deployment shop/web"],
        )],
    );
    check(
        &[few.clone(), deployment(13, "few"), pod("a", "few", "")],
        &[(
            "few",
            &["and 14 are requested, 13 of them by Deployment shop/web"],
        )],
    );
    // The definition of the other network gives the same addresses.
    let same = shared(
        "same",
        json!({"ranges": [[{"subnet": "10.30.0.0/28"}], [{"subnet": "fd00::/64"}]]}),
    );
    let both = [
        ("few", &["14 are requested"][..]),
        ("same", &["10.30.0.0/28 has 13"]),
    ];
    check(
        &[
            few.clone(),
            same,
            deployment(13, "few"),
            pod("a", "same", ""),
        ],
        &both,
    );
    let apart = shared("apart", json!({"subnet": "10.30.0.0/28", "space": "lab"}));
    check(
        &[few, apart, deployment(13, "few"), pod("a", "apart", "")],
        &[],
    );
    // A list of two ranges has the addresses of both.
    let two = json!({"ranges": [[{"subnet": "10.30.0.0/28"}, {"subnet": "10.31.0.0/28"}]]});
    check(&[shared("two", two), deployment(26, "two")], &[]);
    let job = json!({"kind": "Job", "metadata": {"name": "sum"}, "spec": {"parallelism": 5,
        "template": {"metadata": metadata("", "tiny"), "spec": {"containers": []}}}});
    let tiny = shared("tiny", json!({"subnet": "10.32.0.0/30"}));
    check(
        &[tiny, job],
        &[(
            "tiny",
            &["has 1 address for pods, and 5 are requested, 5 of them by Job shop/sum"],
        )],
    );
    let all = shared("all", json!({"subnet": "::/0"}));
    check(&[all, deployment(u64::MAX, "all")], &[]);
}
