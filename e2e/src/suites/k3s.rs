//! Suite `k3s`: real K3s, a server and an agent, each installed by K3s' own installer and started by the command line of its unit.
//!
//! systemd does not start them, because K3s needs the controllers of control groups, which a systemd inside a node does not have on every
//! machine; suite `service` has the units on a real systemd.

mod addresses;
pub(super) mod charts;
mod compiled;
pub(super) mod documented;
mod mixed;
pub(super) mod node;
mod own_vpn;
pub(super) mod releases;
mod rke2_charts;
mod trial;
mod two_clusters;
mod versions;
pub(super) mod vpn;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use self::{
    node::{BIN, DATA, DistroNode, K3S, Role},
    releases::released,
};
use super::cluster::{FIRST_NETWORK, PAGE_VALUES};
use crate::{
    cluster::pods::Pods,
    control_plane::{api_client::ApiClient, objects},
    distro_table::DistroRelease,
    node::{
        inspect::{Addresses, containers_of, nothing_left, nothing_left_but_of, pod_artifacts},
        network::NodeNetwork,
    },
    options::Options,
    pages::Reader,
    programs::{Module, Needs, k3s::K3s},
    report::{Checked, Report},
    sh::{self, words},
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    // K3s' inner program is linked with SQLite, by gcc. K3s starts its controller of network policies where it finds ipset, and its installer
    // writes units where it finds systemctl.
    debian: "busybox containerd curl dnsmasq gcc ip ipset iptables make nft patch skopeo sysctl systemctl umoci wg zstd",
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::Multus,
        Module::Plugins,
        Module::Tailscale,
        Module::VpnControl,
        Module::Wireguard,
    ],
};

const CONF_DIR: &str = K3S.conf_dir;
const CHART: &str = K3S.chart;
const AIRGAP_PAGE: &str = "docs/airgap.md";
/// Seconds within which K3s starts or acts on a slow machine; a quick one needs some 20.
pub(super) const DEADLINE: u64 = 180;
const ALL: &str = "--all-namespaces";

pub(crate) fn run(env: &TestEnv, options: &Options, report: &mut Report) -> Checked {
    let k3s = report.check("K3s' program, its installer and its images", || {
        K3s::find(options.k3s.as_deref(), options.install)
    })?;
    let mut cases = CASES.to_vec();
    if k3s.parts.is_none() && options.case.is_none() {
        report.not_run("compiled", "a release of K3s has no sources");
        cases.retain(|(name, _)| *name != "compiled");
    }
    let wanted = options.wanted(&cases, report)?;
    let release = DistroRelease {
        distro: "K3s",
        version: report.check("K3s says its version", || k3s.version(&env.dir))?,
    };
    release.run(env, options, &wanted, report, |case, report| {
        case(env, &k3s, report)
    })
}

/// The cases, each with nodes of its own.
const CASES: [(&str, Case); 12] = [
    ("life", life),
    ("charts", charts::run),
    ("documented", documented::run),
    ("trial", trial::run),
    ("versions", versions::run),
    ("compiled", compiled::run),
    ("mixed", mixed::run),
    ("tailnet", vpn::tailnet),
    ("wireguard", vpn::wireguard),
    ("interface", vpn::interface),
    ("two-clusters", two_clusters::run),
    ("own-vpn", own_vpn::run),
];

type Case = fn(&TestEnv, &K3s, &mut Report) -> Checked;

