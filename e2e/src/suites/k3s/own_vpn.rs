//! K3s' own `--vpn-auth` beside ours: a server and an agent that `multus-distro` put on a tailnet, and an agent that K3s puts there itself. What
//! was measured is the table of docs/contributing/vpn.md.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    DEADLINE, DistroCluster, bare,
    node::{BIN, DistroNode, Role},
    question,
    vpn::{KEY, PROGRAMS, Vpn, put_on_vpn, start},
};
use crate::{
    cluster::pods::Pods as _,
    node::{Node, network::NodeNetwork},
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
    vpn::{
        self,
        tailnet::{self, Tailnet},
    },
};

const PAGE: &str = include_str!("../../../../docs/contributing/vpn.md");
const HEADING: &str = "## Beside K3s' own VPN";
/// The file that K3s reads itself.
const AUTH: &str = "/etc/k3s-vpn.auth";
/// Where both agents write down each call of tailscale.
const CALLS: &str = "/srv/tailscale.calls";
/// The log of a pod's second server, with the addresses of its clients.
const CLIENTS: &str = "/run/clients";
/// A route of the user, and the file in which `vpn run` notes it.
const YOURS: &str = "192.168.77.0/24";
const RECORD: &str = "/var/lib/multus-vpn/record.json";
/// The agents' places among the nodes.
const OURS: usize = 1;
const OWN: usize = 2;

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (cluster, agents, vpn, _network) = report.check(
        "a server is on a tailnet by multus-distro, and its LAN passes nothing else",
        || {
            let network = NodeNetwork::new()?;
            let vpn = Vpn::Tailnet(Tailnet::start(env, &network, KEY.to_owned())?);
            let server = DistroNode::install(env, &network, k3s, (1, Role::Server))?;
            let ours = DistroNode::install(env, &network, k3s, (2, Role::Agent))?;
            let own = DistroNode::install(env, &network, k3s, (3, Role::Agent))?;
            server.add_programs(env, &PROGRAMS)?;
            for agent in [&ours, &own] {
                agent.add_programs(env, &PROGRAMS[1..])?;
                write_down_calls(env, &agent.node)?;
            }
            for member in [&server, &ours, &own] {
                vpn.connect(member, 0, "")?;
            }
            let cluster = start(server, &vpn)?;
            Ok((cluster, [ours, own], vpn, network))
        },
    )?;
    let mut beside = Beside {
        cluster,
        vpn,
        pods: Vec::new(),
        rows: Vec::new(),
    };
    report.check(
        "an agent joins by multus-distro, and one by K3s' own --vpn-auth-file",
        || beside.join(agents),
    )?;
    report.check(
        "pods of all three reach each other, and have further networks",
        || beside.reach(),
    )?;
    report.check("what differs while K3s runs", || beside.running())?;
    report.check(
        "what differs while K3s and its VPN are down, and at the next start",
        || beside.stopped(),
    )?;
    report.check("what differs after k3s-killall.sh", || beside.killed())?;
    report.check(
        "docs/contributing/vpn.md: the table has exactly that",
        || {
            let measured = beside.rows.join("\n");
            let shown = table(PAGE)?;
            ensure!(shown == measured, "measured was\n{measured}");
            Ok(())
        },
    )
}

/// Puts a program in tailscale's place that writes down its arguments.
fn write_down_calls(env: &TestEnv, node: &Node) -> anyhow::Result<()> {
    let program = format!("{BIN}/tailscale");
    let real = env.bin.join("tailscale");
    let text = format!(
        "#!/bin/sh\necho \"$@\" >>{CALLS}\nexec {} \"$@\"\n",
        real.display()
    );
    node.write(&program, text)?;
    node.write(CALLS, "")?;
    node.run(&["chmod", "755", &program]).map(drop)
}

