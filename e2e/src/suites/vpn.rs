//! Suite `vpn`: nodes whose LAN lets only the VPN's packets through, with a real VPN, real flannel and a real cluster on top. It runs where
//! K3s is not at hand: it starts kubelet, flannel and API server with the arguments that multus-distro passes to a program named `k3s`.
//! Suite `k3s` has cases with real K3s.

mod faults;
mod key_watch;
mod networks;
mod packets;
mod played;
mod wireguard;

use std::{
    fs,
    ops::{Deref, DerefMut},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::{
    key_watch::KeyWatch,
    played::{Arguments, Member},
};
use crate::{
    control_plane::{ControlPlane, objects},
    node::{Node, Service, network::NodeNetwork},
    options::Options,
    programs::{Module, Needs},
    report::{Checked, Report},
    sh::{self, words},
    test_env::TestEnv,
    vpn::{
        self,
        tailnet::{self, Tailnet},
        wg_quick,
    },
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "busybox containerd curl etcd ip iptables macvlan nft openssl runc skopeo sysctl umoci wg",
    modules: &[
        Module::Plugins,
        Module::Containerd,
        Module::Flanneld,
        Module::Kubernetes,
        Module::Tailscale,
        Module::VpnControl,
        Module::Wireguard,
    ],
};

/// The file with the settings of the VPN.
const AUTH: &str = "/etc/rancher/vpn-auth";

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let mut cases = CASES.to_vec();
    if !wg_quick::is_of_kernel() {
        // Whoever names the case gets an error.
        if options.case.as_deref() != Some(KERNEL) {
            report.not_run(KERNEL, NO_KERNEL);
            cases.retain(|(name, _)| *name != KERNEL);
        }
    }
    let mut wanted = options.wanted(&cases, report)?.into_iter();
    wanted.try_for_each(|(_, case)| case(env, report))
}

/// The cases, each with nodes of its own.
const CASES: [(&str, Case); 3] = [
    ("tailscale", tailscale),
    ("wireguard", wireguard::program),
    (KERNEL, wireguard::kernel),
];
/// The case that needs WireGuard in the machine's kernel.
const KERNEL: &str = "wireguard-kernel";
const NO_KERNEL: &str = "this machine's kernel makes no link of kind wireguard";

type Case = fn(&TestEnv, &mut Report) -> Checked;

fn tailscale(env: &TestEnv, report: &mut Report) -> Checked {
    let [key, wrong, probe] = ["a", "b", "c"].map(new_key);
    let watch = KeyWatch::start(&[key.clone(), wrong.clone()], probe);
    report.check("the watch for keys sees a process that shows one", || {
        watch.sees_a_probe()
    })?;
    let passed = with_nodes(env, report, &key, &wrong);
    report.check(
        "no key was ever in arguments, an environment or a log",
        || watch.end(&env.dir.join("log")),
    )?;
    passed
}

fn with_nodes(env: &TestEnv, report: &mut Report, key: &str, wrong: &str) -> Checked {
    let mut fixture = report.check(
        "a control server, and nodes whose LAN passes only the VPN's packets",
        || Fixture::start(env, key),
    )?;
    report.check(
        "a server with etcd joins the tailnet: K3s gets its address on the LAN for etcd, and others in the VPN",
        || fixture.start_server(),
    )?;
    report.check("etcd listens on the LAN's address alone", || {
        fixture.etcd_is_on_the_lan()
    })?;
    faults::before_the_join(&mut fixture, wrong, report)?;
    report.check(
        "an agent joins: K3s gets addresses in the VPN alone, and flannel waits for no approval",
        || fixture.start_agent(1),
    )?;
    faults::unapproved_route(&fixture, report)?;
    report.check("both nodes are Ready, and pods run on them", || {
        fixture.start_pods()
    })?;
    report.check(
        "pods of the two nodes reach each other through the tailnet",
        || fixture.pods_reach_each_other(),
    )?;
    report.check(
        "a pod reads the metrics of the other node's kubelet",
        || fixture.pods_read_metrics(),
    )?;
    report.check("kubectl logs and exec reach the agent's pods", || {
        fixture.logs_and_exec()
    })?;
    report.check(
        "vpn status and doctor find no problem of the VPN on either node",
        || fixture.vpn_is_healthy("tailscale 1."),
    )?;
    report.check("vpn status names the expiry of a node's key", || {
        fixture.expiry_is_named()
    })?;
    packets::run(&fixture, report)?;
    networks::run(&fixture, report)?;
    faults::running_cluster(&mut fixture, report)
}

