//! A node whose disk the distro's own installer prepares, and the process that its unit starts.

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
    programs::{k3s::K3s, rke2::Rke2},
    sh,
    test_env::{TestEnv, arch},
};

/// The directory in which operators and the distros' installers put programs.
pub(in crate::suites) const BIN: &str = "/usr/local/bin";
/// The place where a medium is mounted.
const MEDIUM: &str = "/media";
/// The place of drop-ins, and of units of the node's own.
const UNITS: &str = "/etc/systemd/system";
/// What all nodes of the cluster know.
const TOKEN: &str = "e2e-token";
/// The default network of nodes whose distro has none, below those of the suite.
const PRIMARY: &str = "10-primary.conflist";

/// A distro: its names and places, and its settings on nodes of the suites.
pub(crate) struct Distro {
    /// Its program, and its name in paths.
    pub(in crate::suites) name: &'static str,
    /// The chart of Multus.
    pub(in crate::suites) chart: &'static str,
    pub(in crate::suites) data: &'static str,
    /// The administrator's kubeconfig, which the server writes.
    pub(in crate::suites) kubeconfig: &'static str,
    /// The directories in which its containerd has CNI configurations and plugins.
    pub(in crate::suites) conf_dir: &'static str,
    pub(in crate::suites) bin_dir: &'static str,
    /// The file of the default network.
    pub(in crate::suites) primary: &'static str,
    /// The directory of its units.
    units: &'static str,
    /// Its units, of servers and agents, and the files with their environment.
    files: [(&'static str, &'static str); 2],
    /// The directory that a node has for itself, in which its programs are.
    programs: &'static str,
    /// The port at which a server takes agents.
    port: u16,
    /// The files that stay on a server when Multus is removed, below the data directory.
    left: &'static [&'static str],
    /// Adds the settings of a server to a configuration.
    set_server: fn(&mut Value),
}

pub(crate) const K3S: Distro = Distro {
    name: "k3s",
    chart: "k3s-multus",
    data: "/var/lib/rancher/k3s",
    kubeconfig: "/etc/rancher/k3s/k3s.yaml",
    conf_dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    bin_dir: "/var/lib/rancher/k3s/data/cni",
    primary: "10-flannel.conflist",
    units: UNITS,
    files: [
        ("k3s.service", "k3s.service.env"),
        ("k3s-agent.service", "k3s-agent.service.env"),
    ],
    programs: BIN,
    port: 6443,
    left: &["server/.multus-distro.json", "server/manifests/multus.yaml"],
    set_server: set_k3s_server,
};

/// K3s on a node whose settings name this data directory.
pub(in crate::suites) const MOVED_K3S: Distro = Distro {
    data: "/srv/k3s",
    conf_dir: "/srv/k3s/agent/etc/cni/net.d",
    bin_dir: "/srv/k3s/data/cni",
    ..K3S
};

pub(crate) const RKE2: Distro = Distro {
    name: "rke2",
    chart: "rke2-multus",
    data: "/var/lib/rancher/rke2",
    kubeconfig: "/etc/rancher/rke2/rke2.yaml",
    conf_dir: "/etc/cni/net.d",
    bin_dir: "/opt/cni/bin",
    primary: PRIMARY,
    units: "/usr/local/lib/systemd/system",
    files: [
        ("rke2-server.service", "rke2-server.env"),
        ("rke2-agent.service", "rke2-agent.env"),
    ],
    programs: "/usr/local",
    port: 9345,
    left: &[
        "server/.multus-distro.json",
        "server/manifests/multus-crd.yaml",
        "server/manifests/multus.yaml",
    ],
    set_server: set_rke2_server,
};

pub(in crate::suites) const DATA: &str = K3S.data;
pub(in crate::suites) const KUBECONFIG: &str = K3S.kubeconfig;

/// The part of a node in the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::suites) enum Role {
    Server,
    Agent,
}

