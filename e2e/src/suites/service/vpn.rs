//! The unit that keeps a VPN up, between the VPN's own daemon and the distro. A script plays the VPN's program: its node is in a VPN whose
//! address is on `eth0`.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::ensure;

use crate::{
    node::{Node, systemd::Systemd},
    report::{Checked, Report},
    sh::{self, words},
};

/// The unit that multus-distro writes.
const UNIT: &str = "multus-vpn.service";
/// The unit of the VPN's daemon.
pub(super) const DAEMON: &str = "tailscaled.service";
const DISTRO: &str = "k3s-agent.service";
/// The settings of the VPN, for a node that is logged in.
const AUTH: &str = "/srv/vpn-auth";
const ADDRESS: &str = "100.64.0.7";

/// Units that are started with the VPN's, without the machine's own that come with most targets.
pub(super) fn units() -> Vec<(String, String)> {
    let bare = "[Unit]\nDefaultDependencies=no\n";
    let daemon = format!("{bare}[Service]\nType=simple\nExecStart=/bin/sleep 2147483647\n");
    vec![
        (DAEMON.to_owned(), daemon),
        ("network-online.target".to_owned(), bare.to_owned()),
    ]
}

/// Writes the script that plays the VPN's program.
pub(super) fn program(directory: &Path) -> anyhow::Result<()> {
    let status = format!(
        "{{\"Version\": \"1.102.5\", \"TUN\": true, \"BackendState\": \"Running\", \"TailscaleIPs\": [\"{ADDRESS}\"], \
         \"Self\": {{\"HostName\": \"n1\", \"Online\": true, \"DNSName\": \"n1.tailnet.invalid.\", \"TailscaleIPs\": [\"{ADDRESS}\"], \"AllowedIPs\": [\"{ADDRESS}/32\"]}}}}"
    );
    let script = format!(
        "#!/bin/sh\ncase \"$1 $2\" in\n'status --json') echo '{status}';;\n'debug prefs') echo '{{\"ControlURL\": \"https://control.invalid\"}}';;\n\
         *) echo \"$@\" >>/srv/tailscale.calls;;\nesac\n"
    );
    let path = directory.join("tailscale");
    fs::write(&path, script)?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

pub(super) fn run(node: &Node, systemd: &Systemd<'_>, report: &mut Report) -> Checked {
    let fixture = VpnFixture { node, systemd };
    report.check(
        "multus-vpn.service: it starts after the VPN's daemon and before the distro, which gets the VPN's addresses",
        || fixture.installs(),
    )?;
    report.check(
        "multus-vpn.service: restarts of the distro leave it alone",
        || {
            let before = fixture.process(UNIT)?;
            systemd.ctl(&["restart", DISTRO])?;
            ensure!(fixture.process(UNIT)? == before, "it was restarted, too");
            fixture.distro_is_on_the_vpn()
        },
    )?;
    report.check(
        "multus-vpn.service: it outlives a restart of the VPN's daemon, and restarts after a kill without the distro",
        || fixture.restarts(),
    )?;
    report.check("multus-vpn.service: uninstall removes it", || {
        fixture.removes()
    })
}

struct VpnFixture<'a> {
    node: &'a Node,
    systemd: &'a Systemd<'a>,
}

impl VpnFixture<'_> {
    fn process(&self, unit: &str) -> anyhow::Result<String> {
        let state = self.systemd.property(unit, "ActiveState")?;
        ensure!(state == "active", "{unit} is {state}");
        self.systemd.property(unit, "MainPID")
    }

    /// Returns the time at which a unit became active.
    fn start_of(&self, unit: &str) -> anyhow::Result<u64> {
        self.process(unit)?;
        let time = self
            .systemd
            .property(unit, "ActiveEnterTimestampMonotonic")?;
        Ok(time.parse()?)
    }

    fn distro_is_on_the_vpn(&self) -> anyhow::Result<()> {
        let words = fs::read_to_string(self.node.path("/srv/k3s/words"))?;
        for word in [
            format!("--node-ip={ADDRESS}"),
            "--flannel-iface=eth0".to_owned(),
        ] {
            ensure!(words.lines().any(|one| one == word), "{word}: {words}");
        }
        Ok(())
    }

    fn installs(&self) -> anyhow::Result<()> {
        self.node.write(AUTH, "name=tailscale\n")?;
        self.node.run(&["chmod", "600", AUTH])?;
        self.node
            .run(&words!("ip address add {ADDRESS}/32 dev eth0"))?;
        self.node.run(&words!(
            "multus-distro install --unit {DISTRO} --vpn-auth-file {AUTH}"
        ))?;
        // The unit's own dependencies would start the machine's units.
        let drop_in = format!("/etc/systemd/system/{UNIT}.d/50-e2e.conf");
        self.node
            .write(&drop_in, "[Unit]\nDefaultDependencies=no\n")?;
        self.systemd.ctl(&["daemon-reload"])?;
        self.systemd.ctl(&["start", DISTRO])?;
        let [daemon, own, distro] = [DAEMON, UNIT, DISTRO].map(|unit| self.start_of(unit));
        let times = [daemon?, own?, distro?];
        ensure!(times.is_sorted(), "they became active at {times:?}");
        let before = self.systemd.property(UNIT, "Before")?;
        ensure!(before.contains(DISTRO), "it is before {before}");
        self.distro_is_on_the_vpn()
    }

    fn restarts(&self) -> anyhow::Result<()> {
        let (own, distro) = (self.process(UNIT)?, self.process(DISTRO)?);
        self.systemd.ctl(&["restart", DAEMON])?;
        ensure!(self.process(UNIT)? == own, "it was restarted");
        self.systemd.ctl(&["kill", "--signal=KILL", UNIT])?;
        sh::until(30, "systemd restarts the unit", || {
            let now = self.process(UNIT)?;
            ensure!(now != own, "it is the former process");
            Ok(())
        })?;
        ensure!(self.process(DISTRO)? == distro, "the distro was restarted");
        Ok(())
    }

    fn removes(&self) -> anyhow::Result<()> {
        self.systemd.ctl(&["stop", UNIT])?;
        self.node
            .run(&["multus-distro", "uninstall", "--unit", DISTRO])?;
        self.systemd.ctl(&["daemon-reload"])?;
        let unit = format!("/etc/systemd/system/{UNIT}");
        ensure!(!self.node.path(&unit).exists(), "{unit} is still there");
        // The node was in the VPN before, so it stays there.
        let calls = fs::read_to_string(self.node.path("/srv/tailscale.calls")).unwrap_or_default();
        ensure!(!calls.contains("down"), "{calls}");
        self.systemd.ctl(&["restart", DISTRO])?;
        let words = fs::read_to_string(self.node.path("/srv/k3s/words"))?;
        ensure!(!words.contains(ADDRESS), "the distro still gets {words}");
        self.systemd.ctl(&["stop", DISTRO]).map(drop)
    }
}
