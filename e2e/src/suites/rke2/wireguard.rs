//! Nodes at two places that meet through WireGuard alone: `multus-distro` plans their addresses, and their default network sends what it
//! wraps through the tunnel, as RKE2's canal does with `flannel.iface`.

use anyhow::Context as _;

use crate::{
    node::network::NodeNetwork,
    programs::rke2::Rke2,
    report::{Checked, Report},
    suites::k3s::{
        node::{DistroNode, Role},
        vpn::{self, Fixture},
    },
    test_env::TestEnv,
    vpn::wg_quick::{self, Families, SETTINGS},
};

pub(super) fn run(env: &TestEnv, rke2: &Rke2, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (server, agent, vpn, network) = report.check(
        "RKE2's installer on a server and an agent, whose LAN passes only the packets of WireGuard",
        || {
            let network = NodeNetwork::new()?;
            let vpn = vpn::tunnel(2, SETTINGS, Families::Both)?;
            let roles = [(1, Role::Server), (2, Role::Agent)];
            let nodes = roles.map(|role| DistroNode::install_rke2(env, &network, rke2, role));
            let [server, agent] = nodes;
            let nodes = [server?, agent?];
            vpn.connect_alone(env, &nodes)?;
            let [server, agent] = nodes;
            vpn.set_families(&server)?;
            // As docs/vpn.md says for servers without a cloud controller, whose image cannot be made here.
            let mut args = agent.settings()?["kubelet-arg"].take();
            let own = format!("node-ip={},fd09::2", wg_quick::address(1));
            args.as_array_mut()
                .context("kubelet-arg is a list")?
                .push(own.into());
            agent.set("kubelet-arg", args)?;
            Ok((server, agent, vpn, network))
        },
    )?;
    let mut fixture = Fixture::run(env, server, vec![agent], vpn, report)?;
    report.check(
        "a power cut of both nodes: they are in the VPN again, and so are their pods",
        || fixture.reboot(&network),
    )?;
    report.check(
        "after rke2-killall.sh and uninstall nothing of ours is left in the VPN, which stays up",
        || fixture.uninstalled(),
    )
}
