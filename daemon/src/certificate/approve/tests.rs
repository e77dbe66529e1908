//! One line for each way in which a request differs from a good one.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::*;
use crate::certificate::testing::request;

const ACCOUNT: &str = "system:serviceaccount:kube-system:multus";

/// What the kubelet of node-a may ask for.
fn good() -> Value {
    json!({
        "metadata": {"name": "csr-1"},
        "spec": {
            "request": pem("CN=system:multus:node-a,O=system:multus"),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "username": "system:node:node-a",
            "groups": ["system:nodes", "system:authenticated"],
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": 86400,
        },
    })
}

/// What a pod of the service account on node-a may ask for.
fn of_account() -> Value {
    changed(&[
        ("username", json!(ACCOUNT)),
        (
            "groups",
            json!([
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                "system:authenticated"
            ]),
        ),
        (
            "extra",
            json!({"authentication.kubernetes.io/node-name": ["node-a"]}),
        ),
    ])
}

fn pem(subject: &str) -> Value {
    json!(BASE64_STANDARD.encode(request(subject)))
}

fn changed(keys: &[(&str, Value)]) -> Value {
    let mut request = good();
    for (key, value) in keys {
        request["spec"][*key] = value.clone();
    }
    request
}

fn decided(request: Value, account: Option<&str>) -> Decision {
    let account = account.map(|account| account.parse().unwrap());
    decide(&serde_json::from_value(request).unwrap(), account.as_ref())
}

