//! A network with addresses from a DHCP server: the daemon runs the dhcp plugin as the service that keeps the leases.

use std::fs;

use anyhow::{Context as _, ensure};

use super::NetnsFixture;
use crate::{
    control_plane::objects,
    node::{Service, dhcp, inspect::nothing_left},
    report::{CheckFailed, Report},
    single_node::{BIN_DIR, DAEMON_CONFIG},
};

impl NetnsFixture<'_> {
    /// Checks the key `dhcp`, which is on at first; the last check switches it off.
    pub(super) fn dhcp(&self, mut daemon: Service, report: &mut Report) -> Result<(), CheckFailed> {
        let node = &self.single_node.node;
        let server = report.check(
            "DHCP: the daemon starts the dhcp plugin as a service",
            || {
                self.single_node.control.apply(node, &[objects::leased()])?;
                dhcp::install_plugin(node, BIN_DIR)?;
                dhcp::wait_for_service(node)?;
                dhcp::start_server(node)
            },
        )?;
        report.check("DHCP: a pod gets an address from the server", || {
            let inside = self.attach("leased", Some("leased"), &["eth0", "net1"])?;
            let address = inside["net1"].first().context("net1 has no address")?;
            ensure!(address.starts_with(dhcp::PREFIX), "{address}");
            Ok(())
        })?;
        report.check(
            "DHCP: the service and its leases outlive the daemon",
            || {
                let before = dhcp::services(node)?;
                ensure!(before.len() == 1, "these processes hold leases: {before:?}");
                node.end(&daemon, "KILL")?;
                daemon = self.start_daemon()?;
                let after = dhcp::services(node)?;
                ensure!(
                    before == after,
                    "the processes were {before:?}, and are {after:?}"
                );
                self.single_node.remove("leased")?;
                nothing_left(node)
            },
        )?;
        report.check(
            "DHCP: the daemon ends the service when the key is off",
            || {
                let file = node.path(DAEMON_CONFIG);
                let text = fs::read_to_string(&file)?.replace("\"dhcp\":true", "\"dhcp\":false");
                fs::write(file, text)?;
                node.end(&daemon, "TERM")?;
                daemon = self.start_daemon()?;
                dhcp::wait_for_no_service(node)?;
                dhcp::end_server(node, &server)
            },
        )
    }
}