/// Returns the rows of the page's table.
fn table(page: &str) -> anyhow::Result<String> {
    let (_, section) = page
        .split_once(HEADING)
        .context("the page has no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    Ok(rows.collect::<Vec<_>>().join("\n"))
}

struct Beside {
    cluster: DistroCluster,
    vpn: Vpn,
    /// One on each node.
    pods: Vec<String>,
    /// The measured table.
    rows: Vec<String>,
}

impl Beside {
    fn join(&mut self, agents: [DistroNode; 2]) -> anyhow::Result<()> {
        let server = vpn::address(&self.cluster.server().node)?;
        let [mut ours, own] = agents;
        for agent in [&ours, &own] {
            agent.set("server", format!("https://{server}:6443").into())?;
        }
        put_on_vpn(&mut ours, &self.vpn)?;
        vpn::address(&ours.node)?;
        own.take_medium()?;
        vpn::write_private(&own.node, AUTH, &self.vpn.settings(&own.node))?;
        own.set("vpn-auth-file", AUTH.into())?;
        for mut agent in [ours, own] {
            agent.start()?;
            self.cluster.nodes.push(agent);
        }
        self.cluster.all_are_ready()?;
        self.cluster.each(|member| {
            let subnet = self.cluster.subnet(&member.node)?;
            self.vpn.approve(&member.node, &[&subnet])
        })?;
        self.cluster.daemons_are_ready()
    }

    fn agent(&self, index: usize) -> &DistroNode {
        &self.cluster.nodes[index]
    }

    /// Adds a row: what was measured on our agent, and on K3s' own, in these words for true and false.
    fn row(
        &mut self,
        what: &str,
        words: [&str; 2],
        measure: impl Fn(&Self, usize) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let [ours, own] = [OURS, OWN].map(|index| {
            let is_it =
                measure(self, index).with_context(|| self.agent(index).node.name.clone())?;
            anyhow::Ok(words[usize::from(!is_it)])
        });
        self.rows.push(format!("| {what} | {} | {} |", ours?, own?));
        Ok(())
    }

    fn reach(&mut self) -> anyhow::Result<()> {
        self.cluster.define_networks()?;
        self.pods = self.cluster.create("pod", 1)?;
        let addresses = self.cluster.inspect(&self.pods)?;
        self.cluster.serve_in(&self.pods)?;
        for from in &self.pods {
            for (to, addresses) in self.pods.iter().zip(&addresses) {
                let what = format!("{from} reaches {to}");
                sh::until(60, &what, || {
                    let name = self.cluster.ask(from, addresses, "eth0")?;
                    ensure!(name == *to, "{name} answers");
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn running(&mut self) -> anyhow::Result<()> {
        self.row(
            "the key at the first login",
            [
                "in a file of root's",
                "an argument, which all users of the node can read",
            ],
            |this, index| Ok(!calls(&this.agent(index).node)?.contains(KEY)),
        )?;
        self.row(
            "DNS of the tailnet in `resolv.conf`",
            ["unless asked for, no", "yes"],
            |this, index| Ok(prefs(&this.agent(index).node)?["CorpDNS"] == false),
        )?;
        self.row(
            "a pod sees packets from pods of other nodes with the address",
            ["of the sender", "of its own node"],
            Self::sees_sender,
        )?;
        self.row(
            "the LAN stays out of the tunnel when another device advertises it",
            ["yes", "no"],
            |this, index| {
                let rules = this.agent(index).node.run(&["ip", "rule"])?;
                Ok(rules.lines().any(|rule| rule.starts_with("5200:")))
            },
        )
    }

    /// Returns whether the pod of a node sees the address of the server's pod when that one asks it.
    fn sees_sender(&self, index: usize) -> anyhow::Result<bool> {
        let addresses = self.cluster.inspect(&self.pods)?;
        let sender = bare(&addresses[0], "eth0")?;
        let receiver = bare(&addresses[index], "eth0")?;
        let serve = format!("busybox httpd -f -v -p 8081 -h /etc >{CLIENTS} 2>&1 &");
        let pod = &self.pods[index];
        self.cluster
            .kubectl(&["exec", pod, "--", "sh", "-c", &serve])?;
        let question = question(&addresses[index], "eth0", 8081)?;
        sh::until(30, "the second server answers", || {
            let ask = ["exec", &self.pods[0], "--", "sh", "-c", &question];
            self.cluster.kubectl(&ask)
        })?;
        let seen = self.cluster.kubectl(&["exec", pod, "--", "cat", CLIENTS])?;
        let gateway = receiver.rsplit_once('.').map(|(net, _)| format!("{net}.1"));
        let gateway = gateway.context("the address is one of IPv4")?;
        let is_of = |address: &str| seen.contains(&format!(":{address}]"));
        ensure!(is_of(sender) != is_of(&gateway), "it sees {seen}");
        Ok(is_of(sender))
    }

    fn stopped(&mut self) -> anyhow::Result<()> {
        for index in [OURS, OWN] {
            self.cluster.nodes[index].end()?;
        }
        for index in [OURS, OWN] {
            let node = &self.agent(index).node;
            ensure!(is_running(node)?, "{}: the VPN ended with K3s", node.name);
            tailnet::tailscale(node, &["down"])?;
        }
        let pod = self
            .cluster
            .subnet(&self.cluster.server().node)?
            .replace(".0/24", ".9");
        self.row(
            "packets for pods of other nodes while the VPN is down",
            ["stay on the node", "leave by the default route"],
            |this, index| {
                sh::until(30, "the tunnel is away", || {
                    let route = this.agent(index).node.run(&["ip", "route", "get", &pod]);
                    let route = route.unwrap_or_default();
                    ensure!(!route.contains(tailnet::INTERFACE), "it is {route}");
                    Ok(!route.contains("dev eth0"))
                })
            },
        )?;
        for index in [OURS, OWN] {
            let node = &self.agent(index).node;
            node.write(CALLS, "")?;
            let file = if index == OURS {
                super::vpn::AUTH
            } else {
                AUTH
            };
            let former = fs::read_to_string(node.path(file))?;
            let without = former.replace(&format!("joinKey={KEY},"), "");
            vpn::write_private(node, file, &without)?;
        }
        self.cluster.nodes[OURS].keep()?;
        vpn::address(&self.agent(OURS).node)?;
        for index in [OURS, OWN] {
            self.cluster.nodes[index].start()?;
        }
        self.row(
            "a start without `joinKey`, after the first login",
            ["works", "K3s ends"],
            |this, index| {
                sh::until(DEADLINE, "K3s runs, or says what is missing", || {
                    let member = this.agent(index);
                    let Err(error) = member.ensure_runs() else {
                        return is_running(&member.node).and_then(|is_up| {
                            ensure!(is_up, "the VPN is down");
                            Ok(true)
                        });
                    };
                    ensure!(
                        format!("{error:#}").contains("requires a JoinKey"),
                        "{error:#}"
                    );
                    Ok(false)
                })
            },
        )?;
        let own = &self.agent(OWN).node;
        let settings = self.vpn.settings(own);
        vpn::write_private(own, AUTH, &settings)?;
        self.cluster.nodes[OWN].end()?;
        self.cluster.nodes[OWN].start()?;
        self.cluster.kubelets_answer()?;
        self.row(
            "settings of yours when the VPN is brought up again",
            ["kept", "reset"],
            |this, index| Ok(!calls(&this.agent(index).node)?.contains("--reset")),
        )
    }

    fn killed(&mut self) -> anyhow::Result<()> {
        for index in [OURS, OWN] {
            let node = &self.agent(index).node;
            let subnet = self.cluster.subnet(node)?;
            let set = format!("--advertise-routes={subnet},{YOURS}");
            tailnet::tailscale(node, &["set", &set])?;
        }
        let record = self.agent(OURS).node.path(RECORD);
        sh::until(30, "`vpn run` has seen the route", || {
            let text = fs::read_to_string(&record)?;
            ensure!(text.contains(YOURS), "{text}");
            Ok(())
        })?;
        for index in [OURS, OWN] {
            let member = &mut self.cluster.nodes[index];
            member.end()?;
            member.node.run(&["sh", &format!("{BIN}/k3s-killall.sh")])?;
        }
        self.row(
            "a route of yours after `k3s-killall.sh`",
            ["comes back", "gone"],
            |this, index| {
                let node = &this.agent(index).node;
                let comes_back = sh::until(20, "the route comes back", || {
                    let routes = tailnet::advertised(node)?;
                    ensure!(routes.iter().any(|route| route == YOURS), "{routes:?}");
                    Ok(())
                });
                Ok(comes_back.is_ok())
            },
        )
    }
}

/// Returns the calls of tailscale on an agent.
fn calls(node: &Node) -> anyhow::Result<String> {
    let calls = fs::read_to_string(node.path(CALLS)).context(CALLS)?;
    ensure!(!calls.is_empty(), "tailscale was not called");
    Ok(calls)
}

fn prefs(node: &Node) -> anyhow::Result<Value> {
    let prefs = tailnet::tailscale(node, &["debug", "prefs"])?;
    serde_json::from_str(&prefs).context("tailscale printed no JSON")
}

fn is_running(node: &Node) -> anyhow::Result<bool> {
    Ok(tailnet::node_status(node)?["BackendState"] == "Running")
}
