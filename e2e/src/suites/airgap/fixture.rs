//! A node with a registry, on which `cargo xtask`'s program and both versions of containerd run.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};

pub(super) use crate::registry::{PASSWORD, USER};
use crate::{
    checkout,
    node::{Node, layout::ContainerdVersion, network::NodeNetwork},
    registry::Registry,
    sh,
    test_env::TestEnv,
};

/// The registry's address on the node's loopback.
pub(super) const REGISTRY: &str = "127.0.0.1:5000";

pub(super) struct AirgapFixture {
    pub(super) node: Node,
    xtask: PathBuf,
    pub(super) registry: Registry,
    _network: NodeNetwork,
}

/// A containerd with a store of its own.
pub(super) struct Store {
    socket: String,
    ctr: PathBuf,
}

impl AirgapFixture {
    pub(super) fn start(env: &TestEnv) -> anyhow::Result<Self> {
        let xtask = checkout::xtask()?;
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        Ok(Self {
            registry: Registry::start(&node, REGISTRY)?,
            node,
            xtask,
            _network: network,
        })
    }

    /// Sends a request to the registry as its user; the first argument is the path.
    pub(super) fn curl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.registry.curl(&self.node, args)
    }

    /// Runs xtask on the node as the registry's user.
    pub(super) fn xtask(&self, args: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.xtask_command(args, true))
    }

    /// Runs a command, which must fail; the last line of its stderr must contain `expected`.
    #[expect(clippy::unused_self, reason = "callers use it as the other methods")]
    pub(super) fn ensure_fails(&self, command: &mut Command, expected: &str) -> anyhow::Result<()> {
        let Output { status, stderr, .. } = sh::output(command, b"")?;
        let stderr = String::from_utf8_lossy(&stderr);
        ensure!(!status.success(), "the command succeeded: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        ensure!(
            last.contains(expected),
            "the error lacks `{expected}`: {stderr}"
        );
        Ok(())
    }

    pub(super) fn xtask_command(&self, args: &[&str], login: bool) -> Command {
        let mut command = self.node.command(&self.xtask);
        command
            .args(args)
            .env("DOCKER_CONFIG", self.node.dir.join("no-logins"))
            .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
        let speaks = matches!(args, ["airgap", "push", ..] | ["release", "publish", ..]);
        if speaks {
            command.arg("--plain-http");
            if login {
                command.arg(format!("--user={REGISTRY}={USER}"));
            }
        }
        command
    }

    /// Runs skopeo on the node.
    pub(super) fn skopeo(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.node.command("skopeo");
        sh::run(command.args(args))
    }

    /// Counts the lines of the registry's log that contain all these texts.
    pub(super) fn logged_requests(&self, texts: &[&str]) -> anyhow::Result<usize> {
        self.registry.logged_requests(texts)
    }

    /// Starts a containerd with an empty store.
    pub(super) fn store(
        &self,
        env: &TestEnv,
        containerd_version: ContainerdVersion,
        name: &str,
    ) -> anyhow::Result<Store> {
        let name = format!("{name}-{containerd_version:?}").to_lowercase();
        let (program, ctr, version) = match containerd_version {
            ContainerdVersion::V1 => ("/usr/bin/containerd".into(), "/usr/bin/ctr".into(), 2),
            ContainerdVersion::V2 => (env.bin.join("containerd"), env.bin.join("ctr"), 3),
        };
        let dir = format!("/var/lib/containerd/{name}");
        let socket = format!("{dir}/containerd.sock");
        let config = format!("{dir}/config.toml");
        self.node.write(
            &config,
            format!(
                "version = {version}\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n[grpc]\n  address = \"{socket}\"\n"
            ),
        )?;
        self.node
            .serve(&format!("containerd-{name}"), &program, |command| {
                command.arg("--config").arg(&config)
            })?;
        let store = Store { socket, ctr };
        sh::until(60, "containerd answers", || store.ctr(self, &["version"]))?;
        let images = store.ctr(self, &["images", "list", "--quiet"])?;
        ensure!(images.trim().is_empty(), "the store has {images}");
        let content = store.ctr(self, &["content", "list", "--quiet"])?;
        ensure!(content.trim().is_empty(), "the store has {content}");
        Ok(store)
    }
}

impl Store {
    /// Runs `ctr` of the same version, in the namespace of Kubernetes.
    pub(super) fn ctr(&self, fixture: &AirgapFixture, args: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.command(fixture, args))
    }

    pub(super) fn command(&self, fixture: &AirgapFixture, args: &[&str]) -> Command {
        let mut command = fixture.node.command(&self.ctr);
        command.args(["--address", &self.socket, "--namespace", "k8s.io"]);
        command.args(args);
        command
    }

    /// Fails unless the store has an image of this name and digest with all its blobs.
    pub(super) fn ensure_image(
        &self,
        fixture: &AirgapFixture,
        reference: &str,
    ) -> anyhow::Result<()> {
        let (name, digest) = reference.split_once('@').context("a digest is named")?;
        let found = self.ctr(fixture, &["images", "list", &format!("name=={name}")])?;
        ensure!(found.contains(digest), "{reference} is not there: {found}");
        let check = self.ctr(fixture, &["images", "check", &format!("name=={name}")])?;
        ensure!(check.contains("complete"), "{check}");
        Ok(())
    }
}

/// Returns a path as an argument of a command.
pub(super) fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path of this run is text")
}
