//! `networks` for a user whose daemons cannot be queried.

use serde_json::json;

use crate::{
    check,
    cluster::{Cluster, forbidden, list},
    is_refused,
};

const PODS: &str = "/api/v1/pods";

#[test]
fn nodes_that_do_not_answer_are_gaps() {
    let daemon = |node: &str, state: &serde_json::Value, env: &serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "kube-system", "name": format!("m-{node}")},
            "spec": {"nodeName": node, "containers": [{"name": "m", "command": ["/usr/bin/multus-daemon"], "env": env}]},
            "status": {"containerStatuses": [{"name": "m", "state": state}]}})
    };
    let ours = json!([{"name": "MULTUS_DAEMONSET", "value": "m"}]);
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let pods = json!([
        daemon("b", &waiting, &ours),
        daemon("a", &json!({"running": {}}), &json!([])),
    ]);
    let server = Cluster::start(&[(PODS, 200, list(&pods))]);
    let report = server.answer(&["networks"]);
    check(&report, 3, "/networks", &json!([]));
    let first =
        "node a: not queried: pod kube-system/m-a runs another Multus, which cannot be queried";
    check(&report, 3, "/gaps/0", &json!(first));
    let second = "node b: kube-system/m-b does not run: CrashLoopBackOff";
    check(&report, 3, "/gaps/1", &json!(second));
    let report = server.answer(&["networks", "shop/lan", "--node", "b"]);
    check(&report, 3, "/gaps", &json!([second]));
    let absent = server.run(&["networks", "--node", "c"]);
    is_refused(&absent, "there is no daemon of this Multus on node c");
}

#[test]
fn daemons_that_may_not_be_listed_are_refused() {
    let system = "/api/v1/namespaces/kube-system/pods";
    let refused = forbidden("pods");
    let server = Cluster::start(&[(PODS, 403, refused.clone()), (system, 403, refused)]);
    let output = server.run(&["networks"]);
    is_refused(&output, "--daemon-namespace");
    is_refused(&output, "cannot list the daemons' pods: pods is forbidden");
    let server = Cluster::start(&[
        (PODS, 403, forbidden("pods")),
        (system, 200, list(&json!([]))),
    ]);
    let output = server.run(&["networks"]);
    is_refused(&output, "there is no daemon of this Multus in this cluster");
}
