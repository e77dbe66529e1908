//! Networks with addresses from a DHCP server: the daemon holds the leases of its own plugin, and keeps the node's plugin serving where
//! that one is found first.

use std::fs;

use anyhow::{Context as _, ensure};

use super::NetnsFixture;
use crate::{
    control_plane::objects,
    node::{
        Service,
        dhcp::{self, ACK, RELEASE},
        inspect::nothing_left,
    },
    report::{Checked, Report},
    sh,
    single_node::DAEMON_CONFIG,
};

impl NetnsFixture<'_> {
    /// Checks the key `dhcp`, which is on at first; the last check switches it off. Returns the daemon, which was restarted.
    pub(super) fn dhcp(&self, daemon: &Service, report: &mut Report) -> Checked<Service> {
        let node = &self.single_node.node;
        let server = report.check(
            "DHCP: the daemon starts the node's own plugin, found first, as a service",
            || {
                self.single_node.apply(&[objects::leased()])?;
                dhcp::wait_for_plugin_service(node)?;
                dhcp::start_server(node)
            },
        )?;
        report.check(
            "DHCP: a pod of the node's plugin gets an address from the server",
            || self.attach_leased("leased").map(drop),
        )?;
        let (before, daemon) = report.check(
            "DHCP: the node's plugin and its leases outlive the daemon",
            || {
                let before = dhcp::services(node)?;
                ensure!(before.len() == 1, "these processes hold leases: {before:?}");
                node.end(daemon, "KILL")?;
                let daemon = self.start_daemon()?;
                self.ensure_services(&before)?;
                Ok((before, daemon))
            },
        )?;
        let (daemon, server) = self.own_dhcp(daemon, server, report)?;
        report.check(
            "DHCP: the former service of the node's plugin was left alone",
            || {
                self.ensure_services(&before)?;
                self.single_node.remove("leased")?;
                nothing_left(node)
            },
        )?;
        report.check("DHCP: nothing serves when the key is off", || {
            self.edit_config("\"dhcp\":true", "\"dhcp\":false")?;
            node.end(&daemon, "TERM")?;
            let daemon = self.start_daemon()?;
            dhcp::wait_for_no_service(node)?;
            dhcp::end_server(node, &server)?;
            Ok(daemon)
        })
    }

    /// Checks the daemon's own service, while the service of the node's plugin runs as well.
    fn own_dhcp(
        &self,
        mut daemon: Service,
        mut server: Service,
        report: &mut Report,
    ) -> Checked<(Service, Service)> {
        let node = &self.single_node.node;
        let address = report.check(
            "DHCP: with its own plugins first the daemon holds the leases",
            || {
                let first = "\"dhcp\":true,\"ownPlugins\":{\"first\":true}";
                self.edit_config("\"dhcp\":true", first)?;
                node.end(&daemon, "TERM")?;
                daemon = self.start_daemon()?;
                dhcp::wait_for_service(node)?;
                let address = self.attach_leased("own")?;
                ensure!(dhcp::leases(node)?.len() == 1, "{:?}", dhcp::leases(node)?);
                dhcp::wait_for_message(node, ACK, &address, 1)?;
                Ok(address)
            },
        )?;
        report.check(
            "DHCP: restarted and killed daemons' leases are renewed, and pods keep their addresses",
            || {
                let searches = dhcp::searches(node)?;
                for signal in ["TERM", "KILL"] {
                    node.end(&daemon, signal)?;
                    let before = dhcp::messages(node, ACK, &address)?;
                    daemon = self.start_daemon()?;
                    dhcp::wait_for_message(node, ACK, &address, before)?;
                }
                ensure!(dhcp::searches(node)? == searches);
                self.ensure_address("own", &address)
            },
        )?;
        report.check(
            "DHCP: a lease that expired while no daemon ran is granted again",
            || {
                node.end(&daemon, "KILL")?;
                dhcp::expire_leases(node)?;
                let before = dhcp::messages(node, ACK, &address)?;
                daemon = self.start_daemon()?;
                dhcp::wait_for_message(node, ACK, &address, before)?;
                self.ensure_address("own", &address)
            },
        )?;
        report.check(
            "DHCP: the address of a lease that no server grants is off, and back with the server",
            || {
                node.end(&server, "TERM")?;
                node.end(&daemon, "KILL")?;
                dhcp::expire_leases(node)?;
                daemon = self.start_daemon()?;
                sh::until(60, "the address is off", || {
                    ensure!(self.ensure_address("own", &address).is_err());
                    Ok(())
                })?;
                server = dhcp::serve_again(node)?;
                sh::until(90, "the address is back", || {
                    self.ensure_address("own", &address)
                })?;
                sh::until(10, "the pod has an event", || {
                    let events = self.single_node.kubectl(&["get", "events"])?;
                    ensure!(events.contains("DhcpLeaseLost"), "{events}");
                    Ok(())
                })
            },
        )?;
        report.check("DHCP: a DEL gives the lease back", || {
            self.single_node.remove("own")?;
            dhcp::wait_for_message(node, RELEASE, &address, 0)?;
            self.ensure_no_leases()
        })?;
        report.check(
            "DHCP: the lease of a pod that is deleted without a daemon is given back by the next one",
            || {
                let address = self.attach_leased("journaled")?;
                node.end(&daemon, "TERM")?;
                let before = dhcp::messages(node, RELEASE, &address)?;
                self.single_node.remove("journaled")?;
                daemon = self.start_daemon()?;
                dhcp::wait_for_message(node, RELEASE, &address, before)?;
                self.ensure_no_leases()
            },
        )?;
        report.check(
            "DHCP: leases of before a node's restart are given back, and new pods get theirs",
            || {
                let address = self.attach_leased("lost")?;
                node.end(&daemon, "KILL")?;
                let before = dhcp::messages(node, RELEASE, &address)?;
                // The kernel's part of a restart; the service of the node's plugin has its own file.
                node.run(&["ip", "netns", "delete", "lost"])?;
                node.run(&["rm", "/run/cni/multus-dhcp.sock"])?;
                node.run(&["rm", "-r", "/run/multus"])?;
                daemon = self.start_daemon()?;
                dhcp::wait_for_message(node, RELEASE, &address, before)?;
                self.ensure_no_leases()?;
                self.single_node
                    .kubectl(&["delete", "pod", "lost", "--force"])?;
                self.attach_leased("next")?;
                self.single_node.remove("next")?;
                self.ensure_no_leases()
            },
        )?;
        Ok((daemon, server))
    }

    /// Creates a pod on the server's network; returns its address there.
    fn attach_leased(&self, pod: &str) -> anyhow::Result<String> {
        let inside = self.attach(pod, Some("leased"), &["eth0", "net1"])?;
        let address = inside["net1"].first().context("net1 has no address")?;
        ensure!(address.starts_with(dhcp::PREFIX), "{address}");
        let (address, _) = address.split_once('/').context("it has no length")?;
        Ok(address.to_owned())
    }

    fn ensure_address(&self, pod: &str, address: &str) -> anyhow::Result<()> {
        let show = ["ip", "netns", "exec", pod, "ip", "-o", "address"];
        let inside = self.single_node.node.run(&show)?;
        ensure!(inside.contains(address), "the pod has {inside}");
        Ok(())
    }

    fn ensure_services(&self, expected: &[String]) -> anyhow::Result<()> {
        let found = dhcp::services(&self.single_node.node)?;
        ensure!(
            found == expected,
            "the processes were {expected:?}, and are {found:?}"
        );
        Ok(())
    }

    fn ensure_no_leases(&self) -> anyhow::Result<()> {
        let leases = dhcp::leases(&self.single_node.node)?;
        ensure!(leases.is_empty(), "there are {leases:?}");
        Ok(())
    }

    fn edit_config(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let file = self.single_node.node.path(DAEMON_CONFIG);
        let text = fs::read_to_string(&file)?;
        ensure!(text.contains(from), "the daemon's file is {text}");
        Ok(fs::write(file, text.replace(from, to))?)
    }
}
