//! Suite `service`: `multus-distro install` on the units of K3s and RKE2, with a real systemd.
//!
//! The distros are not available here. A script with their names records its arguments and executes containerd, as the distros do, so
//! the service has to notify systemd that it is ready, or its start fails.

mod vpn;

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, cgroup::Cgroup, network::NodeNetwork, systemd::Systemd},
    programs::Needs,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "containerd ip systemctl",
    modules: &[],
};

/// The directory in which operators install programs.
const BIN: &str = "/usr/local/bin";
/// The file with which multus-distro tells the node's daemon about the distro.
const HINT: &str = "/run/multus-distro/node.json";
/// The file name of our drop-in.
const DROP_IN: &str = "90-multus.conf";

/// A unit of a distro.
struct Unit {
    name: &'static str,
    distro: &'static str,
    /// The value of `ExecStart=`.
    command: &'static str,
    /// The arguments that the program gets from it.
    args: &'static [&'static str],
    /// The manifest's path in the data directory; agents have none.
    manifest: Option<&'static str>,
}

const MANIFEST: &str = "server/manifests/multus.yaml";
/// A data directory that an environment file alone names.
const OTHER_DATA: &str = "/srv/data";

/// The agent comes first, while the data directory, which it shares with the server, is empty.
const ALL: [Unit; 3] = [
    Unit {
        name: "k3s-agent.service",
        distro: "k3s",
        command: "/usr/local/bin/k3s \\\n    agent \\\n",
        args: &["agent"],
        manifest: None,
    },
    Unit {
        name: "k3s.service",
        distro: "k3s",
        command: "/usr/local/bin/k3s \\\n    server \\\n\t'--node-label=rack=a b' \\\n\t'--data-dir=/var/lib/rancher/k3s' \\\n",
        args: &[
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
        args: &["server"],
        manifest: Some(MANIFEST),
    },
];

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (node, cgroup, _network) = &report.check("a node", || {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[])?;
        let cgroup = Cgroup::new(&node.name)?;
        Ok((node, cgroup, network))
    })?;
    let systemd = report.check("its systemd has the distros' units", || {
        programs(env, node)?;
        let units = ALL.map(|unit| (unit.name.to_owned(), unit.text()));
        Systemd::start(node, cgroup, &[&units[..], &vpn::units()].concat())
    })?;
    for unit in &ALL {
        let fixture = ServiceFixture {
            node,
            systemd: &systemd,
            unit,
        };
        let of = |what: &str| format!("{}: {what}", unit.name);
        report.check(&of("it starts without us"), || {
            fixture.systemd.ctl(&["start", unit.name])?;
            fixture.ensure_runs()
        })?;
        report.check(
            &of("after install it starts with the same arguments, and charts are staged"),
            || fixture.installs(),
        )?;
        report.check(
            &of("after a kill it restarts, and charts are staged"),
            || fixture.restarts(),
        )?;
        report.check(&of("after uninstall it starts without us"), || {
            fixture.removes()
        })?;
        if unit.distro == "rke2" {
            report.check(
                &of("its environment file names the directory of staged charts, installed and verified images"),
                || fixture.has_data_elsewhere(env),
            )?;
        }
    }
    vpn::run(node, &systemd, report)
}

