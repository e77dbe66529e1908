//! Suite `service`: what `multus-distro install` does to the units that K3s and RKE2 install, on a real systemd.
//!
//! The distros themselves cannot be had. A script has their names, writes down how it was started, and becomes containerd, which
//! they become, too: a service that tells systemd when it is ready, or its start fails.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, cgroup::Cgroup, network::NodeNetwork, systemd::Systemd},
    programs::Needs,
    report::{CheckFailed, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: &[
        ("containerd", "containerd"),
        ("ip", "iproute2"),
        ("systemctl", "systemd"),
    ],
    modules: &[],
};

/// Where operators put programs.
const BIN: &str = "/usr/local/bin";
/// Where the node's daemon is told about the distro.
const HINT: &str = "/run/multus-distro/node.json";
/// Of the drop-ins, ours.
const DROP_IN: &str = "90-multus.conf";

/// A unit as a distro's installation has it.
struct Unit {
    name: &'static str,
    distro: &'static str,
    /// After `ExecStart=`.
    command: &'static str,
    /// What the program is to see of it.
    words: &'static [&'static str],
    /// Below the data directory; agents have none.
    manifest: Option<&'static str>,
}

const MANIFEST: &str = "server/manifests/multus.yaml";

/// The agent first, as long as there is nothing in the directory that it shares.
const ALL: [Unit; 3] = [
    Unit {
        name: "k3s-agent.service",
        distro: "k3s",
        command: "/usr/local/bin/k3s \\\n    agent \\\n",
        words: &["agent"],
        manifest: None,
    },
    Unit {
        name: "k3s.service",
        distro: "k3s",
        command: "/usr/local/bin/k3s \\\n    server \\\n\t'--node-label=rack=a b' \\\n\t'--data-dir=/var/lib/rancher/k3s' \\\n",
        words: &[
            "server",
            "--node-label=rack=a b",
            "--data-dir=/var/lib/rancher/k3s",
        ],
        manifest: Some(MANIFEST),
    },
    Unit {
        name: "rke2-server.service",
        distro: "rke2",
        command: "/usr/local/bin/rke2 server",
        words: &["server"],
        manifest: Some(MANIFEST),
    },
];

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    // What is named first ends first.
    let (node, cgroup, _network) = &report.check("a node", || {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[])?;
        let cgroup = Cgroup::new(&node.name)?;
        Ok((node, cgroup, network))
    })?;
    let systemd = report.check("its systemd has the distros' units", || {
        programs(env, node)?;
        let units = ALL.map(|unit| (unit.name.to_owned(), unit.text()));
        Systemd::start(node, cgroup, &units)
    })?;
    for unit in &ALL {
        let fixture = ServiceFixture {
            node,
            systemd: &systemd,
            unit,
        };
        let of = |what: &str| format!("{}: {what}", unit.name);
        report.check(&of("it starts"), || {
            fixture.systemd.ctl(&["start", unit.name])?;
            fixture.runs_as_before()
        })?;
        report.check(
            &of("install, and it starts in the same way, staged"),
            || fixture.installs(),
        )?;
        report.check(&of("killed, it comes back staged"), || fixture.comes_back())?;
        report.check(&of("install --remove, and it starts without us"), || {
            fixture.removes()
        })?;
    }
    Ok(())
}

/// The programs that units start, in place of the machine's own.
fn programs(env: &TestEnv, node: &Node) -> anyhow::Result<()> {
    let own = node.dir.join("programs");
    fs::create_dir_all(&own)?;
    fs::copy(env.program("multus-distro"), own.join("multus-distro"))?;
    for distro in ["k3s", "rke2"] {
        let config = format!(
            "version = 2\nroot = \"/srv/{distro}/root\"\nstate = \"/run/{distro}\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = \"/run/{distro}.sock\"\n"
        );
        node.write(&format!("/srv/{distro}/config.toml"), config)?;
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" >/srv/{distro}/words\nexec containerd --config /srv/{distro}/config.toml\n"
        );
        let place = own.join(distro);
        fs::write(&place, script)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
    }
    let own = own.to_str().context("the path is no text")?;
    node.run(&["mount", "--bind", own, BIN]).map(drop)
}

impl Unit {
    fn text(&self) -> String {
        let Self { name, command, .. } = self;
        format!(
            "[Unit]\nDefaultDependencies=no\n\n[Service]\nType=notify\nEnvironmentFile=-/etc/systemd/system/{name}.env\n\
             KillMode=process\nDelegate=yes\nUser=root\nLimitNOFILE=1048576\nTimeoutStartSec=60\nRestart=always\nRestartSec=100ms\n\
             StandardError=append:/srv/{name}.log\nExecStartPre=-/bin/true\nExecStart={command}\n"
        )
    }

