//! Installing and moving the shim changes none of the node's own files and links.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use node::install::{InstallError, Installation, Outcome, RECORD};

use crate::node::{HASH_A, HASH_B, NodeFixture, cniconfig};

const K3S: &str = "/var/lib/rancher/k3s";
const SHIM: &str = "multus-shim";
const CONF: &str = "/etc/cni/net.d";

/// Returns the paths that are new on the node, and checks that all others are unchanged.
fn added(before: &BTreeMap<PathBuf, String>, node: &NodeFixture) -> Vec<PathBuf> {
    let mut now = node.hashes();
    for (path, hash) in before {
        assert_eq!(now.remove(path).as_ref(), Some(hash), "{}", path.display());
    }
    now.into_keys().collect()
}

/// Installs the shim where the runtime looks for plugins.
async fn install_shim(node: &NodeFixture) -> Result<(PathBuf, Outcome), InstallError> {
    let dirs = node.discover().await.dirs.unwrap();
    let shim = dirs.install_dir.join(SHIM);
    let outcome =
        Installation::multiplexer(&node.root).install(&dirs.install_dir, SHIM, b"the shim")?;
    Ok((shim, outcome))
}

/// Makes the runtime report these plugin directories.
fn report_bin_dirs(node: &NodeFixture, bins: &[&str]) {
    let socket = "/run/k3s/containerd/containerd.sock";
    let _ = fs::remove_file(node.path(socket));
    node.runtime(socket, Some(&[cniconfig(bins, CONF)]), "");
}

fn k3s() -> NodeFixture {
    let node = NodeFixture::new();
    node.k3s_release(K3S, HASH_A);
    node.k3s_links(K3S, HASH_A);
    node.default_network(CONF);
    node
}

#[tokio::test]
async fn links_into_the_multicall_program_are_unchanged() {
    let node = k3s();
    let before = node.hashes();
    report_bin_dirs(&node, &[&format!("{K3S}/data/cni")]);
    let (shim, outcome) = install_shim(&node).await.unwrap();
    assert_eq!(outcome, Outcome::Installed);
    assert_eq!(added(&before, &node), [Path::new(RECORD), &shim]);
    assert_eq!(install_shim(&node).await.unwrap().1, Outcome::Unchanged);
    Installation::multiplexer(&node.root)
        .remove_others(&[])
        .unwrap();
    assert_eq!(added(&before, &node), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn upgrade_and_rollback_leave_one_shim_where_the_runtime_looks() {
    let node = k3s();
    node.k3s_release(K3S, HASH_B);
    let before = node.hashes();
    let [old, new] = [HASH_A, HASH_B].map(|hash| format!("{K3S}/data/{hash}/bin"));
    let stable = format!("{K3S}/data/cni");
    for bin in [&old, &new, &stable, &old] {
        report_bin_dirs(&node, &[bin]);
        let (shim, _) = install_shim(&node).await.unwrap();
        assert_eq!(shim, Path::new(bin).join(SHIM));
        Installation::multiplexer(&node.root)
            .remove_others(&[&shim])
            .unwrap();
        let mut expected = [PathBuf::from(RECORD), shim];
        expected.sort();
        assert_eq!(added(&before, &node), expected);
    }
}

#[tokio::test]
async fn directory_removed_with_its_release_is_no_error() {
    let node = k3s();
    node.k3s_release(K3S, HASH_B);
    let [old, new] = [HASH_A, HASH_B].map(|hash| format!("{K3S}/data/{hash}/bin"));
    report_bin_dirs(&node, &[&old]);
    install_shim(&node).await.unwrap();
    fs::remove_dir_all(node.path(format!("{K3S}/data/{HASH_A}"))).unwrap();
    report_bin_dirs(&node, &[&new]);
    let (shim, _) = install_shim(&node).await.unwrap();
    assert!(
        Installation::multiplexer(&node.root)
            .remove_others(&[&shim])
            .unwrap()
            .is_empty()
    );
    assert!(node.root.exists(&shim));
}

#[tokio::test]
async fn foreign_file_or_link_named_as_the_shim_is_never_touched() {
    for is_link in [false, true] {
        let node = k3s();
        let path = format!("{K3S}/data/cni/{SHIM}");
        if is_link {
            node.link(format!("{K3S}/data/{HASH_A}/bin/cni"), &path);
        } else {
            node.program(&path);
        }
        let before = node.hashes();
        report_bin_dirs(&node, &[&format!("{K3S}/data/cni")]);
        let error = install_shim(&node).await.unwrap_err();
        assert!(error.to_string().contains(&path), "{error}");
        assert_eq!(added(&before, &node), [] as [PathBuf; 0]);
    }
}
