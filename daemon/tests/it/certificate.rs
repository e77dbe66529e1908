//! The node's own certificate, with an API server that speaks TLS and records the identity of each request.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, SystemTime},
};

use serde_json::json;
use testkit::api_server::{ApiServer, Kind};

use crate::{
    lifecycle,
    node::{NODE, NodeFixture},
    wait_for,
};

pub(crate) const KUBELET: &str = "system:node:node-a";
const OWN: &str = "system:multus:node-a";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CURRENT: &str = "var/lib/certs/multus-client-current.pem";

/// A node with `perNodeCertificate` and the kubelet's kubeconfig.
pub(crate) fn node() -> NodeFixture {
    let node = NodeFixture::with(ApiServer::start_secure());
    node.install_primary();
    node.write("kubelet.kubeconfig", &node.api.kubeconfig_of(KUBELET));
    node.configure(&json!({"perNodeCertificate": {
        "enabled": true, "bootstrapKubeconfig": "/kubelet.kubeconfig", "certDir": "/var/lib/certs", "certDuration": "1h",
    }}));
    node
}

/// A command without other credentials.
pub(crate) fn command(node: &NodeFixture) -> Command {
    let mut command = node.command();
    command.env_remove("KUBECONFIG");
    command
}

fn creates(node: &NodeFixture, user: &str) -> usize {
    let what = format!("POST {REQUESTS}");
    let asks = node.api.requests();
    asks.iter()
        .filter(|ask| ask.user == user && ask.method_and_path == what)
        .count()
}

#[test]
fn daemon_acts_as_its_node() {
    let node = node();
    node.run_pod(None);
    let daemon = node.start_with(command(&node)).ready();
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
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
fn key_is_readable_by_root_only_and_never_logged() {
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
fn stored_certificate_is_used_after_a_restart() {
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
fn unusable_certificate_is_replaced() {
    let node = node();
    fs::create_dir_all(node.path("var/lib/certs")).unwrap();
    node.write(CURRENT, "-----BEGIN CERTIFICATE-----\n");
    let daemon = node.start_with(command(&node)).ready();
    assert!(
        daemon
            .log()
            .contains("the stored certificate cannot be used")
    );
    assert_eq!(creates(&node, KUBELET), 1);
}

#[test]
fn renewal_interrupts_nothing() {
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
    assert_eq!(node.api.wait_for_patches(1).len(), 1);
    assert_eq!(daemon.problem(), None);
    let lists =
        |ask: &&testkit::api_server::ReceivedRequest| ask.method_and_path == "GET /api/v1/pods";
    assert_eq!(node.api.requests().iter().filter(lists).count(), 1);
}

#[test]
fn pending_and_denied_requests_are_reported() {
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
            .filter(|problem| problem.contains("was refused"))
    });
    assert!(problem.contains("not today"), "{problem}");
    node.api
        .configure_signer(|signer| signer.approves_requests = true);
    let _daemon = daemon.ready();
}

#[test]
fn no_request_is_sent_without_credentials() {
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
fn rejected_certificate_is_replaced() {
    let node = node();
    node.run_pod(None);
    let daemon = node.start_with(command(&node)).ready();
    node.api
        .configure_signer(|signer| signer.accepts_certificates = false);
    // The next request finds out: here the network status of a pod that the daemon knows already.
    daemon.cni(&node.request("ADD", "c1")).result();
    wait_for("a new request", || {
        (creates(&node, KUBELET) == 2).then_some(())
    });
    node.api
        .configure_signer(|signer| signer.accepts_certificates = true);
    let daemon = daemon.ready();
    daemon.cni(&node.request("ADD", "c2")).result();
}

#[test]
fn service_account_of_the_pod_can_request_the_certificate() {
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
fn key_is_deleted_at_an_uninstallation() {
    let node = node();
    lifecycle::put_daemon_set(&node);
    let mut daemon = lifecycle::owned_with(&node, command(&node)).ready();
    daemon.terminate();
    assert!(daemon.ended().success());
    assert!(node.path(CURRENT).exists(), "the next start uses it");
    let uninstalled = command(&node).arg("uninstall").output().unwrap();
    assert!(uninstalled.status.success(), "{uninstalled:?}");
    assert_eq!(left(&node), 0);

    let mut daemon = lifecycle::owned_with(&node, command(&node)).ready();
    assert_eq!(left(&node), 2);
    lifecycle::delete_daemon_set(&node, &daemon, 2);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(left(&node), 0);
}

/// Files in the directory of certificates.
fn left(node: &NodeFixture) -> usize {
    fs::read_dir(node.path("var/lib/certs")).unwrap().count()
}
