//! Requests that cannot be parsed.

use crate::node::NodeFixture;

#[test]
fn malformed_body_is_refused_and_the_daemon_goes_on() {
    let node = NodeFixture::new();
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
