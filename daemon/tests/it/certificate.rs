//! The node's own certificate, against an API server that speaks TLS and looks at each request's identity.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, SystemTime},
};

use serde_json::json;
use testkit::api_server::{ApiServer, Kind};

use crate::{
    life,
    node::{NODE, Node},
    wait_for,
};

pub(crate) const KUBELET: &str = "system:node:node-a";
const OWN: &str = "system:multus:node-a";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CURRENT: &str = "var/lib/certs/multus-client-current.pem";

/// A node whose daemon is to have a certificate, and that has the kubelet's kubeconfig.
pub(crate) fn node() -> Node {
    let node = Node::with(ApiServer::start_secure());
    node.install_primary();
    node.write("kubelet.kubeconfig", &node.api.kubeconfig_of(KUBELET));
    node.configure(&json!({"perNodeCertificate": {
        "enabled": true, "bootstrapKubeconfig": "/kubelet.kubeconfig", "certDir": "/var/lib/certs", "certDuration": "1h",
    }}));
    node
}

/// Without another way to the API server.
pub(crate) fn command(node: &Node) -> Command {
    let mut command = node.command();
    command.env_remove("KUBECONFIG");
    command
}

fn creates(node: &Node, user: &str) -> usize {
    let what = format!("POST {REQUESTS}");
    let asks = node.api.requests();
    asks.iter()
        .filter(|ask| ask.user == user && ask.method_and_path == what)
        .count()
}

#[test]
fn the_daemon_acts_as_its_node() {
    let node = node();
    node.run_pod(None);
    let daemon = node.start_with(command(&node)).ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    let asks = node.api.requests();
    let requests = asks
        .iter()
        .filter(|ask| ask.method_and_path.contains(REQUESTS));
    let requests: Vec<_> = requests.map(|ask| ask.user.as_str()).collect();
    assert!(requests.iter().all(|user| *user == KUBELET), "{requests:?}");
    assert_eq!(creates(&node, KUBELET), 1);
    let others: Vec<_> = asks
        .iter()
        .filter(|ask| !ask.method_and_path.contains(REQUESTS))
        .collect();
    assert!(others.len() >= 5, "{others:?}");
    assert!(others.iter().all(|ask| ask.user == OWN), "{others:?}");
    let request = &node.api.objects(Kind::SigningRequest)[0]["spec"];
    assert_eq!(request["signerName"], "kubernetes.io/kube-apiserver-client");
    assert_eq!(
        request["usages"],
        json!(["digital signature", "client auth"])
    );
    assert_eq!(request["expirationSeconds"], 3600);
}

#[test]
fn the_key_is_roots_alone_and_in_no_log() {
    let node = node();
    let daemon = node.start_with(command(&node)).ready();
    let stored = fs::read_to_string(node.path(CURRENT)).unwrap();
    assert!(stored.contains("BEGIN CERTIFICATE") && stored.contains("BEGIN PRIVATE KEY"));
    let mode = |path: &str| fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(CURRENT), mode("var/lib/certs")), (0o600, 0o700));
    let key = stored.lines().rev().nth(1).unwrap();
    let log = daemon.log();
    assert!(!log.contains(key) && !log.contains("PRIVATE KEY"), "{log}");
}

#[test]
fn a_stored_certificate_serves_the_next_start() {
    let node = node();
    let mut daemon = node.start_with(command(&node)).ready();
    daemon.terminate();
    assert!(daemon.ended().success());
    let stored = fs::read(node.path(CURRENT)).unwrap();
    let _daemon = node.start_with(command(&node)).ready();
    assert_eq!(creates(&node, KUBELET), 1);
    assert_eq!(fs::read(node.path(CURRENT)).unwrap(), stored);
}

#[test]
fn a_certificate_of_no_use_is_replaced() {
    let node = node();
    fs::create_dir_all(node.path("var/lib/certs")).unwrap();
    node.write(CURRENT, "-----BEGIN CERTIFICATE-----\n");
    let daemon = node.start_with(command(&node)).ready();
    assert!(daemon.log().contains("the stored certificate is of no use"));
    assert_eq!(creates(&node, KUBELET), 1);
}

