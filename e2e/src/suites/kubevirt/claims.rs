//! Claims of `KubeVirt`'s ipam-extensions: its controller makes them for a machine, its webhook names them in the requests of pods, and the
//! machine keeps its addresses. No registry has its program: it is built by hand of <https://github.com/kubevirt/ipam-extensions>.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{NETWORKS, Network, PATIENCE, Suite, account, machine, plumbing};
use crate::{
    cluster::Cluster,
    control_plane::objects,
    node::{Node, inspect::nothing_left_but},
    report::{Checked, Report},
    sh::{self, words},
};

/// The variable that names the program.
pub(super) const PROGRAM: &str = "MULTUS_IPAM_EXTENSIONS";
const CLAIMS: &str = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/default/ipamclaims";
const BLOCKS: &str = "/apis/ipam.multus-rs.cni.cncf.io/v1alpha1/addressblocks";
/// The port of its webhook.
const WEBHOOK: u16 = 9443;
const HOME: Network = Network::new("home", "home");
const GARDEN: Network = Network::new("garden", "garden");

impl Suite<'_> {
    pub(super) fn claims(&self, program: &Path, report: &mut Report) -> Checked {
        report.check("ipam-extensions takes pods of machines", || {
            self.start_extensions(program)
        })?;
        let (pod, address) =
            report.check("a machine has a claim, whose address its pod has", || {
                self.cluster.apply(&[machine(&[HOME])])?;
                self.machine_runs()?;
                let pod = self.launcher()?;
                Ok((pod.clone(), self.claimed(&pod, HOME)?))
            })?;
        report.check(
            "a network that is plugged in gets a claim, and the other one is not attached again",
            || {
                let before = self.link(HOME)?;
                self.plug(&[HOME], GARDEN)?;
                self.claimed(&self.cluster.pod(objects::name(&pod)?)?, GARDEN)?;
                let after = self.link(HOME)?;
                ensure!(before == after, "its link was {before}, and is {after}");
                Ok(())
            },
        )?;
        report.check("the machine moves, and both pods have its address", || {
            let left = plumbing::of(self.nodes(), &pod)?.node;
            self.move_machine("with-claim")?;
            let (source, target) = (self.cluster.pod(objects::name(&pod)?)?, self.launcher()?);
            for pod in [&source, &target] {
                let claimed = self.claimed(pod, HOME)?;
                ensure!(claimed == address, "{claimed} instead of {address}");
            }
            self.handler.end_launcher(objects::name(&source)?)?;
            nothing_left_but_blocks(left)?;
            let claimed = self.claimed(&self.launcher()?, HOME)?;
            ensure!(claimed == address, "{claimed} instead of {address}");
            Ok(())
        })?;
        report.check(
            "the machine is deleted, its claims go, and nothing is left",
            || {
                self.cluster
                    .kubectl(&["delete", "virtualmachine", "vm", "--timeout=90s"])?;
                sh::until(60, "the claims are gone", || {
                    let claims = self.cluster.api.get(CLAIMS)?;
                    ensure!(
                        claims["items"] == json!([]),
                        "there are {}",
                        claims["items"]
                    );
                    Ok(())
                })?;
                sh::until(60, "their addresses are free", || {
                    let blocks = self.cluster.api.get(BLOCKS)?;
                    let blocks = blocks["items"].as_array().into_iter().flatten();
                    let slots = blocks.filter_map(|block| block["spec"]["slots"].as_array());
                    let mut owners = slots.flatten().map(|slot| &slot["owner"]);
                    let owner = owners.find(|owner| **owner != "");
                    ensure!(owner.is_none(), "one is of {owner:?}");
                    Ok(())
                })?;
                self.nodes().try_for_each(nothing_left_but_blocks)
            },
        )
    }

    fn start_extensions(&self, program: &Path) -> anyhow::Result<()> {
        let (cluster, node) = (self.cluster, self.cluster.server());
        let pki = &cluster.control.pki;
        let (kubeconfig, address) = (account(cluster, "ipam")?, node.address());
        pki.sign("ipam", "/CN=ipam", &format!("subjectAltName=IP:{address}"))?;
        let directory = node.dir.join("ipam-extensions");
        fs::create_dir_all(&directory)?;
        for end in ["crt", "key"] {
            fs::copy(
                pki.file(&format!("ipam.{end}")),
                directory.join(format!("tls.{end}")),
            )?;
        }
        let networks = [HOME, GARDEN].map(|network| {
            let name = network.definition;
            let number = name.len();
            let ipam = json!({"type": "multus-ipam", "subnet": format!("10.46.{number}.0/24")});
            let config = json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": format!("br-{name}"),
                "allowPersistentIPs": true, "ipam": ipam});
            objects::network(name, &config)
        });
        cluster.apply(&networks)?;
        node.serve("ipam-extensions", program, |command| {
            command
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .arg("--certificates-dir")
                .arg(directory)
        })?;
        let authority = STANDARD.encode(fs::read(pki.file("ca.crt"))?);
        let url = format!("https://{address}:{WEBHOOK}/mutate-v1-pod");
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "ipam-extensions"},
            "webhooks": [{
                "name": "ipam-claims.k8s.cni.cncf.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"url": url, "caBundle": authority},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}],
            }],
        });
        cluster.apply(&[webhook])?;
        let pod = objects::pod("trial", &node.name, None);
        sh::until(60, "its webhook takes a pod", || {
            let path = "/api/v1/namespaces/default/pods?dryRun=All";
            cluster.api.request("POST", path, &pod).map(drop)
        })
    }

    /// Returns the address of a network's interface of the machine's pod; fails unless its claim has it, too.
    fn claimed(&self, pod: &Value, network: Network) -> anyhow::Result<String> {
        let name = format!("vm.{}", network.name);
        let request = pod["metadata"]["annotations"][NETWORKS].as_str();
        let reference = format!("\"ipam-claim-reference\":\"{name}\"");
        ensure!(
            request.is_some_and(|text| text.contains(&reference)),
            "the pod asks for {request:?}"
        );
        let status = objects::status(pod)?.into_iter();
        let mut own = status.filter(|(_, interface, _)| *interface == network.interface());
        let (_, _, addresses) = own.next().context("the pod has no such interface")?;
        sh::until(PATIENCE, "the claim has the address", || {
            let path = format!("{CLAIMS}/{name}");
            let claim = self.cluster.api.get(&path)?;
            let claimed = claim["status"]["ips"].as_array().into_iter().flatten();
            let claimed: Vec<_> = claimed
                .filter_map(|one| one.as_str()?.split('/').next())
                .collect();
            ensure!(claimed == addresses, "{claimed:?} instead of {addresses:?}");
            Ok(())
        })?;
        let address = addresses.first().context("it has no address")?;
        Ok(address.clone())
    }

    /// Returns the number of a network's link in the machine's pod, which another link would not have, once the machine is connected with it.
    fn link(&self, network: Network) -> anyhow::Result<Value> {
        let hash = network.interface();
        let show = format!("-json link show dev {}-nic", hash.trim_start_matches("pod"));
        let pod = plumbing::of(self.nodes(), &self.launcher()?)?;
        sh::until(PATIENCE, "the machine is connected", || {
            let links: Value = serde_json::from_str(&pod.ip(&show)?)?;
            Ok(links[0]["ifindex"].clone())
        })
    }
}

/// A node keeps the record of a block without a use for ten minutes.
fn nothing_left_but_blocks(node: &Node) -> anyhow::Result<()> {
    nothing_left_but(node, |left| left.contains("/ipam/blocks/"))
}

/// Prepares what ipam-extensions and the daemons need of a cluster.
pub(super) fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.apply(&[super::super::ipam::kind_of_claims()?])?;
    cluster
        .kubectl(&words!(
            "wait --for=condition=Established crd --all --timeout=60s"
        ))
        .map(drop)
}