/// A node of a distro; its control group outlives its processes.
pub(in crate::suites) struct DistroNode {
    pub(in crate::suites) node: Node,
    pub(in crate::suites) distro: &'static Distro,
    role: Role,
    service: Option<Service>,
    /// `multus-distro vpn run`.
    keeper: Option<Service>,
    _cgroup: Cgroup,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

impl Distro {
    /// Returns the unit of a role, and the file with its environment.
    fn unit(&self, role: Role) -> (&'static str, &'static str) {
        match role {
            Role::Server => self.files[0],
            Role::Agent => self.files[1],
        }
    }

    fn config(&self) -> String {
        format!("/etc/rancher/{}/config.yaml", self.name)
    }

    /// Returns the files by which its containerd finds Multus.
    pub(in crate::suites) fn multus_files(&self) -> [String; 2] {
        [
            format!("{}/multus-shim", self.bin_dir),
            format!("{}/00-multus.conf", self.conf_dir),
        ]
    }
}

impl DistroNode {
    /// Makes a node, runs K3s' installer on it without a start, and gives it a medium with the release.
    pub(in crate::suites) fn install(
        env: &TestEnv,
        network: &NodeNetwork,
        k3s: &K3s,
        (number, role): (u8, Role),
    ) -> anyhow::Result<Self> {
        Self::install_at(env, network, k3s, &K3S, (number, role))
    }

    /// The same with other places of K3s.
    pub(in crate::suites) fn install_at(
        env: &TestEnv,
        network: &NodeNetwork,
        k3s: &K3s,
        distro: &'static Distro,
        (number, role): (u8, Role),
    ) -> anyhow::Result<Self> {
        let node = Self::prepare(env, network, distro, (number, role))?;
        if distro.data != K3S.data {
            node.set("data-dir", distro.data.into())?;
        }
        put_program(&node.node, &k3s.program)?;
        let mut installer = node.node.command("sh");
        installer.arg(&k3s.installer).arg(role.name());
        installer.env("INSTALL_K3S_SKIP_DOWNLOAD", "true");
        sh::run(installer.env("INSTALL_K3S_SKIP_ENABLE", "true"))?;
        node.add_images(&k3s.images)?;
        node.add_images(&[busybox(env)?])?;
        Ok(node)
    }

    /// The same of RKE2, whose nodes have a default network of the suite.
    pub(in crate::suites) fn install_rke2(
        env: &TestEnv,
        network: &NodeNetwork,
        rke2: &Rke2,
        (number, role): (u8, Role),
    ) -> anyhow::Result<Self> {
        let node = Self::prepare(env, network, &RKE2, (number, role))?;
        node.run_rke2_installer(&rke2.installer, &rke2.artifacts)?;
        // As administrators have it in their PATH, without the other programs that RKE2 unpacks.
        let kubectl = node.node.path(&format!("{BIN}/kubectl"));
        std::os::unix::fs::symlink(format!("{}/bin/kubectl", RKE2.data), kubectl)?;
        // The bundle has the units of both roles; no systemd runs that would have to know.
        let (unit, _) = RKE2.unit(role);
        let mut systemctl = node.node.command("systemctl");
        sh::run(systemctl.env("SYSTEMD_OFFLINE", "1").args(["enable", unit]))?;
        node.add_images(&rke2.images)?;
        node.add_images(&[busybox(env)?])?;
        fs::create_dir_all(node.node.path(RKE2.bin_dir))?;
        for plugin in fs::read_dir(&env.plugins)? {
            let plugin = plugin?;
            let place = format!("{}/{}", RKE2.bin_dir, plugin.file_name().display());
            fs::copy(plugin.path(), node.node.path(&place))?;
        }
        node.set_primary(&[format!("10.42.{number}.0/24")])?;
        Ok(node)
    }

