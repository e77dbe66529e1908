//! One cluster of unlike nodes: a server on SQLite that runs no agent, and agents of two builds of K3s, one with another data directory and one
//! on a containerd of its own; K3s' network policies are on. A burst of pods starts while daemons are killed and K3s is restarted.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    CHART, DistroCluster, answers,
    charts::{config, manifest},
    ensure_through_us,
    node::{DATA, DistroNode, K3S, MOVED_K3S, Role, put_program},
    releases::released,
};
use crate::{
    cluster::pods::Pods as _,
    control_plane::objects,
    node::{
        Service,
        dhcp::{self, NEIGHBOUR_PREFIX},
        inspect::nothing_left,
        network::NodeNetwork,
        runtime::Runtime,
    },
    programs::k3s::K3s,
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

/// Settings of a kubelet, below K3s' data. Its network policies start when the node has been reported Ready since K3s asked for them, which
/// takes more than five minutes where it was Ready a moment before, unless kubelets report more often.
const REPORTS: &str = "agent/etc/kubelet.conf.d/20-report.conf";
/// Pods of the burst on each agent: more than 200 on all three, each below the 110 that a kubelet allows.
const BURST: u8 = 67;
/// The label of its pods.
const LABEL: (&str, &str) = ("kind", "burst");
/// The network whose addresses a DHCP server on the LAN gives.
const LEASED: &str = "lan";

pub(super) fn run(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (mut cluster, agents, _network) = report.check(
        "a server on SQLite without an agent starts through multus-distro",
        || {
            let network = NodeNetwork::new()?;
            let mut server = DistroNode::install(env, &network, k3s, (1, Role::Server))?;
            server.set("disable-agent", true.into())?;
            server.set("disable-network-policy", false.into())?;
            install(&server, "server")?;
            let agents = agents(env, &network, k3s)?;
            server.start()?;
            let cluster = DistroCluster {
                api: answers(&server)?,
                nodes: vec![server],
            };
            let node = &cluster.server().node;
            let files = node.list(&format!("{DATA}/server/db"))?;
            ensure!(
                files.contains(&"state.db".to_owned()) && !files.contains(&"etcd".to_owned()),
                "its data is in {files:?}"
            );
            Ok((cluster, agents, network))
        },
    )?;
    report.check(
        "agents join: another build with another data directory, and one on a containerd of its own",
        || {
            for mut agent in agents {
                agent.start()?;
                cluster.nodes.push(agent);
            }
            cluster.all_are_ready()
        },
    )?;
    report.check("the jobs of the charts run on agents", || {
        let staged = cluster.server().node.path(&manifest("multus.yaml"));
        let staged = fs::read_to_string(staged)?;
        ensure!(!staged.contains("bootstrap"), "it is {staged}");
        let revision = released(&cluster, CHART, 0)?;
        cluster.apply(&[config(CHART, "manifests: {dhcpDaemonSet: true}\n")])?;
        released(&cluster, CHART, revision).map(drop)
    })?;
    report.check(
        "each daemon is ready, and found the directories of its node",
        || {
            cluster.daemons_are_ready()?;
            cluster.each_worker(|member| dhcp::wait_for_service(&member.node))?;
            cluster.ensure_not_pulled()
        },
    )?;
    cluster.doctor_finds_nothing(report)?;
    report.check("K3s' network policies are those of eth0 alone", || {
        cluster.define_networks()?;
        cluster.policies()
    })?;
    cluster.pods(report)?;
    let server = report.check("pods get addresses from a DHCP server on the LAN", || {
        let server = dhcp::start_neighbour(&cluster.server().node)?;
        let lan = json!({
            "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge", "ipam": {"type": "dhcp"},
        });
        cluster.apply(&[objects::network(LEASED, &lan)])?;
        Ok(server)
    })?;
    let burst = report.check(
        "a burst of pods starts on all agents, while daemons are killed and K3s restarts",
        || cluster.burst(),
    )?;
    report.check(
        "each of them has its networks, and no address of another one",
        || cluster.ensure_burst(&burst),
    )?;
    report.check(
        "they are deleted, and no link, namespace, address or file is left",
        || cluster.end_burst(&server),
    )?;
    report.check("after uninstall on every node the charts are gone", || {
        cluster.each(|member| member.node.run(&["multus-distro", "uninstall"]).map(drop))?;
        cluster.restart()?;
        cluster.wait_until_removed()
    })?;
    cluster.without_multus(report)
}

/// Makes the agents: one like the server, one of another build with another data directory, and one on a containerd that K3s does not start.
fn agents(env: &TestEnv, network: &NodeNetwork, k3s: &K3s) -> anyhow::Result<Vec<DistroNode>> {
    let plain = DistroNode::install(env, network, k3s, (2, Role::Agent))?;
    let moved = DistroNode::install_at(env, network, k3s, &MOVED_K3S, (3, Role::Agent))?;
    ensure!(k3s.next.is_file(), "there is no {}", k3s.next.display());
    put_program(&moved.node, &k3s.next)?;
    let alone = DistroNode::install(env, network, k3s, (4, Role::Agent))?;
    let runtime = Runtime::start_alone(env, &alone.node, K3S.conf_dir, K3S.bin_dir)?;
    let socket = format!("unix://{}", runtime.paths.socket);
    alone.set("container-runtime-endpoint", socket.into())?;
    let agents = vec![plain, moved, alone];
    for agent in &agents {
        install(agent, "agent")?;
        let file = format!("{}/{REPORTS}", agent.distro.data);
        agent.node.write(&file, json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "nodeStatusReportFrequency": "5s",
        }).to_string())?;
    }
    // K3s gives images to its own containerd alone.
    let images = format!("{DATA}/agent/images");
    for archive in agents[2].node.list(&images)? {
        runtime.import(&agents[2].node, &Path::new(&images).join(archive))?;
    }
    Ok(agents)
}

