//! Faults of the VPN, each with its one clear line, and the state after it.

use anyhow::ensure;
use serde_json::Value;

use super::{AUTH, Fixture, played};
use crate::{
    node::Node,
    report::{Checked, Report},
    sh::{self, words},
    vpn::tailnet,
};

/// The subnet that the agent's pods get in the place of theirs.
const OTHER_SUBNET: &str = "10.42.77.0/24";
/// A subnet that the user of the agent advertises himself.
const OWN_ROUTE: &str = "192.168.77.0/24";
/// The name that the agent's interface gets.
const RENAMED: &str = "vpn7";

/// Faults that keep the second node out of the tailnet; at the end it is in.
pub(super) fn before_the_join(
    fixture: &mut Fixture<'_>,
    wrong: &str,
    report: &mut Report,
) -> Checked {
    report.check(
        "a file with the key that others can read is refused",
        || {
            fixture.write_auth(1, &fixture.tailnet.key)?;
            fixture.node(1).run(&["chmod", "644", AUTH])?;
            let env = fixture.env;
            fixture.nodes[1].keep(env)?;
            fixture.nodes[1].one_line(20, &[AUTH, "chmod 600"])
        },
    )?;
    report.check(
        "a wrong key is refused, and the line names the cure",
        || {
            fixture.write_auth(1, wrong)?;
            let env = fixture.env;
            fixture.nodes[1].keep(env)?;
            fixture.nodes[1].one_line(60, &["invalid authkey", "correct the key"])
        },
    )?;
    report.check("the LAN has its rule before the node is in the VPN", || {
        let rules = fixture.node(1).run(&["ip", "rule"])?;
        let is_it = |rule: &str| rule.starts_with("5200:") && rule.contains("to 10.77.0.0/24 ");
        ensure!(rules.lines().any(is_it), "{rules}");
        Ok(())
    })?;
    report.check(
        "K3s is not started while the node is out of the VPN, and the line says why",
        || fixture.distro_waits(),
    )?;
    report.check(
        "a control server that does not answer is waited for, and the node joins when it does",
        || fixture.joins_late(),
    )
}

/// The route of the agent's pods before and after its approval.
pub(super) fn unapproved_route(fixture: &Fixture<'_>, report: &mut Report) -> Checked {
    report.check(
        "a route that is not approved is named with its node, and is no longer once it is",
        || {
            for index in 0..2 {
                let route = fixture.pod_subnet(index)?;
                let name = &fixture.node(index).name;
                let line = format!("advertised, not approved: approve {route} of node {name}");
                fixture.nodes[index].one_line(60, &[&line])?;
                let found = fixture.findings(index)?;
                ensure!(found.contains(&format!("!{line}")), "{found:#?}");
                let doctor = fixture.doctor(index)?["problems"].to_string();
                ensure!(doctor.contains(&line), "{doctor}");
                fixture.tailnet.approve(name, &[&route])?;
                sh::until(30, "the route is approved", || {
                    let state = fixture.state(index)?;
                    ensure!(state["pending"] == Value::Array(Vec::new()), "{state}");
                    Ok(())
                })?;
            }
            Ok(())
        },
    )
}

/// Faults under running pods.
pub(super) fn running_cluster(fixture: &mut Fixture<'_>, report: &mut Report) -> Checked {
    report.check(
        "pods reach each other while the control server is stopped, and a line says that it is",
        || fixture.control_server_is_away(),
    )?;
    report.check(
        "tailscaled is killed and started again: the routes are as before",
        || fixture.daemon_is_killed(),
    )?;
    report.check(
        "a reboot needs no key: the node is in the tailnet again, with its address and its routes",
        || fixture.reboots_without_a_key(),
    )?;
    report.check(
        "a control server that is away at a reboot is no missing login, and the node is back when it answers",
        || fixture.reboots_without_control_server(),
    )?;
    report.check(
        "vpn status --probe names a node that drops connections to its kubelet",
        || fixture.kubelet_is_filtered(),
    )?;
    report.check(
        "routes that were wiped by hand come back, and those of the user stay",
        || fixture.routes_are_wiped(),
    )?;
    report.check(
        "a new subnet takes the place of the old one, which is withdrawn",
        || fixture.subnet_changes(),
    )?;
    report.check(
        "a device that advertises the LAN, or the subnet of a node's pods, does not get the packets of either",
        || fixture.lan_is_advertised(),
    )?;
    report.check(
        "an interface of another name is found, and K3s gets this name",
        || fixture.interface_is_renamed(),
    )
}