/// Installs the programs that the units start, over the machine's own.
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
    vpn::program(&own)?;
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

    /// Fails unless the service is active, and the distro got its own arguments.
    fn ensure_runs(&self) -> anyhow::Result<()> {
        let Unit { name, distro, .. } = self.unit;
        let state = self.systemd.property(name, "ActiveState")?;
        let log = || fs::read_to_string(self.path(&format!("/srv/{name}.log")));
        ensure!(state == "active", "the service is {state}: {}", log()?);
        let args = fs::read_to_string(self.path(&format!("/srv/{distro}/words")))?;
        let args: Vec<_> = args.lines().collect();
        let program = format!("{BIN}/{distro}");
        let expected = [&[program.as_str()], self.unit.args].concat();
        ensure!(args == expected, "it was started as {args:?}");
        let main = self.systemd.property(name, "ExecMainStatus")?;
        ensure!(main == "0", "its former process exited with {main}");
        Ok(())
    }

    fn install(&self, more: &[&str]) -> anyhow::Result<String> {
        self.change(&[&["install"], more].concat())
    }

    fn uninstall(&self) -> anyhow::Result<String> {
        self.change(&["uninstall"])
    }

    /// Runs a command on the unit, and restarts it; returns what the command wrote.
    fn change(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.node.command("multus-distro");
        let written = sh::run(command.args(args).args(["--unit", self.unit.name]))?;
        self.systemd.ctl(&["daemon-reload"])?;
        self.systemd.ctl(&["restart", self.unit.name])?;
        Ok(written)
    }

    fn manifest(&self) -> Option<PathBuf> {
        let manifest = self.unit.manifest?;
        Some(self.path(&format!("{}/{manifest}", self.unit.data_dir())))
    }

    fn ensure_staged(&self) -> anyhow::Result<()> {
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
        let (name, drop_in) = (self.unit.name, self.unit.drop_in());
        let written = self.install(&[])?;
        ensure!(written == format!("{drop_in}\n"), "it wrote {written}");
        let known = self.systemd.property(name, "DropInPaths")?;
        ensure!(known == drop_in, "systemd knows the drop-ins {known}");
        let started = self.systemd.property(name, "ExecStart")?;
        ensure!(
            started.contains(&format!("{BIN}/multus-distro")),
            "the unit starts {started}"
        );
        self.ensure_runs()?;
        let hint: Value = serde_json::from_slice(&fs::read(self.path(HINT))?)?;
        let main: u32 = self.systemd.property(name, "MainPID")?.parse()?;
        let is_right = hint["dataDir"] == self.unit.data_dir() && hint["pid"] == main;
        ensure!(is_right, "the hint is {hint}, the main process is {main}");
        self.ensure_staged()
    }

    /// Deletes the staged manifest and kills the service: its next start stages again.
    fn restarts(&self) -> anyhow::Result<()> {
        let name = self.unit.name;
        if let Some(manifest) = self.manifest() {
            fs::remove_file(manifest)?;
        }
        let main = || self.systemd.property(name, "MainPID");
        let before = main()?;
        self.systemd.ctl(&["kill", "--signal=KILL", name])?;
        sh::until(30, "systemd restarts the service", || {
            let (state, now) = (self.systemd.property(name, "ActiveState")?, main()?);
            ensure!(
                state == "active" && now != before,
                "the service is {state} with process {now}"
            );
            Ok(())
        })?;
        self.ensure_runs()?;
        self.ensure_staged()
    }

    /// Names another data directory in the unit's environment file: systemd gives it to the server, and commands outside of the unit have
    /// to read it there, while nothing runs that knows it.
    fn has_data_elsewhere(&self, env: &TestEnv) -> anyhow::Result<()> {
        let Unit { name, distro, .. } = *self.unit;
        let variable = format!("{}_DATA_DIR={OTHER_DATA}\n", distro.to_uppercase());
        self.node
            .write(&format!("/etc/systemd/system/{name}.env"), variable)?;
        let manifest = self.path(&format!("{OTHER_DATA}/{MANIFEST}"));
        self.install(&[])?;
        self.ensure_runs()?;
        let text = fs::read_to_string(&manifest)?;
        ensure!(text.contains("\nkind: HelmChart\n"), "it staged {text}");
        self.uninstall()?;
        let text = fs::read_to_string(&manifest)?;
        let is_comment = |line: &str| line.starts_with('#');
        ensure!(text.lines().all(is_comment), "the manifest is {text}");
        self.systemd.ctl(&["stop", name])?;
        let release = env.dist.join("airgap");
        let release = release.to_str().context("the path is no text")?;
        let distro_option = ["--distro", distro];
        let run = |args: &[&str]| {
            self.node
                .run(&[&["multus-distro"], args, &distro_option].concat())
        };
        let written = run(&["images", "install", release])?;
        let images = format!("{OTHER_DATA}/agent/images/");
        ensure!(written.starts_with(&images), "it wrote {written}");
        let verified = run(&["verify"])?;
        ensure!(verified.contains(written.trim()), "it verified {verified}");
        let usual = self.node.list(&format!("{}/agent", self.unit.data_dir()))?;
        ensure!(usual.is_empty(), "the usual directory has {usual:?}");
        Ok(())
    }

    fn removes(&self) -> anyhow::Result<()> {
        let (name, drop_in) = (self.unit.name, self.unit.drop_in());
        let written = self.uninstall()?;
        ensure!(
            written.ends_with(&format!("{drop_in}\n")),
            "it wrote {written}"
        );
        let known = self.systemd.property(name, "DropInPaths")?;
        ensure!(known.is_empty(), "systemd knows the drop-ins {known}");
        self.ensure_runs()?;
        ensure!(!self.path(HINT).exists(), "{HINT} is still there");
        if let Some(manifest) = self.manifest() {
            let text = fs::read_to_string(manifest)?;
            let is_comment = |line: &str| line.starts_with('#');
            ensure!(text.lines().all(is_comment), "the manifest is {text}");
        }
        self.systemd.ctl(&["stop", name]).map(drop)
    }
}
