//! `multus-daemon pod`: attachments and failures, with and without a running daemon.

use serde_json::{Value, json};

use crate::node::NodeFixture;

fn run_pod_command(node: &NodeFixture, pod: &str) -> Value {
    let output = node.command().args(["pod", pod]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn failures_are_reported_until_the_pod_succeeds() {
    let node = NodeFixture::new();
    node.configure(&json!({"namespaceIsolation": true}));
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    daemon.cni(&node.request("ADD", "c2")).error();
    let report = run_pod_command(&node, "shop/cart");
    assert_eq!(report["problem"], Value::Null);
    assert_eq!(report["options"]["namespaceIsolation"], true);
    let failure = &report["failures"][0];
    assert_eq!(
        (&failure["count"], &failure["verb"]),
        (&json!(2), &json!("ADD"))
    );
    let id = failure["id"].as_str().unwrap();
    assert!(error.msg.contains(id), "{error} and {failure}");
    assert!(
        failure["msg"].as_str().unwrap().contains("(zebra)"),
        "{failure}"
    );
    assert_eq!(run_pod_command(&node, "shop/other")["failures"], json!([]));

    node.define("zebra");
    crate::wait_for("the definition", || {
        (daemon.cni(&node.request("ADD", "c1")).status == 200).then_some(())
    });
    let report = run_pod_command(&node, "shop/cart");
    assert_eq!(report["failures"], json!([]));
    let attachments = &report["containers"][0]["attachments"];
    let summary = |index: usize| {
        let one = &attachments[index];
        (
            one["network"].clone(),
            one["plugins"].clone(),
            one["progress"].clone(),
        )
    };
    assert_eq!(
        summary(0),
        (json!("cbr0"), json!(["primary"]), json!("attached"))
    );
    assert_eq!(
        summary(1),
        (json!("shop/zebra"), json!(["zebra"]), json!("attached"))
    );
    assert_eq!(attachments[1]["addresses"], json!(["10.0.0.5/24"]));
    assert!(attachments[1]["since"].is_u64(), "{report}");

    drop(daemon);
    let report = run_pod_command(&node, "shop/cart");
    let problem = report["problem"].as_str().unwrap();
    assert!(problem.contains("does not answer"), "{problem}");
    assert_eq!(
        report["containers"][0]["attachments"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        report["unread"][0]
            .as_str()
            .unwrap()
            .contains("recent failures"),
        "{report}"
    );
}
