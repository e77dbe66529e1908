//! `multus-daemon pod`: what is attached, what went wrong, and that it is told without a daemon, too.

use serde_json::{Value, json};

use crate::node::Node;

fn answer(node: &Node, pod: &str) -> Value {
    let output = node.command().args(["pod", pod]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn failures_are_told_until_all_is_well() {
    let node = Node::new();
    node.configure(&json!({"namespaceIsolation": true}));
    node.run_pod(Some("zebra"));
    let daemon = node.start().ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    daemon.cni(&node.request("ADD", "c2")).error();
    let told = answer(&node, "shop/cart");
    assert_eq!(told["problem"], Value::Null);
    assert_eq!(told["options"]["namespaceIsolation"], true);
    let failure = &told["failures"][0];
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
    assert_eq!(answer(&node, "shop/other")["failures"], json!([]));

    node.define("zebra");
    crate::wait_for("the definition", || {
        (daemon.cni(&node.request("ADD", "c1")).status == 200).then_some(())
    });
    let told = answer(&node, "shop/cart");
    assert_eq!(told["failures"], json!([]));
    let attachments = &told["containers"][0]["attachments"];
    let brief = |index: usize| {
        let one = &attachments[index];
        (
            one["network"].clone(),
            one["plugins"].clone(),
            one["progress"].clone(),
        )
    };
    assert_eq!(
        brief(0),
        (json!("cbr0"), json!(["primary"]), json!("attached"))
    );
    assert_eq!(
        brief(1),
        (json!("shop/zebra"), json!(["zebra"]), json!("attached"))
    );
    assert_eq!(attachments[1]["addresses"], json!(["10.0.0.5/24"]));
    assert!(attachments[1]["since"].is_u64(), "{told}");

    drop(daemon);
    let told = answer(&node, "shop/cart");
    let problem = told["problem"].as_str().unwrap();
    assert!(problem.contains("does not answer"), "{problem}");
    assert_eq!(
        told["containers"][0]["attachments"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        told["unread"][0]
            .as_str()
            .unwrap()
            .contains("recent failures"),
        "{told}"
    );
}
