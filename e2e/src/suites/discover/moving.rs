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
    daemon,
    node::{
        Service,
        cri::{self, Client},
        file_hashes::FileHashes,
        layout::{self, ContainerdVersion, Layout, NodePaths},
        runtime::{IMAGE, NodePlugins, Runtime},
    },
    report::{Checked, Report},
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

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    use ContainerdVersion::{V1, V2};
    let mut fixture = report.check("a k3s node with containerd 1.6 runs our pod", || {
        MovingFixture::new(env)
    })?;
    let (stable, hash, agent) = (
        fixture.paths.bin_dir.clone(),
        fixture.paths.plugins.clone().unwrap_or_default(),
        fixture.paths.conf_dir.clone(),
    );
    report.check("the daemon installs its files", || {
        fixture.start_daemon(env)
    })?;
    for (name, containerd_version, bin, conf) in [
        (
            "an upgrade to containerd 2.x with a hash directory",
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
            &format!(
                "{name}: files are installed in the new directories before the old ones are removed"
            ),
            || fixture.move_to(env, containerd_version, bin, conf),
        )?;
    }
    report.check("the plugin directory is renamed away and replaced", || {
        fixture.replace_plugin_directory()
    })?;
    report.check(
        "the configuration directory is deleted, and the default network is restored",
        || fixture.delete_configuration_directory(),
    )?;
    report.check("uninstall leaves every file as it was", || {
        fixture.uninstall(env)
    })
}

struct MovingFixture {
    base: DiscoverFixture,
    control: ControlPlane,
    containerd: Service,
    daemon: Option<Service>,
    paths: NodePaths,
    /// The files of the node before our daemon.
    before: FileHashes,
}

