//! The daemon's load on the API server, and its behaviour when the API server hangs, is busy, or loses history.

use std::time::{Duration, Instant};

use testkit::api_server::{ApiServer, Kind, ReceivedRequest};

use crate::{
    daemon::Daemon,
    node::{NodeFixture, pod},
    tcp_proxy::TcpProxy,
    wait_for,
};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A node whose API server speaks HTTP/2.
fn node_http2() -> NodeFixture {
    let node = NodeFixture::with(ApiServer::start_http2());
    node.install_primary();
    node.write("kubeconfig", &node.api.kubeconfig_of("multus"));
    node
}

/// Status patches so far.
fn patches(node: &NodeFixture) -> Vec<ReceivedRequest> {
    let requests = node.api.requests().into_iter();
    let is_patch = |request: &ReceivedRequest| {
        let line = &request.method_and_path;
        line.starts_with("PATCH ") && line.ends_with("/status")
    };
    requests.filter(is_patch).collect()
}

/// Serves 50 ADDs at once, each with its status patch.
fn serve_burst(node: &NodeFixture) -> Daemon {
    let names: Vec<_> = (0..50).map(|number| format!("cart-{number}")).collect();
    for name in &names {
        let mut pod = pod("node-a", None);
        pod["metadata"]["name"] = name.as_str().into();
        node.api.put(Kind::Pod, pod);
    }
    let daemon = node.start().ready();
    let adding = names.iter().map(|name| {
        let mut request = node.request("ADD", name);
        let args = request.env.get_mut("CNI_ARGS").unwrap();
        *args = args.replace("K8S_POD_NAME=cart;", &format!("K8S_POD_NAME={name};"));
        daemon.cni_meanwhile(&request)
    });
    let adding: Vec<_> = adding.collect();
    for add in adding {
        add.join().unwrap().unwrap().result();
    }
    assert_eq!(node.api.wait_for_patches(50).len(), 50);
    daemon
}

#[test]
fn start_sends_two_lists_from_the_cache_and_two_watches() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    // An ADD finds its pod in the watch's cache: no GET of the pod follows.
    daemon.cni(&node.request("ADD", "c1")).result();
    let requests = node.api.requests();
    let of = |method: &str| -> Vec<&ReceivedRequest> {
        let is = |request: &&ReceivedRequest| request.method_and_path.starts_with(method);
        requests.iter().filter(is).collect()
    };
    let lists = of("GET ");
    assert_eq!(lists.len(), 2, "{requests:?}");
    for request in lists {
        assert!(request.query.contains("resourceVersion=0"), "{request:?}");
        assert!(!request.query.contains("limit"), "{request:?}");
        assert!(
            !request.query.contains("resourceVersionMatch"),
            "{request:?}"
        );
    }
    let watches = of("WATCH ");
    assert_eq!(watches.len(), 2, "{requests:?}");
    for request in watches {
        assert!(
            request.query.contains("allowWatchBookmarks=true"),
            "{request:?}"
        );
    }
    let pods: Vec<_> = requests
        .iter()
        .filter(|request| request.method_and_path.ends_with("/pods"))
        .collect();
    for request in pods {
        let form = if request.method_and_path.starts_with("WATCH") {
            METADATA
        } else {
            METADATA_LIST
        };
        assert!(request.accept.starts_with(form), "{request:?}");
        assert!(request.query.contains("spec.nodeName"), "{request:?}");
    }
}

