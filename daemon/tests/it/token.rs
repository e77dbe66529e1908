//! The token of the daemon's requests: its file is replaced, and may be missing for a while.

use serde_json::{Value, json};
use testkit::api_server::{ApiServer, ReceivedRequest};

use crate::{node::NodeFixture, wait_for};

/// A node whose daemon has the token in the file `token`.
fn node() -> NodeFixture {
    let node = NodeFixture::with(ApiServer::start_secure());
    node.install_primary();
    let kubeconfig = node.api.kubeconfig_of("unused");
    let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    kubeconfig["users"][0]["user"] = json!({"tokenFile": node.path("token")});
    node.write("kubeconfig", &kubeconfig.to_string());
    node
}

/// The users that wrote the status of a pod, in order.
fn writers(node: &NodeFixture) -> Vec<String> {
    let requests = node.api.requests().into_iter();
    let patches = requests.filter(
        |ReceivedRequest {
             method_and_path, ..
         }| method_and_path.starts_with("PATCH ") && method_and_path.ends_with("/status"),
    );
    patches.map(|request| request.user).collect()
}

#[test]
fn replaced_token_is_used_at_once() {
    let node = node();
    node.run_pod(None);
    node.write("token", "first");
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
    node.write("token", "second\n");
    daemon.cni(&node.request("ADD", "c2")).result();
    node.api.wait_for_patches(2);
    node.remove("token");
    daemon.cni(&node.request("ADD", "c3")).result();
    node.api.wait_for_patches(3);
    assert_eq!(writers(&node), ["first", "second", "second"]);
}

#[test]
fn missing_token_is_waited_for() {
    let node = node();
    let daemon = node.start();
    let problem = wait_for("a reason", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("no access to the API server"))
    });
    assert!(
        problem.contains("/token: has no readable token"),
        "{problem}"
    );
    assert_eq!(node.api.requests(), []);
    node.write("token", "late");
    let _daemon = daemon.ready();
}
