//! What the daemon costs an API server, and what it does when one hangs, is busy, or forgets.

use std::time::{Duration, Instant};

use crate::{
    api_server::{ApiServer, Ask, Kind},
    node::{Node, pod},
    wait_for,
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
fn patches(node: &Node) -> Vec<Ask> {
    let asks = node.api.asks().into_iter();
    asks.filter(|ask| ask.what.starts_with("PATCH ") && ask.what.ends_with("/status"))
        .collect()
}

#[test]
fn lists_come_from_the_cache_and_two_watches_follow() {
    let node = Node::new();
    node.run_pod(None);
    let _daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    let asks = node.api.asks();
    let of = |method: &str| -> Vec<&Ask> {
        let is = |ask: &&Ask| ask.what.starts_with(method);
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
        .filter(|ask| ask.what.ends_with("/pods"))
        .collect();
    for ask in pods {
        assert!(ask.accept.starts_with(METADATA_LIST), "{ask:?}");
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
    node.api.hang_patches(1);
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
    node.api.refuse_some_patches(429, 1);
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
    node.api.forget_history();
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    let relisted = || {
        let asks = node.api.asks();
        let lists = asks
            .iter()
            .filter(|ask| ask.what.starts_with("GET ") && ask.query.contains("resourceVersion="));
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