/// Returns a key that no other process of this machine knows.
fn new_key(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |since| since.as_nanos());
    format!("tskey-auth-e2e{name}{nanoseconds}")
}

/// The nodes in a tailnet.
struct Fixture<'a> {
    tailnet: Tailnet,
    cluster: Cluster<'a>,
}

impl<'a> Deref for Fixture<'a> {
    type Target = Cluster<'a>;

    fn deref(&self) -> &Cluster<'a> {
        &self.cluster
    }
}

impl DerefMut for Fixture<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.cluster
    }
}

/// The nodes, and the cluster as far as it has started; its server is the first node.
struct Cluster<'a> {
    env: &'a TestEnv,
    /// The interface of the VPN.
    interface: &'static str,
    /// The networks of pods.
    networks: &'static [&'static str],
    nodes: Vec<VpnNode>,
    control: Option<ControlPlane>,
    _network: NodeNetwork,
}

/// A node of the VPN.
struct VpnNode {
    node: Node,
    /// The VPN's daemon, where the suite serves it.
    daemon: Option<Service>,
    /// `multus-distro vpn run`.
    keeper: Option<Service>,
    distro: Option<Service>,
    member: Option<Member>,
    /// The number of programs that were started, which names their logs.
    starts: u32,
    /// The log of the present `vpn run`.
    log: String,
}

impl VpnNode {
    fn new(node: Node, daemon: Option<Service>) -> Self {
        Self {
            node,
            daemon,
            keeper: None,
            distro: None,
            member: None,
            starts: 0,
            log: String::new(),
        }
    }

    /// Returns the VPN's daemon.
    fn daemon(&self) -> anyhow::Result<&Service> {
        self.daemon.as_ref().context("the VPN has no daemon")
    }

    /// Starts `vpn run`, after ending the former one.
    fn keep(&mut self, env: &TestEnv) -> anyhow::Result<()> {
        if let Some(former) = self.keeper.take() {
            self.node.end(&former, "TERM")?;
        }
        self.starts += 1;
        let path = format!("{}:{}", env.bin.display(), machine_path());
        let log = format!("vpn-run{}", self.starts);
        let keeper = self
            .node
            .serve(&log, env.program("multus-distro"), |command| {
                command
                    .env("PATH", path)
                    .args(["vpn", "run"])
                    .arg(format!("--vpn-auth-file={AUTH}"))
            })?;
        self.keeper = Some(keeper);
        self.log = log;
        Ok(())
    }

    /// Waits until the present `vpn run` has printed exactly one line with these parts.
    fn one_line(&self, seconds: u64, parts: &[&str]) -> anyhow::Result<()> {
        sh::until(seconds, "`vpn run` says what is wrong", || {
            let text = fs::read_to_string(self.node.log(&self.log))?;
            let is_it = |line: &&str| parts.iter().all(|part| line.contains(part));
            let found = text.lines().filter(is_it).count();
            ensure!(found == 1, "{found} lines have {parts:?}: {text}");
            Ok(())
        })
    }
}

/// The client of the kubelets' API in the pods: busybox has no cipher that a kubelet takes.
const CLIENT: &str = "/client";
/// The pods, one on each node.
static PODS: [&str; 3] = ["pod1", "pod2", "pod3"];

