//! Networks with addresses from a DHCP server on the nodes' LAN: the daemon of each node holds the leases of its pods, and the next one
//! after it.

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{ClusterFixture, NAMESPACE};
use crate::{
    control_plane::objects,
    node::{
        dhcp::{self, ACK, NEIGHBOUR_PREFIX, RELEASE},
        inspect::nothing_left,
    },
    report::{Checked, Report},
};

impl ClusterFixture<'_> {
    /// Checks leases with the installed chart, whose `manifests.dhcpDaemonSet` is on.
    pub(super) fn dhcp(&self, chart: &str, report: &mut Report) -> Checked {
        let of = |what: &str| format!("{chart}: {what}");
        let lan = self.cluster.server();
        let names = self.names("leased");
        let (server, addresses) = report.check(
            &of("pods with macvlan get addresses from a DHCP server on the nodes' LAN"),
            || {
                self.each(|member| dhcp::wait_for_service(&member.node))?;
                let server = dhcp::start_neighbour(lan)?;
                self.create_leased(&names)?;
                let addresses = self.leased_addresses(&names)?;
                self.each(|member| {
                    let held = dhcp::leases(&member.node)?;
                    ensure!(held.len() == 1, "the daemon holds {held:?}");
                    Ok(())
                })?;
                Ok((server, addresses))
            },
        )?;
        report.check(
            &of("the next daemons renew the leases, and pods keep their addresses"),
            || {
                let searches = dhcp::searches(lan)?;
                let selector = format!("--selector=app={chart}");
                self.cluster
                    .kubectl(&["delete", "pod", NAMESPACE, &selector])?;
                // From here on only the next daemons can renew.
                let before = self.acknowledgements(&addresses)?;
                self.wait_until_deployed(chart)?;
                for (address, before) in addresses.iter().zip(before) {
                    dhcp::wait_for_message(lan, ACK, address, before)?;
                }
                ensure!(dhcp::searches(lan)? == searches, "a client has searched");
                let now = self.leased_addresses(&names)?;
                ensure!(now == addresses, "{addresses:?} became {now:?}");
                Ok(())
            },
        )?;
        report.check(&of("deleted pods give their leases back"), || {
            self.cluster.delete(&names)?;
            for address in &addresses {
                dhcp::wait_for_message(lan, RELEASE, address, 0)?;
            }
            self.each(|member| nothing_left(&member.node))?;
            dhcp::end_neighbour(lan, &server)
        })
    }

    fn create_leased(&self, names: &[String]) -> anyhow::Result<()> {
        let config = json!({
            "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge", "ipam": {"type": "dhcp"},
        });
        let mut objects = vec![objects::network("lan", &config)];
        for (name, member) in names.iter().zip(&self.cluster.members) {
            objects.push(objects::pod(name, &member.node.name, Some("lan")));
        }
        self.cluster.apply(&objects)
    }

    /// Waits until the pods run; returns their addresses on the LAN.
    fn leased_addresses(&self, names: &[String]) -> anyhow::Result<Vec<String>> {
        let address = |name: &String| {
            let inside = self.cluster.ensure_interfaces(name, &["eth0", "net1"])?;
            let address = inside["net1"].first().context("net1 has no address")?;
            ensure!(
                address.starts_with(NEIGHBOUR_PREFIX),
                "{name} has {address}"
            );
            let (address, _) = address.split_once('/').context("it has no length")?;
            Ok(address.to_owned())
        };
        names.iter().map(address).collect()
    }

    /// Returns how often the server has granted or renewed each lease.
    fn acknowledgements(&self, addresses: &[String]) -> anyhow::Result<Vec<usize>> {
        let lan = self.cluster.server();
        let count = |address: &String| dhcp::messages(lan, ACK, address);
        addresses.iter().map(count).collect()
    }
}
