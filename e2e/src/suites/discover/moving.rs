//! One node whose containerd is upgraded, rolled back and restarted with other directories while the daemon runs.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::fixture::{DiscoverFixture, ROOT};
use crate::{
    control_plane::{Components, ControlPlane, objects},
    node::{
        Service,
        cri::{self, Client},
        file_hashes::FileHashes,
        layout::{self, ContainerdVersion, Layout, NodePaths},
        runtime::{IMAGE, Runtime},
    },
    report::{CheckFailed, Report},
    sh,
    test_env::TestEnv,
};

const DAEMON_CONFIG: &str = "/etc/cni/e2e-daemon-config.json";
const POD: &str = "8f1f2f5e-0000-4000-8000-00000000d15c";
const SHIM: &str = "multus-shim";
const CONFIGURATION: &str = "00-multus.conf";
const PRIMARY: &str = "10-primary.conflist";
const OTHER: &str = "/var/lib/rancher/other/agent/etc/cni/net.d";
const USUAL: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    use ContainerdVersion::{V1, V2};
    let mut fixture = report.check("a node of k3s with containerd One runs our pod", || {
        MovingFixture::new(env)
    })?;
    let (stable, hash, agent) = (
        fixture.paths.bin_dir.clone(),
        fixture.paths.plugins.clone().unwrap_or_default(),
        fixture.paths.conf_dir.clone(),
    );
    report.check("the daemon finds its place", || fixture.start_daemon(env))?;
    for (name, generation, bin, conf) in [
        (
            "an upgrade to containerd Two with a hash directory",
            V2,
            hash.as_str(),
            agent.as_str(),
        ),
        ("a rollback", V1, &stable, &agent),
        ("a restart with another data directory", V2, &stable, OTHER),
        (
            "flannel off: the runtime's own defaults",
            V2,
            USUAL.0,
            USUAL.1,
        ),
        ("flannel on", V2, &stable, &agent),
        ("flannel off again", V2, USUAL.0, USUAL.1),
    ] {
        report.check(
            &format!("{name}: new place first, then the old one is cleaned"),
            || fixture.moves(env, generation, bin, conf),
        )?;
    }
    report.check("the plugin directory is replaced from above", || {
        fixture.replaced()
    })?;
    report.check(
        "the configuration directory is wiped, and the primary returns",
        || fixture.wiped(),
    )?;
    report.check("uninstall leaves every file as it was", || {
        fixture.ends(env)
    })
}

struct MovingFixture {
    base: DiscoverFixture,
    control: ControlPlane,
    containerd: Service,
    daemon: Option<Service>,
    paths: NodePaths,
    /// The node without us.
    before: FileHashes,
}

impl MovingFixture {
    fn new(env: &TestEnv) -> anyhow::Result<Self> {
        let base = DiscoverFixture::new(env)?;
        let node = &base.node;
        let control = ControlPlane::start(node, Components::ApiServer)?;
        objects::definitions(env, &control, node, &[objects::storage()])?;
        let runtime = Runtime::start(env, node, Layout::K3s, ContainerdVersion::V1)?;
        // The other paths that the runtime will be told of, so that nothing but us changes files from here on.
        let primary = layout::primary("1.0.0", node.number);
        for conf in [OTHER, USUAL.1] {
            node.write(&format!("{conf}/{PRIMARY}"), &primary)?;
        }
        base.plugins(USUAL.0)?;
        node.write(DAEMON_CONFIG, json!({"logLevel": "debug"}).to_string())?;
        let mut client = Client::connect(node.path(&runtime.paths.socket))?;
        client.run(&cri::host_network_sandbox(POD))?;
        let mut fixture = Self {
            control,
            containerd: runtime.containerd,
            daemon: None,
            paths: runtime.paths,
            before: FileHashes::default(),
            base,
        };
        for generation in [ContainerdVersion::V1, ContainerdVersion::V2] {
            for (bin, conf) in fixture.moments() {
                let paths = NodePaths {
                    bin_dir: bin.clone(),
                    conf_dir: conf.clone(),
                    root: fixture.paths.root.clone(),
                    state: fixture.paths.state.clone(),
                    socket: fixture.paths.socket.clone(),
                    plugins: None,
                    config: String::new(),
                };
                let text = layout::containerd(generation, &paths, IMAGE);
                let path = config(generation, &bin, &conf);
                fixture.base.node.write(&path, text)?;
            }
        }
        fixture.before = fixture.hashes()?;
        Ok(fixture)
    }

    /// Every pair of directories that there will be.
    fn moments(&self) -> Vec<(String, String)> {
        let hash = self.paths.plugins.clone().unwrap_or_default();
        let (stable, agent) = (self.paths.bin_dir.clone(), self.paths.conf_dir.clone());
        vec![
            (stable.clone(), agent.clone()),
            (hash, agent),
            (stable, OTHER.to_owned()),
            (USUAL.0.to_owned(), USUAL.1.to_owned()),
        ]
    }

    /// The node's files, those of its containerd apart.
    fn hashes(&self) -> anyhow::Result<FileHashes> {
        let others = [ROOT, &self.paths.root, "/var/lib/multus"];
        FileHashes::of(&self.base.node, &others)
    }

    fn start_daemon(&mut self, env: &TestEnv) -> anyhow::Result<()> {
        let program = env.program("multus-daemon");
        let (node, admin) = (&self.base.node, self.control.admin());
        let daemon = node.serve("daemon", &program, |command| {
            command
                .env("MULTUS_NODE_NAME", &node.name)
                .env("POD_UID", POD)
                .env("KUBECONFIG", &admin)
                .args(["run", "--root", "/", "--config", DAEMON_CONFIG])
        })?;
        self.daemon = Some(daemon);
        sh::until(60, "the daemon is ready", || {
            let mut status = node.command(&program);
            status.env("POD_UID", POD);
            sh::run(status.args([
                "status",
                "--ready",
                "--root",
                "/",
                "--config",
                DAEMON_CONFIG,
            ]))
        })?;
        self.is_at(&self.paths.bin_dir, &self.paths.conf_dir)
    }

