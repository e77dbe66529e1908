//! What installing and moving on does to a node's own files: nothing, byte for byte and link for link.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use node::install::{InstallError, Outcome, RECORD, install, remove_others};

use crate::node::{HASH_A, HASH_B, Node, cniconfig};

const K3S: &str = "/var/lib/rancher/k3s";
const SHIM: &str = "multus-shim";
const CONF: &str = "/etc/cni/net.d";

/// What is on the node beside what it had before.
fn added(before: &BTreeMap<PathBuf, String>, node: &Node) -> Vec<PathBuf> {
    let mut now = node.hashes();
    for (path, hash) in before {
        assert_eq!(now.remove(path).as_ref(), Some(hash), "{}", path.display());
    }
    now.into_keys().collect()
}

/// Asks the runtime where to install, and does.
async fn settle(node: &Node) -> Result<(PathBuf, Outcome), InstallError> {
    let dirs = node.discover().await.dirs.unwrap();
    let shim = dirs.install_dir.join(SHIM);
    let outcome = install(&node.root, &dirs.install_dir, SHIM, b"the shim")?;
    Ok((shim, outcome))
}

fn tells(node: &Node, bins: &[&str]) {
    let socket = "/run/k3s/containerd/containerd.sock";
    let _ = fs::remove_file(node.path(socket));
    node.runtime(socket, Some(&[cniconfig(bins, CONF)]), "");
}

fn k3s() -> Node {
    let node = Node::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_links(K3S, HASH_A);
    node.primary(CONF);
    node
}

#[tokio::test]
async fn links_into_the_multicall_program_stay_what_they_are() {
    let node = k3s();
    let before = node.hashes();
    tells(&node, &[&format!("{K3S}/data/cni")]);
    let (shim, outcome) = settle(&node).await.unwrap();
    assert_eq!(outcome, Outcome::Installed);
    assert_eq!(added(&before, &node), [Path::new(RECORD), &shim]);
    assert_eq!(settle(&node).await.unwrap().1, Outcome::Unchanged);
    remove_others(&node.root, &[]).unwrap();
    assert_eq!(added(&before, &node), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn an_upgrade_and_a_rollback_leave_one_shim_where_the_runtime_looks() {
    let node = k3s();
    node.k3s_release(K3S, HASH_B);
    let before = node.hashes();
    let [old, new] = [HASH_A, HASH_B].map(|hash| format!("{K3S}/data/{hash}/bin"));
    let stable = format!("{K3S}/data/cni");
    for bin in [&old, &new, &stable, &old] {
        tells(&node, &[bin]);
        let (shim, _) = settle(&node).await.unwrap();
        assert_eq!(shim, Path::new(bin).join(SHIM));
        remove_others(&node.root, &[&shim]).unwrap();
        let mut expected = [PathBuf::from(RECORD), shim];
        expected.sort();
        assert_eq!(added(&before, &node), expected);
    }
}

#[tokio::test]
async fn a_directory_that_went_with_its_release_is_no_error() {
    let node = k3s();
    node.k3s_release(K3S, HASH_B);
    let [old, new] = [HASH_A, HASH_B].map(|hash| format!("{K3S}/data/{hash}/bin"));
    tells(&node, &[&old]);
    settle(&node).await.unwrap();
    fs::remove_dir_all(node.path(format!("{K3S}/data/{HASH_A}"))).unwrap();
    tells(&node, &[&new]);
    let (shim, _) = settle(&node).await.unwrap();
    assert!(remove_others(&node.root, &[&shim]).unwrap().is_empty());
    assert!(node.root.exists(&shim));
}

#[tokio::test]
async fn a_foreign_file_or_link_of_our_name_is_never_touched() {
    for is_link in [false, true] {
        let node = k3s();
        let place = format!("{K3S}/data/cni/{SHIM}");
        if is_link {
            node.link(format!("{K3S}/data/{HASH_A}/bin/cni"), &place);
        } else {
            node.program(&place);
        }
        let before = node.hashes();
        tells(&node, &[&format!("{K3S}/data/cni")]);
        let error = settle(&node).await.unwrap_err();
        assert!(error.to_string().contains(&place), "{error}");
        assert_eq!(added(&before, &node), [] as [PathBuf; 0]);
    }
}
