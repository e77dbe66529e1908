//! What is no proper request gets an answer that says so, and the daemon goes on.

use serde_json::json;

use crate::node::Node;

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
    let error = daemon.send("POST", api::PATH_DELEGATE, b"{}").error();
    assert!(error.msg.contains("hot plug is not served"), "{error}");
    assert_eq!(daemon.send("GET", api::PATH_HEALTHZ, b"").status, 200);
}