    /// Writes the default network of a node whose distro has none, a bridge with a subnet of each family.
    pub(in crate::suites) fn set_primary(&self, subnets: &[String]) -> anyhow::Result<()> {
        let ranges = subnets.iter().map(|subnet| json!([{"subnet": subnet}]));
        let routes = subnets.iter().map(|subnet| {
            let all = if subnet.contains(':') {
                "::/0"
            } else {
                "0.0.0.0/0"
            };
            json!({"dst": all})
        });
        let bridge = json!({
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
            "ipam": {"type": "host-local", "ranges": ranges.collect::<Value>(), "routes": routes.collect::<Value>()},
        });
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let conf = json!({"cniVersion": "1.0.0", "name": "primary", "plugins": [bridge, portmap]});
        let file = format!("{}/{PRIMARY}", RKE2.conf_dir);
        self.node.write(&file, conf.to_string())
    }

    /// Runs RKE2's installer on the files of one version, which is how people upgrade it, too.
    pub(in crate::suites) fn run_rke2_installer(
        &self,
        installer: &Path,
        artifacts: &Path,
    ) -> anyhow::Result<()> {
        let mut command = self.node.command("sh");
        command.arg(installer);
        command.env("INSTALL_RKE2_ARTIFACT_PATH", artifacts);
        command.env("INSTALL_RKE2_SKIP_RELOAD", "true");
        // It would take another directory in place of one that is mounted, as the nodes' are.
        command.env("INSTALL_RKE2_TAR_PREFIX", RKE2.programs);
        sh::run(command.env("INSTALL_RKE2_TYPE", self.role.name())).map(drop)
    }

    /// Makes a node with the settings of its distro and a medium.
    fn prepare(
        env: &TestEnv,
        network: &NodeNetwork,
        distro: &'static Distro,
        (number, role): (u8, Role),
    ) -> anyhow::Result<Self> {
        let node = Node::start(env, network, number, &[Path::new(BIN)])?;
        let cgroup = Cgroup::new(&node.name)?;
        mount_own(&node, distro)?;
        settings(&node, distro, role, &cgroup)?;
        let programs = node.path(&format!("{MEDIUM}/bin"));
        fs::create_dir_all(&programs)?;
        std::os::unix::fs::symlink(env.program(""), programs.join("amd64"))?;
        let airgap = node.path(&format!("{MEDIUM}/airgap"));
        std::os::unix::fs::symlink(env.dist.join("airgap"), airgap)?;
        Ok(Self {
            node,
            distro,
            role,
            service: None,
            keeper: None,
            _cgroup: cgroup,
        })
    }

    /// Returns the path of the distro's script that uninstalls it; RKE2's cannot delete directories that are mounts, as the nodes' are, so
    /// there it is the one that ends everything and deletes its links, which the other one runs first.
    pub(in crate::suites) fn remover(&self) -> String {
        match self.distro.unit(self.role) {
            _ if self.distro.name == RKE2.name => format!("{BIN}/rke2-killall.sh"),
            (unit, _) => format!("{BIN}/{}-uninstall.sh", unit.trim_end_matches(".service")),
        }
    }

    /// Copies archives of images to where the distro imports them.
    pub(in crate::suites) fn add_images(&self, archives: &[PathBuf]) -> anyhow::Result<()> {
        let images = self
            .node
            .path(&format!("{}/agent/images", self.distro.data));
        fs::create_dir_all(&images)?;
        for archive in archives {
            let name = archive.file_name().context("an archive has a name")?;
            fs::copy(archive, images.join(name))?;
        }
        Ok(())
    }

    /// Puts our program next to the distro's, and our images where it imports them; pages take both for granted.
    pub(in crate::suites) fn take_medium(&self) -> anyhow::Result<()> {
        let [program, place] = [
            format!("{MEDIUM}/bin/amd64/multus-distro"),
            format!("{BIN}/multus-distro"),
        ];
        self.node.run(&["install", &program, &place])?;
        let images = ["multus-distro", "images", "install", "/media/airgap"];
        self.node.run(&images).map(drop)
    }

    /// Returns a shell on the node, for readers of pages: the programs of the node come before the reader's.
    pub(in crate::suites) fn shell(&self, env: &TestEnv) -> Command {
        let mut shell = self.node.command("env");
        let path = std::env::var("PATH").unwrap_or_default();
        let plugins = env.program("");
        shell
            .arg(format!("PATH={BIN}:{path}:{}", plugins.display()))
            .arg("bash")
            .env("KUBECONFIG", self.distro.kubeconfig)
            .env("HOME", &self.node.dir);
        shell
    }

