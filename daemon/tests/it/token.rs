//! The token that the daemon shows: others replace its file, and it may be away for a while.

use serde_json::{Value, json};
use testkit::api_server::{ApiServer, ReceivedRequest};

use crate::{node::Node, wait_for};

/// A node whose daemon is whoever the file `token` says.
fn node() -> Node {
    let node = Node::with(ApiServer::start_secure());
    node.install_primary();
    let kubeconfig = node.api.kubeconfig_of("nobody");
    let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    kubeconfig["users"][0]["user"] = json!({"tokenFile": node.path("token")});
    node.write("kubeconfig", &kubeconfig.to_string());
    node
}

/// Who wrote the status of a pod, from first to last.
fn writers(node: &Node) -> Vec<String> {
    let asks = node.api.requests().into_iter();
    let patches = asks.filter(
        |ReceivedRequest {
             method_and_path, ..
         }| method_and_path.starts_with("PATCH ") && method_and_path.ends_with("/status"),
    );
    patches.map(|ask| ask.user).collect()
}

#[test]
fn the_next_request_has_the_next_token() {
    let node = node();
    node.run_pod(None);
    node.write("token", "first");
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.write("token", "second\n");
    daemon.cni(&node.request("ADD", "c2")).result();
    node.remove("token");
    daemon.cni(&node.request("ADD", "c3")).result();
    assert_eq!(writers(&node), ["first", "second", "second"]);
}

#[test]
fn a_token_that_comes_late_is_waited_for() {
    let node = node();
    let daemon = node.start();
    let problem = wait_for("a reason", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("no access to the API server"))
    });
    assert!(problem.contains("/token: there is no token"), "{problem}");
    assert_eq!(node.api.requests(), []);
    node.write("token", "late");
    let _daemon = daemon.ready();
}