    /// Fails until our two files are at these paths, at no other, and everything else is as it was.
    fn is_at(&self, bin: &str, conf: &str) -> anyhow::Result<()> {
        sh::until(
            60,
            &format!("our files are in {bin} and {conf} alone"),
            || {
                let mut now = self.hashes()?;
                for path in [format!("{bin}/{SHIM}"), format!("{conf}/{CONFIGURATION}")] {
                    ensure!(now.remove(&path), "{path} is not there");
                }
                now.ensure_equal(&self.before)
            },
        )
    }

    /// The runtime is restarted with these directories; at no moment is there no configuration of ours, or one without its shim.
    fn moves(
        &mut self,
        env: &TestEnv,
        generation: ContainerdVersion,
        bin: &str,
        conf: &str,
    ) -> anyhow::Result<()> {
        let node = &self.base.node;
        let path = |dir: &str, name: &str| node.path(&format!("{dir}/{name}"));
        let watch = Watch::start(Moments {
            old: [self.present(CONFIGURATION)?, self.present(SHIM)?],
            new: [path(conf, CONFIGURATION), path(bin, SHIM)],
        });
        node.end(&self.containerd, "TERM")?;
        let config = config(generation, bin, conf);
        let socket = self.paths.socket.clone();
        self.containerd = self.base.containerd(env, generation, &config, &socket)?;
        self.is_at(bin, conf)?;
        watch.end()
    }

    /// Where the file of ours is.
    fn present(&self, name: &str) -> anyhow::Result<PathBuf> {
        let hashes = self.hashes()?;
        let found = hashes
            .paths()
            .find(|path| path.ends_with(&format!("/{name}")));
        let found = found.with_context(|| format!("there is no {name}"))?;
        Ok(self.base.node.path(found))
    }

    /// As an installer that builds a folder aside and renames it into place.
    fn replaced(&mut self) -> anyhow::Result<()> {
        let node = &self.base.node;
        node.run(&["mkdir", "-p", "/opt/cni/new"])?;
        node.run(&[
            "sh",
            "-c",
            "cp -a /opt/cni/bin/. /opt/cni/new/ && rm /opt/cni/new/multus-shim",
        ])?;
        node.run(&[
            "sh",
            "-c",
            "mv /opt/cni/bin /opt/cni/gone && mv /opt/cni/new /opt/cni/bin && rm -r /opt/cni/gone",
        ])?;
        self.is_at(USUAL.0, USUAL.1)
    }

    /// As a reset of the primary network does it.
    fn wiped(&mut self) -> anyhow::Result<()> {
        let node = &self.base.node;
        let primary = format!("{}/{PRIMARY}", USUAL.1);
        let text = fs::read(node.path(&primary))?;
        node.run(&["rm", "-r", USUAL.1])?;
        sh::until(60, "the configuration is back", || {
            let path = format!("{}/{CONFIGURATION}", USUAL.1);
            ensure!(node.path(&path).exists(), "{path} is gone");
            Ok(())
        })?;
        node.write(&primary, text)?;
        self.is_at(USUAL.0, USUAL.1)
    }

    fn ends(&mut self, env: &TestEnv) -> anyhow::Result<()> {
        let node = &self.base.node;
        let daemon = self.daemon.take().context("the daemon runs")?;
        node.end(&daemon, "TERM")?;
        self.is_at(USUAL.0, USUAL.1)?;
        let mut uninstall = node.command(env.program("multus-daemon"));
        sh::run(uninstall.args(["uninstall", "--root", "/", "--config", DAEMON_CONFIG]))?;
        self.hashes()?.ensure_equal(&self.before)?;
        let own = node.list("/var/lib/multus/bin")?;
        ensure!(own.is_empty(), "left in our own folder: {own:?}");
        Ok(())
    }
}

/// Where containerd's configuration of these directories is.
fn config(generation: ContainerdVersion, bin: &str, conf: &str) -> String {
    let name = format!("{generation:?}{bin}{conf}").replace('/', "-");
    format!("/etc/rancher/{name}.toml")
}

/// Configuration and shim, where they are and where they will be.
struct Moments {
    old: [PathBuf; 2],
    new: [PathBuf; 2],
}

impl Moments {
    /// What a pod that starts now would miss. The order of the looks is that of the steps, so that none falls between two of them.
    fn missing(&self) -> Option<&'static str> {
        let ([old, old_shim], [new, new_shim]) = (&self.old, &self.new);
        let no_old_shim = !old_shim.exists();
        if !old.exists() && !new.exists() {
            return Some("no configuration");
        }
        if old == new {
            return None;
        }
        if no_old_shim && old.exists() {
            return Some("the old configuration without its shim");
        }
        (new.exists() && !new_shim.exists()).then_some("the new configuration without its shim")
    }
}

/// Looks all the time whether something is missing.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Option<&'static str>>,
}

impl Watch {
    fn start(moments: Moments) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                if let Some(missing) = moments.missing() {
                    return Some(missing);
                }
                thread::yield_now();
            }
            None
        });
        Self { stop, thread }
    }

    fn end(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let missing = self.thread.join();
        let missing = missing.map_err(|_| anyhow::anyhow!("the watch ended early"))?;
        ensure!(missing.is_none(), "there was a moment with {missing:?}");
        Ok(())
    }
}
