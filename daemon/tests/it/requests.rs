//! What is no proper request gets an answer that says so, and the daemon goes on.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::{node::Node, wait_for};

#[test]
fn bodies_that_are_no_requests_are_refused() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let cases: [(&[u8], u32, &str); 5] = [
        (b"", 6, "not JSON"),
        (b"{\"env\":", 6, "not JSON"),
        (b"\xff\xfe\x00", 6, "not JSON"),
        (b"{\"env\":{\"CNI_COMMAND\":3}}", 6, "not JSON"),
        (b"{}", 4, "missing CNI_COMMAND"),
    ];
    for (body, code, text) in cases {
        let error = daemon.send("POST", api::PATH_CNI, body).error();
        assert_eq!(error.code, code, "{error}");
        assert!(error.msg.contains(text), "{error}");
    }
    let result = daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(result.ips[0].address, "10.0.0.7/24");
}

#[test]
fn variables_and_configurations_are_checked() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let check = |variable: &str, value: &str, code: u32, text: &str| {
        let mut request = node.request("ADD", "c1");
        request.env.insert(variable.to_owned(), value.to_owned());
        let error = daemon.cni(&request).error();
        assert_eq!(error.code, code, "{error}");
        assert!(error.msg.contains(text), "{error}");
    };
    check("CNI_CONTAINERID", "../../etc", 4, "invalid container id");
    check("CNI_IFNAME", "a/b", 4, "a/b");
    check("CNI_COMMAND", "JUMP", 4, "JUMP");
    check("CNI_NETNS", "", 4, "CNI_NETNS");
    check("CNI_ARGS", "COLOUR=blue", 4, "K8S_POD_NAME");
    let mut request = node.request("ADD", "c1");
    request.config = b"[]".to_vec();
    assert_eq!(daemon.cni(&request).error().code, 6);
    request.config = json!({"delegates": 7}).to_string().into_bytes();
    assert_eq!(daemon.cni(&request).error().code, 7);
    assert_eq!(node.order(), [""; 0]);
    assert_eq!(node.state().0, [""; 0]);
}

#[test]
fn other_paths_and_methods_are_not_served() {
    let node = Node::new();
    let daemon = node.start().ready();
    assert_eq!(daemon.send("GET", api::PATH_CNI, b"").status, 405);
    assert_eq!(daemon.send("DELETE", api::PATH_HEALTHZ, b"").status, 405);
    assert_eq!(daemon.send("POST", "/elsewhere", b"").status, 404);
    assert_eq!(daemon.send("GET", api::PATH_DELEGATE, b"").status, 405);
    assert_eq!(daemon.send("GET", api::PATH_HEALTHZ, b"").status, 200);
}

#[test]
fn requests_and_verbs_are_counted() {
    let node = Node::new();
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    node.configure(&json!({"metricsPort": port}));
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    daemon.cni(&node.request("ADD", "c1")).error();
    let text = wait_for("metrics", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    });
    for line in [
        "multus_server_request_total{code=\"200\",handler=\"/cni\",method=\"post\"} 1\n",
        "multus_server_request_total{code=\"400\",handler=\"/cni\",method=\"post\"} 1\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"done\"} 1\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"failed\"} 1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_socket_shows_what_the_daemon_does() {
    let node = Node::new();
    node.run_pod(None);
    let daemon = node.start().ready();
    let words = |words: &[&str]| {
        let output = node.command().arg("status").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    daemon.cni(&node.request("ADD", "c1")).result();
    let text = String::from_utf8(daemon.send("GET", api::PATH_METRICS, b"").body).unwrap();
    for line in [
        "multus_ready 1\n",
        "multus_state_containers 1\n",
        "multus_journal_pending 0\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"done\"} 1\n",
        "multus_delegate_duration_seconds_count{plugin=\"primary\",command=\"ADD\",outcome=\"done\"} 1\n",
        "multus_api_requests_total{verb=\"patch\",resource=\"pods/status\",code=\"200\"} 1\n",
        "multus_api_requests_total{verb=\"watch\",resource=\"network-attachment-definitions\",code=\"200\"}",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let status: Value = serde_json::from_str(&words(&["--json"])).unwrap();
    assert_eq!(status["containers"], 1);
    assert_eq!(status["verbs"][0]["command"], "ADD");
    assert_eq!(status["problem"], Value::Null);
    let text = words(&[]);
    assert!(text.starts_with("running\nversion "), "{text}");
    for line in [
        "pods are served\n",
        "ADD done: 1, p50 ",
        "primary ADD done: 1",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(words(&["--ready"]), "ready\n");
    assert_eq!(daemon.send("POST", api::PATH_STATUS, b"").status, 405);
}

#[test]
fn those_beyond_the_limit_wait() {
    let node = Node::new();
    node.configure(&json!({"connectionLimit": 1}));
    node.run_pod(None);
    let gate = node.close_gate("primary", "ADD");
    let daemon = node.start().ready();
    let adding = daemon.cni_meanwhile(&node.request("ADD", "c1"));
    node.wait_for_call("ADD primary pod0");
    let deleting = daemon.cni_meanwhile(&node.request("DEL", "c2"));
    assert!(daemon.listens(), "the kernel takes them");
    assert!(!deleting.is_finished());
    drop(gate);
    adding.join().unwrap().unwrap().result();
    deleting.join().unwrap().unwrap().done();
}