/// A user who may annotate pods, and a node that keeps the pods of its jobs.
#[test]
fn list_of_pods_takes_little_memory() {
    const PODS: usize = 160;
    let node = NodeFixture::new();
    let daemon = node.start().ready();
    let before = daemon.status("VmHWM");
    daemon.kill();
    let long = "a,".repeat(125_000);
    for (name, networks, phase) in [
        ("long", Some(long.as_str()), "Running"),
        ("over", None, "Succeeded"),
        ("failed", None, "Failed"),
    ] {
        for number in 0..PODS {
            let mut pod = pod("node-a", networks);
            pod["metadata"]["name"] = format!("{name}-{number}").into();
            pod["status"]["phase"] = phase.into();
            node.api.put(Kind::Pod, pod);
        }
    }
    node.run_pod(None);
    let daemon = node.start().ready();
    let grown = daemon.status("VmHWM").saturating_sub(before);
    // The text has 40 MB.
    assert!(grown < 10 << 10, "{grown} KiB more");
    daemon.cni(&node.request("ADD", "c1")).result();
    let lists = node.api.requests().into_iter();
    let lists = lists.filter(|one| one.method_and_path.ends_with("/pods"));
    for request in lists {
        let phases = "%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&";
        assert!(request.query.contains(phases), "{request:?}");
    }
}

#[test]
fn annotation_that_is_too_long_fails_its_own_pod() {
    let node = NodeFixture::new();
    let networks = "zebra,".repeat(20_000);
    node.run_pod(Some(&networks));
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.msg.contains("longer than 64 KiB"), "{error:?}");
}

/// To the watch it is a deleted one.
#[test]
fn pod_that_is_over_keeps_its_networks_until_its_del() {
    let node = NodeFixture::new();
    node.configure(&serde_json::json!({"dynamicNetworks": true}));
    node.define("zebra");
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
    node.take_order();
    node.api.delete(Kind::Pod, "shop", "cart");
    // A later change was handled, so the deletion was, too.
    let mut other = pod("node-a", None);
    other["metadata"]["name"] = "other".into();
    node.api.put(Kind::Pod, other);
    let mut request = node.request("ADD", "c2");
    let args = request.env.get_mut("CNI_ARGS").unwrap();
    *args = args.replace("K8S_POD_NAME=cart;", "K8S_POD_NAME=other;");
    daemon.cni(&request).result();
    assert_eq!(node.state().0, ["c1", "c2"]);
    daemon.cni(&node.request("DEL", "c1")).done();
    let detached = ["ADD primary pod0", "DEL zebra net1", "DEL primary pod0"];
    assert_eq!(node.order(), detached);
}

#[test]
fn status_patch_requests_only_metadata_in_the_response() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
    let patches = patches(&node);
    assert_eq!(patches.len(), 1);
    assert!(patches[0].accept.starts_with(METADATA), "{patches:?}");
}

/// The second patch is never answered. Returns it and the next one.
fn hung_patch(node: &NodeFixture) -> [ReceivedRequest; 2] {
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    wait_for("the first patch", || {
        (patches(node).len() == 1).then_some(())
    });
    node.api.hang_next_patches(1);
    daemon.cni(&node.request("ADD", "c2")).result();
    wait_for("another try", || {
        let [_, hung, next] = patches(node).try_into().ok()?;
        Some([hung, next])
    })
}

#[test]
fn hung_patch_is_retried_on_another_connection() {
    let [hung, next] = hung_patch(&NodeFixture::new());
    assert_ne!(hung.connection, next.connection);
}

#[test]
fn hung_patch_is_retried_on_a_connection_of_http2_that_works() {
    let [hung, next] = hung_patch(&node_http2());
    assert_eq!(hung.connection, next.connection);
}

/// Runs a pod that the watch does not have, so that its ADD reads it. Returns the number of these reads, and that of connections which
/// the ADD opened.
fn reads_of_a_pod(node: &NodeFixture) -> (usize, usize) {
    node.api.put(Kind::Pod, pod("node-b", None));
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    let before = node.api.connections();
    daemon.cni(&node.request("ADD", "c1")).result();
    let requests = node.api.requests();
    let reads = requests
        .iter()
        .filter(|request| request.method_and_path == "GET /api/v1/namespaces/shop/pods/cart");
    (reads.count(), node.api.connections() - before)
}

#[test]
fn slow_server_gets_each_request_once_and_on_one_connection() {
    let node = node_http2();
    node.api
        .delay_reads("/pods/cart", Duration::from_millis(3500));
    assert_eq!(reads_of_a_pod(&node), (1, 0));
}

