//! Routes to pods that go around the VPN: those of another back end of flannel, which it leaves when its back end changes. Functions over
//! values.

use serde::Serialize;

use crate::{Prefix, kernel::Network, provider::Pods, routes::list};

/// An interface of another back end of flannel, with the subnets of pods behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bypass {
    /// Its name.
    pub interface: String,
    pub subnets: Vec<Prefix>,
}

impl Bypass {
    /// Returns what is wrong, with the cure.
    pub fn text(&self) -> String {
        let Self { interface, subnets } = self;
        format!(
            "{} of other nodes' pods is reached through {interface}, around the VPN: put every node of the cluster onto the VPN, then reboot this one, or ip link delete {interface}",
            list(subnets)
        )
    }
}

/// Returns the VXLAN interfaces that have routes to pods, where flannel announces subnets through the VPN: those beside it, and where the
/// kernel's own routes lead to pods also those over it.
pub fn bypasses(
    network: &Network,
    link: Option<u32>,
    networks: &[Prefix],
    pods: Pods,
) -> Vec<Bypass> {
    let is_of_pods = |subnet: &Prefix| networks.iter().any(|network| network.contains(*subnet));
    let links = network.links.iter().filter(|(_, found)| {
        let is_vxlan = found.kind.as_deref() == Some("vxlan");
        let below = found.below.as_ref().map(|below| below.link);
        is_vxlan && (pods == Pods::Routes || below.is_none() || below != link)
    });
    let links = links.map(|(index, found)| {
        let routes = network.routes.iter();
        let behind = routes.filter(|route| route.link == Some(*index));
        Bypass {
            interface: found.name.clone(),
            subnets: behind
                .map(|route| route.destination)
                .filter(is_of_pods)
                .collect(),
        }
    });
    links.filter(|bypass| !bypass.subnets.is_empty()).collect()
}
