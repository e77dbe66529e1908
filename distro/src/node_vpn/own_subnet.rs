//! The IPv6 subnet of this node's pods, from the node's own object in the cluster. flannel names the other nodes' IPv4 subnets and no
//! others, so each node publishes this one, and flannel does not name it to the command that publishes.

use std::path::Path;

use anyhow::{Context as _, ensure};
use node::root::Root;
use serde::Deserialize;
use vpn::Prefix;

use super::curl::{OPTIONS, quoted};

/// The kubeconfig of the kubelet, which may read its own node, below the data directory of K3s.
pub(crate) const KUBECONFIG: &str = "agent/kubelet.kubeconfig";

/// More than such a file.
const MAX: u64 = 1 << 16;

/// The part of a kubeconfig that counts here, with one cluster and one user, as K3s writes it.
#[derive(Deserialize)]
struct Kubeconfig {
    clusters: [NamedCluster; 1],
    users: [NamedUser; 1],
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: String,
    client_key: String,
}

#[derive(Deserialize)]
struct Object {
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "podCIDRs")]
    subnets: Vec<Prefix>,
}

/// Asks the API server for the object of the node with this name.
pub(crate) fn ask(
    root: &Root,
    kubeconfig: &Path,
    node: &str,
    curl: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<Option<Prefix>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    ensure!(
        !node.is_empty() && node.chars().all(is_plain),
        "NODE_NAME has no name of a node"
    );
    let bytes = root.read(kubeconfig, MAX)?;
    let config: Kubeconfig = serde_yaml::from_slice(&bytes)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let [NamedCluster { cluster }] = config.clusters;
    let [NamedUser { user }] = config.users;
    let answer = curl(&format!(
        "{OPTIONS}cacert = {}\ncert = {}\nkey = {}\nurl = {}\n",
        quoted(&cluster.certificate_authority),
        quoted(&user.client_certificate),
        quoted(&user.client_key),
        quoted(&format!("{}/api/v1/nodes/{node}", cluster.server)),
    ))?;
    let object: Object = serde_json::from_str(&answer)?;
    let mut subnets = object.spec.subnets.into_iter();
    Ok(subnets.find(|subnet| subnet.address().is_ipv6()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A file of K3s.
    const FILE: &str = "\
apiVersion: v1
clusters:
- cluster:
    server: https://127.0.0.1:6444
    certificate-authority: /d/agent/server-ca.crt
  name: local
contexts:
- context:
    cluster: local
    namespace: default
    user: user
  name: Default
current-context: Default
kind: Config
preferences: {}
users:
- name: user
  user:
    client-certificate: /d/agent/client-kubelet.crt
    client-key: /d/agent/client-kubelet.key
";

    fn check(file: &str, node: &str, answer: &str) -> anyhow::Result<Option<String>> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("k"), file)?;
        let root = Root::open(dir.path())?;
        let requests = RefCell::new(Vec::new());
        let found = ask(&root, Path::new("/k"), node, |options: &str| {
            requests.borrow_mut().push(options.replace(OPTIONS, ""));
            Ok(answer.to_owned())
        });
        for request in requests.take() {
            assert_eq!(
                request,
                "cacert = \"/d/agent/server-ca.crt\"\ncert = \"/d/agent/client-kubelet.crt\"\nkey = \"/d/agent/client-kubelet.key\"\nurl = \"https://127.0.0.1:6444/api/v1/nodes/n1\"\n"
            );
        }
        Ok(found?.map(|subnet| subnet.to_string()))
    }

    #[test]
    fn subnet_is_that_of_the_nodes_own_object() {
        let both = r#"{"metadata": {}, "spec": {"podCIDR": "10.42.1.0/24", "podCIDRs": ["10.42.1.0/24", "fd42:0:0:1::/64"]}}"#;
        let found = check(FILE, "n1", both).unwrap();
        assert_eq!(found.as_deref(), Some("fd42:0:0:1::/64"));
        let one = r#"{"spec": {"podCIDRs": ["10.42.1.0/24"]}}"#;
        assert_eq!(check(FILE, "n1", one).unwrap(), None);
        assert_eq!(check(FILE, "n1", r#"{"spec": {}}"#).unwrap(), None);
        assert!(check(FILE, "n1", "{}").is_err());
        assert!(check("clusters: []", "n1", both).is_err());
        for name in ["", "n1/status", "n1\" url = \""] {
            assert!(check(FILE, name, both).is_err(), "{name}");
        }
    }
}
