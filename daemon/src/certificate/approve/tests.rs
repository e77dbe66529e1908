//! One case for each way in which a request can differ from a valid one.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::*;
use crate::certificate::testing::request;

const ACCOUNT: &str = "system:serviceaccount:kube-system:multus";

/// A valid request of the kubelet of node-a.
fn valid() -> Value {
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

/// A valid request of a pod of the service account on node-a.
fn account_request() -> Value {
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
    let mut request = valid();
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
fn node_gets_its_own_certificate() {
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
fn certificate_of_another_node_is_denied() {
    for (user, part) in [
        (
            "system:node:node-b",
            "may request system:multus:node-b, not system:multus:node-a",
        ),
        ("system:multus:node-b", "may request system:multus:node-b"),
        ("system:node:", "no valid node name"),
        ("system:node:NODE", "no valid node name"),
        ("system:node:a..b", "no valid node name"),
        ("system:node:-a", "no valid node name"),
        (
            "system:multus",
            "neither a node nor the multus daemon of a node",
        ),
        (
            "system:admin",
            "neither a node nor the multus daemon of a node",
        ),
        ("", "neither a node nor the multus daemon of a node"),
        (ACCOUNT, "neither a node nor the multus daemon of a node"),
    ] {
        denied(&[("username", json!(user))], part);
    }
    denied(
        &[("username", Value::Null)],
        "neither a node nor the multus daemon of a node",
    );
    let long = format!("system:node:{}", "a".repeat(254));
    denied(&[("username", json!(long))], "no valid node name");
}

#[test]
fn member_of_another_group_is_denied() {
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
fn other_usages_are_denied() {
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
fn other_common_names_and_organizations_are_denied() {
    for (subject, part) in [
        (
            "CN=system:multus:node-b,O=system:multus",
            "not system:multus:node-b",
        ),
        ("CN=system:multus,O=system:multus", "not system:multus"),
        (
            "CN=system:multusnode-a,O=system:multus",
            "not system:multusnode-a",
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
fn missing_or_too_long_expiration_is_denied() {
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
fn requests_for_other_certificates_are_left() {
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
fn decided_request_is_left() {
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
    let mut request = valid();
    request["status"] =
        json!({"conditions": [{"type": "Seen", "status": "True"}], "certificate": ""});
    assert_eq!(decided(request, None), Decision::Approve);
}

#[test]
fn pod_of_the_service_account_gets_the_certificate_of_its_node() {
    let account = Some("kube-system/multus");
    assert_eq!(decided(account_request(), account), Decision::Approve);
    assert_eq!(decided(valid(), account), Decision::Approve);
    for (change, part) in [
        (("extra", Value::Null), "does not report on which node"),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": []}),
            ),
            "does not report on which node",
        ),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": ["node-a", "node-b"]}),
            ),
            "does not report on which node",
        ),
        (
            (
                "extra",
                json!({"authentication.kubernetes.io/node-name": ["node-b"]}),
            ),
            "may request system:multus:node-b",
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
        let mut request = account_request();
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
