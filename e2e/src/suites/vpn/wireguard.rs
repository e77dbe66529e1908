//! The cases `wireguard` and `wireguard-kernel`: three nodes with wg-quick, of which two meet only through the first, the server. The
//! packets pass a program, or the kernel.

use std::fs;

use anyhow::{Context as _, ensure};

use super::{Cluster, VpnNode, key_watch::KeyWatch, new_key, played};
use crate::{
    node::{Node, network::NodeNetwork},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
    vpn::{
        self,
        wg_quick::{self, Families, INTERFACE, Implementation, Keys, SETTINGS, address},
    },
};

/// The number of nodes; the first is the hub.
const NODES: usize = 3;
/// The node whose peers and keys are changed.
const LAST: usize = 2;
const FAMILIES: Families = Families::Both;

/// The nodes and their keys.
struct Fixture<'a> {
    cluster: Cluster<'a>,
    keys: Vec<Keys>,
    implementation: Implementation,
    /// AllowedIPs of the last node before anything of ours ran there.
    untouched: String,
}

/// The case with the program.
pub(super) fn program(env: &TestEnv, report: &mut Report) -> Checked {
    run(env, report, Implementation::Program)
}

/// The case with the kernel, which has WireGuard.
pub(super) fn kernel(env: &TestEnv, report: &mut Report) -> Checked {
    report.check(
        "this machine's kernel makes links of kind wireguard",
        || {
            ensure!(
                wg_quick::is_of_kernel(),
                "it makes none: run the case on another machine"
            );
            Ok(())
        },
    )?;
    run(env, report, Implementation::Kernel)
}