#[track_caller]
fn denied(keys: &[(&str, Value)], part: &str) {
    match decided(changed(keys), None) {
        Decision::Deny(reason) => assert!(reason.contains(part), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_gets_its_own() {
    for keys in [
        &[][..],
        &[
            ("username", json!("system:multus:node-a")),
            ("groups", json!(["system:multus", "system:authenticated"])),
        ],
        &[("groups", json!([]))],
        &[("groups", Value::Null)],
        &[("usages", json!(["client auth", "digital signature"]))],
        &[("expirationSeconds", json!(600))],
        &[("expirationSeconds", json!(31_536_000))],
        &[("request", pem("O=system:multus,CN=system:multus:node-a"))],
        &[
            ("username", json!("system:node:n.example.com")),
            (
                "request",
                pem("CN=system:multus:n.example.com,O=system:multus"),
            ),
        ],
    ] {
        assert_eq!(decided(changed(keys), None), Decision::Approve, "{keys:?}");
    }
}

#[test]
fn nobody_gets_anothers() {
    for (user, part) in [
        (
            "system:node:node-b",
            "may ask for system:multus:node-b, not for system:multus:node-a",
        ),
        ("system:multus:node-b", "may ask for system:multus:node-b"),
        ("system:node:", "no valid node name"),
        ("system:node:NODE", "no valid node name"),
        ("system:node:a..b", "no valid node name"),
        ("system:node:-a", "no valid node name"),
        ("system:multus", "neither a node nor a node's multus"),
        ("system:admin", "neither a node nor a node's multus"),
        ("", "neither a node nor a node's multus"),
        (ACCOUNT, "neither a node nor a node's multus"),
    ] {
        denied(&[("username", json!(user))], part);
    }
    denied(
        &[("username", Value::Null)],
        "neither a node nor a node's multus",
    );
    let long = format!("system:node:{}", "a".repeat(254));
    denied(&[("username", json!(long))], "no valid node name");
}

#[test]
fn whoever_is_in_other_groups_is_no_node() {
    denied(
        &[("groups", json!(["system:nodes", "system:masters"]))],
        "group system:masters",
    );
    denied(
        &[("groups", json!(["system:serviceaccounts"]))],
        "group system:serviceaccounts",
    );
}

#[test]
fn usages_are_exactly_two() {
    for usages in [
        json!(null),
        json!([]),
        json!(["client auth"]),
        json!(["client auth", "client auth"]),
        json!(["client auth", "server auth"]),
        json!(["client auth", "digital signature", "key encipherment"]),
    ] {
        denied(
            &[("usages", usages)],
            "must be [digital signature, client auth]",
        );
    }
}

#[test]
fn names_are_exactly_one_of_each() {
    for (subject, part) in [
        (
            "CN=system:multus:node-b,O=system:multus",
            "not for system:multus:node-b",
        ),
        ("CN=system:multus,O=system:multus", "not for system:multus"),
        (
            "CN=system:multusnode-a,O=system:multus",
            "not for system:multusnode-a",
        ),
        ("CN=system:multus:node-a,CN=admin,O=system:multus", "admin"),
        ("CN=system:multus:node-a", "organizations are []"),
        (
            "CN=system:multus:node-a,O=system:masters",
            "organizations are [system:masters]",
        ),
        (
            "CN=system:multus:node-a,O=system:multus,O=system:masters",
            "system:masters",
        ),
        (
            "CN=system:multus:node-a,O=system:multus,O=system:multus",
            "organizations are",
        ),
    ] {
        denied(&[("request", pem(subject))], part);
    }
}

#[test]
fn a_life_is_named_and_at_most_a_year() {
    denied(
        &[("expirationSeconds", Value::Null)],
        "expirationSeconds is missing",
    );
    denied(
        &[("expirationSeconds", json!(31_536_001))],
        "must be at most 31536000",
    );
}

#[test]
fn others_are_left_alone() {
    for keys in [
        &[("signerName", json!("kubernetes.io/kubelet-serving"))][..],
        &[(
            "signerName",
            json!("kubernetes.io/kube-apiserver-client-kubelet"),
        )],
        &[("request", pem("CN=system:node:node-a,O=system:nodes"))],
        &[("request", pem("CN=admin,O=system:multus"))],
        &[("request", pem("O=system:multus"))],
        &[("request", json!(BASE64_STANDARD.encode("no request")))],
        &[("request", json!(""))],
    ] {
        assert_eq!(decided(changed(keys), None), Decision::Leave, "{keys:?}");
    }
}

#[test]
fn what_is_decided_stays_so() {
    for status in [
        json!({"conditions": [{"type": "Approved", "status": "True"}]}),
        json!({"conditions": [{"type": "Denied", "status": "True"}]}),
        json!({"conditions": [{"type": "Failed", "status": "True"}]}),
        json!({"certificate": "cGVt"}),
    ] {
        let mut request = changed(&[("username", json!("somebody"))]);
        request["status"] = status.clone();
        assert_eq!(decided(request, None), Decision::Leave, "{status}");
    }
    let mut request = good();
    request["status"] =
        json!({"conditions": [{"type": "Seen", "status": "True"}], "certificate": ""});
    assert_eq!(decided(request, None), Decision::Approve);
}

#[test]
fn a_pod_of_the_account_gets_its_nodes() {
    let account = Some("kube-system/multus");
    assert_eq!(decided(of_account(), account), Decision::Approve);
    assert_eq!(decided(good(), account), Decision::Approve);
    for (change, part) in [
        (("extra", Value::Null), "does not say on which node"),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": []}),
            ),
            "does not say on which node",
        ),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": ["node-a", "node-b"]}),
            ),
            "does not say on which node",
        ),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": ["node-b"]}),
            ),
            "may ask for system:multus:node-b",
        ),
        (
            ("groups", json!(["system:serviceaccounts:other"])),
            "group system:serviceaccounts:other",
        ),
        (("groups", json!(["system:nodes"])), "group system:nodes"),
        (
            (
                "username",
                json!("system:serviceaccount:kube-system:multus2"),
            ),
            "neither a node",
        ),
        (
            ("username", json!("system:serviceaccount:other:multus")),
            "neither a node",
        ),
    ] {
        let mut request = of_account();
        request["spec"][change.0] = change.1.clone();
        match decided(request, account) {
            Decision::Deny(reason) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{change:?}: {other:?}"),
        }
    }
    for account in ["multus", "/multus", "kube-system/", "a/b/c", "a:b/c"] {
        assert!(account.parse::<ServiceAccount>().is_err(), "{account}");
    }
}
