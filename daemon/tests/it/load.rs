//! What the daemon costs an API server, and what it does when one hangs, is busy, or forgets.

use std::time::{Duration, Instant};

use testkit::api_server::{ApiServer, Kind, ReceivedRequest};

use crate::{
    daemon::Daemon,
    node::{Node, pod},
    wait_for,
    wire::Wire,
};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A node whose API server speaks HTTP/2.
fn node_http2() -> Node {
    let node = Node::with(ApiServer::start_http2());
    node.install_primary();
    node.write("kubeconfig", &node.api.kubeconfig_of("multus"));
    node
}

/// Status patches so far.
fn patches(node: &Node) -> Vec<ReceivedRequest> {
    let asks = node.api.requests().into_iter();
    asks.filter(|ask| {
        ask.method_and_path.starts_with("PATCH ") && ask.method_and_path.ends_with("/status")
    })
    .collect()
}

#[test]
fn lists_come_from_the_cache_and_two_watches_follow() {
    let node = Node::new();
    node.run_pod(None);
    let _daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    let asks = node.api.requests();
    let of = |method: &str| -> Vec<&ReceivedRequest> {
        let is = |ask: &&ReceivedRequest| ask.method_and_path.starts_with(method);
        asks.iter().filter(is).collect()
    };
    let lists = of("GET ");
    assert_eq!(lists.len(), 2, "{asks:?}");
    for ask in lists {
        assert!(ask.query.contains("resourceVersion=0"), "{ask:?}");
        assert!(!ask.query.contains("limit"), "{ask:?}");
        assert!(!ask.query.contains("resourceVersionMatch"), "{ask:?}");
    }
    let watches = of("WATCH ");
    assert_eq!(watches.len(), 2, "{asks:?}");
    for ask in watches {
        assert!(ask.query.contains("allowWatchBookmarks=true"), "{ask:?}");
    }
    let pods: Vec<_> = asks
        .iter()
        .filter(|ask| ask.method_and_path.ends_with("/pods"))
        .collect();
    for ask in pods {
        let form = if ask.method_and_path.starts_with("WATCH") {
            METADATA
        } else {
            METADATA_LIST
        };
        assert!(ask.accept.starts_with(form), "{ask:?}");
        assert!(ask.query.contains("spec.nodeName"), "{ask:?}");
    }
}

#[test]
fn a_status_is_answered_with_metadata_alone() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let patches = patches(&node);
    assert_eq!(patches.len(), 1);
    assert!(patches[0].accept.starts_with(METADATA), "{patches:?}");
}

/// The first patch of an ADD is never answered.
fn hangs_once(node: &Node) {
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.hang_next_patches(1);
    let start = Instant::now();
    daemon.cni(&node.request("ADD", "c2")).result();
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
    let all = patches(node);
    let [_, hung, next] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_ne!(hung.connection, next.connection);
    // The others go where the last one went.
    daemon.cni(&node.request("ADD", "c3")).result();
    assert_eq!(patches(node)[3].connection, next.connection);
}

#[test]
fn a_hung_patch_is_sent_again_on_another_connection() {
    hangs_once(&Node::new());
}

#[test]
fn a_hung_patch_is_sent_again_on_another_connection_of_http2() {
    hangs_once(&node_http2());
}

#[test]
fn a_server_that_is_busy_is_left_alone_as_long_as_it_wants() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.retry_after(2);
    node.api.refuse_next_patches(429, 1);
    let start = Instant::now();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(patches(&node).len(), 2);
}

#[test]
fn one_connection_of_http2_serves_a_burst() {
    let node = node_http2();
    node.run_pod(None);
    let daemon = node.start().ready();
    let adding: Vec<_> = (0..50)
        .map(|number| daemon.cni_meanwhile(&node.request("ADD", &format!("c{number}"))))
        .collect();
    for add in adding {
        add.join().unwrap().unwrap().result();
    }
    assert_eq!(patches(&node).len(), 50);
    assert_eq!(node.api.connections(), 1);
}

#[test]
fn few_connections_of_http1_serve_a_burst() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let adding: Vec<_> = (0..50)
        .map(|number| daemon.cni_meanwhile(&node.request("ADD", &format!("c{number}"))))
        .collect();
    for add in adding {
        add.join().unwrap().unwrap().result();
    }
    assert_eq!(patches(&node).len(), 50);
    // Two watches beside them.
    let connections = node.api.connections();
    assert!(connections <= 12, "{connections}");
}

#[test]
fn history_that_the_server_forgot_is_listed_again() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    node.api.compact_history();
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    let relisted = || {
        let asks = node.api.requests();
        let lists = asks.iter().filter(|ask| {
            ask.method_and_path.starts_with("GET ") && ask.query.contains("resourceVersion=")
        });
        lists.count() >= 4
    };
    wait_for("another list of both", || relisted().then_some(()));
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(node.order(), ["ADD primary pod0", "ADD zebra net1"]);
    let log = daemon.log();
    assert!(!log.contains("the watch was interrupted"), "{log}");
}

/// Waits until the daemon knows the new definition and that the pod asks for it.
fn wait_for_zebra(node: &Node, daemon: &Daemon) {
    wait_for("the pod's new network", || {
        // One of the two may be there before the other.
        let added = daemon.cni(&node.request("ADD", "c9"));
        let is_new = added.status == 200 && node.order().contains(&"ADD zebra net1".to_owned());
        daemon.cni(&node.request("DEL", "c9")).done();
        is_new.then_some(())
    });
}

fn goes_on_after_a_restart(mut node: Node) {
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    node.api.restart();
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    wait_for_zebra(&node, &daemon);
    // The watches went on where they were: nothing was listed again.
    let asks = node.api.requests();
    let lists = asks.iter().filter(|ask| {
        ask.method_and_path.starts_with("GET ") && ask.query.contains("resourceVersion=")
    });
    assert_eq!(lists.count(), 2, "{asks:?}");
}

#[test]
fn watches_go_on_when_the_server_is_started_again() {
    goes_on_after_a_restart(Node::new());
}

#[test]
fn watches_of_http2_go_on_when_the_server_is_started_again() {
    goes_on_after_a_restart(node_http2());
}

#[test]
fn a_connection_that_went_dead_is_left_at_once_by_patches_and_soon_by_watches() {
    let node = node_http2();
    let wire = Wire::to(node.api.address());
    let kubeconfig = node.api.kubeconfig_at(wire.address(), "multus");
    node.write("kubeconfig", &kubeconfig);
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    wire.go_dead();
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(node.api.connections(), 2);
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    wait_for_zebra(&node, &daemon);
    // Watches went to the connection that patches had found.
    assert_eq!(node.api.connections(), 2);
}