fn run(env: &TestEnv, report: &mut Report, implementation: Implementation) -> Checked {
    let keys = report.check("keys of four nodes", || {
        (0..=NODES)
            .map(|_| Keys::new())
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let private: Vec<String> = keys.iter().map(|keys| keys.private.clone()).collect();
    let watch = KeyWatch::start(&private, new_key("d"));
    report.check("the watch for keys sees a process that shows one", || {
        watch.sees_a_probe()
    })?;
    let passed = with_nodes(env, report, keys, implementation);
    report.check(
        "no private key was ever in arguments, an environment or a log",
        || watch.end(&env.dir.join("log")),
    )?;
    passed
}

fn with_nodes(
    env: &TestEnv,
    report: &mut Report,
    keys: Vec<Keys>,
    implementation: Implementation,
) -> Checked {
    let mut fixture = report.check(
        &format!(
            "two nodes meet only through the third, by wg-quick with WireGuard {}",
            implementation.words()
        ),
        || Fixture::start(env, keys, implementation),
    )?;
    report.check(
        "a field with a key is refused, and the line repeats nothing of it",
        || fixture.key_is_refused(),
    )?;
    report.check(
        "a server with etcd joins: K3s gets its address on the LAN for etcd, and others in the tunnel",
        || {
            fixture.cluster.write_settings(0, SETTINGS)?;
            fixture.cluster.start_first_server()?;
            fixture.cluster.etcd_is_on_the_lan()
        },
    )?;
    report.check(
        "K3s waits for an interface that is missing, and the line says how to bring it up",
        || fixture.waits_for_the_interface(),
    )?;
    report.check("two agents join with addresses in the tunnel alone", || {
        for index in 1..NODES {
            fixture.cluster.write_settings(index, SETTINGS)?;
            fixture.keep(index)?;
            fixture.cluster.start_agent(index)?;
        }
        Ok(())
    })?;
    let cluster = &fixture.cluster;
    report.check("all nodes are Ready, and pods run on them", || {
        cluster.start_pods()
    })?;
    report.check(
        "pods of all nodes reach each other with IPv4 and IPv6, through the hub too",
        || cluster.pods_are_reached(),
    )?;
    report.check("a pod reads the metrics of another node's kubelet", || {
        cluster.pods_read_metrics()
    })?;
    report.check("kubectl logs and exec reach the agents' pods", || {
        cluster.logs_and_exec()
    })?;
    report.check(
        "vpn status and doctor find no problem of the VPN on any node",
        || cluster.vpn_is_healthy(&format!("wireguard wg0 {}", implementation.words())),
    )?;
    faults(&mut fixture, report)
}

/// Faults under running pods.
fn faults(fixture: &mut Fixture<'_>, report: &mut Report) -> Checked {
    for (index, name) in [(0, "the hub"), (LAST, "a node behind the hub")] {
        report.check(
            &format!(
                "wg-quick of {name} makes its interface again: no packet for pods leaves meanwhile, then AllowedIPs and routes are back"
            ),
            || {
                fixture.wg_quick(index, "down")?;
                fixture.cluster.nodes[index].has_line(&["there is no interface wg0"])?;
                fixture.pods_have_no_other_way(index)?;
                fixture.wg_quick(index, "up")?;
                fixture.cluster.pods_are_reached()
            },
        )?;
    }
    report.check(
        "`vpn run` of the hub starts again, and pods reach each other",
        || {
            fixture.keep(0)?;
            fixture.cluster.pods_are_reached()
        },
    )?;
    report.check(
        "a peer that was removed stays removed, and the node behind it is named",
        || fixture.peer_is_removed(),
    )?;
    report.check(
        "a node with another key has its pods at the new peer",
        || fixture.key_is_rotated(),
    )?;
    report.check(
        "two peers that claim a subnet, and a missing address of a node, are named with their cure",
        || fixture.mistakes_are_named(),
    )?;
    report.check(
        "an interface that flannel has left is named, and a network of the site among those of the cluster",
        || fixture.leftovers_are_named(),
    )?;
    report.check("vpn down leaves the tunnel as it was", || {
        fixture.tunnel_is_left()
    })
}

impl<'a> Fixture<'a> {
    fn start(
        env: &'a TestEnv,
        keys: Vec<Keys>,
        implementation: Implementation,
    ) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let nodes = (1..=NODES)
            .map(|number| {
                let number = u8::try_from(number)?;
                let node = Node::start(env, &network, number, &[&env.bin])?;
                // A VPN may write `resolv.conf`, and a copy beside it.
                node.separate_etc()?;
                played::install(&node)?;
                vpn::add_ipv6(&node)?;
                Ok(VpnNode::new(node, None))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let cluster = Cluster {
            env,
            interface: INTERFACE,
            networks: &[played::PODS, played::PODS6],
            nodes,
            control: None,
            _network: network,
        };
        let mut fixture = Self {
            cluster,
            keys,
            implementation,
            untouched: String::new(),
        };
        for index in 0..NODES {
            fixture.block_lan(index)?;
            fixture.write_conf(index)?;
            fixture.wg_quick(index, "up")?;
        }
        for index in 1..NODES {
            for other in (0..NODES).filter(|other| *other != index) {
                let address = address(other);
                sh::until(30, "the nodes meet in the tunnel", || {
                    let ping = ["busybox", "ping", "-c1", "-W1", &address];
                    fixture.node(index).run(&ping)
                })?;
                let lan = fixture.node(other).address();
                let mut ping = fixture.node(index).command("busybox");
                let reached = ping.args(["ping", "-c1", "-W1", &lan]).output()?;
                ensure!(!reached.status.success(), "the LAN passes other packets");
            }
        }
        fixture.untouched = fixture.tunnel(LAST)?;
        Ok(fixture)
    }

    fn node(&self, index: usize) -> &Node {
        self.cluster.node(index)
    }

    fn keep(&mut self, index: usize) -> anyhow::Result<()> {
        let env = self.cluster.env;
        self.cluster.nodes[index].keep(env)
    }

    fn block_lan(&self, index: usize) -> anyhow::Result<()> {
        let packets = wg_quick::packets(index, &self.node(0).address());
        vpn::drop_from_lan(self.node(index), &[packets])
    }

    fn write_conf(&self, index: usize) -> anyhow::Result<()> {
        let hub = self.node(0).address();
        wg_quick::write_conf(self.node(index), index, &self.keys[..NODES], &hub, FAMILIES)
    }

    fn wg_quick(&self, index: usize, action: &str) -> anyhow::Result<()> {
        self.implementation.run(self.node(index), action)
    }

    fn wg(&self, index: usize, args: &[&str]) -> anyhow::Result<String> {
        self.node(index).run(&[&["wg"], args].concat())
    }

    /// Returns AllowedIPs, routes and rules of a node, as far as the tunnel has them.
    fn tunnel(&self, index: usize) -> anyhow::Result<String> {
        let allowed = self.wg(index, &["show", INTERFACE, "allowed-ips"])?;
        let node = self.node(index);
        let mut parts = vec![allowed];
        for family in ["-4", "-6"] {
            for what in [
                &["route", "show", "dev", INTERFACE][..],
                &["route", "show", "type", "unreachable"],
                &["rule"],
            ] {
                parts.push(node.run(&[&["ip", family], what].concat())?);
            }
        }
        Ok(parts.join("\n"))
    }

    fn key_is_refused(&mut self) -> anyhow::Result<()> {
        let key = new_key("e");
        self.cluster
            .write_settings(0, &format!("{SETTINGS},joinKey={key}"))?;
        self.keep(0)?;
        self.cluster.nodes[0]
            .one_line(20, &["joinKey", "this interface is yours", "leave it out"])?;
        let log = fs::read_to_string(self.node(0).log(&self.cluster.nodes[0].log))?;
        ensure!(!log.contains(&key), "{log}");
        Ok(())
    }

    fn waits_for_the_interface(&mut self) -> anyhow::Result<()> {
        self.wg_quick(LAST, "down")?;
        self.cluster.write_settings(LAST, SETTINGS)?;
        self.keep(LAST)?;
        let cure = "systemctl enable --now wg-quick@wg0.service";
        self.cluster.nodes[LAST].one_line(20, &["there is no interface wg0", cure])?;
        let url = format!("--server=https://{}:6443", address(0));
        let started = self.cluster.start_distro(LAST, "agent", &[&url]);
        let Err(error) = started else {
            anyhow::bail!("K3s was started: {started:?}");
        };
        let text = format!("{error:#}");
        ensure!(text.contains(cure), "{text}");
        self.wg_quick(LAST, "up")
    }

    /// Fails unless the kernel has no way to pods of another node, such as the default route.
    fn pods_have_no_other_way(&self, index: usize) -> anyhow::Result<()> {
        let other = self.cluster.pods()[(index + 1) % NODES];
        for address in self.cluster.pod_addresses(other)? {
            let mut route = self.node(index).command("ip");
            let found = route.args(["route", "get", &address]).output()?;
            let text = String::from_utf8_lossy(&found.stderr).into_owned();
            ensure!(text.contains("No route to host"), "{address}: {found:?}");
        }
        Ok(())
    }

    fn peer_is_removed(&self) -> anyhow::Result<()> {
        let key = &self.keys[LAST].public;
        self.wg(0, &["set", INTERFACE, "peer", key, "remove"])?;
        let subnet = self.cluster.pod_subnet(LAST)?;
        let line = format!("no peer leads to the node {}", address(LAST));
        self.cluster.nodes[0].has_line(&[&line, &subnet])?;
        let found = self.cluster.findings(0)?;
        let is_it = |text: &String| text.starts_with(&format!("!{line}"));
        ensure!(found.iter().any(is_it), "{found:#?}");
        let peers = self.wg(0, &["show", INTERFACE, "peers"])?;
        ensure!(!peers.contains(key.as_str()), "{peers}");
        let own = FAMILIES.node_networks(LAST);
        self.wg(0, &["set", INTERFACE, "peer", key, "allowed-ips", &own])?;
        self.cluster.pods_are_reached()
    }

    /// Gives the last node another key, of which flannel knows nothing.
    fn key_is_rotated(&mut self) -> anyhow::Result<()> {
        let former = self.keys.swap_remove(LAST);
        for index in [LAST, 0] {
            self.write_conf(index)?;
            self.wg_quick(index, "down")?;
            self.wg_quick(index, "up")?;
        }
        self.cluster.pods_are_reached()?;
        let allowed = self.wg(0, &["show", INTERFACE, "allowed-ips"])?;
        let subnet = self.cluster.pod_subnet(LAST)?;
        let new = &self.keys[LAST].public;
        let mut lines = allowed.lines();
        ensure!(
            lines.any(|line| line.starts_with(new.as_str()) && line.contains(&subnet))
                && !allowed.contains(&former.public),
            "{allowed}"
        );
        Ok(())
    }

    fn mistakes_are_named(&self) -> anyhow::Result<()> {
        let (subnet, own) = (self.cluster.pod_subnet(LAST)?, address(LAST));
        let part = subnet.replace(".0/24", ".0/25");
        let other = format!("{},{part}", FAMILIES.node_networks(1));
        let key = &self.keys[1].public;
        self.wg(0, &["set", INTERFACE, "peer", key, "allowed-ips", &other])?;
        let claim = format!("two peers claim {subnet}");
        self.cluster.nodes[0].has_line(&[&claim, &part, "take it out there"])?;
        let found = self.cluster.findings(0)?;
        let is_it = |text: &String| text.starts_with(&format!("!{claim}"));
        ensure!(found.iter().any(is_it), "{found:#?}");
        self.write_conf(0)?;
        self.wg_quick(0, "down")?;
        self.wg_quick(0, "up")?;
        self.cluster.pods_are_reached()?;
        // The peer of the last node has its pods alone.
        let key = &self.keys[LAST].public;
        self.wg(0, &["set", INTERFACE, "peer", key, "allowed-ips", &subnet])?;
        let lost = format!("!no peer leads to the node {own}, so its pods {subnet}");
        sh::until(30, "the node without an address is named", || {
            let found = self.cluster.findings(0)?;
            let is_it = |text: &String| text.starts_with(&lost);
            ensure!(found.iter().any(is_it), "{found:#?}");
            Ok(())
        })?;
        self.wg_quick(0, "down")?;
        self.wg_quick(0, "up")?;
        self.cluster.pods_are_reached()
    }

    fn leftovers_are_named(&self) -> anyhow::Result<()> {
        let node = self.node(LAST);
        for words in [
            "link add flannel.1 type vxlan id 1 dev eth0 dstport 8472",
            "link set flannel.1 up",
            "route add 10.42.77.0/24 dev flannel.1",
        ] {
            let words: Vec<_> = words.split(' ').collect();
            node.run(&[&["ip"], &words[..]].concat())?;
        }
        self.cluster.nodes[LAST].has_line(&["10.42.77.0/24", "ip link delete flannel.1"])?;
        node.run(&["ip", "link", "delete", "flannel.1"])?;
        let server = ["k3s", "server", "--cluster-cidr=10.77.0.0/16"];
        let plan = ["vpn", "plan", "--json", "--"];
        let plan = self
            .cluster
            .distro_json(LAST, &[&plan[..], &server].concat())?;
        let notes = plan["notes"].to_string();
        let named = "the network 10.77.0.0/24 of this site, on eth0, shares addresses with cluster-cidr 10.77.0.0/16";
        ensure!(notes.contains(named), "{notes}");
        Ok(())
    }

    fn tunnel_is_left(&self) -> anyhow::Result<()> {
        let node = &self.cluster.nodes[LAST];
        let before = self.tunnel(LAST)?;
        for subnet in self.cluster.pod_subnets(0)? {
            ensure!(before.contains(&subnet), "{before}");
        }
        let keeper = node.keeper.as_ref().context("`vpn run` runs")?;
        node.node.end(keeper, "TERM")?;
        let program = self.cluster.env.program("multus-distro");
        sh::run(node.node.command(program).args(["vpn", "down"]))?;
        let after = self.tunnel(LAST)?;
        ensure!(
            after == self.untouched,
            "{after} instead of {}",
            self.untouched
        );
        Ok(())
    }
}

impl VpnNode {
    /// Waits until the present `vpn run` has printed a line with these parts, after the last one that says that the VPN is up.
    fn has_line(&self, parts: &[&str]) -> anyhow::Result<()> {
        sh::until(40, "`vpn run` says what is wrong", || {
            let text = fs::read_to_string(self.node.log(&self.log))?;
            let mut lines = text.lines();
            let is_it = |line: &str| parts.iter().all(|part| line.contains(part));
            ensure!(lines.any(is_it), "no line has {parts:?}: {text}");
            Ok(())
        })
    }
}
