//! A network whose addresses come from a DHCP server: the daemon keeps the plugin that holds the leases.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{
    node::{Service, dhcp, inspect::nothing_left},
    report::{CheckFailed, Report},
    single_node::{BIN_DIR, DAEMON_CONFIG, SingleNode},
    test_env::TestEnv,
};

impl SingleNode {
    /// The switch is on at first, and off at the end.
    pub(super) fn leases(
        &self,
        env: &TestEnv,
        mut daemon: Service,
        report: &mut Report,
    ) -> Result<Service, CheckFailed> {
        let node = &self.node;
        let server = report.check(
            "addresses by DHCP: the plugin is started and serves",
            || {
                self.control.apply(node, &[dhcp::network()])?;
                dhcp::bring_plugin(node, BIN_DIR)?;
                dhcp::are_kept(node)?;
                dhcp::serve(node)
            },
        )?;
        report.check("a pod has its address from the server", || {
            let inside = self.attaches("leased", Some("leased"), &["eth0", "net1"])?;
            let address = inside["net1"].first().context("net1 has no address")?;
            ensure!(address.starts_with(dhcp::PREFIX), "{address}");
            Ok(())
        })?;
        report.check("the plugin and its leases outlive the daemon", || {
            let before = dhcp::holders(node)?;
            ensure!(before.len() == 1, "{before:?} hold leases");
            node.end(&daemon, "KILL")?;
            daemon = self.start_daemon(env)?;
            let after = dhcp::holders(node)?;
            ensure!(before == after, "{before:?}, then {after:?}");
            self.remove("leased")?;
            nothing_left(node)
        })?;
        report.check("switched off, it is ended", || {
            let file = node.path(DAEMON_CONFIG);
            let text = fs::read_to_string(&file)?.replace("\"dhcp\":true", "\"dhcp\":false");
            fs::write(file, text)?;
            node.end(&daemon, "TERM")?;
            daemon = self.start_daemon(env)?;
            dhcp::nobody_holds(node)?;
            dhcp::end(node, &server)
        })?;
        Ok(daemon)
    }
}