/// From a medium to an agent, pods and the removal, as the pages say.
fn life(env: &TestEnv, k3s: &K3s, report: &mut Report) -> Checked {
    // The fields are dropped in this order.
    let (server, mut agent, _network) = report.check(
        "K3s' installer makes the units of a server and an agent",
        || {
            let network = NodeNetwork::new()?;
            let server = DistroNode::install(env, &network, k3s, (1, Role::Server))?;
            let agent = DistroNode::install(env, &network, k3s, (2, Role::Agent))?;
            Ok((server, agent, network))
        },
    )?;
    let reader = report.check("the pages for people are read", || Reader::new(env, "k3s"))?;
    let follow = |node: &DistroNode, page, step| reader.follow(page, step, || node.shell(env));

    report.check(
        "docs/airgap.md: images and program come from a medium, before K3s' first start",
        || {
            follow(&server, AIRGAP_PAGE, "medium")?;
            let unpacked = server.node.list(&format!("{DATA}/data"))?;
            ensure!(unpacked.is_empty(), "K3s has started: {unpacked:?}");
            ensure_through_us(&server, "server")
        },
    )?;
    let mut cluster = report.check(
        "the server's unit starts K3s, and its node is Ready",
        || DistroCluster::of(server),
    )?;
    cluster.installed(report)?;
    report.check(
        "docs/first-network.md: an agent joins, and has its daemon",
        || {
            agent.take_medium()?;
            follow(&agent, FIRST_NETWORK, "install")?;
            ensure_through_us(&agent, "agent")?;
            agent.start()?;
            cluster.nodes.push(agent);
            cluster.daemons_are_ready()?;
            cluster.ensure_not_pulled()
        },
    )?;
    cluster.doctor_finds_nothing(report)?;
    report.check(
        "docs/first-network.md: a pod has a second interface",
        || {
            // Suite `cluster` follows the same step on its own nodes.
            let reader = Reader::new(env, "cluster")?.with_values(PAGE_VALUES);
            reader.follow(FIRST_NETWORK, "pod", || cluster.server().shell(env))?;
            nothing_left(&cluster.server().node)
        },
    )?;
    cluster.pods(report)?;
    cluster.addresses(env, report)?;

    report.check(
        "docs/first-network.md: uninstall on every node, and a restart",
        || {
            let before = cluster.definition("first")?;
            for member in &cluster.nodes {
                follow(member, FIRST_NETWORK, "remove")?;
            }
            cluster.restart()?;
            cluster.wait_until_removed()?;
            let now = cluster.definition("first")?;
            ensure!(now == before, "the definition {before} became {now}");
            Ok(())
        },
    )?;
    cluster.without_multus(report)?;
    report.check("every step of the pages was followed", || {
        reader.ensure_all_followed()
    })
}

/// Waits until the API server answers and the first node is Ready.
pub(super) fn ready(server: &DistroNode) -> anyhow::Result<ApiClient> {
    let api = answers(server)?;
    sh::until(DEADLINE, "the node is Ready", || {
        server.ensure_runs()?;
        ensure_ready(&api, 1)
    })?;
    Ok(api)
}

/// Waits until the API server answers.
fn answers(server: &DistroNode) -> anyhow::Result<ApiClient> {
    sh::until(DEADLINE, "the API server answers", || {
        server.ensure_runs()?;
        let kubeconfig = server.distro.kubeconfig;
        server.node.run(&words!(
            "kubectl get --raw=/readyz --kubeconfig {kubeconfig}"
        ))
    })?;
    ApiClient::start(&server.node, server.distro.kubeconfig.as_ref())
}

/// Fails unless so many nodes are Ready.
fn ensure_ready(api: &ApiClient, count: usize) -> anyhow::Result<()> {
    let nodes = api.request("GET", "/api/v1/nodes", &Value::Null)?.json()?;
    let conditions = nodes["items"].as_array().into_iter().flatten();
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let ready = conditions.filter(is_ready).count();
    ensure!(ready == count, "{ready} of {count} nodes are Ready");
    Ok(())
}

/// Fails unless the unit starts K3s in this role through multus-distro, with Multus.
pub(super) fn ensure_through_us(member: &DistroNode, role: &str) -> anyhow::Result<()> {
    let line = member.command_line()?;
    let name = member.distro.name;
    let expected = format!("{BIN}/multus-distro run --multus -- {BIN}/{name} {role}");
    ensure!(line == expected, "the unit starts {line}");
    Ok(())
}

pub(super) struct DistroCluster {
    pub(super) api: ApiClient,
    /// The server comes first.
    pub(super) nodes: Vec<DistroNode>,
}

impl Pods for DistroCluster {
    fn api(&self) -> &ApiClient {
        &self.api
    }

    fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        sh::run(&mut self.kubectl_command(args))
    }
}

impl DistroCluster {
    /// Installs a server, prepares and starts it, and waits until its node is Ready.
    fn start(
        env: &TestEnv,
        network: &NodeNetwork,
        k3s: &K3s,
        prepare: impl FnOnce(&DistroNode) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let server = DistroNode::install(env, network, k3s, (1, Role::Server))?;
        prepare(&server)?;
        Self::of(server)
    }

