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

use super::machine::{Machine, ROOT};
use crate::{
    control::{Control, Extent},
    cri::{self, Client},
    hashes::Hashes,
    layout::{self, Generation, Layout, Places},
    node::Service,
    objects,
    report::{Ended, Report},
    runtime::{IMAGE, Runtime},
    sh,
    workplace::Workplace,
};

const DAEMON_CONFIG: &str = "/etc/cni/e2e-daemon-config.json";
const POD: &str = "8f1f2f5e-0000-4000-8000-00000000d15c";
const SHIM: &str = "multus-shim";
const CONFIGURATION: &str = "00-multus.conf";
const PRIMARY: &str = "10-primary.conflist";
const OTHER: &str = "/var/lib/rancher/other/agent/etc/cni/net.d";
const USUAL: (&str, &str) = ("/opt/cni/bin", "/etc/cni/net.d");

pub(super) fn run(work: &Workplace, report: &mut Report) -> Result<(), Ended> {
    use Generation::{One, Two};
    let mut scene = report.check("a node of k3s with containerd One runs our pod", || {
        Scene::new(work)
    })?;
    let (stable, hash, agent) = (
        scene.places.bin_dir.clone(),
        scene.places.plugins.clone().unwrap_or_default(),
        scene.places.conf_dir.clone(),
    );
    report.check("the daemon finds its place", || scene.start_daemon(work))?;
    for (name, generation, bin, conf) in [
        (
            "an upgrade to containerd Two with a hash directory",
            Two,
            hash.as_str(),
            agent.as_str(),
        ),
        ("a rollback", One, &stable, &agent),
        ("a restart with another data directory", Two, &stable, OTHER),
        (
            "flannel off: the runtime's own defaults",
            Two,
            USUAL.0,
            USUAL.1,
        ),
        ("flannel on", Two, &stable, &agent),
        ("flannel off again", Two, USUAL.0, USUAL.1),
    ] {
        report.check(
            &format!("{name}: new place first, then the old one is cleaned"),
            || scene.moves(work, generation, bin, conf),
        )?;
    }
    report.check("the plugin directory is replaced from above", || {
        scene.replaced()
    })?;
    report.check(
        "the configuration directory is wiped, and the primary returns",
        || scene.wiped(),
    )?;
    report.check("uninstall leaves every file as it was", || scene.ends(work))
}

struct Scene {
    machine: Machine,
    control: Control,
    containerd: Service,
    daemon: Option<Service>,
    places: Places,
    /// The node without us.
    before: Hashes,
}

impl Scene {
    fn new(work: &Workplace) -> anyhow::Result<Self> {
        let machine = Machine::new(work)?;
        let node = &machine.node;
        let control = Control::start(node, Extent::Server)?;
        objects::definitions(work, &control, node, &[objects::storage()])?;
        let runtime = Runtime::start(work, node, Layout::K3s, Generation::One)?;
        // The other places that the runtime will be told of, so that nothing but us changes files from here on.
        let primary = layout::primary("1.0.0", node.number);
        for conf in [OTHER, USUAL.1] {
            node.write(&format!("{conf}/{PRIMARY}"), &primary)?;
        }
        machine.plugins(USUAL.0)?;
        node.write(DAEMON_CONFIG, json!({"logLevel": "debug"}).to_string())?;
        let mut client = Client::connect(node.path(&runtime.places.socket))?;
        client.run(&cri::host_network_sandbox(POD))?;
        let mut scene = Self {
            control,
            containerd: runtime.containerd,
            daemon: None,
            places: runtime.places,
            before: Hashes::default(),
            machine,
        };
        for generation in [Generation::One, Generation::Two] {
            for (bin, conf) in scene.moments() {
                let places = Places {
                    bin_dir: bin.clone(),
                    conf_dir: conf.clone(),
                    root: scene.places.root.clone(),
                    state: scene.places.state.clone(),
                    socket: scene.places.socket.clone(),
                    plugins: None,
                    config: String::new(),
                };
                let text = layout::containerd(generation, &places, IMAGE);
                let path = config(generation, &bin, &conf);
                scene.machine.node.write(&path, text)?;
            }
        }
        scene.before = scene.hashes()?;
        Ok(scene)
    }

    /// Every pair of directories that there will be.
    fn moments(&self) -> Vec<(String, String)> {
        let hash = self.places.plugins.clone().unwrap_or_default();
        let (stable, agent) = (self.places.bin_dir.clone(), self.places.conf_dir.clone());
        vec![
            (stable.clone(), agent.clone()),
            (hash, agent),
            (stable, OTHER.to_owned()),
            (USUAL.0.to_owned(), USUAL.1.to_owned()),
        ]
    }

    /// The node's files, those of its containerd apart.
    fn hashes(&self) -> anyhow::Result<Hashes> {
        let others = [ROOT, &self.places.root, "/var/lib/multus"];
        Hashes::of(&self.machine.node, &others)
    }

    fn start_daemon(&mut self, work: &Workplace) -> anyhow::Result<()> {
        let program = work.program("multus-daemon");
        let (node, admin) = (&self.machine.node, self.control.admin());
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
        self.is_at(&self.places.bin_dir, &self.places.conf_dir)
    }

    /// Fails until our two files are at these places, at no other, and everything else is as it was.
    fn is_at(&self, bin: &str, conf: &str) -> anyhow::Result<()> {
        sh::until(
            60,
            &format!("our files are in {bin} and {conf} alone"),
            || {
                let mut now = self.hashes()?;
                for path in [format!("{bin}/{SHIM}"), format!("{conf}/{CONFIGURATION}")] {
                    ensure!(now.remove(&path), "{path} is not there");
                }
                now.are(&self.before)
            },
        )
    }

    /// The runtime is restarted with these directories; at no moment is there no configuration of ours, or one without its shim.
    fn moves(
        &mut self,
        work: &Workplace,
        generation: Generation,
        bin: &str,
        conf: &str,
    ) -> anyhow::Result<()> {
        let node = &self.machine.node;
        let path = |dir: &str, name: &str| node.path(&format!("{dir}/{name}"));
        let watch = Watch::start(Moments {
            old: [self.present(CONFIGURATION)?, self.present(SHIM)?],
            new: [path(conf, CONFIGURATION), path(bin, SHIM)],
        });
        node.end(&self.containerd, "TERM")?;
        let config = config(generation, bin, conf);
        let socket = self.places.socket.clone();
        self.containerd = self
            .machine
            .containerd(work, generation, &config, &socket)?;
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
        Ok(self.machine.node.path(found))
    }

    /// As an installer that builds a folder aside and renames it into place.
    fn replaced(&mut self) -> anyhow::Result<()> {
        let node = &self.machine.node;
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
        let node = &self.machine.node;
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

    fn ends(&mut self, work: &Workplace) -> anyhow::Result<()> {
        let node = &self.machine.node;
        let daemon = self.daemon.take().context("the daemon runs")?;
        node.end(&daemon, "TERM")?;
        self.is_at(USUAL.0, USUAL.1)?;
        let mut uninstall = node.command(work.program("multus-daemon"));
        sh::run(uninstall.args(["uninstall", "--root", "/", "--config", DAEMON_CONFIG]))?;
        self.hashes()?.are(&self.before)?;
        let own = node.list("/var/lib/multus/bin")?;
        ensure!(own.is_empty(), "left in our own folder: {own:?}");
        Ok(())
    }
}

/// Where containerd's configuration of these directories is.
fn config(generation: Generation, bin: &str, conf: &str) -> String {
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