#[test]
fn a_renewal_interrupts_nothing() {
    let node = node();
    let life = Duration::from_secs(15);
    node.api.configure_signer(|signer| signer.lifetime = life);
    let daemon = node.start_with(command(&node)).ready();
    let first_ends = SystemTime::now() + life;
    let first = fs::read(node.path(CURRENT)).unwrap();
    node.api
        .configure_signer(|signer| signer.lifetime = Duration::from_hours(1));
    wait_for("the next certificate", || {
        (fs::read(node.path(CURRENT)).unwrap() != first).then_some(())
    });
    assert_eq!((creates(&node, KUBELET), creates(&node, OWN)), (1, 1));
    wait_for("the end of the first one", || {
        (SystemTime::now() > first_ends).then_some(())
    });
    // The pod comes over the watch that the first certificate opened; its status goes out with the second one.
    node.run_pod(None);
    daemon.cni(&node.request("ADD", "c1")).result();
    assert_eq!(node.api.patches().len(), 1);
    assert_eq!(daemon.problem(), None);
    let lists =
        |ask: &&testkit::api_server::ReceivedRequest| ask.method_and_path == "GET /api/v1/pods";
    assert_eq!(node.api.requests().iter().filter(lists).count(), 1);
}

#[test]
fn who_has_to_do_something_is_told() {
    let node = node();
    node.api
        .configure_signer(|signer| signer.approves_requests = false);
    let daemon = node.start_with(command(&node));
    let problem = wait_for("a request", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("waits for approval"))
    });
    assert!(
        problem.contains("certificate: certificate signing request multus-node-a-"),
        "{problem}"
    );
    let mut request = node.api.objects(Kind::SigningRequest).remove(0);
    request["status"]["conditions"] =
        json!([{"type": "Denied", "status": "True", "message": "not today"}]);
    node.api.put(Kind::SigningRequest, request);
    let problem = wait_for("the denial", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("turned down"))
    });
    assert!(problem.contains("not today"), "{problem}");
    node.api
        .configure_signer(|signer| signer.approves_requests = true);
    let _daemon = daemon.ready();
}

#[test]
fn nothing_is_asked_without_an_identity() {
    let node = node();
    node.remove("kubelet.kubeconfig");
    let daemon = node.start_with(command(&node));
    let problem = wait_for("a reason", || {
        daemon
            .problem()
            .filter(|problem| problem.contains("certificate: bootstrapKubeconfig"))
    });
    assert!(problem.contains("/kubelet.kubeconfig"), "{problem}");
    assert_eq!(node.api.requests(), []);
    node.write("kubelet.kubeconfig", &node.api.kubeconfig_of(KUBELET));
    let _daemon = daemon.ready();
}

#[test]
fn a_certificate_that_is_not_accepted_is_replaced() {
    let node = node();
    node.run_pod(None);
    let daemon = node.start_with(command(&node)).ready();
    node.api
        .configure_signer(|signer| signer.accepts_certificates = false);
    // Whoever asks next finds out: here the status of a pod, which is known already.
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    assert!(error.msg.contains("network status"), "{error:?}");
    wait_for("a new request", || {
        (creates(&node, KUBELET) == 2).then_some(())
    });
    node.api
        .configure_signer(|signer| signer.accepts_certificates = true);
    let daemon = daemon.ready();
    daemon.cni(&node.request("ADD", "c2")).result();
}

#[test]
fn the_pods_own_account_will_do() {
    let node = node();
    node.configure(&json!({"perNodeCertificate": {"enabled": true}}));
    let account = "system:serviceaccount:kube-system:multus";
    node.write("kubeconfig", &node.api.kubeconfig_of(account));
    let _daemon = node.start().ready();
    assert_eq!(creates(&node, account), 1);
    let file = "var/lib/multus/certs/multus-client-current.pem";
    assert!(node.path(file).exists(), "{NODE} has no certificate");
}

#[test]
fn the_key_goes_with_the_last_end_or_an_uninstall() {
    let node = node();
    life::put_daemon_set(&node);
    let mut daemon = life::owned_with(&node, command(&node)).ready();
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(node.path(CURRENT).exists(), "it serves the next start");
    let uninstalled = command(&node).arg("uninstall").output().unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    assert_eq!(left(&node), 0);

    let mut daemon = life::owned_with(&node, command(&node)).ready();
    assert_eq!(left(&node), 2);
    life::delete_daemon_set(&node, &daemon, 2);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(left(&node), 0);
}

/// Files in the directory of certificates.
fn left(node: &Node) -> usize {
    fs::read_dir(node.path("var/lib/certs")).unwrap().count()
}