#[test]
fn refused_credential_is_used_once_more() {
    let node = NodeFixture::new();
    node.api.refuse_next_reads("/pods/cart", 401, 1);
    assert_eq!(reads_of_a_pod(&node).0, 2);
}

#[test]
fn retry_after_of_a_busy_server_is_respected() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.retry_after(2);
    node.api.refuse_next_patches(429, 1);
    let start = Instant::now();
    daemon.cni(&node.request("ADD", "c1")).result();
    wait_for("another patch", || {
        (patches(&node).len() == 2).then_some(())
    });
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[test]
fn one_connection_of_http2_serves_a_burst() {
    let node = node_http2();
    node.run_pod(None);
    let _daemon = serve_burst(&node);
    // On a slow machine two requests open the first connection.
    let connections = node.api.connections();
    assert!(connections <= 2, "{connections}");
}

#[test]
fn few_connections_of_http1_serve_a_burst() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let _daemon = serve_burst(&node);
    // Two of them carry the watches.
    let connections = node.api.connections();
    assert!(connections <= 12, "{connections}");
}

#[test]
fn refused_watches_continue_without_another_list() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let _daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    node.api.refuse_next_reads("/pods", 429, 1);
    node.api
        .refuse_next_reads("/network-attachment-definitions", 503, 1);
    node.api.end_watches();
    let count = |method: &str| {
        let requests = node.api.requests();
        let is = |request: &&ReceivedRequest| request.method_and_path.starts_with(method);
        requests.iter().filter(is).count()
    };
    wait_for("watches after the refused ones", || {
        (count("WATCH ") >= 6).then_some(())
    });
    assert_eq!(count("GET "), 2);
}

#[test]
fn lost_history_leads_to_new_lists() {
    let node = NodeFixture::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    node.api.compact_history();
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    let relisted = || {
        let requests = node.api.requests();
        let lists = requests.iter().filter(|request| {
            request.method_and_path.starts_with("GET ")
                && request.query.contains("resourceVersion=")
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

/// Waits until the daemon knows the new definition and the pod's new annotation.
fn wait_for_zebra(node: &NodeFixture, daemon: &Daemon) {
    wait_for("the pod's new network", || {
        // One of the two may arrive before the other.
        let added = daemon.cni(&node.request("ADD", "c9"));
        let is_new = added.status == 200 && node.order().contains(&"ADD zebra net1".to_owned());
        daemon.cni(&node.request("DEL", "c9")).done();
        is_new.then_some(())
    });
}

fn goes_on_after_a_restart(mut node: NodeFixture) {
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
    // The watches resumed at their version: nothing was listed again.
    let requests = node.api.requests();
    let lists = requests.iter().filter(|request| {
        request.method_and_path.starts_with("GET ") && request.query.contains("resourceVersion=")
    });
    assert_eq!(lists.count(), 2, "{requests:?}");
}

#[test]
fn watches_resume_after_a_restart_of_the_server() {
    goes_on_after_a_restart(NodeFixture::new());
}

#[test]
fn watches_of_http2_resume_after_a_restart_of_the_server() {
    goes_on_after_a_restart(node_http2());
}

#[test]
fn dead_connection_is_left_at_once_by_patches_and_soon_by_watches() {
    let node = node_http2();
    let proxy = TcpProxy::to(node.api.address());
    let kubeconfig = node.api.kubeconfig_at(proxy.address(), "multus");
    node.write("kubeconfig", &kubeconfig);
    node.run_pod(None);
    let daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Pod);
    node.api.wait_for_watch(Kind::Definition);
    proxy.go_dead();
    daemon.cni(&node.request("ADD", "c1")).result();
    wait_for("the patch", || (patches(&node).len() == 1).then_some(()));
    // On a slow machine the pod's event opens a connection of its own while the patch opens one.
    let connections = node.api.connections();
    assert!((2..=3).contains(&connections), "{connections}");
    node.define("zebra");
    node.api.put(Kind::Pod, pod("node-a", Some("zebra")));
    wait_for_zebra(&node, &daemon);
    // The watches moved to the connection that the patch had opened.
    assert_eq!(node.api.connections(), connections);
}
