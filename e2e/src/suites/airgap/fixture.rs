//! One node with a registry and two runtimes, and the program under test on it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};

use crate::{
    node::{Node, layout::ContainerdVersion, network::NodeNetwork},
    sh,
    test_env::TestEnv,
};

/// Where the registry listens, on the node alone.
pub(super) const REGISTRY: &str = "127.0.0.1:5000";
/// Who may use it.
pub(super) const USER: &str = "e2e";
/// With what.
pub(super) const PASSWORD: &str = "for this run alone";

pub(super) struct AirgapFixture {
    pub(super) node: Node,
    xtask: PathBuf,
    log: PathBuf,
    _network: NodeNetwork,
}

/// A runtime with a store of its own.
pub(super) struct Store {
    socket: String,
    ctr: PathBuf,
}

impl AirgapFixture {
    pub(super) fn start(env: &TestEnv) -> anyhow::Result<Self> {
        // Cargo puts both programs into one folder.
        let xtask = std::env::current_exe()?.with_file_name("xtask");
        ensure!(
            xtask.exists(),
            "{} is missing: start this level with `cargo xtask e2e airgap`",
            xtask.display()
        );
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        let fixture = Self {
            log: env.dir.join("log/n1-registry.log"),
            node,
            xtask,
            _network: network,
        };
        fixture.start_registry()?;
        Ok(fixture)
    }

    fn start_registry(&self) -> anyhow::Result<()> {
        let dir = self.node.dir.join("registry");
        fs::create_dir_all(&dir)?;
        let users = sh::run(Command::new("htpasswd").args(["-Bbn", USER, PASSWORD]))?;
        fs::write(dir.join("htpasswd"), users.trim())?;
        let config = dir.join("config.yml");
        let (storage, users) = (dir.join("storage"), dir.join("htpasswd"));
        fs::write(
            &config,
            format!(
                "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {REGISTRY}\nauth:\n  htpasswd:\n    realm: e2e\n    path: {}\n",
                storage.display(),
                users.display()
            ),
        )?;
        self.node.serve("registry", "docker-registry", |command| {
            command.arg("serve").arg(&config)
        })?;
        sh::until(20, "the registry answers", || self.curl(&["/v2/"])).map(drop)
    }

    /// Asks the registry, logged in; the first word is the path.
    pub(super) fn curl(&self, words: &[&str]) -> anyhow::Result<String> {
        let (path, more) = words.split_first().context("a request has a path")?;
        let mut command = self.node.command("curl");
        command.args(["--silent", "--show-error", "--fail", "--user"]);
        command.arg(format!("{USER}:{PASSWORD}")).args(more);
        sh::run(command.arg(format!("http://{REGISTRY}{path}")))
    }

    /// The program under test on the node, logged in.
    pub(super) fn xtask(&self, words: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.xtask_command(words, true))
    }

    /// The same where it must fail, and must say this.
    pub(super) fn refused(&self, words: &[&str], expected: &str) -> anyhow::Result<()> {
        self.refused_by(&mut self.xtask_command(words, true), expected)
    }

    /// A command that must fail, and must say this in one line.
    #[expect(clippy::unused_self, reason = "reads as its neighbours do")]
    pub(super) fn refused_by(&self, command: &mut Command, expected: &str) -> anyhow::Result<()> {
        let Output { status, stderr, .. } = sh::output(command, b"")?;
        let stderr = String::from_utf8_lossy(&stderr);
        ensure!(!status.success(), "it was accepted, not refused: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        ensure!(last.contains(expected), "not `{expected}`: {stderr}");
        Ok(())
    }

    pub(super) fn xtask_command(&self, words: &[&str], login: bool) -> Command {
        let mut command = self.node.command(&self.xtask);
        command
            .args(words)
            .env("DOCKER_CONFIG", self.node.dir.join("no-logins"))
            .env("MULTUS_REGISTRY_PASSWORD", PASSWORD);
        let speaks = words.first() == Some(&"airgap")
            && matches!(words.get(1), Some(&("push" | "pull" | "update")));
        if speaks {
            command.arg("--plain-http");
            if login {
                command.args(["--user", USER]);
            }
        }
        command
    }

    /// skopeo on the node, logged in at the registry.
    pub(super) fn skopeo(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = self.node.command("skopeo");
        sh::run(command.args(words))
    }

    /// Lines of the registry's log with these words in them.
    pub(super) fn asked(&self, words: &[&str]) -> anyhow::Result<usize> {
        let log = fs::read_to_string(&self.log)?;
        let has = |line: &&str| words.iter().all(|word| line.contains(word));
        Ok(log.lines().filter(has).count())
    }

    /// A runtime with an empty store.
    pub(super) fn store(
        &self,
        env: &TestEnv,
        generation: ContainerdVersion,
        name: &str,
    ) -> anyhow::Result<Store> {
        let name = format!("{name}-{generation:?}").to_lowercase();
        let (program, ctr, version) = match generation {
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
        ensure!(images.trim().is_empty(), "the store holds {images}");
        let content = store.ctr(self, &["content", "list", "--quiet"])?;
        ensure!(content.trim().is_empty(), "the store holds {content}");
        Ok(store)
    }
}

impl Store {
    /// `ctr` of its generation, in the namespace of Kubernetes.
    pub(super) fn ctr(&self, fixture: &AirgapFixture, words: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.command(fixture, words))
    }

    pub(super) fn command(&self, fixture: &AirgapFixture, words: &[&str]) -> Command {
        let mut command = fixture.node.command(&self.ctr);
        command.args(["--address", &self.socket, "--namespace", "k8s.io"]);
        command.args(words);
        command
    }

    /// An image is there under this name and digest, with every blob, and unpacks.
    pub(super) fn holds(&self, fixture: &AirgapFixture, reference: &str) -> anyhow::Result<()> {
        let (name, digest) = reference.split_once('@').context("a digest is named")?;
        let found = self.ctr(fixture, &["images", "list", &format!("name=={name}")])?;
        ensure!(found.contains(digest), "{reference} is not there: {found}");
        let check = self.ctr(fixture, &["images", "check", &format!("name=={name}")])?;
        ensure!(check.contains("complete"), "{check}");
        Ok(())
    }
}

/// Unpacks a `.tar.zst`, which `ctr` cannot read.
pub(super) fn unpack(packed: &Path, to: &Path) -> anyhow::Result<()> {
    let mut zstd = Command::new("zstd");
    zstd.args(["--decompress", "--force", "--quiet", "-o"]);
    sh::run(zstd.args([to, packed])).map(drop)
}

/// A path as a word of a command.
pub(super) fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path of this run is text")
}
