//! The first process of a node: mounts the node's own directories over the machine's, reaps orphans, and ends with the test.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change},
    process::{WaitOptions, wait},
};

/// Directories that each node has for itself: its own are mounted over the machine's.
pub(crate) const DIRECTORIES: &[&str] = &[
    "/etc/cni",
    "/etc/kubernetes",
    "/etc/rancher",
    "/opt/cni",
    "/srv",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/multus",
    "/var/lib/multus-vpn",
    "/var/lib/rancher",
    "/var/log/containers",
    "/var/log/pods",
];
/// The argument that makes this program a node's first process.
pub(crate) const NAME: &str = "node-init";
/// The line that it prints when commands can enter the node.
pub(crate) const READY: &str = "ready\n";

/// Runs as process 1 of new mount and process namespaces; `directories` holds the node's own ones.
pub(crate) fn run(directories: &Path) -> anyhow::Result<()> {
    for directory in DIRECTORIES {
        let own = directories.join(directory.trim_start_matches('/'));
        mount_bind(&own, *directory).with_context(|| format!("cannot mount {directory}"))?;
    }
    mount("node", "/run", "tmpfs", MountFlags::empty(), c"mode=755")
        .context("cannot mount /run")?;
    // Containers with mount propagation must see the volumes that a kubelet mounts later.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change("/", shared).context("cannot share mounts")?;
    // The end of `cat` is the end of the test: its stdin closes with the test, even with one that is killed.
    let watch = Command::new("cat")
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start cat")?;
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes())?;
    out.flush()?;
    loop {
        // The kernel gives every orphan of the node to this process.
        if let Some((pid, _)) = wait(WaitOptions::empty())?
            && pid.as_raw_nonzero().get().cast_unsigned() == watch.id()
        {
            return Ok(());
        }
    }
}