impl Fixture<'_> {
    fn distro_waits(&mut self) -> anyhow::Result<()> {
        let started = self.start_distro(1, "agent", &["--server=https://100.64.0.1:6443"]);
        let Err(error) = started else {
            anyhow::bail!("K3s was started: {started:?}");
        };
        let text = format!("{error:#}");
        ensure!(text.contains("correct the key"), "{text}");
        Ok(())
    }

    fn joins_late(&mut self) -> anyhow::Result<()> {
        self.write_auth(1, &self.tailnet.key)?;
        let (tailnet, cluster) = (&self.tailnet, &mut self.cluster);
        let (env, node) = (cluster.env, &mut cluster.nodes[1]);
        tailnet.machine.while_stopped(&tailnet.server, |_| {
            node.keep(env)?;
            node.one_line(90, &["tailscale up", "control server"])
        })?;
        tailnet::address(self.node(1)).map(drop)
    }

    fn control_server_is_away(&self) -> anyhow::Result<()> {
        let tailnet = &self.tailnet;
        let address = tailnet.machine.address();
        tailnet.machine.while_stopped(&tailnet.server, |_| {
            for index in 0..2 {
                // Without this tailscaled notices after two minutes.
                let cut = ["ss", "-K", "dst", &address, "dport", "=", ":8080"];
                self.node(index).run(&cut)?;
            }
            self.pods_reach_each_other()?;
            let away = format!("control server {} does not answer", tailnet.url());
            let mut nodes = self.nodes.iter();
            nodes.try_for_each(|node| node.one_line(90, &[&away]))
        })?;
        for index in 0..2 {
            sh::until(90, "the control server is back", || {
                let state = self.state(index)?;
                ensure!(state["notes"] == Value::Array(Vec::new()), "{state}");
                Ok(())
            })?;
        }
        Ok(())
    }

    fn daemon_is_killed(&mut self) -> anyhow::Result<()> {
        let node = &mut self.nodes[1];
        node.node.end(node.daemon()?, "KILL")?;
        node.one_line(
            30,
            &["the daemon of tailscale does not run: systemctl start"],
        )?;
        node.daemon = Some(tailnet::start_daemon(&node.node, tailnet::INTERFACE)?);
        tailnet::address(&node.node)?;
        self.ensure_advertised(&[])?;
        self.pods_reach_each_other()
    }

    /// Ends the agent's daemon and `vpn run`, and starts both with settings that have no key.
    fn reboot(&mut self) -> anyhow::Result<()> {
        self.write_auth(1, "")?;
        let env = self.env;
        let node = &mut self.nodes[1];
        node.node.end(node.daemon()?, "TERM")?;
        node.daemon = Some(tailnet::start_daemon(&node.node, tailnet::INTERFACE)?);
        node.keep(env)
    }

    fn reboots_without_a_key(&mut self) -> anyhow::Result<()> {
        let address = tailnet::address(self.node(1))?;
        self.reboot()?;
        self.is_back(&address)
    }

    fn reboots_without_control_server(&mut self) -> anyhow::Result<()> {
        let address = tailnet::address(self.node(1))?;
        let refuse = "table inet away { chain out { type filter hook output priority 0; tcp dport 8080 reject with tcp reset; }; }";
        self.filter(1, refuse)?;
        self.reboot()?;
        let log = self.node(1).log(&self.nodes[1].log);
        sh::until(90, "`vpn run` says what is missing", || {
            let text = std::fs::read_to_string(&log)?;
            let is_said = text.contains("control server is not reached");
            ensure!(is_said && !text.contains("not logged in"), "{text}");
            Ok(())
        })?;
        let found = self.findings(1)?;
        let is_it = |text: &String| text.starts_with("!the VPN's control server is not reached");
        ensure!(found.len() == 1 && found.iter().all(is_it), "{found:#?}");
        self.node(1)
            .run(&["nft", "delete", "table", "inet", "away"])?;
        self.is_back(&address)
    }

    /// Waits until the agent has its address in the tailnet again, and its pods are reached.
    fn is_back(&self, address: &str) -> anyhow::Result<()> {
        self.nodes[1].one_line(90, &["the VPN is up", address])?;
        self.ensure_advertised(&[])?;
        self.pods_reach_each_other()
    }

    fn kubelet_is_filtered(&self) -> anyhow::Result<()> {
        let table = "table inet acl { chain in { type filter hook input priority -10; iifname \"tailscale0\" tcp dport 10250 drop; }; }";
        self.filter(1, table)?;
        let status = self.distro_json(0, &["vpn", "status", "--probe", "--json"])?;
        let line = format!("port 10250 of {}, its kubelet's", self.node(1).name);
        let probe = &status["probes"][0];
        ensure!(
            probe["ping"]["outcome"] == "answered"
                && probe["kubelet"]["outcome"] == "silent"
                && status["findings"].to_string().contains(&line),
            "{status}"
        );
        self.node(1)
            .run(&["nft", "delete", "table", "inet", "acl"])
            .map(drop)
    }

    /// Adds a table to the packet filter of a node.
    fn filter(&self, index: usize, table: &str) -> anyhow::Result<()> {
        let mut nft = self.node(index).command("nft");
        sh::feed(nft.args(["--file", "-"]), table.as_bytes()).map(drop)
    }

    fn routes_are_wiped(&self) -> anyhow::Result<()> {
        let routes = [self.pod_subnet(1)?, OWN_ROUTE.to_owned()].join(",");
        tailnet::tailscale(
            self.node(1),
            &["set", &format!("--advertise-routes={routes}")],
        )?;
        self.ensure_advertised(&[OWN_ROUTE])?;
        sh::until(30, "`vpn run` has seen the user's route", || {
            let record =
                std::fs::read_to_string(self.node(1).path("/var/lib/multus-vpn/record.json"))?;
            ensure!(record.contains(OWN_ROUTE), "{record}");
            Ok(())
        })?;
        // As `k3s-killall.sh` does.
        tailnet::tailscale(self.node(1), &["set", "--advertise-routes="])?;
        self.ensure_advertised(&[OWN_ROUTE])?;
        self.nodes[1].one_line(30, &["are advertised again", OWN_ROUTE])?;
        self.pods_reach_each_other()
    }

    /// Waits until the agent advertises its pods' subnet and these routes.
    fn ensure_advertised(&self, more: &[&str]) -> anyhow::Result<()> {
        let own = self.pod_subnet(1)?;
        self.advertises(&[&[own.as_str()], more].concat())
    }

    fn advertises(&self, routes: &[&str]) -> anyhow::Result<()> {
        let mut expected = routes.to_vec();
        expected.sort_unstable();
        sh::until(60, "the agent advertises its routes", || {
            let routes = tailnet::advertised(self.node(1))?;
            ensure!(routes == expected, "{routes:?} instead of {expected:?}");
            Ok(())
        })
    }

    /// Runs the hook as flannel does, with another subnet, and with its own.
    fn subnet_changes(&self) -> anyhow::Result<()> {
        let node = self.node(1);
        let conf = std::fs::read_to_string(node.path(played::NET_CONF))?;
        let conf: Value = serde_json::from_str(&conf)?;
        let hook = conf["Backend"]["PostStartupCommand"]
            .as_str()
            .unwrap_or_default();
        let own = self.pod_subnet(1)?;
        for subnet in [OTHER_SUBNET, &own] {
            let mut shell = node.command("sh");
            sh::run(shell.args(["-c", hook]).env("SUBNET", subnet))?;
            self.advertises(&[subnet, OWN_ROUTE])?;
            let line = format!("the subnet of this node's pods is {subnet} now");
            self.nodes[1].one_line(30, &[&line, "is withdrawn"])?;
        }
        self.pods_reach_each_other()
    }

    /// Lets the control server's machine advertise the LAN of the nodes.
    fn lan_is_advertised(&mut self) -> anyhow::Result<()> {
        let (router, url) = (&self.tailnet.machine, self.tailnet.url());
        let daemon = tailnet::start_daemon(router, tailnet::INTERFACE)?;
        let up = format!("up --login-server={url} --auth-key=file:/srv/key --hostname=router");
        tailnet::tailscale(router, &words!("{up} --advertise-routes=10.77.0.0/24"))?;
        self.tailnet.approve("router", &["10.77.0.0/24"])?;
        for index in 0..2 {
            let node = self.node(index);
            sh::until(30, "the node has accepted the route", || {
                let accepted = node.run(&["ip", "route", "show", "table", "52"])?;
                ensure!(accepted.contains("10.77.0.0/24"), "{accepted}");
                Ok(())
            })?;
            let other = self.node(1 - index).address();
            ensure_by_lan(node, &other)?;
            let line = "router advertises 10.77.0.0/24";
            self.nodes[index].one_line(30, &[line, "stay on the LAN"])?;
            let found = self.findings(index)?;
            let is_it = |text: &String| text.starts_with(line);
            ensure!(found.iter().any(is_it), "{found:#?}");
            let doctor = self.doctor(index)?["notes"].to_string();
            ensure!(doctor.contains(line), "{doctor}");
        }
        self.pods_reach_each_other()?;
        self.kubectl(&["get", "--raw=/readyz"])?;
        self.own_subnet_is_advertised()?;
        let router = &self.tailnet.machine;
        tailnet::tailscale(router, &["down"])?;
        router.end(&daemon, "TERM")
    }

    /// Lets that machine advertise the subnet of the agent's pods, as the first server of a second cluster would.
    fn own_subnet_is_advertised(&self) -> anyhow::Result<()> {
        let (router, node, subnet) = (&self.tailnet.machine, self.node(1), self.pod_subnet(1)?);
        let set = format!("--advertise-routes={subnet}");
        tailnet::tailscale(router, &["set", &set])?;
        self.tailnet.approve("router", &[&subnet])?;
        sh::until(30, "the node has accepted the route", || {
            let accepted = node.run(&["ip", "route", "show", "table", "52"])?;
            ensure!(accepted.contains(&subnet), "{accepted}");
            Ok(())
        })?;
        let pod = subnet.replace(".0/24", ".5");
        let route = node.run(&["ip", "route", "get", &pod])?;
        ensure!(!route.contains(tailnet::INTERFACE), "{subnet}: {route}");
        let line = format!("router of the VPN advertises {subnet}");
        self.nodes[1].one_line(30, &[&line, "cluster-cidr"])?;
        let found = self.findings(1)?;
        let is_it = |text: &String| text.starts_with(&format!("!{line}"));
        ensure!(found.iter().any(is_it), "{found:#?}");
        let is_pending = |text: &String| text.contains("not approved");
        ensure!(!found.iter().any(is_pending), "{found:#?}");
        Ok(())
    }

    fn interface_is_renamed(&mut self) -> anyhow::Result<()> {
        let node = &mut self.nodes[1];
        node.node.end(node.daemon()?, "TERM")?;
        node.daemon = Some(tailnet::start_daemon(&node.node, RENAMED)?);
        tailnet::address(&node.node)?;
        sh::until(60, "`vpn run` has seen the other name", || {
            let state = self.state(1)?;
            ensure!(state["node"]["interface"] == RENAMED, "{state}");
            Ok(())
        })?;
        let parts = [RENAMED, tailnet::INTERFACE, "restart the distro"];
        self.nodes[1].one_line(30, &parts)?;
        let server = tailnet::address(self.node(0))?;
        let url = format!("--server=https://{server}:6443");
        let k3s = self.start_distro(1, "agent", &[&url])?;
        ensure!(k3s.one("flannel-iface")? == RENAMED, "{k3s:?}");
        self.restart_flannel(&k3s, &server)?;
        self.pods_reach_each_other()
    }

    fn restart_flannel(&mut self, k3s: &played::Arguments, server: &str) -> anyhow::Result<()> {
        let flannel = played::start_flannel(self.node(1), self.control()?, k3s, server)?;
        let node = &mut self.nodes[1];
        if let Some(member) = &mut node.member {
            let former = std::mem::replace(&mut member.flannel, flannel);
            node.node.end(&former, "TERM")?;
            member.write_default_network(&node.node)?;
        }
        Ok(())
    }
}

/// Fails unless packets to an address of the LAN leave by `eth0`.
fn ensure_by_lan(node: &Node, address: &str) -> anyhow::Result<()> {
    let route = node.run(&["ip", "route", "get", address])?;
    ensure!(route.contains(" dev eth0 "), "{}: {route}", node.name);
    Ok(())
}