impl MovingFixture {
    fn new(env: &TestEnv) -> anyhow::Result<Self> {
        let base = DiscoverFixture::new(env)?;
        let node = &base.node;
        let control = ControlPlane::start(node, Components::ApiServer)?;
        objects::definitions(env, &control, node, &[objects::storage()])?;
        let runtime = Runtime::start(
            env,
            node,
            (Layout::K3s, ContainerdVersion::V1),
            NodePlugins::Reference,
        )?;
        // The files of all later configurations exist from here on, so that only the daemon changes files.
        let default_network = layout::default_network("1.0.0", node.number);
        for conf in [OTHER, USUAL.1] {
            node.write(&format!("{conf}/{PRIMARY}"), &default_network)?;
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
        for containerd_version in [ContainerdVersion::V1, ContainerdVersion::V2] {
            for (bin, conf) in fixture.directories() {
                let paths = NodePaths {
                    bin_dir: bin.clone(),
                    conf_dir: conf.clone(),
                    root: fixture.paths.root.clone(),
                    state: fixture.paths.state.clone(),
                    socket: fixture.paths.socket.clone(),
                    plugins: None,
                    config: String::new(),
                };
                let text = layout::containerd(containerd_version, &paths, IMAGE);
                let path = config(containerd_version, &bin, &conf);
                fixture.base.node.write(&path, text)?;
            }
        }
        fixture.before = fixture.hashes()?;
        Ok(fixture)
    }

    /// Returns every pair of directories that the runtime will use.
    fn directories(&self) -> Vec<(String, String)> {
        let hash = self.paths.plugins.clone().unwrap_or_default();
        let (stable, agent) = (self.paths.bin_dir.clone(), self.paths.conf_dir.clone());
        vec![
            (stable.clone(), agent.clone()),
            (hash, agent),
            (stable, OTHER.to_owned()),
            (USUAL.0.to_owned(), USUAL.1.to_owned()),
        ]
    }

    /// Hashes the node's files except containerd's.
    fn hashes(&self) -> anyhow::Result<FileHashes> {
        let others = [ROOT, &self.paths.root, "/var/lib/multus"];
        FileHashes::of(&self.base.node, &others)
    }

    fn start_daemon(&mut self, env: &TestEnv) -> anyhow::Result<()> {
        let admin = self.control.admin();
        let daemon = daemon::start(env, &self.base.node, &admin, DAEMON_CONFIG, Some(POD))?;
        self.daemon = Some(daemon);
        self.wait_for_files_in(&self.paths.bin_dir, &self.paths.conf_dir)
    }

    /// Waits until our two files are in these directories alone, and all other files are as before.
    fn wait_for_files_in(&self, bin: &str, conf: &str) -> anyhow::Result<()> {
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

    /// Restarts the runtime with these directories; fails if at any time a configuration of ours or its shim was missing.
    fn move_to(
        &mut self,
        env: &TestEnv,
        containerd_version: ContainerdVersion,
        bin: &str,
        conf: &str,
    ) -> anyhow::Result<()> {
        let node = &self.base.node;
        let path = |dir: &str, name: &str| node.path(&format!("{dir}/{name}"));
        let watch = Watch::start(MovedFiles {
            old: [self.find(CONFIGURATION)?, self.find(SHIM)?],
            new: [path(conf, CONFIGURATION), path(bin, SHIM)],
        });
        node.end(&self.containerd, "TERM")?;
        let config = config(containerd_version, bin, conf);
        let socket = self.paths.socket.clone();
        self.containerd = self
            .base
            .containerd(env, containerd_version, &config, &socket)?;
        self.wait_for_files_in(bin, conf)?;
        watch.end()
    }

    /// Returns the path of our file of this name.
    fn find(&self, name: &str) -> anyhow::Result<PathBuf> {
        let hashes = self.hashes()?;
        let found = hashes
            .paths()
            .find(|path| path.ends_with(&format!("/{name}")));
        let found = found.with_context(|| format!("there is no {name}"))?;
        Ok(self.base.node.path(found))
    }

    /// Replaces the plugin directory as an installer does that prepares another directory and renames it.
    fn replace_plugin_directory(&mut self) -> anyhow::Result<()> {
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
        self.wait_for_files_in(USUAL.0, USUAL.1)
    }

    /// Deletes the configuration directory as a reset of the default network does.
    fn delete_configuration_directory(&mut self) -> anyhow::Result<()> {
        let node = &self.base.node;
        let default_network = format!("{}/{PRIMARY}", USUAL.1);
        let text = fs::read(node.path(&default_network))?;
        // Where it is deleted in place, the daemon may write its file again before the directory is empty.
        let deleted = format!("{}.deleted", USUAL.1);
        node.run(&["mv", USUAL.1, &deleted])?;
        node.run(&["rm", "-r", &deleted])?;
        sh::until(60, "the configuration is back", || {
            let path = format!("{}/{CONFIGURATION}", USUAL.1);
            ensure!(node.path(&path).exists(), "{path} is missing");
            Ok(())
        })?;
        node.write(&default_network, text)?;
        self.wait_for_files_in(USUAL.0, USUAL.1)
    }

    fn uninstall(&mut self, env: &TestEnv) -> anyhow::Result<()> {
        let node = &self.base.node;
        let daemon = self.daemon.take().context("the daemon runs")?;
        node.end(&daemon, "TERM")?;
        self.wait_for_files_in(USUAL.0, USUAL.1)?;
        let mut uninstall = node.command(env.program("multus-daemon"));
        sh::run(uninstall.args(["uninstall", "--root", "/", "--config", DAEMON_CONFIG]))?;
        self.hashes()?.ensure_equal(&self.before)?;
        let own = node.list("/var/lib/multus/bin")?;
        ensure!(own.is_empty(), "our own directory still has {own:?}");
        Ok(())
    }
}

/// Returns the path of containerd's configuration with these directories.
fn config(containerd_version: ContainerdVersion, bin: &str, conf: &str) -> String {
    let name = format!("{containerd_version:?}{bin}{conf}").replace('/', "-");
    format!("/etc/rancher/{name}.toml")
}

/// The paths of configuration and shim, before and after a move.
struct MovedFiles {
    old: [PathBuf; 2],
    new: [PathBuf; 2],
}

impl MovedFiles {
    /// Returns the file that a pod which starts now would miss. The checks are in the order of the daemon's steps, so that no step between two
    /// checks looks like a missing file.
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

/// Checks continuously whether a file is missing.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Option<&'static str>>,
}

impl Watch {
    fn start(files: MovedFiles) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                if let Some(missing) = files.missing() {
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
        ensure!(missing.is_none(), "for a moment there was {missing:?}");
        Ok(())
    }
}
