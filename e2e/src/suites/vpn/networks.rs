//! The VPN and the networks of pods: its MTU, and a definition that builds on its interface.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Fixture, PODS};
use crate::{
    control_plane::objects,
    daemon,
    node::Node,
    report::{Checked, Report},
    sh::{self, words},
    vpn::tailnet,
};

const DAEMON_CONFIG: &str = "/var/lib/multus/e2e-daemon-config.json";
/// The pod that Multus attaches.
const POD: &str = "attached";

pub(super) fn run(fixture: &Fixture<'_>, report: &mut Report) -> Checked {
    report.check("the VPN's MTU is that of the pods' default network", || {
        fixture.mtu_reaches(PODS[1])
    })?;
    report.check(
        "Multus starts on the agent, attaches a second network, and the default network keeps the MTU",
        || {
            fixture.start_multus()?;
            fixture.create_pod(POD, "local")?;
            fixture.mtu_reaches(POD)?;
            let text = fixture.kubectl(&["exec", POD, "--", "ip", "-o", "address"])?;
            ensure!(text.contains("net1"), "{text}");
            Ok(())
        },
    )?;
    report.check(
        "packets of a bridge that are longer than the VPN's reach the other node",
        || fixture.long_packets_pass(),
    )?;
    report.check(
        "a macvlan on the VPN's interface ends with an event that names the cure",
        || fixture.macvlan_is_refused(),
    )
}

impl Fixture<'_> {
    /// Compares the MTU of a pod's `eth0` with that of the VPN.
    fn mtu_reaches(&self, pod: &str) -> anyhow::Result<()> {
        let mtu = mtu(self.node(1), tailnet::INTERFACE)?;
        let text = self.kubectl(&["exec", pod, "--", "ip", "link", "show", "eth0"])?;
        ensure!(text.contains(&format!(" mtu {mtu} ")), "not {mtu}: {text}");
        Ok(())
    }

    /// Starts the release's daemon on the agent, with two definitions.
    fn start_multus(&self) -> anyhow::Result<()> {
        let (node, control) = (self.node(1), self.control()?);
        let ipam = json!({
            "type": "host-local",
            "ranges": [[{"subnet": "10.20.0.0/24"}]],
            "routes": [{"dst": "100.64.0.0/10"}],
        });
        let local = json!({
            "cniVersion": "1.0.0", "type": "bridge", "bridge": "br-local", "isGateway": true, "ipMasq": true, "ipam": ipam,
        });
        let on_vpn = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": tailnet::INTERFACE, "ipam": ipam});
        let definitions = [("local", &local), ("on-vpn", &on_vpn)];
        let definitions = definitions.map(|(name, config)| objects::network(name, config));
        objects::definitions_without_release(control, self.node(0), &definitions)?;
        let member = self.nodes[1].member.as_ref();
        let paths = &member.context("the agent has no runtime")?.runtime.paths;
        let config =
            json!({"cniConfigDir": paths.conf_dir, "binDir": paths.bin_dir, "logLevel": "debug"});
        node.write(DAEMON_CONFIG, config.to_string())?;
        // K3s does not ship macvlan; ours is where each daemon installs it.
        let plugins = self.env.program("multus-cni-plugins");
        fs::create_dir_all(node.path("/var/lib/multus/bin"))?;
        node.run(&[
            &plugins.display().to_string(),
            "install",
            "/var/lib/multus/bin",
        ])?;
        let kubeconfig = node.dir.join("daemon.conf");
        let server = tailnet::address(self.node(0))?;
        let url = format!("https://{server}:6443");
        control.pki.kubeconfig(&kubeconfig, &url, "admin")?;
        daemon::start(self.env, node, &kubeconfig, DAEMON_CONFIG, None).map(drop)
    }

    /// Creates a pod on the agent; waits until it runs.
    fn create_pod(&self, name: &str, networks: &str) -> anyhow::Result<()> {
        let pod = objects::pod(name, &self.node(1).name, Some(networks));
        self.control()?.apply(self.node(0), &[pod])?;
        self.kubectl(&words!(
            "wait --for=condition=Ready --timeout=90s pod {name}"
        ))
        .map(drop)
    }

    /// The bridge has an MTU of 1500, and its node answers what is too long for the VPN with the MTU that fits.
    fn long_packets_pass(&self) -> anyhow::Result<()> {
        let bridge = mtu(self.node(1), "br-local")?;
        let vpn = mtu(self.node(1), tailnet::INTERFACE)?;
        ensure!(bridge > 1428 && vpn < 1428, "{bridge} and {vpn}");
        let server = tailnet::address(self.node(0))?;
        let route = ["exec", POD, "--", "ip", "route", "get", &server];
        let route = self.kubectl(&route)?;
        ensure!(route.contains("dev net1"), "{route}");
        // 1,428 bytes with their headers. The first is lost where the pod does not know the MTU yet.
        let ping = ["exec", POD, "--", "ping", "-c", "5", "-s", "1400", &server];
        self.kubectl(&ping).map(drop)
    }

    fn macvlan_is_refused(&self) -> anyhow::Result<()> {
        let pod = objects::pod("refused", &self.node(1).name, Some("on-vpn"));
        self.control()?.apply(self.node(0), &[pod])?;
        sh::until(60, "an event names the cure", || {
            let pod_events = "--field-selector=involvedObject.name=refused,reason=FailedAddNetwork";
            let events = self.get(&["events", pod_events])?;
            let messages = events["items"].as_array().into_iter().flatten();
            let messages: Vec<_> = messages
                .filter_map(|event| event["message"].as_str())
                .collect();
            let parts = [
                "failed to create macvlan: invalid argument",
                "tailscale0 is no Ethernet interface",
                "name one that has a MAC address",
            ];
            let is_clear = |message: &&str| parts.iter().all(|part| message.contains(part));
            ensure!(messages.iter().any(is_clear), "{messages:#?}");
            Ok(())
        })?;
        self.kubectl(&["delete", "pod", "refused", POD, "--timeout=60s"])
            .map(drop)
    }
}

/// Returns the MTU of an interface.
fn mtu(node: &Node, link: &str) -> anyhow::Result<u64> {
    let links: Value =
        serde_json::from_str(&node.run(&["ip", "-json", "link", "show", "dev", link])?)?;
    links[0]["mtu"].as_u64().context("a link has an MTU")
}
