//! A node's first process: lays the node's own folders over the machine's, reaps, and ends with the test.

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

use crate::node::network::FOLDERS;

/// The argument that makes this program a node's first process.
pub(crate) const NAME: &str = "node-init";
/// What it says once the node can be entered.
pub(crate) const READY: &str = "ready\n";

/// Runs as process 1 of new mount and process namespaces; `folders` holds the node's own.
pub(crate) fn run(folders: &Path) -> anyhow::Result<()> {
    for folder in FOLDERS {
        let own = folders.join(folder.trim_start_matches('/'));
        mount_bind(&own, *folder).with_context(|| format!("cannot mount {folder}"))?;
    }
    mount("node", "/run", "tmpfs", MountFlags::empty(), c"mode=755")
        .context("cannot mount /run")?;
    // Mounts of volumes must reach the containers that asked for propagation.
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change("/", shared).context("cannot share mounts")?;
    // Its input ends when the test does, however the test ends.
    let watch = Command::new("cat")
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start cat")?;
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes())?;
    out.flush()?;
    loop {
        // Every orphan of the node ends here.
        if let Some((pid, _)) = wait(WaitOptions::empty())?
            && pid.as_raw_nonzero().get().cast_unsigned() == watch.id()
        {
            return Ok(());
        }
    }
}
