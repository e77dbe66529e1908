//! A node whose disk K3s' own installer prepares, and the process that its unit starts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    node::{
        Node, Service,
        cgroup::Cgroup,
        network::{NodeNetwork, address},
        runtime::{IMAGE, busybox},
    },
    programs::k3s::K3s,
    sh,
    test_env::{TestEnv, arch},
};

/// The directory in which operators and K3s' installer put programs.
pub(super) const BIN: &str = "/usr/local/bin";
/// The place where a medium is mounted.
const MEDIUM: &str = "/media";
const UNITS: &str = "/etc/systemd/system";
pub(super) const DATA: &str = "/var/lib/rancher/k3s";
/// The administrator's kubeconfig, which the server writes.
pub(super) const KUBECONFIG: &str = "/etc/rancher/k3s/k3s.yaml";
/// What all nodes of the cluster know.
const TOKEN: &str = "e2e-token";

/// The part of a node in the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Agent,
}

/// K3s' settings.
const CONFIG: &str = "/etc/rancher/k3s/config.yaml";

/// A node of K3s; its control group outlives its processes.
pub(super) struct K3sNode {
    pub(super) node: Node,
    role: Role,
    service: Option<Service>,
    /// `multus-distro vpn run`.
    keeper: Option<Service>,
    _cgroup: Cgroup,
}

impl Role {
    fn unit(self) -> &'static str {
        match self {
            Self::Server => "k3s.service",
            Self::Agent => "k3s-agent.service",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

impl K3sNode {
    /// Makes a node, runs K3s' installer on it without a start, and gives it a medium with the release.
    pub(super) fn install(
        env: &TestEnv,
        network: &NodeNetwork,
        k3s: &K3s,
        (number, role): (u8, Role),
    ) -> anyhow::Result<Self> {
        let node = Node::start(env, network, number, &[Path::new(BIN)])?;
        let cgroup = Cgroup::new(&node.name)?;
        mount_own(&node)?;
        put_program(&node, &k3s.program)?;
        settings(&node, role, &cgroup)?;
        let mut installer = node.command("sh");
        installer.arg(&k3s.installer).arg(role.name());
        installer.env("INSTALL_K3S_SKIP_DOWNLOAD", "true");
        sh::run(installer.env("INSTALL_K3S_SKIP_ENABLE", "true"))?;
        let programs = node.path(&format!("{MEDIUM}/bin"));
        fs::create_dir_all(&programs)?;
        std::os::unix::fs::symlink(env.program(""), programs.join("amd64"))?;
        let airgap = node.path(&format!("{MEDIUM}/airgap"));
        std::os::unix::fs::symlink(env.dist.join("airgap"), airgap)?;
        let node = Self {
            node,
            role,
            service: None,
            keeper: None,
            _cgroup: cgroup,
        };
        node.add_images(&k3s.images)?;
        node.add_images(&[busybox(env)?])?;
        Ok(node)
    }

    /// Returns the path of K3s' script that uninstalls it.
    pub(super) fn uninstaller(&self) -> String {
        let unit = self.role.unit().trim_end_matches(".service");
        format!("{BIN}/{unit}-uninstall.sh")
    }

    /// Copies archives of images to where K3s imports them.
    pub(super) fn add_images(&self, archives: &[PathBuf]) -> anyhow::Result<()> {
        let images = self.node.path(&format!("{DATA}/agent/images"));
        fs::create_dir_all(&images)?;
        for archive in archives {
            let name = archive.file_name().context("an archive has a name")?;
            fs::copy(archive, images.join(name))?;
        }
        Ok(())
    }

    /// Puts our program next to K3s', and our images where K3s imports them; pages take both for granted.
    pub(super) fn take_medium(&self) -> anyhow::Result<()> {
        let [program, place] = [
            format!("{MEDIUM}/bin/amd64/multus-distro"),
            format!("{BIN}/multus-distro"),
        ];
        self.node.run(&["install", &program, &place])?;
        let images = ["multus-distro", "images", "install", "/media/airgap"];
        self.node.run(&images).map(drop)
    }

    /// Returns a shell on the node, for readers of pages: the programs of the node come before the reader's.
    pub(super) fn shell(&self, env: &TestEnv) -> Command {
        let mut shell = self.node.command("env");
        let path = std::env::var("PATH").unwrap_or_default();
        let plugins = env.program("");
        shell
            .arg(format!("PATH={BIN}:{path}:{}", plugins.display()))
            .arg("bash")
            .env("KUBECONFIG", KUBECONFIG)
            .env("HOME", &self.node.dir);
        shell
    }

    /// Puts programs of the suite next to K3s', by their names.
    pub(super) fn add_programs(&self, env: &TestEnv, names: &[&str]) -> anyhow::Result<()> {
        let mut names = names.iter();
        names.try_for_each(|name| {
            let place = self.node.path(&format!("{BIN}/{name}"));
            std::os::unix::fs::symlink(env.bin.join(name), place)
                .with_context(|| (*name).to_owned())
        })
    }

    /// Changes K3s' settings.
    pub(super) fn set(&self, key: &str, value: Value) -> anyhow::Result<()> {
        let mut config: Value = serde_json::from_slice(&fs::read(self.node.path(CONFIG))?)?;
        config[key] = value;
        self.node.write(CONFIG, config.to_string())
    }

    /// Returns the command line that systemd would start for K3s.
    pub(super) fn command_line(&self) -> anyhow::Result<String> {
        self.started_by(self.role.unit())
    }

    /// Returns the command line that systemd would start: that of the unit, or of its drop-in.
    fn started_by(&self, unit: &str) -> anyhow::Result<String> {
        let unit = format!("{UNITS}/{unit}");
        let mut text = fs::read_to_string(self.node.path(&unit)).context(unit.clone())?;
        for name in self.node.list(&format!("{unit}.d"))? {
            let drop_in = self.node.path(&format!("{unit}.d/{name}"));
            text += &fs::read_to_string(drop_in)?;
        }
        let text = text.replace("\\\n", " ");
        let mut commands = text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="));
        let last = commands.next_back().context("the unit starts nothing")?;
        Ok(last.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Returns the paths of ours that stay when Multus is removed: the images, and on a server a manifest of comments with our record.
    pub(super) fn left(&self) -> Vec<String> {
        let archive = format!("agent/images/multus-airgap-images-{}.tar", arch());
        let of_server = ["server/.multus-distro.json", "server/manifests/multus.yaml"];
        let mut left = vec![archive];
        if self.role == Role::Server {
            left.extend(of_server.map(str::to_owned));
        }
        left.iter().map(|path| format!("{DATA}/{path}")).collect()
    }

    /// Ends everything on the node as a power cut does; it starts again from its disk, with nothing in memory and another network namespace.
    pub(super) fn reboot(&mut self, env: &TestEnv, network: &NodeNetwork) -> anyhow::Result<()> {
        self.service = None;
        self.keeper = None;
        self.node.power_off();
        let number = self.node.number;
        network.detach(number)?;
        self.node = Node::start_again(env, network, number, &[Path::new(BIN)])?;
        mount_own(&self.node)
    }

    /// Ends K3s as systemd does: containers go on.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        match self.service.take() {
            Some(service) => self.node.end(&service, "TERM"),
            None => Ok(()),
        }
    }

    /// Starts the unit's command line, with the unit's environment file.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let line = format!(
            "set -a; . {UNITS}/{}.env; exec {}",
            self.role.unit(),
            self.command_line()?
        );
        let service = self
            .node
            .serve("k3s", "sh", |command| command.args(["-c", &line]))?;
        self.service = Some(service);
        Ok(())
    }