    /// The same with a server that has been prepared already.
    pub(super) fn of(mut server: DistroNode) -> anyhow::Result<Self> {
        server.start()?;
        Ok(Self {
            api: ready(&server)?,
            nodes: vec![server],
        })
    }

    pub(super) fn server(&self) -> &DistroNode {
        &self.nodes[0]
    }

    fn kubectl_command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.server().node.command("kubectl");
        let kubeconfig = self.server().distro.kubeconfig;
        command.args(["--kubeconfig", kubeconfig]).args(args);
        command
    }

    pub(super) fn each(
        &self,
        act: impl Fn(&DistroNode) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut nodes = self.nodes.iter();
        nodes.try_for_each(|member| act(member).with_context(|| member.node.name.clone()))
    }

    /// Returns the nodes that run pods: all but a server without an agent.
    fn workers(&self) -> anyhow::Result<Vec<&DistroNode>> {
        let mut workers = Vec::new();
        for member in &self.nodes {
            if member.runs_pods()? {
                workers.push(member);
            }
        }
        Ok(workers)
    }

    fn each_worker(&self, act: impl Fn(&DistroNode) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut workers = self.workers()?.into_iter();
        workers.try_for_each(|member| act(member).with_context(|| member.node.name.clone()))
    }

    /// Ends the distro on every node; containers go on.
    fn end(&mut self) -> anyhow::Result<()> {
        self.nodes.iter_mut().try_for_each(DistroNode::end)
    }

    /// Restarts the distro on every node; containers go on.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.end()?;
        for member in &mut self.nodes {
            member.start()?;
        }
        self.kubelets_answer()
    }

    /// Cuts the power of every node, and starts them again.
    fn reboot(&mut self, env: &TestEnv, network: &NodeNetwork) -> anyhow::Result<()> {
        for member in &mut self.nodes {
            member.reboot(env, network)?;
            member.start()?;
        }
        self.api = ready(self.server())?;
        self.kubelets_answer()
    }

    fn kubelets_answer(&self) -> anyhow::Result<()> {
        // The conditions of nodes are those of before until the kubelets report again, so the kubelets themselves are asked.
        // RKE2's server first waits until the sandboxes of its own static pods of before a power cut are gone, up to four minutes.
        sh::until(2 * DEADLINE, "the kubelets answer", || {
            self.each_worker(|member| {
                member.ensure_runs()?;
                let path = format!("/api/v1/nodes/{}/proxy/healthz", member.node.name);
                self.api.request("GET", &path, &Value::Null).map(drop)
            })
        })
    }

    /// The jobs of the charts, and the daemons that they start.
    pub(super) fn installed(&self, report: &mut Report) -> Checked {
        let chart = self.server().distro.chart;
        report.check(
            "helm-controller and its jobs install both charts without a network",
            || {
                released(self, &format!("{chart}-crd"), 0)?;
                released(self, chart, 0).map(drop)
            },
        )?;
        report.check(
            "the daemon is ready, and found the distro's own directories",
            || self.daemons_are_ready(),
        )
    }

    /// Waits until the node of each member is Ready.
    pub(super) fn all_are_ready(&self) -> anyhow::Result<()> {
        sh::until(DEADLINE, "all nodes are Ready", || {
            self.each(DistroNode::ensure_runs)?;
            ensure_ready(&self.api, self.workers()?.len())
        })
    }

    pub(super) fn doctor_finds_nothing(&self, report: &mut Report) -> Checked {
        report.check("doctor finds nothing wrong on any node", || {
            self.each_worker(|member| {
                let text = member.node.run(&["multus-distro", "doctor"])?;
                ensure!(text.contains("the daemon answers"), "it prints {text}");
                Ok(())
            })
        })
    }

    /// Returns the names of the daemons' pods.
    fn daemon_pods(&self) -> anyhow::Result<Vec<String>> {
        let selector = format!("--selector=app={}", self.server().distro.chart);
        let list = ["get", "pods", "--namespace=kube-system", "--output=name"];
        let names = self.kubectl(&[&list[..], &[selector.as_str()]].concat())?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Waits until the daemon of every node is ready; fails unless shim and configuration are where the distro's containerd looks.
    pub(super) fn daemons_are_ready(&self) -> anyhow::Result<()> {
        self.are_ready(self.server().distro.chart)
    }

    /// Like [`Self::daemons_are_ready`], for the daemons of another chart.
    fn are_ready(&self, chart: &str) -> anyhow::Result<()> {
        let path = format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{chart}");
        let count = self.workers()?.len() as u64;
        sh::until(DEADLINE, "the DaemonSet is ready", || {
            self.each(DistroNode::ensure_runs)?;
            let status = self.api.request("GET", &path, &Value::Null)?.json()?["status"].clone();
            let is_ready = ["desiredNumberScheduled", "numberReady"]
                .iter()
                .all(|key| status[key].as_u64() == Some(count));
            ensure!(is_ready, "it is {status}");
            Ok(())
        })?;
        self.each_worker(|member| {
            for file in member.distro.multus_files() {
                ensure!(member.node.path(&file).exists(), "there is no {file}");
            }
            Ok(())
        })
    }

    pub(super) fn ensure_not_pulled(&self) -> anyhow::Result<()> {
        let pulls = self.kubectl(&["get", "events", ALL, "--field-selector=reason=Pulling"])?;
        ensure!(pulls.is_empty(), "images were pulled: {pulls}");
        Ok(())
    }

    pub(super) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let mut kubectl = self.kubectl_command(&["apply", "--filename", "-"]);
        sh::feed(&mut kubectl, list.to_string().as_bytes()).map(drop)
    }

    /// Defines the networks of [`Self::create`].
    pub(super) fn define_networks(&self) -> anyhow::Result<()> {
        let bridge = json!({
            "cniVersion": "1.0.0", "type": "bridge", "bridge": "br-first", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.20.0.0/24"},
        });
        let networks = [objects::network("first", &bridge), objects::wire()];
        // The API server serves definitions a moment after their CRD is there.
        sh::until(60, "networks can be defined", || self.apply(&networks))
    }

    /// Defines the networks, and creates pods that are to keep them whatever becomes of the distro.
    pub(super) fn old_pods(&self, report: &mut Report) -> Checked<Vec<String>> {
        report.check("pods have a bridge and a macvlan interface", || {
            self.define_networks()?;
            let old = self.create("old", 1)?;
            self.inspect(&old)?;
            Ok(old)
        })
    }

    /// Creates a pod on each node, with the page's bridge and a macvlan interface; returns their names.
    pub(super) fn create(&self, kind: &str, number: u8) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut all = Vec::new();
        for member in self.workers()? {
            let node = &member.node;
            let name = format!("{kind}-{}", node.name);
            let address = format!("10.77.{}.{number}/16", node.number);
            let networks = json!([{"name": "first"}, {"name": "wire", "ips": [address]}]);
            all.push(objects::pod(&name, &node.name, Some(&networks.to_string())));
            names.push(name);
        }
        self.apply(&all)?;
        Ok(names)
    }

    /// Fails unless these pods run with all their networks; returns the addresses.
    pub(super) fn inspect(&self, pods: &[String]) -> anyhow::Result<Vec<Addresses>> {
        let names = ["eth0", "net1", "net2"];
        let pods = pods.iter();
        pods.map(|pod| self.ensure_interfaces(pod, &names))
            .collect()
    }

    fn ping(&self, from: &str, to: &Addresses, interface: &str) -> anyhow::Result<()> {
        let address = bare(to, interface)?;
        let ping = ["exec", from, "--", "ping", "-c1", "-W5", address];
        self.kubectl(&ping).map(drop)
    }

    /// Starts a server in each pod, for [`Self::ask`].
    fn serve_in(&self, pods: &[String]) -> anyhow::Result<()> {
        let serve = ["--", "busybox", "httpd", "-p", "8080", "-h", "/etc"];
        pods.iter().try_for_each(|pod| {
            self.kubectl(&[&["exec", pod], &serve[..]].concat())
                .map(drop)
        })
    }

    /// Asks the pod at another one's address of an interface for its name.
    fn ask(&self, from: &str, to: &Addresses, interface: &str) -> anyhow::Result<String> {
        let question = question(to, interface, 8080)?;
        let answer = self.kubectl(&["exec", from, "--", "sh", "-c", &question])?;
        Ok(answer.lines().last().unwrap_or_default().to_owned())
    }

    /// The life of pods: they start, keep their networks while daemons and the distro restart, and leave nothing.
    pub(super) fn pods(&mut self, report: &mut Report) -> Checked {
        let (left, right, before) = report.check(
            "pods of both nodes start with a bridge and a macvlan interface",
            || {
                self.apply(&[objects::wire()])?;
                let (left, right) = (self.create("left", 1)?, self.create("right", 2)?);
                let before = [self.inspect(&left)?, self.inspect(&right)?];
                Ok((left, right, before))
            },
        )?;
        let reach = |cluster: &Self| {
            let [lefts, rights] = &before;
            for (pod, neighbour) in left.iter().zip(rights) {
                cluster.ping(pod, neighbour, "net1")?;
            }
            for (pod, other) in left.iter().zip(lefts.iter().rev()) {
                cluster.ping(pod, other, "net2")?;
                cluster.ping(pod, other, "eth0")?;
            }
            Ok(())
        };
        report.check(
            "they reach each other: on the bridge of their node, and on the LAN across nodes",
            || reach(self),
        )?;
        report.check(
            "the daemons' pods are deleted and the distro restarts: pods keep their networks",
            || {
                let former = self.daemon_pods()?;
                let names: Vec<_> = former.iter().map(String::as_str).collect();
                let delete = ["delete", "--namespace=kube-system", "--wait=false"];
                self.kubectl(&[&delete[..], &names].concat())?;
                self.restart()?;
                sh::until(60, "other daemons have taken over", || {
                    let now = self.daemon_pods()?;
                    let stays = former.iter().find(|name| now.contains(name));
                    ensure!(stays.is_none(), "{stays:?} is still there");
                    Ok(())
                })?;
                self.daemons_are_ready()?;
                let now = [self.inspect(&left)?, self.inspect(&right)?];
                ensure!(now == before, "{before:?} became {now:?}");
                for pod in left.iter().chain(&right) {
                    let status = &self.pod(pod)?["status"]["containerStatuses"][0];
                    let restarts = &status["restartCount"];
                    ensure!(*restarts == 0, "{pod} was restarted {restarts} times");
                }
                reach(self)
            },
        )?;
        report.check("a deleted pod is detached, and the others are not", || {
            let counts = || {
                let nodes = self.nodes.iter();
                let counts = nodes.map(|member| Ok(pod_artifacts(&member.node)?.len()));
                counts.collect::<anyhow::Result<Vec<_>>>()
            };
            let both = counts()?;
            self.delete(&right)?;
            sh::until(30, "half of it is left", || {
                let now = counts()?;
                let halves = now.iter().zip(&both).all(|(now, both)| now * 2 == *both);
                ensure!(halves, "of {both:?} are left {now:?}");
                Ok(())
            })?;
            reach_macvlan(self, &left, &before[0])
        })?;
        report.check("new pods start, and deleted ones leave nothing", || {
            let late = self.create("late", 4)?;
            self.inspect(&late)?;
            self.delete(&[left.clone(), late].concat())?;
            self.each(|member| nothing_left(&member.node))
        })
    }

    /// The cluster after the removal.
    pub(super) fn without_multus(&self, report: &mut Report) -> Checked {
        report.check("new pods start with the default network alone", || {
            self.default_network_alone("after")
        })?;
        report.check("nothing else is left", || self.ensure_removed())
    }

    /// Fails unless a pod that asks for networks has the default network alone.
    fn default_network_alone(&self, kind: &str) -> anyhow::Result<()> {
        let pods = self.create(kind, 3)?;
        for pod in &pods {
            let inside = self.interfaces(pod)?;
            ensure!(inside.keys().eq(["eth0"]), "inside {pod} are {inside:?}");
        }
        self.delete(&pods)?;
        self.each(|member| nothing_left_but_of(&member.node, "helm-delete-"))
    }

    /// Returns names and uids of the networks of [`Self::create`].
    pub(super) fn networks(&self) -> anyhow::Result<String> {
        let [first, wire] = ["first", "wire"].map(|name| self.definition(name));
        Ok(format!("{}, {}", first?, wire?))
    }

    /// Fails unless names and uids of the networks are still these.
    pub(super) fn networks_stay(&self, before: &str) -> anyhow::Result<()> {
        let now = self.networks()?;
        ensure!(now == before, "the networks {before} became {now}");
        Ok(())
    }

    /// Returns name and uid of a network definition.
    fn definition(&self, name: &str) -> anyhow::Result<String> {
        let kind = "network-attachment-definitions.k8s.cni.cncf.io";
        let form = "--output=jsonpath={.metadata.name} {.metadata.uid}";
        self.kubectl(&["get", kind, name, form])
    }

    /// Waits until the charts are uninstalled, and the daemons have removed what they installed.
    pub(super) fn wait_until_removed(&self) -> anyhow::Result<()> {
        sh::until(DEADLINE, "the charts are uninstalled", || {
            let charts = self.kubectl(&["get", "helmcharts", ALL, "--output=name"])?;
            ensure!(charts.is_empty(), "there are {charts}");
            self.each(|member| {
                for file in member.distro.multus_files() {
                    ensure!(!member.node.path(&file).exists(), "{file} is still there");
                }
                Ok(())
            })
        })
    }

    /// Fails when an object or a file of ours is left, besides those that stay on purpose.
    fn ensure_removed(&self) -> anyhow::Result<()> {
        let kinds = "all,configmaps,secrets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,customresourcedefinitions,helmcharts";
        sh::until(30, "no object is left", || {
            let objects = self.kubectl(&["get", kinds, ALL, "--output=name"])?;
            let ours: Vec<_> = objects
                .lines()
                // A CRD stays with its objects.
                .filter(|name| name.contains("multus") && !name.contains("/addressblocks.ipam."))
                .collect();
            ensure!(ours.is_empty(), "there are {ours:?}");
            Ok(())
        })?;
        self.each(|member| {
            let conf_dir = member.distro.conf_dir;
            let confs = member.node.list(conf_dir)?;
            let primary = member.runs_pods()?.then_some(member.distro.primary);
            ensure!(
                confs.iter().eq(primary.as_slice()),
                "in {conf_dir} are {confs:?}"
            );
            let find = [
                "find",
                member.distro.data,
                "/var/lib/cni",
                "/var/lib/multus",
                "/run",
                "-xdev",
            ];
            let ours = [
                "-path",
                "*multus*",
                "-not",
                "-type",
                "d",
                "-not",
                "-path",
                "*/containerd/*",
                // RKE2 unpacks the charts there that it brings.
                "-not",
                "-path",
                "*/data/*/charts/*",
            ];
            let found = member.node.run(&[&find[..], &ours[..]].concat())?;
            let mut found: Vec<_> = found.lines().collect();
            // The state of a job that ended after the daemon, where it has a network of its own.
            let jobs = containers_of(&member.node, "helm-delete-")?;
            found.retain(|path| !jobs.iter().any(|id| path.contains(id)));
            // The next daemon has to know what this node has given.
            found.retain(|path| !path.contains("/.multus-rs/ipam/"));
            found.sort_unstable();
            ensure!(found == member.left(), "there are {found:?}");
            Ok(())
        })
    }
}

/// Returns the line for a shell that asks the server of a pod for the pod's name, which is the last line of the answer. busybox's wget needs
/// files that the pods do not have.
fn question(addresses: &Addresses, interface: &str, port: u16) -> anyhow::Result<String> {
    let address = bare(addresses, interface)?;
    let request = "printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n'";
    Ok(format!("{request} | busybox nc -w3 {address} {port}"))
}

/// Returns the address of an interface without the length of its prefix.
fn bare<'a>(addresses: &'a Addresses, interface: &str) -> anyhow::Result<&'a str> {
    let address = addresses[interface].first();
    let address = address.and_then(|address| address.split('/').next());
    address.context("it has no address")
}

/// Fails unless these pods, one of each node, reach each other over the LAN.
fn reach_macvlan(
    cluster: &DistroCluster,
    pods: &[String],
    addresses: &[Addresses],
) -> anyhow::Result<()> {
    let mut pairs = pods.iter().zip(addresses.iter().rev());
    pairs.try_for_each(|(pod, other)| cluster.ping(pod, other, "net2"))
}