/// Puts Multus on a node from its medium.
fn install(member: &DistroNode, role: &str) -> anyhow::Result<()> {
    member.take_medium()?;
    member.node.run(&["multus-distro", "install"])?;
    ensure_through_us(member, role)
}

/// A pod of the burst.
struct BurstPod {
    name: String,
    node: String,
    interfaces: &'static [&'static str],
}

impl DistroCluster {
    /// Fails unless a network policy that lets nothing in closes `eth0` of pods, and nothing else. K3s' controller always passes pings.
    fn policies(&self) -> anyhow::Result<()> {
        let pods = self.create("policy", 9)?;
        let addresses = self.inspect(&pods)?;
        self.serve_in(&pods)?;
        let reach = |interface: &str| {
            let mut pairs = pods.iter().zip(addresses.iter().zip(&pods).rev());
            pairs.try_for_each(|(pod, (addresses, other))| {
                let name = self.ask(pod, addresses, interface)?;
                ensure!(name == *other, "not {other} but {name} answers");
                Ok(())
            })
        };
        // K3s' controller acts on events, and after a sync that failed only on the next one.
        let mut attempt = 0;
        let mut until = |what: &str, check: &dyn Fn() -> anyhow::Result<()>| {
            sh::until(60, what, || {
                attempt += 1;
                let label = format!("attempt={attempt}");
                self.kubectl(&["label", "pods", "--all", "--overwrite", &label])?;
                check()
            })
        };
        until("pods reach each other", &|| reach("eth0"))?;
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "closed", "namespace": "default"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        });
        self.apply(&[policy])?;
        for (pod, other) in [(0, 2), (2, 1), (1, 0)] {
            until("the policy closes eth0", &|| {
                let answer = self.ask(&pods[pod], &addresses[other], "eth0");
                ensure!(answer.is_err(), "{} reaches {answer:?}", pods[pod]);
                Ok(())
            })?;
        }
        reach("net2")?;
        self.kubectl(&["delete", "networkpolicy", "closed"])?;
        until("pods reach each other again", &|| reach("eth0"))?;
        self.delete(&pods)
    }

    /// Starts pods on all agents, kills the daemons and restarts K3s before all of them run, and waits until they do.
    fn burst(&mut self) -> anyhow::Result<Vec<BurstPod>> {
        let mut objects = Vec::new();
        let mut burst = Vec::new();
        for member in self.workers()? {
            for index in 0..BURST {
                let node = &member.node;
                let name = format!("burst-{}-{index}", node.name);
                let (networks, interfaces) = networks(node.number, index);
                let mut pod = objects::pod(&name, &node.name, Some(&networks.to_string()));
                pod["metadata"]["labels"] = json!({LABEL.0: LABEL.1});
                objects.push(pod);
                let node = node.name.clone();
                burst.push(BurstPod {
                    name,
                    node,
                    interfaces,
                });
            }
        }
        self.apply(&objects)?;
        sh::until(120, "some of the pods run", || {
            let running = self.running_burst()?.len();
            ensure!(running > 4, "{running} run");
            Ok(())
        })?;
        self.each_worker(|member| {
            let kill = "for one in /proc/[0-9]*; do case $(readlink $one/exe) in */multus-daemon) kill -9 ${one#/proc/};; esac; done";
            member.node.run(&["sh", "-c", kill]).map(drop)
        })?;
        self.restart()?;
        let running = self.running_burst()?.len();
        ensure!(
            running < burst.len(),
            "all {running} pods ran before K3s was restarted: start more"
        );
        sh::until(480, "all pods run", || {
            let running = self.running_burst()?.len();
            ensure!(running == burst.len(), "{running} of {} run", burst.len());
            Ok(())
        })?;
        self.daemons_are_ready()?;
        Ok(burst)
    }

    /// Returns the pods of the burst that run, and have a network status.
    fn running_burst(&self) -> anyhow::Result<Vec<Value>> {
        let path = format!(
            "/api/v1/namespaces/default/pods?labelSelector={}%3D{}",
            LABEL.0, LABEL.1
        );
        let list = self.api.request("GET", &path, &Value::Null)?.json()?;
        let pods = list["items"].as_array().into_iter().flatten();
        let runs =
            |pod: &&Value| pod["status"]["phase"] == "Running" && objects::status(pod).is_ok();
        Ok(pods.filter(runs).cloned().collect())
    }

    /// Fails unless each pod has its interfaces, and every address is that of one pod: on the LAN of all nodes, on a bridge of its node.
    fn ensure_burst(&self, burst: &[BurstPod]) -> anyhow::Result<()> {
        let running = self.running_burst()?;
        let mut addresses = BTreeSet::new();
        for pod in burst {
            let BurstPod { name, node, .. } = pod;
            let mut all = running.iter();
            let object = all.find(|object| objects::name(object).is_ok_and(|found| found == name));
            let object = object.with_context(|| format!("{name} does not run"))?;
            let restarts = &object["status"]["containerStatuses"][0]["restartCount"];
            ensure!(*restarts == 0, "{name} was restarted {restarts} times");
            let status = objects::status(object).with_context(|| name.clone())?;
            let interfaces = status.iter().map(|(_, interface, _)| interface.as_str());
            ensure!(
                interfaces.eq(pod.interfaces.iter().copied()),
                "{name} has {status:?}"
            );
            for (network, _, ips) in &status {
                let place = if network.ends_with("/first") {
                    node
                } else {
                    ""
                };
                for ip in ips {
                    let is_new = addresses.insert((place.to_owned(), ip.clone()));
                    ensure!(is_new, "{ip} of {name} is that of another pod, too");
                }
                let is_leased = |ip: &String| ip.starts_with(NEIGHBOUR_PREFIX);
                let is_of_lan = network.ends_with(&format!("/{LEASED}"));
                ensure!(
                    !is_of_lan || ips.iter().all(is_leased),
                    "{name} has {status:?}"
                );
            }
        }
        // The status is what was reported; pods of each kind on each node are asked themselves.
        let asked = burst.iter().enumerate();
        let mut asked = asked.filter(|(index, _)| index % usize::from(BURST) < KINDS);
        asked.try_for_each(|(_, pod)| self.ensure_interfaces(&pod.name, pod.interfaces).map(drop))
    }

    fn end_burst(&self, server: &Service) -> anyhow::Result<()> {
        let selector = format!("--selector={}={}", LABEL.0, LABEL.1);
        self.kubectl(&["delete", "pods", &selector, "--timeout=400s"])?;
        self.each(|member| {
            nothing_left(&member.node)?;
            sh::until(60, "no network namespace is left", || {
                let left = member.node.list("/run/netns")?;
                let pod_namespace = left.iter().find(|name| name.starts_with("cni-"));
                ensure!(pod_namespace.is_none(), "there are {left:?}");
                Ok(())
            })
        })?;
        dhcp::end_neighbour(&self.server().node, server)
    }
}

/// The number of different pods of a burst.
const KINDS: usize = 3;

/// Returns the networks of a pod of the burst, and its interfaces.
fn networks(node: u8, index: u8) -> (Value, &'static [&'static str]) {
    let bridge = json!({"name": "first"});
    match usize::from(index) % KINDS {
        0 => {
            let address = format!("10.77.{node}.{}/16", 100 + index);
            let wire = json!({"name": "wire", "ips": [address]});
            (json!([bridge, wire]), &["eth0", "net1", "net2"])
        }
        1 => (json!([bridge, {"name": LEASED}]), &["eth0", "net1", "net2"]),
        _ => (json!([bridge]), &["eth0", "net1"]),
    }
}