    /// Starts what multus-vpn.service starts, after ending what it started before.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        self.end_keeper()?;
        let line = self.started_by("multus-vpn.service")?;
        let keeper = self.node.serve("vpn-run", "sh", |command| {
            command.args(["-c", &format!("exec {line}")])
        })?;
        self.keeper = Some(keeper);
        Ok(())
    }

    pub(super) fn end_keeper(&mut self) -> anyhow::Result<()> {
        match self.keeper.take() {
            Some(keeper) => self.node.end(&keeper, "TERM"),
            None => Ok(()),
        }
    }

    /// Fails when K3s has ended, with the end of its log.
    pub(super) fn ensure_runs(&self) -> anyhow::Result<()> {
        let runs = self
            .service
            .as_ref()
            .is_some_and(|service| self.node.runs(service));
        let log = fs::read_to_string(self.node.log("k3s"))?;
        let last = log
            .lines()
            .rev()
            .find(|line| line.contains("level=error") || line.contains("level=fatal"));
        ensure!(
            runs,
            "K3s has ended on {}: {}",
            self.node.name,
            last.unwrap_or_default()
        );
        Ok(())
    }
}

/// Mounts the node's own settings, its directories of programs and units, and its medium.
fn mount_own(node: &Node) -> anyhow::Result<()> {
    node.separate_etc()?;
    for (name, place) in [("programs", BIN), ("units", UNITS), ("medium", MEDIUM)] {
        let own = node.dir.join(name);
        fs::create_dir_all(&own)?;
        let own = own.to_str().context("the path is no text")?;
        node.run(&["mount", "--bind", own, place])?;
    }
    Ok(())
}

/// Copies a program of K3s to the place of K3s; downloads cannot be executed.
pub(super) fn put_program(node: &Node, program: &Path) -> anyhow::Result<()> {
    let place = node.path(&format!("{BIN}/k3s"));
    // A program that runs cannot be written.
    let _ = fs::remove_file(&place);
    fs::copy(program, &place)?;
    Ok(fs::set_permissions(
        place,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// Writes K3s' configuration: no component that needs further images, and what a machine shared with other nodes wants.
fn settings(node: &Node, role: Role, cgroup: &Cgroup) -> anyhow::Result<()> {
    let mut config = json!({
        "node-name": node.name,
        "token": TOKEN,
        "pause-image": IMAGE,
        // Two kubelets under one control group would kill each other's pods.
        "kubelet-arg": [format!("cgroup-root=/{}", cgroup.name), "enforce-node-allocatable="],
    });
    if role == Role::Server {
        config["disable"] = json!([
            "traefik",
            "servicelb",
            "metrics-server",
            "local-storage",
            "coredns"
        ]);
        config["disable-network-policy"] = true.into();
    } else {
        config["server"] = format!("https://{}:6443", address(1)).into();
    }
    node.write(CONFIG, config.to_string())?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "oomScoreAdj": 0,
        // The disk is the machine's, and has no more room than it has.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"},
    });
    let file = format!("{DATA}/agent/etc/kubelet.conf.d/99-e2e.conf");
    node.write(&file, kubelet.to_string())?;
    // The machine may be a container itself, which may not set these.
    let containerd = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  restrict_oom_score_adj = true\n  disable_apparmor = true\n";
    let file = format!("{DATA}/agent/etc/containerd/config-v3.toml.d/e2e.toml");
    node.write(&file, containerd)
}
