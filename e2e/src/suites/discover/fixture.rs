//! An empty node on which tests put files and a containerd with any configuration.

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

/// The content directory of every containerd here, which is left out of the hashes.
pub(super) const ROOT: &str = "/var/lib/containerd";

pub(super) struct DiscoverFixture {
    pub(super) node: Node,
    daemon: PathBuf,
    _network: NodeNetwork,
}

impl DiscoverFixture {
    /// Starts an empty node.
    pub(super) fn new(env: &TestEnv) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        Ok(Self {
            node: Node::start(env, &network, 1, &[&env.bin])?,
            daemon: env.program("multus-daemon"),
            _network: network,
        })
    }

    /// Starts containerd with a configuration file of the node.
    pub(super) fn containerd(
        &self,
        env: &TestEnv,
        containerd_version: ContainerdVersion,
        config: &str,
        socket: &str,
    ) -> anyhow::Result<Service> {
        let service = runtime::serve(env, &self.node, containerd_version, config)?;
        sh::until(60, "containerd answers", || {
            let mut ctr = self.node.command("/usr/bin/ctr");
            sh::run(ctr.args(["--address", socket, "version"]))
        })?;
        Ok(service)
    }

    /// Runs `multus-daemon discover`; returns its output as JSON and as text.
    pub(super) fn discover(&self, args: &[&str]) -> anyhow::Result<(Value, String)> {
        let ask = |more: &[&str]| {
            let mut command = self.node.command(&self.daemon);
            command.arg("discover").args(args).args(more);
            let output = sh::output(&mut command, b"")?;
            let text = String::from_utf8(output.stdout)?;
            ensure!(!text.is_empty(), "it printed nothing: {}", output.status);
            Ok(text)
        };
        let json = ask(&["--json"])?;
        let json = serde_json::from_str(&json).context("discover --json printed no JSON")?;
        Ok((json, ask(&[])?))
    }

    /// Writes files that stand for plugins into a directory.
    pub(super) fn plugins(&self, dir: &str) -> anyhow::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        for name in ["bridge", "host-local", "loopback", "portmap"] {
            let path = format!("{dir}/{name}");
            self.node.write(&path, format!("the plugin {path}"))?;
            fs::set_permissions(self.node.path(&path), fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Hashes the node's files except containerd's content.
    pub(super) fn hashes(&self) -> anyhow::Result<FileHashes> {
        FileHashes::of(&self.node, &[ROOT])
    }

    /// Creates a symbolic link and its directory.
    pub(super) fn link(&self, target: &str, path: &str) -> anyhow::Result<()> {
        let link = self.node.path(path);
        fs::create_dir_all(link.parent().unwrap_or(Path::new("/")))?;
        std::os::unix::fs::symlink(target, link).with_context(|| path.to_owned())
    }
}