    fn data_dir(&self) -> String {
        format!("/var/lib/rancher/{}", self.distro)
    }

    fn drop_in(&self) -> String {
        format!("/etc/systemd/system/{}.d/{DROP_IN}", self.name)
    }
}

struct ServiceFixture<'a> {
    node: &'a Node,
    systemd: &'a Systemd<'a>,
    unit: &'a Unit,
}

impl ServiceFixture<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.node.path(path)
    }

    /// The distro got its own words, and is what systemd knows as the service.
    fn runs_as_before(&self) -> anyhow::Result<()> {
        let Unit { name, distro, .. } = self.unit;
        let state = self.systemd.property(name, "ActiveState")?;
        let log = || fs::read_to_string(self.path(&format!("/srv/{name}.log")));
        ensure!(state == "active", "it is {state}: {}", log()?);
        let words = fs::read_to_string(self.path(&format!("/srv/{distro}/words")))?;
        let words: Vec<_> = words.lines().collect();
        let program = format!("{BIN}/{distro}");
        let expected = [&[program.as_str()], self.unit.words].concat();
        ensure!(words == expected, "it was started as {words:?}");
        let main = self.systemd.property(name, "ExecMainStatus")?;
        ensure!(main == "0", "it had ended with {main}");
        Ok(())
    }

    fn install(&self, more: &[&str]) -> anyhow::Result<String> {
        let words = ["multus-distro", "install", "--unit", self.unit.name];
        let mut command = self.node.command(words[0]);
        let told = sh::run(command.args(&words[1..]).args(more))?;
        self.systemd.ctl(&["daemon-reload"])?;
        self.systemd.ctl(&["restart", self.unit.name])?;
        Ok(told)
    }

    fn manifest(&self) -> Option<PathBuf> {
        let manifest = self.unit.manifest?;
        Some(self.path(&format!("{}/{manifest}", self.unit.data_dir())))
    }

    fn is_staged(&self) -> anyhow::Result<()> {
        if let Some(manifest) = self.manifest() {
            let text =
                fs::read_to_string(&manifest).with_context(|| format!("{}", manifest.display()))?;
            ensure!(
                text.contains("\nkind: HelmChart\n"),
                "the manifest is {text}"
            );
        } else {
            let there = self.node.list(&self.unit.data_dir())?;
            ensure!(there.is_empty(), "an agent has {there:?}");
        }
        Ok(())
    }

    fn installs(&self) -> anyhow::Result<()> {
        let (name, place) = (self.unit.name, self.unit.drop_in());
        let told = self.install(&[])?;
        ensure!(told == format!("{place}\n"), "it wrote {told}");
        let known = self.systemd.property(name, "DropInPaths")?;
        ensure!(known == place, "systemd knows {known}");
        let started = self.systemd.property(name, "ExecStart")?;
        ensure!(
            started.contains(&format!("{BIN}/multus-distro")),
            "it starts {started}"
        );
        self.runs_as_before()?;
        let hint: Value = serde_json::from_slice(&fs::read(self.path(HINT))?)?;
        let main: u32 = self.systemd.property(name, "MainPID")?.parse()?;
        let is_told = hint["dataDir"] == self.unit.data_dir() && hint["pid"] == main;
        ensure!(is_told, "the daemon is told {hint}, process {main} runs");
        self.is_staged()
    }

    /// With what was staged gone, too: whoever starts it stages.
    fn comes_back(&self) -> anyhow::Result<()> {
        let name = self.unit.name;
        if let Some(manifest) = self.manifest() {
            fs::remove_file(manifest)?;
        }
        let main = || self.systemd.property(name, "MainPID");
        let before = main()?;
        self.systemd.ctl(&["kill", "--signal=KILL", name])?;
        sh::until(30, "it is started again", || {
            let (state, now) = (self.systemd.property(name, "ActiveState")?, main()?);
            ensure!(
                state == "active" && now != before,
                "it is {state} as process {now}"
            );
            Ok(())
        })?;
        self.runs_as_before()?;
        self.is_staged()
    }

    fn removes(&self) -> anyhow::Result<()> {
        let (name, place) = (self.unit.name, self.unit.drop_in());
        let told = self.install(&["--remove"])?;
        ensure!(told.ends_with(&format!("{place}\n")), "it wrote {told}");
        let known = self.systemd.property(name, "DropInPaths")?;
        ensure!(known.is_empty(), "systemd knows {known}");
        self.runs_as_before()?;
        ensure!(!self.path(HINT).exists(), "{HINT} is left");
        if let Some(manifest) = self.manifest() {
            let text = fs::read_to_string(manifest)?;
            let is_comment = |line: &str| line.starts_with('#');
            ensure!(text.lines().all(is_comment), "the manifest is {text}");
        }
        self.systemd.ctl(&["stop", name]).map(drop)
    }
}
