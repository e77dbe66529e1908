//! The approver next to a node's daemon: requests that exist before it, that come later, and that change meanwhile.

use serde_json::{Value, json};
use testkit::api_server::{ApiServer, Kind};

use crate::{daemon::Daemon, node::NodeFixture, wait_for};

const KUBELET: &str = "system:node:node-a";
/// The approver's user.
pub(crate) const USER: &str = "approver";

/// A node whose daemon requests a certificate, which must be approved.
pub(crate) fn node() -> NodeFixture {
    let node = NodeFixture::with(ApiServer::start_secure());
    node.install_primary();
    node.api
        .configure_signer(|signer| signer.approves_requests = false);
    node.write("kubeconfig", &node.api.kubeconfig_of(KUBELET));
    node.write("approver.kubeconfig", &node.api.kubeconfig_of(USER));
    node.configure(&json!({"perNodeCertificate": {"enabled": true}}));
    node
}

pub(crate) fn approver(node: &NodeFixture) -> Daemon {
    let mut command = node.command();
    let kubeconfig = node.path("approver.kubeconfig");
    command
        .arg("approve")
        .env_clear()
        .env("KUBECONFIG", kubeconfig);
    node.start_with(command)
}

fn requests(node: &NodeFixture) -> Vec<Value> {
    node.api.objects(Kind::SigningRequest)
}

fn condition(request: &Value) -> String {
    let condition = &request["status"]["conditions"][0];
    let word = |key: &str| condition[key].as_str().unwrap_or_default();
    format!("{} {}: {}", word("type"), word("reason"), word("message"))
}

/// Waits for the first request, and returns a copy of it with another requester and name.
fn stolen(node: &NodeFixture) -> Value {
    let mut request = wait_for("a request", || requests(node).pop());
    request["metadata"] = json!({"name": "stolen"});
    request["spec"]["username"] = json!("system:node:node-b");
    request["status"] = Value::Null;
    request
}

#[test]
fn certificate_is_approved_for_its_node_and_denied_to_another() {
    let node = node();
    let daemon = node.start();
    // Both requests exist before the approver starts.
    node.api.put(Kind::SigningRequest, stolen(&node));
    let mut approver = approver(&node);
    let _daemon = daemon.ready();
    let stolen = wait_for("a denial", || {
        let all = requests(&node);
        all.into_iter()
            .find(|one| one["metadata"]["name"] == "stolen" && !one["status"].is_null())
    });
    assert_eq!(
        condition(&stolen),
        "Denied CSRDenied: requester system:node:node-b may request system:multus:node-b, not system:multus:node-a"
    );
    let events = node.api.wait_for_events(2);
    assert!(
        events
            .iter()
            .any(|event| event.starts_with("CSRApproved: ")),
        "{events:?}"
    );
    assert!(
        events.iter().any(|event| event.starts_with("CSRDenied: ")),
        "{events:?}"
    );
    approver.terminate();
    assert!(approver.ended().success());
}

#[test]
fn requests_of_other_signers_are_left() {
    let node = node();
    let _daemon = node.start();
    let mut foreign = stolen(&node);
    foreign["metadata"]["name"] = json!("foreign");
    foreign["spec"]["signerName"] = json!("example.com/signer");
    node.api.put(Kind::SigningRequest, foreign);
    let _approver = approver(&node);
    node.api.wait_for_events(1);
    // A later request is decided after the foreign one was seen.
    node.api.put(Kind::SigningRequest, stolen(&node));
    node.api.wait_for_events(2);
    let all = requests(&node);
    let foreign = all.iter().find(|one| one["metadata"]["name"] == "foreign");
    assert!(foreign.unwrap()["status"].is_null(), "{foreign:?}");
}

#[test]
fn changed_request_is_read_and_decided_again() {
    let node = node();
    node.api.configure_signer(|signer| signer.conflicts = 2);
    let daemon = node.start();
    let _approver = approver(&node);
    let _daemon = daemon.ready();
    let asks = node.api.requests();
    let writes = asks
        .iter()
        .filter(|ask| ask.method_and_path.starts_with("PUT "));
    assert!(writes.count() >= 3, "{asks:?}");
    let conditions = &requests(&node)[0]["status"]["conditions"];
    assert_eq!(conditions.as_array().unwrap().len(), 1, "{conditions}");
}
