//! A client certificate for each node's daemon: requested by the daemon, approved by the chart's approver, signed by the cluster, and then
//! the only identity of the daemons. No daemon gets one for another node.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::Member,
    control_plane::objects,
    node::{Node, inspect::nothing_left},
    report::{Checked, Report},
    sh::{self, words},
};

const STORED: &str = "/var/lib/multus/certs/multus-client-current.pem";
/// The user name of the daemons without certificates.
const ACCOUNT: &str = "system:serviceaccount:kube-system:multus";
/// The extra field of a user with the node of the service account's pod.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

impl ClusterFixture<'_> {
    /// Switches certificates on in the installed chart, and checks them.
    pub(super) fn certificates(&self, chart: &str, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{chart}: {what}");
        report.check(
            &of("each daemon requests a certificate for its node, and the approver approves it"),
            || self.are_certified(chart),
        )?;
        report.check(
            &of("pods get their networks when certificates are the daemons' only identity"),
            || self.act_as_nodes(chart),
        )?;
        report.check(
            &of("the approver denies a certificate for another node, with the reason"),
            || self.is_denied(),
        )?;
        report.check(
            &of("a daemon replaces a certificate that is due or expired at its start"),
            || self.are_replaced(chart),
        )
    }

    fn are_certified(&self, chart: &str) -> anyhow::Result<()> {
        // The other values are for `labels`, `pod_requests` and `dhcp`: one rolling update instead of four.
        let values = [
            "--set=publish=labels",
            "--set=perNodeCertificate.enabled=true",
            "--set=dynamicNetworksController.enabled=true",
            "--set=manifests.dhcpDaemonSet=true",
        ];
        self.upgrade(chart, &values)?;
        self.wait_until_rolled_out(&format!("deployment/{chart}-approver"))?;
        self.wait_until_rolled_out(&format!("daemonset/{chart}"))?;
        self.wait_until_deployed(chart)?;
        let requests = self.requests()?;
        self.each(|member| {
            let node = &member.node.name;
            let own: Vec<_> = requests
                .iter()
                .filter(|one| node_of(one) == *node)
                .collect();
            let [request] = own.as_slice() else {
                bail!("there are {} requests for {node}", own.len());
            };
            ensure!(request["spec"]["username"] == ACCOUNT, "{request}");
            ensure!(reason(request) == "CSRApproved", "{request}");
            ensure_private(member)
        })?;
        ensure!(requests.len() == self.cluster.members.len(), "{requests:?}");
        Ok(())
    }

    fn act_as_nodes(&self, chart: &str) -> anyhow::Result<()> {
        self.upgrade(chart, &["--set=perNodeCertificate.exclusive=true"])?;
        let cluster = &self.cluster;
        let read = cluster.kubectl(&["get", "pods", &format!("--as={ACCOUNT}")]);
        ensure!(
            read.is_err_and(|error| error.to_string().contains("forbidden")),
            "the account may still read pods"
        );
        // After a restart no daemon has anything in memory that it read as the service account.
        self.restart(chart)?;
        let names = self.names("certified");
        let pods: Vec<_> = cluster
            .members
            .iter()
            .zip(&names)
            .map(|(member, name)| objects::pod(name, &member.node.name, Some("storage")))
            .collect();
        cluster.apply(&pods)?;
        for name in &names {
            cluster.ensure_interfaces(name, &["eth0", "net1"])?;
        }
        cluster.delete(&names)?;
        self.each(|member| nothing_left(&member.node))
    }

    /// Returns kubectl with the certificate of a node's daemon.
    pub(super) fn as_node(&self, node: &Node) -> Command {
        let pki = &self.cluster.control.pki;
        let mut kubectl = node.command("kubectl");
        kubectl
            .args(["--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443"])
            .arg("--certificate-authority")
            .arg(pki.file("ca.crt"))
            .args(["--client-certificate", STORED, "--client-key", STORED]);
        kubectl
    }

    /// Requests a certificate for the second node with the certificate of the first one.
    fn is_denied(&self) -> anyhow::Result<()> {
        let (server, pki) = (self.cluster.server(), &self.cluster.control.pki);
        let [one, other] = ["n1", "n2"].map(|node| format!("system:multus:{node}"));
        ensure!(
            server.name == "n1",
            "the control plane is on {}",
            server.name
        );
        let pem = pki.request(&format!("/O=system:multus/CN={other}"))?;
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "of-another"},
            "spec": {
                "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["digital signature", "client auth"], "expirationSeconds": 86400,
            },
        });
        let mut create = self.as_node(server);
        create.args(["create", "--filename=-"]);
        sh::feed(&mut create, request.to_string().as_bytes())?;
        let expected = format!("requester {one} may request {one}, not {other}");
        sh::until(30, "the request is denied", || {
            let request = self.cluster.get(&["csr", "of-another"])?;
            let condition = &request["status"]["conditions"][0];
            ensure!(
                condition["type"] == "Denied" && condition["message"] == expected.as_str(),
                "{condition}"
            );
            let events = "--field-selector=reason=CSRDenied";
            let events = self.cluster.get(&["events", events])?.to_string();
            ensure!(
                events.contains(&expected),
                "no event has the reason: {events}"
            );
            Ok(())
        })
    }

    /// The second node's certificate is due for renewal and the third one's has expired; the daemons of the other nodes keep theirs.
    fn are_replaced(&self, chart: &str) -> anyhow::Result<()> {
        let mut stored = BTreeMap::new();
        for member in &self.cluster.members {
            let (name, file) = (&member.node.name, member.node.path(STORED));
            let validity = match member.node.number {
                2 => Some(("-23 hours", "+1 hour")),
                3 => Some(("-25 hours", "-1 hour")),
                _ => None,
            };
            if let Some((from, until)) = validity {
                let subject = format!("/O=system:multus/CN=system:multus:{name}");
                let pki = &self.cluster.control.pki;
                pki.reissue(&file, &subject, from, until)?;
            }
            stored.insert(name.clone(), std::fs::read(file)?);
        }
        self.cluster.kubectl(&["delete", "csr", "--all"])?;
        self.restart(chart)?;
        sh::until(60, "two nodes have new certificates", || {
            let mut requested: Vec<_> = self
                .requests()?
                .iter()
                .map(|one| format!("{} of {}", text(&one["spec"]["username"]), node_of(one)))
                .collect();
            requested.sort();
            let expected = [
                "system:multus:n2 of n2".to_owned(),
                format!("{ACCOUNT} of n3"),
            ];
            ensure!(requested == expected, "requests came from {requested:?}");
            self.each(|member| {
                let is_same = std::fs::read(member.node.path(STORED))? == stored[&member.node.name];
                let stays = !matches!(member.node.number, 2 | 3);
                ensure!(is_same == stays, "the certificate is the same: {is_same}");
                ensure_private(member)
            })
        })?;
        self.wait_until_deployed(chart)
    }

    fn restart(&self, chart: &str) -> anyhow::Result<()> {
        let set = format!("daemonset/{chart}");
        self.cluster
            .kubectl(&["rollout", "restart", &set, NAMESPACE])?;
        self.wait_until_rolled_out(&set)
    }

    pub(in crate::suites) fn wait_until_rolled_out(&self, what: &str) -> anyhow::Result<()> {
        let args = ["rollout", "status", what, NAMESPACE, "--timeout=120s"];
        self.cluster.kubectl(&args).map(drop)
    }

    pub(super) fn upgrade(&self, chart: &str, more: &[&str]) -> anyhow::Result<()> {
        let mut helm = self.cluster.helm();
        helm.args(words!(
            "upgrade --reuse-values --namespace kube-system {chart}"
        ))
        .arg(self.env.chart(chart)?)
        .args(more);
        sh::run(&mut helm).map(drop)
    }

    /// Lists all certificate signing requests.
    fn requests(&self) -> anyhow::Result<Vec<Value>> {
        match self.cluster.get(&["csr"])?["items"].take() {
            Value::Array(all) => Ok(all),
            other => bail!("no list of requests: {other}"),
        }
    }
}

/// Returns the node of the requester: from its user name, or the node of the service account's pod.
fn node_of(request: &Value) -> String {
    let spec = &request["spec"];
    let own = text(&spec["username"]).strip_prefix("system:multus:");
    own.unwrap_or(text(&spec["extra"][NODE_OF_TOKEN][0]))
        .to_owned()
}

fn reason(request: &Value) -> &str {
    text(&request["status"]["conditions"][0]["reason"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Fails unless only root can read the certificate and its key.
fn ensure_private(member: &Member) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let stored = member.node.path(STORED);
    let mode = stored.metadata().context(STORED)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{STORED} has mode {mode:o}");
    Ok(())
}
