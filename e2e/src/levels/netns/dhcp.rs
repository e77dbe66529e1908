//! A network whose addresses come from a DHCP server: the daemon keeps the plugin that holds the leases.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    inspect::nothing_left,
    node::Service,
    objects,
    report::{Ended, Report},
    scene::{BIN_DIR, DAEMON_CONFIG, Scene},
    sh,
    workplace::Workplace,
};

const BRIDGE: &str = "br-lease";
const SOCKET: &str = "/run/cni/dhcp.sock";
/// Debian's; it is not among those that are built.
const PLUGIN: &str = "/usr/lib/cni/dhcp";

impl Scene {
    /// The switch is on at first, and off at the end.
    pub(super) fn leases(
        &self,
        work: &Workplace,
        mut daemon: Service,
        report: &mut Report,
    ) -> Result<Service, Ended> {
        let server = report.check("addresses by DHCP: the plugin is started and serves", || {
            self.node.run(&["ip", "link", "add", BRIDGE, "type", "bridge"])?;
            self.node
                .run(&["ip", "address", "add", "10.30.0.1/24", "dev", BRIDGE])?;
            self.node.run(&["ip", "link", "set", BRIDGE, "up"])?;
            let network = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": BRIDGE, "ipam": {"type": "dhcp"}});
            self.control
                .apply(&self.node, &[objects::network("leased", &network)])?;
            let place = self.node.path(&format!("{BIN_DIR}/dhcp"));
            fs::copy(PLUGIN, place).context(PLUGIN)?;
            sh::until(30, "it serves", || {
                ensure!(self.node.path(SOCKET).exists(), "there is no {SOCKET}");
                Ok(())
            })?;
            self.serve_leases()
        })?;
        report.check("a pod has its address from the server", || {
            let inside = self.attaches("leased", Some("leased"), &["eth0", "net1"])?;
            let address = inside["net1"].first().context("net1 has no address")?;
            ensure!(address.starts_with("10.30.0."), "{address}");
            Ok(())
        })?;
        report.check("the plugin and its leases outlive the daemon", || {
            let before = self.holders()?;
            ensure!(before.len() == 1, "{before:?} hold leases");
            self.node.end(&daemon, "KILL")?;
            daemon = self.start_daemon(work)?;
            let after = self.holders()?;
            ensure!(before == after, "{before:?}, then {after:?}");
            self.remove("leased")?;
            nothing_left(&self.node)
        })?;
        report.check("switched off, it is ended", || {
            let file = self.node.path(DAEMON_CONFIG);
            let text = fs::read_to_string(&file)?.replace("\"dhcp\":true", "\"dhcp\":false");
            fs::write(file, text)?;
            self.node.end(&daemon, "TERM")?;
            daemon = self.start_daemon(work)?;
            sh::until(30, "it has ended", || {
                let holders = self.holders()?;
                ensure!(holders.is_empty(), "{holders:?} are there");
                Ok(())
            })?;
            self.node.end(&server, "TERM")
        })?;
        Ok(daemon)
    }

    fn serve_leases(&self) -> anyhow::Result<Service> {
        self.node.serve("dnsmasq", "/usr/sbin/dnsmasq", |command| {
            command.args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--port=0",
                "--user=root",
                "--bind-interfaces",
                "--pid-file=",
                "--dhcp-leasefile=/run/e2e-leases",
                "--dhcp-authoritative",
                "--dhcp-range=10.30.0.10,10.30.0.99,255.255.255.0,1h",
                &format!("--interface={BRIDGE}"),
            ])
        })
    }

    /// Process ids of plugins that hold leases.
    fn holders(&self) -> anyhow::Result<Vec<String>> {
        let script = "for pid in /proc/[0-9]*; do tr '\\0' ' ' < $pid/cmdline | grep -q 'dhcp [d]aemon -socketpath' && echo ${pid#/proc/}; done; true";
        let found = self.node.run(&["sh", "-c", script])?;
        let own = |line: &&str| !line.is_empty();
        Ok(found.lines().filter(own).map(str::to_owned).collect())
    }
}
