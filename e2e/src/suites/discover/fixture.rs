//! A node to look at: whatever lies on it, a containerd with whatever configuration, and the hash of every file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{
        Node, Service, file_hashes::FileHashes, layout::ContainerdVersion, network::NodeNetwork,
        runtime,
    },
    sh,
    test_env::TestEnv,
};

/// Where every containerd here keeps its content: not a file of the node's.
pub(super) const ROOT: &str = "/var/lib/containerd";

/// The node; its namespaces and its runtime go with it.
pub(super) struct DiscoverFixture {
    pub(super) node: Node,
    daemon: PathBuf,
    _network: NodeNetwork,
}

impl DiscoverFixture {
    /// An empty node.
    pub(super) fn new(env: &TestEnv) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let before = env.dir.join("n1");
        if before.exists() {
            fs::remove_dir_all(&before).context("cannot empty the node")?;
        }
        Ok(Self {
            node: Node::start(env, &network, 1, &[&env.bin])?,
            daemon: env.program("multus-daemon"),
            _network: network,
        })
    }

    /// Starts containerd with a configuration that lies on the node.
    pub(super) fn containerd(
        &self,
        env: &TestEnv,
        generation: ContainerdVersion,
        config: &str,
        socket: &str,
    ) -> anyhow::Result<Service> {
        let service = runtime::serve(env, &self.node, generation, config)?;
        sh::until(60, "containerd answers", || {
            let mut ctr = self.node.command("/usr/bin/ctr");
            sh::run(ctr.args(["--address", socket, "version"]))
        })?;
        Ok(service)
    }

    /// What `multus-daemon discover` tells, as JSON and as text, before anything is installed.
    pub(super) fn discover(&self, words: &[&str]) -> anyhow::Result<(Value, String)> {
        let ask = |more: &[&str]| {
            let mut command = self.node.command(&self.daemon);
            command.arg("discover").args(words).args(more);
            let output = sh::output(&mut command, b"")?;
            let text = String::from_utf8(output.stdout)?;
            ensure!(!text.is_empty(), "it printed nothing: {}", output.status);
            Ok(text)
        };
        let json = ask(&["--json"])?;
        let json = serde_json::from_str(&json).context("discover --json is no JSON")?;
        Ok((json, ask(&[])?))
    }

    /// A program that nobody runs.
    pub(super) fn plugins(&self, dir: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        for name in ["bridge", "host-local", "loopback", "portmap"] {
            let path = format!("{dir}/{name}");
            self.node.write(&path, format!("the plugin {path}"))?;
            fs::set_permissions(self.node.path(&path), fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Every file and link of the node but containerd's own.
    pub(super) fn hashes(&self) -> anyhow::Result<FileHashes> {
        FileHashes::of(&self.node, &[ROOT])
    }

    /// Makes a link, with its folder.
    pub(super) fn link(&self, target: &str, path: &str) -> anyhow::Result<()> {
        let place = self.node.path(path);
        fs::create_dir_all(place.parent().unwrap_or(Path::new("/")))?;
        std::os::unix::fs::symlink(target, place).with_context(|| path.to_owned())
    }
}
