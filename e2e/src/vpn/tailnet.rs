//! A tailnet: its control server on a machine of its own, and the VPN's daemon on each node.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, Service, network::NodeNetwork},
    sh,
    test_env::TestEnv,
};

/// The number of the control server's machine.
const CONTROL: u8 = 9;
/// The UDP port of the VPN's daemons.
const PORT: u16 = 41641;
/// The interface of the VPN, unless a node renames it.
pub(crate) const INTERFACE: &str = "tailscale0";

/// The control server of a run. It forgets everything when it ends.
pub(crate) struct Tailnet {
    pub(crate) machine: Node,
    pub(crate) server: Service,
    /// The only key that it takes.
    pub(crate) key: String,
}

impl Tailnet {
    /// Starts the control server and waits until it answers.
    pub(crate) fn start(env: &TestEnv, network: &NodeNetwork, key: String) -> anyhow::Result<Self> {
        let machine = Node::start(env, network, CONTROL, &[&env.bin])?;
        machine.write("/srv/key", &key)?;
        let server = machine.serve("vpn-control", "vpn-control", |command| {
            command
                .arg(format!("--address={}", machine.address()))
                .arg("--auth-key-file=/srv/key")
        })?;
        let tailnet = Self {
            machine,
            server,
            key,
        };
        sh::until(20, "the control server answers", || tailnet.get("nodes"))?;
        Ok(tailnet)
    }

    /// Returns the URL with which nodes log in.
    pub(crate) fn url(&self) -> String {
        format!("http://{}:8080", self.machine.address())
    }

    /// Returns the settings with which a node logs in, by its name.
    pub(crate) fn settings(&self, key: &str, name: &str) -> String {
        let url = self.url();
        format!("name=tailscale,joinKey={key},controlServerURL={url},extraArgs=--hostname={name}")
    }

    /// Makes exactly these routes of a node known to all nodes.
    pub(crate) fn approve(&self, node: &str, routes: &[&str]) -> anyhow::Result<()> {
        let routes = routes.join(",");
        self.post(&format!("routes?node={node}&routes={routes}"))
    }

    /// Lets the key of a node expire in so many days; 0 means never.
    pub(crate) fn expire(&self, node: &str, days: u32) -> anyhow::Result<()> {
        self.post(&format!("expiry?node={node}&days={days}"))
    }

    fn post(&self, what: &str) -> anyhow::Result<()> {
        let url = format!("{}/e2e/{what}", self.url());
        let post = ["busybox", "wget", "-qO-", "--post-data=", &url];
        self.machine.run(&post).map(drop)
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        let url = format!("{}/e2e/{what}", self.url());
        let text = self.machine.run(&["busybox", "wget", "-qO-", &url])?;
        serde_json::from_str(&text).context("the control server printed no JSON")
    }
}

/// Starts the VPN's daemon on a node, with an interface of this name.
pub(crate) fn start_daemon(node: &Node, interface: &str) -> anyhow::Result<Service> {
    let daemon = node.serve("tailscaled", "tailscaled", |command| {
        command
            .args(["--statedir=/srv/tailscale", "--no-logs-no-support"])
            .arg(format!("--tun={interface}"))
            .arg(format!("--port={PORT}"))
    })?;
    sh::until(20, "tailscaled answers", || node_status(node))?;
    Ok(daemon)
}

/// Runs the VPN's own program on a node.
pub(crate) fn tailscale(node: &Node, args: &[&str]) -> anyhow::Result<String> {
    node.run(&[&["tailscale"], args].concat())
}

/// Returns what the VPN's daemon reports about its node.
pub(crate) fn node_status(node: &Node) -> anyhow::Result<Value> {
    serde_json::from_str(&tailscale(node, &["status", "--json"])?).context("no JSON")
}

/// Waits until a node is in the tailnet; returns its IPv4 address there.
pub(crate) fn address(node: &Node) -> anyhow::Result<String> {
    sh::until(30, &format!("{} is in the tailnet", node.name), || {
        let status = node_status(node)?;
        let state = &status["BackendState"];
        ensure!(state == "Running", "it is {state}");
        let address = status["TailscaleIPs"][0].as_str();
        Ok(address.context("it has no address")?.to_owned())
    })
}

/// Returns the routes that a node advertises.
pub(crate) fn advertised(node: &Node) -> anyhow::Result<Vec<String>> {
    let prefs: Value = serde_json::from_str(&tailscale(node, &["debug", "prefs"])?)?;
    let routes = prefs["AdvertiseRoutes"].as_array().into_iter().flatten();
    let mut routes: Vec<_> = routes
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    routes.sort();
    Ok(routes)
}

/// Describes the packets of the VPN and of its control server, for nft.
pub(crate) fn packets(control: &Node) -> Vec<String> {
    vec![
        format!("ip saddr {}", control.address()),
        format!("udp dport {PORT}"),
    ]
}