impl<'a> Fixture<'a> {
    fn start(env: &'a TestEnv, key: &str) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let tailnet = Tailnet::start(env, &network, key.to_owned())?;
        let nodes = (1..=2)
            .map(|number| {
                let node = Node::start(env, &network, number, &[&env.bin])?;
                // A VPN may write `resolv.conf`, and a copy beside it.
                node.separate_etc()?;
                played::install(&node)?;
                vpn::drop_from_lan(&node, &tailnet::packets(&tailnet.machine))?;
                let daemon = tailnet::start_daemon(&node, tailnet::INTERFACE)?;
                Ok(VpnNode::new(node, Some(daemon)))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let lan = nodes[0].node.address();
        let mut ping = nodes[1].node.command("busybox");
        let reached = ping.args(["ping", "-c1", "-W1", &lan]).output()?;
        ensure!(!reached.status.success(), "the LAN passes other packets");
        let cluster = Cluster {
            env,
            interface: tailnet::INTERFACE,
            networks: &[played::PODS],
            nodes,
            control: None,
            _network: network,
        };
        Ok(Self { tailnet, cluster })
    }

    fn start_server(&mut self) -> anyhow::Result<()> {
        self.write_auth(0, &self.tailnet.key)?;
        self.start_first_server()
    }

    /// Writes the settings with a key, for root alone.
    fn write_auth(&self, index: usize, key: &str) -> anyhow::Result<()> {
        let settings = self.tailnet.settings(key, &self.node(index).name);
        self.write_settings(index, &settings)
    }

    /// Sends packets between all pods; the nodes have a direct path, since the relay would carry them as well.
    fn pods_reach_each_other(&self) -> anyhow::Result<()> {
        self.pods_are_reached()?;
        sh::until(30, "the nodes have a direct path", || {
            let peer = tailnet::address(self.node(0))?;
            let text = tailnet::tailscale(self.node(1), &["ping", "--c=1", &peer])?;
            // Any address of the node may answer, also that of its pods' bridge.
            ensure!(text.contains(" via ") && !text.contains("DERP"), "{text}");
            Ok(())
        })
    }

    fn expiry_is_named(&self) -> anyhow::Result<()> {
        let name = &self.node(1).name;
        self.tailnet.expire(name, 7)?;
        sh::until(30, "the expiry is a problem", || {
            let found = self.findings(1)?;
            let is_it = |text: &String| text.starts_with("!the node's key expires at ");
            ensure!(found.iter().any(is_it), "{found:#?}");
            Ok(())
        })?;
        self.tailnet.expire(name, 0)?;
        sh::until(30, "the key does not expire any more", || {
            let found = self.findings(1)?;
            ensure!(found.is_empty(), "{found:#?}");
            Ok(())
        })
    }
}

impl Cluster<'_> {
    /// Writes the settings of the VPN, for root alone.
    fn write_settings(&self, index: usize, text: &str) -> anyhow::Result<()> {
        vpn::write_private(self.node(index), AUTH, &format!("{text}\n"))
    }

    /// Waits until a node is in the VPN; returns its IPv4 address there.
    fn vpn_address(&self, index: usize) -> anyhow::Result<String> {
        vpn::address(self.node(index))
    }

    /// The names of the pods.
    fn pods(&self) -> &'static [&'static str] {
        &PODS[..self.nodes.len()]
    }

    fn node(&self, index: usize) -> &Node {
        &self.nodes[index].node
    }

    fn control(&self) -> anyhow::Result<&ControlPlane> {
        self.control.as_ref().context("there is no cluster")
    }

    fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.control()?.kubectl(self.node(0), args)
    }

    fn get(&self, args: &[&str]) -> anyhow::Result<Value> {
        self.control()?.get(self.node(0), args)
    }

    /// Returns the state that `vpn run` keeps.
    fn state(&self, index: usize) -> anyhow::Result<Value> {
        vpn::state(self.node(index))
    }

    /// Starts K3s on a node; returns the arguments that it gets.
    fn start_distro(
        &mut self,
        index: usize,
        role: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Arguments> {
        let env = self.env;
        let node = &mut self.nodes[index];
        if let Some(former) = node.distro.take() {
            node.node.end(&former, "TERM")?;
        }
        node.starts += 1;
        let log = format!("distro{}", node.starts);
        let networks = self.networks;
        let started = (role, arguments);
        let distro = played::start(env, &node.node, &log, networks, started)?;
        let started = played::arguments(&node.node, &distro);
        node.distro = Some(distro);
        started.with_context(|| fs::read_to_string(node.node.log(&log)).unwrap_or_default())
    }

    /// Starts the first server, whose etcd is on the LAN.
    fn start_first_server(&mut self) -> anyhow::Result<()> {
        self.nodes[0].keep(self.env)?;
        let own = self.vpn_address(0)?;
        let cidr = format!("--cluster-cidr={}", self.networks.join(","));
        let k3s = self.start_distro(0, "server", &["--cluster-init", &cidr])?;
        let lan = self.node(0).address();
        let node_ip = k3s.values("node-ip");
        ensure!(
            node_ip[0] == lan && node_ip.len() == self.networks.len(),
            "node-ip: {k3s:?}"
        );
        for flag in ["node-external-ip", "advertise-address", "tls-san"] {
            ensure!(k3s.values(flag).contains(&own), "{flag}: {k3s:?}");
        }
        ensure!(k3s.one("flannel-iface")? == self.interface, "{k3s:?}");
        let control = played::control_plane(self.node(0), &k3s)?;
        let member = played::join(self.env, self.node(0), &control, &k3s, "127.0.0.1")?;
        self.nodes[0].member = Some(member);
        self.control = Some(control);
        Ok(())
    }

    fn start_agent(&mut self, index: usize) -> anyhow::Result<()> {
        let own = self.vpn_address(index)?;
        let server = self.vpn_address(0)?;
        let url = format!("--server=https://{server}:6443");
        let k3s = self.start_distro(index, "agent", &[&url])?;
        ensure!(k3s.values("node-ip").contains(&own), "node-ip: {k3s:?}");
        let lan = self.node(index).address();
        ensure!(!format!("{k3s:?}").contains(&lan), "the LAN: {k3s:?}");
        ensure!(k3s.one("flannel-iface")? == self.interface, "{k3s:?}");
        let env = self.env;
        let member = played::join(env, self.node(index), self.control()?, &k3s, &server)?;
        self.nodes[index].member = Some(member);
        Ok(())
    }

    fn etcd_is_on_the_lan(&self) -> anyhow::Result<()> {
        let lan = self.node(0).address();
        let etcd = vpn::etcd_sockets(self.node(0))?;
        ensure!(
            etcd == [format!("{lan}:2379"), format!("{lan}:2380")],
            "etcd listens on {etcd:?}"
        );
        Ok(())
    }

    fn start_pods(&self) -> anyhow::Result<()> {
        self.kubectl(&words!(
            "wait --for=condition=Ready node --all --timeout=90s"
        ))?;
        let client = fs::canonicalize(self.env.bin.join("kubectl"))?;
        let pods = self.pods().iter().enumerate().map(|(index, name)| {
            let mut pod = objects::pod(name, &self.node(index).name, None);
            let spec = &mut pod["spec"];
            spec["volumes"] =
                json!([{"name": "client", "hostPath": {"path": client, "type": "File"}}]);
            let container = &mut spec["containers"][0];
            container["volumeMounts"] =
                json!([{"name": "client", "mountPath": CLIENT, "readOnly": true}]);
            // Its line is what `kubectl logs` reads.
            let run = format!("echo {name} runs; exec /bin/busybox sleep 2147483647");
            container["command"] = json!(["/bin/sh", "-c", run]);
            pod
        });
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "metrics"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        });
        let all: Vec<_> = pods.chain([rights]).collect();
        self.control()?.apply(self.node(0), &all)?;
        self.kubectl(&words!(
            "wait --for=condition=Ready pod --all --timeout=90s"
        ))
        .map(drop)
    }

    fn pod_address(&self, pod: &str) -> anyhow::Result<String> {
        let object = self.get(&["pod", pod])?;
        let address = object["status"]["podIP"].as_str();
        Ok(address.context("the pod has no address")?.to_owned())
    }

    /// Returns the addresses of a pod, one of each family of the cluster.
    fn pod_addresses(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let object = self.get(&["pod", pod])?;
        let all = object["status"]["podIPs"].as_array().into_iter().flatten();
        let all = all.filter_map(|one| one["ip"].as_str());
        let all: Vec<_> = all.map(str::to_owned).collect();
        let (found, expected) = (all.len(), self.networks.len());
        ensure!(found == expected, "{pod} has {all:?}");
        Ok(all)
    }

    /// Sends packets from each pod to each other one in all families, until they arrive.
    fn pods_are_reached(&self) -> anyhow::Result<()> {
        let pods = self.pods();
        let pairs = pods
            .iter()
            .flat_map(|from| pods.iter().map(move |to| (*from, *to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            for address in self.pod_addresses(to)? {
                sh::until(60, &format!("{from} reaches {to} at {address}"), || {
                    self.kubectl(&["exec", from, "--", "ping", "-c1", "-W2", &address])
                })?;
            }
        }
        Ok(())
    }

    /// Reads a kubelet's metrics from a pod of the other node, over TLS and with the rights of the pod's account.
    fn pods_read_metrics(&self) -> anyhow::Result<()> {
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        let last = self.nodes.len() - 1;
        for (pod, node) in [(PODS[0], 1), (PODS[last], 0)] {
            let address = self.vpn_address(node)?;
            let read = format!(
                "{CLIENT} --server=https://{address}:10250 --certificate-authority={account}/ca.crt --token=$(cat {account}/token) get --raw /metrics"
            );
            let text = self.kubectl(&["exec", pod, "--", "sh", "-c", &read])?;
            ensure!(text.contains("kubelet_running_pods"), "{text}");
        }
        Ok(())
    }

    /// Returns the findings of `vpn status` on a node; a problem begins with `!`.
    fn findings(&self, index: usize) -> anyhow::Result<Vec<String>> {
        vpn::findings(self.env, self.node(index))
    }

    /// Returns what `doctor` says about a node beside its runtime.
    fn doctor(&self, index: usize) -> anyhow::Result<Value> {
        let report = self.distro_json(index, &["doctor", "--json"])?;
        Ok(report["node"].clone())
    }

    /// Returns the JSON of a command of multus-distro, whose exit status says whether there are problems.
    fn distro_json(&self, index: usize, args: &[&str]) -> anyhow::Result<Value> {
        vpn::distro_json(self.env, self.node(index), args)
    }

    /// Returns the pod subnet of a node, by its object.
    fn pod_subnet(&self, index: usize) -> anyhow::Result<String> {
        let node = self.get(&["node", &self.node(index).name])?;
        Ok(node["spec"]["podCIDR"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Returns the subnets of a node's pods in all families, by its object.
    fn pod_subnets(&self, index: usize) -> anyhow::Result<Vec<String>> {
        let node = self.get(&["node", &self.node(index).name])?;
        let subnets = node["spec"]["podCIDRs"].as_array().into_iter().flatten();
        let subnets = subnets.filter_map(Value::as_str);
        let subnets: Vec<_> = subnets.map(str::to_owned).collect();
        ensure!(subnets.len() == self.networks.len(), "{node}");
        Ok(subnets)
    }

    /// Fails unless nothing is found wrong with the VPN, whose summary begins with these words.
    fn vpn_is_healthy(&self, summary: &str) -> anyhow::Result<()> {
        let addresses: Vec<_> = (0..self.nodes.len())
            .map(|index| self.vpn_address(index))
            .collect::<anyhow::Result<_>>()?;
        for index in 0..self.nodes.len() {
            // A path may be relayed for a moment.
            sh::until(60, "vpn status has no findings", || {
                let found = self.findings(index)?;
                ensure!(found.is_empty(), "{found:#?}");
                Ok(())
            })?;
            let status = self.distro_json(index, &["vpn", "status", "--probe", "--json"])?;
            let probes = status["probes"].as_array().context("no probes")?;
            ensure!(probes.len() == self.nodes.len() - 1, "{status}");
            for probe in probes {
                let is_server = probe["address"] == addresses[0];
                let api = if is_server { "answered" } else { "refused" };
                for (asked, outcome) in
                    [("ping", "answered"), ("kubelet", "answered"), ("api", api)]
                {
                    ensure!(probe[asked]["outcome"] == outcome, "{asked}: {status}");
                }
            }
            ensure!(status["phase"] == "running", "{status}");
            ensure!(
                status["interface"]["name"] == self.interface
                    && status["addresses"].to_string().contains(&addresses[index]),
                "{status}"
            );
            let subnets = json!(self.pod_subnets(index)?);
            ensure!(status["routes"]["wanted"] == subnets, "{status}");
            if status["pods"] == "advertised" {
                for routes in ["advertised", "approved"] {
                    ensure!(status["routes"][routes] == subnets, "{routes}: {status}");
                }
            }
            let peers = status["peers"].to_string();
            for other in (0..self.nodes.len()).filter(|other| *other != index) {
                for other in self.pod_subnets(other)? {
                    ensure!(peers.contains(&other), "{other}: {peers}");
                }
            }
            let facts = self.doctor(index)?["facts"].to_string();
            ensure!(facts.contains(&format!(r#"["vpn","{summary}"#)), "{facts}");
        }
        Ok(())
    }

    fn logs_and_exec(&self) -> anyhow::Result<()> {
        for (index, pod) in self.pods().iter().copied().enumerate() {
            let logs = self.kubectl(&["logs", pod])?;
            ensure!(logs.contains(&format!("{pod} runs")), "{logs}");
            let inside = self.kubectl(&["exec", pod, "--", "ip", "-o", "address"])?;
            ensure!(inside.contains(&self.pod_address(pod)?), "{inside}");
            let node = self.get(&["node", &self.node(index).name])?;
            let addresses = node["status"]["addresses"].to_string();
            let expected = if index == 0 {
                self.node(0).address()
            } else {
                self.vpn_address(index)?
            };
            let internal = json!({"address": expected, "type": "InternalIP"}).to_string();
            ensure!(addresses.contains(&internal), "{addresses}");
        }
        Ok(())
    }
}

fn machine_path() -> String {
    std::env::var("PATH").unwrap_or_default()
}
