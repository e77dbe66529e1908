//! A certificate for each node's daemon: asked for by the daemon, let pass by the approver in its Deployment, signed by the cluster, and
//! after that the only identity of the daemons. Nobody gets one for another node.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{ClusterFixture, NAMESPACE};
use crate::{
    cluster::Member,
    control_plane::objects,
    node::inspect::nothing_left,
    report::{CheckFailed, Report},
    sh,
};

const STORED: &str = "/var/lib/multus/certs/multus-client-current.pem";
/// Who the daemons are without certificates.
const ACCOUNT: &str = "system:serviceaccount:kube-system:multus";
/// Where the API server says on which node the pod of an account runs.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

impl ClusterFixture<'_> {
    /// Certificates with a chart that is installed without them.
    pub(super) fn certificates(&self, chart: &str, report: &mut Report) -> Result<(), CheckFailed> {
        let of = |what: &str| format!("{chart}: {what}");
        report.check(
            &of("each daemon asks for its node's certificate, and the approver lets it pass"),
            || self.are_certified(chart),
        )?;
        report.check(
            &of("pods get their networks once certificates are the daemons' only rights"),
            || self.act_as_nodes(chart),
        )?;
        report.check(
            &of("the approver denies a certificate of another node, and says why"),
            || self.is_denied(),
        )?;
        report.check(
            &of("certificates that are due or have expired are replaced at a start"),
            || self.are_replaced(chart),
        )
    }

    fn are_certified(&self, chart: &str) -> anyhow::Result<()> {
        // The second is for `asked`: one update of every daemon instead of two.
        let values = [
            "--set=perNodeCertificate.enabled=true",
            "--set=dynamicNetworksController.enabled=true",
        ];
        self.upgrade(chart, &values)?;
        self.is_rolled_out(&format!("deployment/{chart}-approver"))?;
        self.is_rolled_out(&format!("daemonset/{chart}"))?;
        self.is_deployed(chart)?;
        let requests = self.requests()?;
        self.each(|member| {
            let node = &member.node.name;
            let own: Vec<_> = requests
                .iter()
                .filter(|one| node_of(one) == *node)
                .collect();
            let [request] = own.as_slice() else {
                bail!("{node} has asked {} times", own.len());
            };
            ensure!(request["spec"]["username"] == ACCOUNT, "{request}");
            ensure!(reason(request) == "CSRApproved", "{request}");
            is_private(member)
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
        // None of them goes on with what it read under another name.
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

    /// The first node's daemon asks for the name of the second one.
    fn is_denied(&self) -> anyhow::Result<()> {
        let (server, control) = (self.cluster.server(), &self.cluster.control);
        let [one, other] = ["n1", "n2"].map(|node| format!("system:multus:{node}"));
        ensure!(
            server.name == "n1",
            "the control plane is on {}",
            server.name
        );
        let pem = control
            .pki
            .request(&format!("/O=system:multus/CN={other}"))?;
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "of-another"},
            "spec": {
                "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem),
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["digital signature", "client auth"], "expirationSeconds": 86400,
            },
        });
        let mut create = server.command("kubectl");
        create
            .args(["--kubeconfig=/dev/null", "--server=https://127.0.0.1:6443"])
            .arg("--certificate-authority")
            .arg(control.pki.file("ca.crt"))
            .args(["--client-certificate", STORED, "--client-key", STORED])
            .args(["create", "--filename=-"]);
        sh::feed(&mut create, request.to_string().as_bytes())?;
        let expected = format!("requester {one} may ask for {one}, not for {other}");
        sh::until(30, "the request is denied", || {
            let request = self.cluster.get(&["csr", "of-another"])?;
            let condition = &request["status"]["conditions"][0];
            ensure!(
                condition["type"] == "Denied" && condition["message"] == expected.as_str(),
                "{condition}"
            );
            let events = "--field-selector=reason=CSRDenied";
            let events = self.cluster.get(&["events", events])?.to_string();
            ensure!(events.contains(&expected), "no event tells of it: {events}");
            Ok(())
        })
    }

    /// The second node's certificate is due, the third one's has expired while its daemon was away; all others stay.
    fn are_replaced(&self, chart: &str) -> anyhow::Result<()> {
        let mut stored = BTreeMap::new();
        for member in &self.cluster.members {
            let (name, file) = (&member.node.name, member.node.path(STORED));
            let life = match member.node.number {
                2 => Some(("-23 hours", "+1 hour")),
                3 => Some(("-25 hours", "-1 hour")),
                _ => None,
            };
            if let Some((from, until)) = life {
                let subject = format!("/O=system:multus/CN=system:multus:{name}");
                let pki = &self.cluster.control.pki;
                pki.reissue(&file, &subject, from, until)?;
            }
            stored.insert(name.clone(), std::fs::read(file)?);
        }
        self.cluster.kubectl(&["delete", "csr", "--all"])?;
        self.restart(chart)?;
        sh::until(60, "two nodes have others", || {
            let mut asked: Vec<_> = self
                .requests()?
                .iter()
                .map(|one| format!("{} of {}", text(&one["spec"]["username"]), node_of(one)))
                .collect();
            asked.sort();
            let expected = [
                "system:multus:n2 of n2".to_owned(),
                format!("{ACCOUNT} of n3"),
            ];
            ensure!(asked == expected, "requests came from {asked:?}");
            self.each(|member| {
                let is_same = std::fs::read(member.node.path(STORED))? == stored[&member.node.name];
                let stays = !matches!(member.node.number, 2 | 3);
                ensure!(is_same == stays, "it is the same: {is_same}");
                is_private(member)
            })
        })?;
        self.is_deployed(chart)
    }

    fn restart(&self, chart: &str) -> anyhow::Result<()> {
        let set = format!("daemonset/{chart}");
        self.cluster
            .kubectl(&["rollout", "restart", &set, NAMESPACE])?;
        self.is_rolled_out(&set)
    }

    pub(super) fn is_rolled_out(&self, what: &str) -> anyhow::Result<()> {
        let words = ["rollout", "status", what, NAMESPACE, "--timeout=120s"];
        self.cluster.kubectl(&words).map(drop)
    }

    pub(super) fn upgrade(&self, chart: &str, more: &[&str]) -> anyhow::Result<()> {
        let mut helm = self.cluster.helm();
        helm.args([
            "upgrade",
            "--reuse-values",
            "--namespace",
            "kube-system",
            chart,
        ])
        .arg(self.env.chart(chart)?)
        .args(more);
        sh::run(&mut helm).map(drop)
    }

    /// Every request for a certificate that there is.
    fn requests(&self) -> anyhow::Result<Vec<Value>> {
        match self.cluster.get(&["csr"])?["items"].take() {
            Value::Array(all) => Ok(all),
            other => bail!("no list of requests: {other}"),
        }
    }
}

/// The node for which somebody asks: its own by name, or where the account's pod runs.
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

/// The key is root's alone.
fn is_private(member: &Member) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let stored = member.node.path(STORED);
    let mode = stored.metadata().context(STORED)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{STORED} has mode {mode:o}");
    Ok(())
}