    /// Puts programs of the suite next to the distro's, by their names.
    pub(in crate::suites) fn add_programs(
        &self,
        env: &TestEnv,
        names: &[&str],
    ) -> anyhow::Result<()> {
        let mut names = names.iter();
        names.try_for_each(|name| {
            let place = self.node.path(&format!("{BIN}/{name}"));
            std::os::unix::fs::symlink(env.bin.join(name), place)
                .with_context(|| (*name).to_owned())
        })
    }

    /// Has an agent join the server with this address.
    pub(in crate::suites) fn join(&self, server: &str) -> anyhow::Result<()> {
        let url = format!("https://{server}:{}", self.distro.port);
        self.set("server", url.into())
    }

    /// Changes the distro's settings.
    pub(in crate::suites) fn set(&self, key: &str, value: Value) -> anyhow::Result<()> {
        let mut config = self.settings()?;
        config[key] = value;
        self.node.write(&self.distro.config(), config.to_string())
    }

    /// Returns the distro's settings.
    pub(in crate::suites) fn settings(&self) -> anyhow::Result<Value> {
        let file = self.node.path(&self.distro.config());
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    /// Returns whether the node runs pods, which a server without an agent does not.
    pub(in crate::suites) fn runs_pods(&self) -> anyhow::Result<bool> {
        Ok(self.settings()?["disable-agent"] != true)
    }

    /// Returns the command line that systemd would start for the distro.
    pub(in crate::suites) fn command_line(&self) -> anyhow::Result<String> {
        let (unit, _) = self.distro.unit(self.role);
        self.started_by(self.distro.units, unit)
    }

    /// Returns the command line that systemd would start: that of the unit in this directory, or of its drop-in.
    fn started_by(&self, directory: &str, unit: &str) -> anyhow::Result<String> {
        let file = format!("{directory}/{unit}");
        let mut text = fs::read_to_string(self.node.path(&file)).context(file)?;
        let unit = format!("{UNITS}/{unit}");
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
    pub(in crate::suites) fn left(&self) -> Vec<String> {
        let archive = format!("agent/images/multus-airgap-images-{}.tar", arch());
        let mut left = vec![archive];
        if self.role == Role::Server {
            left.extend(self.distro.left.iter().map(|path| (*path).to_owned()));
        }
        let paths = left.iter();
        let paths = paths.map(|path| format!("{}/{path}", self.distro.data));
        paths.collect()
    }

    /// Ends everything on the node as a power cut does; it starts again from its disk, with nothing in memory and another network namespace.
    pub(in crate::suites) fn reboot(
        &mut self,
        env: &TestEnv,
        network: &NodeNetwork,
    ) -> anyhow::Result<()> {
        self.service = None;
        self.keeper = None;
        self.node.power_off();
        let number = self.node.number;
        network.detach(number)?;
        self.node = Node::start_again(env, network, number, &[Path::new(BIN)])?;
        mount_own(&self.node, self.distro)
    }

    /// Ends the distro as systemd does: containers go on.
    pub(in crate::suites) fn end(&mut self) -> anyhow::Result<()> {
        match self.service.take() {
            Some(service) => self.node.end(&service, "TERM"),
            None => Ok(()),
        }
    }

    /// Starts the unit's command line, with the unit's environment file.
    pub(in crate::suites) fn start(&mut self) -> anyhow::Result<()> {
        let (_, environment) = self.distro.unit(self.role);
        let line = format!(
            "set -a; . {}/{environment}; exec {}",
            self.distro.units,
            self.command_line()?
        );
        let service = self.node.serve(self.distro.name, "sh", |command| {
            command.args(["-c", &line])
        })?;
        self.service = Some(service);
        Ok(())
    }

    /// Starts what multus-vpn.service starts, after ending what it started before.
    pub(in crate::suites) fn keep(&mut self) -> anyhow::Result<()> {
        self.end_keeper()?;
        let line = self.started_by(UNITS, "multus-vpn.service")?;
        let keeper = self.node.serve("vpn-run", "sh", |command| {
            command.args(["-c", &format!("exec {line}")])
        })?;
        self.keeper = Some(keeper);
        Ok(())
    }

    pub(in crate::suites) fn end_keeper(&mut self) -> anyhow::Result<()> {
        match self.keeper.take() {
            Some(keeper) => self.node.end(&keeper, "TERM"),
            None => Ok(()),
        }
    }

    /// Fails when the distro has ended, with the end of its log.
    pub(in crate::suites) fn ensure_runs(&self) -> anyhow::Result<()> {
        let runs = self
            .service
            .as_ref()
            .is_some_and(|service| self.node.runs(service));
        let name = self.distro.name;
        let log = fs::read_to_string(self.node.log(name))?;
        let last = log
            .lines()
            .rev()
            .find(|line| line.contains("level=error") || line.contains("level=fatal"));
        ensure!(
            runs,
            "{name} has ended on {}: {}",
            self.node.name,
            last.unwrap_or_default()
        );
        Ok(())
    }
}

/// Mounts the node's own settings, its directories of programs and units, and its medium.
fn mount_own(node: &Node, distro: &Distro) -> anyhow::Result<()> {
    node.separate_etc()?;
    for (name, place) in [
        ("programs", distro.programs),
        ("units", UNITS),
        ("medium", MEDIUM),
    ] {
        let own = node.dir.join(name);
        fs::create_dir_all(&own)?;
        let own = own.to_str().context("the path is no text")?;
        node.run(&["mount", "--bind", own, place])?;
    }
    Ok(fs::create_dir_all(node.path(BIN))?)
}

/// Copies a program of K3s to the place of K3s; downloads cannot be executed.
pub(in crate::suites) fn put_program(node: &Node, program: &Path) -> anyhow::Result<()> {
    let place = node.path(&format!("{BIN}/k3s"));
    // A program that runs cannot be written.
    let _ = fs::remove_file(&place);
    fs::copy(program, &place)?;
    Ok(fs::set_permissions(
        place,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// Writes the distro's configuration: no component that needs further images, and what a machine shared with other nodes wants.
fn settings(node: &Node, distro: &Distro, role: Role, cgroup: &Cgroup) -> anyhow::Result<()> {
    let mut config = json!({
        "node-name": node.name,
        "token": TOKEN,
        "pause-image": IMAGE,
        // Two kubelets under one control group would kill each other's pods.
        "kubelet-arg": [format!("cgroup-root=/{}", cgroup.name), "enforce-node-allocatable="],
    });
    if role == Role::Agent {
        config["server"] = format!("https://{}:{}", address(1), distro.port).into();
    } else {
        (distro.set_server)(&mut config);
    }
    node.write(&distro.config(), config.to_string())?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "oomScoreAdj": 0,
        // The disk is the machine's, and has no more room than it has.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"},
    });
    let etc = format!("{}/agent/etc", distro.data);
    node.write(
        &format!("{etc}/kubelet.conf.d/99-e2e.conf"),
        kubelet.to_string(),
    )?;
    // The machine may be a container itself, which may not set these.
    let containerd = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n  restrict_oom_score_adj = true\n  disable_apparmor = true\n";
    node.write(
        &format!("{etc}/containerd/config-v3.toml.d/e2e.toml"),
        containerd,
    )
}

fn set_k3s_server(config: &mut Value) {
    config["disable"] = json!([
        "traefik",
        "servicelb",
        "metrics-server",
        "local-storage",
        "coredns"
    ]);
    config["disable-network-policy"] = true.into();
}

fn set_rke2_server(config: &mut Value) {
    config["cni"] = "none".into();
    config["disable-cloud-controller"] = true.into();
    let components = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    let requests = components.map(|name| format!("{name}-cpu=10m,{name}-memory=32Mi"));
    config["control-plane-resource-requests"] = json!(requests);
}
