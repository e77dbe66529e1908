//! A real node with kubelet, containerd 2.x and a default network of bridge and portmap, without a multiplexer, with ours and with
//! upstream's, each installed by its chart with default values, in turn in each round.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    cnitool::{self, Cnitool},
    driver::{Batch, Call},
    plugins::Metered,
    row::{
        Bound::AtMost,
        Column, Measured, RowKind,
        Subject::{FloorRatio, OverFloor, PeerRatio},
        Target,
    },
    statistics::median,
    usage::{self, Account},
};
use crate::{
    cluster::{Cluster, Member},
    control_plane::objects,
    node::{
        Node, cgroup,
        layout::{ContainerdVersion, Layout},
        runtime,
        thread::spawn_in,
    },
    options::BenchOptions,
    report::{Checked, Report},
    sh,
    suites::{
        cluster::ClusterFixture,
        upgrade::published_release::{PUBLISHED, PublishedRelease},
    },
    test_env::TestEnv,
};

const NODES: &[(Layout, ContainerdVersion)] = &[(Layout::Kubeadm, ContainerdVersion::V2)];
/// The name of the release and of its chart, the same on both sides.
const NAME: &str = "rke2-multus";
const CRD_NAME: &str = "rke2-multus-crd";
const BIN_DIR: &str = "/opt/cni/bin";
const CONF_DIR: &str = "/etc/cni/net.d";
/// Where the node's plugin of the second network is while ours is measured.
const HIDDEN: &str = "/opt/cni/bench-hidden";
/// The second network of pods, which has the name of its plugin, and its addresses.
const NETWORK: &str = "macvlan";
const SUBNET: &str = "10.40.0.0/16";
/// The address of containerd's metrics.
const METRICS: &str = "127.0.0.1:1338";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Seconds in which pods start or end.
const PATIENCE: u64 = 180;

/// The rows with their targets; the floor is the node without a multiplexer, also for pods with a macvlan.
const ROWS: &[RowKind] = &[
    RowKind::new("node: CNI ADD, one by one", "ms").with(by_floor(1.05)),
    RowKind::new("node: CNI ADD, one by one, macvlan", "ms").with(by_floor(1.25)),
    RowKind::new("node: CNI ADD, one by one, of it in our daemon", "ms"),
    RowKind::new("node: CNI ADD, one by one, of it in plugins", "ms"),
    RowKind::new(
        "node: CNI ADD, one by one, macvlan, of it in our daemon",
        "ms",
    ),
    RowKind::new("node: CNI ADD, one by one, macvlan, of it in plugins", "ms"),
    RowKind::new("node: pods at once, mean CNI ADD", "ms"),
    RowKind::new("node: pods at once, mean CNI ADD, macvlan", "ms"),
    RowKind::new("node: pods at once, last Running", "s").with(by_floor(1.05)),
    RowKind::new("node: pods at once, last Running, macvlan", "s").with(by_floor(1.05)),
    RowKind::new("node: plugins' CPU per pod", "ms").with(by_floor(1.05)),
    RowKind::new("node: plugins' CPU per pod, macvlan", "ms").with(by_floor(1.05)),
    RowKind::new("node: CPU of the daemon's pod per pod", "ms"),
    RowKind::new("node: CPU of the daemon's pod per pod, macvlan", "ms"),
    RowKind::new("node: idle CPU, % of a core", "%").with(Target::absolute(OverFloor, AtMost, 0.2)),
    RowKind::new("node: cnitool, CPU of an ADD without plugins", "ms"),
    RowKind::new(
        "node: cnitool, CPU of an ADD without plugins, 3 networks",
        "ms",
    ),
    RowKind::new("node: cnitool, of it in the daemon's pod", "ms"),
    RowKind::new("node: cnitool, of it in the daemon's pod, 3 networks", "ms"),
    RowKind::new("node: cnitool, what a multiplexer adds", "ms").with(by_peer(0.2)),
    RowKind::new("node: cnitool, what a multiplexer adds, 3 networks", "ms").with(by_peer(0.2)),
];

const fn by_peer(limit: f64) -> Target {
    Target::portable(PeerRatio, AtMost, limit)
}

const fn by_floor(limit: f64) -> Target {
    Target::portable(FloorRatio, AtMost, limit)
}

struct Counts {
    rounds: u32,
    /// Pods one after the other.
    pods: usize,
    burst: usize,
    /// Time after an installation until the node counts as idle, and time of the measurement then.
    settle: Duration,
    idle: Duration,
}

struct Bench<'a> {
    fixture: ClusterFixture<'a>,
    old: Option<PathBuf>,
    counts: Counts,
    /// CPU time of everything on the node except the runtime and the pods.
    node_account: Account,
    cnitool: Cnitool,
    metered: Metered,
    pods_made: usize,
}

pub(super) fn measure(
    env: &TestEnv,
    options: &BenchOptions,
    peer: Option<&Path>,
    report: &mut Report,
) -> Checked<(Measured, &'static [RowKind])> {
    let counts = Counts {
        rounds: options.rounds_or(3),
        pods: if options.short { 3 } else { 6 },
        burst: if options.short { 10 } else { 30 },
        settle: Duration::from_secs(if options.short { 2 } else { 15 }),
        idle: Duration::from_secs(if options.short { 10 } else { 40 }),
    };
    let mut bench = report.check("a node with kubelet and containerd 2.x is Ready", || {
        // This process is in the group, and so are the node's programs, which it starts.
        let node_account = Account::of("node", std::process::id())?;
        let mut cluster = Cluster::start(env, NODES)?;
        serve_metrics(env, &mut cluster)?;
        let cnitool = Cnitool::new(env, &cluster.members[0])?;
        let fixture = ClusterFixture { env, cluster };
        let metered = Metered::new(env, &fixture.cluster.members[0].node)?;
        Ok(Bench {
            fixture,
            old: peer.map(Path::to_owned),
            counts,
            node_account,
            cnitool,
            metered,
            pods_made: 0,
        })
    })?;
    report.check("images and network definitions are installed", || {
        bench.prepare()
    })?;
    // A new node starts its first pods slowly, which would count against the side that comes first.
    report.check("pods start before the first measurement", || {
        bench.burst(None).map(drop)
    })?;
    let mut measured = Measured::default();
    for round in 1..=bench.counts.rounds {
        let mut sides = vec![Column::Floor, Column::Ours];
        if bench.old.is_some() {
            sides.push(Column::Peer);
        }
        // Another side is the first in each round.
        let first = round as usize % sides.len();
        sides.rotate_left(first);
        let mut in_round = Measured::default();
        for side in sides {
            report.check(
                &format!("round {round} of {}: {side:?}", bench.counts.rounds),
                || {
                    bench.install(side)?;
                    bench.round(side, &mut in_round)?;
                    bench.uninstall(side)
                },
            )?;
        }
        for with in ["", ", 3 networks"] {
            in_round.over_floor(
                &format!("node: cnitool, CPU of an ADD without plugins{with}"),
                &format!("node: cnitool, what a multiplexer adds{with}"),
            );
        }
        measured.extend(in_round);
    }
    Ok((measured, ROWS))
}

impl Bench<'_> {
    fn node(&self) -> &Node {
        &self.fixture.cluster.members[0].node
    }

    fn prepare(&self) -> anyhow::Result<()> {
        self.fixture.import()?;
        let cluster = &self.fixture.cluster;
        cluster.install(&self.fixture.env.chart(CRD_NAME)?, CRD_NAME, &[])?;
        let network = objects::network(NETWORK, &macvlan());
        sh::until(30, "network definitions can be made", || {
            cluster.apply(std::slice::from_ref(&network))
        })
    }

    fn install(&self, side: Column) -> anyhow::Result<()> {
        match (side, &self.old) {
            (Column::Floor, _) | (Column::Peer, None) => Ok(()),
            (Column::Ours, _) => {
                // As on a fresh K3s the node has no such plugin, so ours runs.
                let place = format!("{BIN_DIR}/{NETWORK}");
                self.node().run(&["mv", &place, HIDDEN])?;
                let chart = self.fixture.env.chart(NAME)?;
                self.fixture.cluster.install(&chart, NAME, &[])?;
                self.fixture.wait_until_ready(NAME)
            }
            (Column::Peer, Some(peer)) => {
                let thick = PUBLISHED
                    .last()
                    .context("there is no published chart with a daemon")?;
                let old = PublishedRelease::import(&self.fixture, thick, peer)?;
                old.install()?;
                old.wait_until_deployed()
            }
        }
    }

    fn uninstall(&self, side: Column) -> anyhow::Result<()> {
        if side == Column::Floor {
            return Ok(());
        }
        if side == Column::Ours {
            let place = format!("{BIN_DIR}/{NETWORK}");
            self.node().run(&["mv", HIDDEN, &place])?;
        }
        self.fixture.helm_uninstall(NAME)?;
        sh::until(PATIENCE, "the daemon's pod is deleted", || {
            ensure!(self.daemon()?.is_none(), "it is still there");
            Ok(())
        })?;
        // Our daemon removes its files; upstream's leaves both.
        for file in [
            format!("{CONF_DIR}/00-multus.conf"),
            format!("{BIN_DIR}/multus-shim"),
        ] {
            let path = self.node().path(&file);
            if side == Column::Ours {
                sh::until(60, "our daemon removes its files", || {
                    ensure!(!path.exists(), "{file} is still there");
                    Ok(())
                })?;
            } else {
                let _ = fs::remove_file(path);
            }
        }
        let sandboxes = self.sandboxes()?;
        ensure!(sandboxes == 0, "{sandboxes} sandboxes are left");
        // Otherwise upstream's pods use up all addresses of the node in two rounds.
        cnitool::release_addresses(self.node(), "")
    }

    fn round(&mut self, side: Column, measured: &mut Measured) -> anyhow::Result<()> {
        // Measured first, because a node is busy for a while after the bursts below.
        measured.push("node: idle CPU, % of a core", side, 100.0 * self.idle()?);
        // The first pod fills the caches.
        self.one_by_one(1, None)?;
        let mut kinds = vec![(None, ""), (Some(NETWORK), ", macvlan")];
        if side == Column::Floor {
            kinds.pop();
        }
        for (networks, with) in kinds {
            // The floor of a pod with a macvlan is a pod without one.
            let rows: &[&str] = match side {
                Column::Floor => &["", ", macvlan"],
                Column::Ours | Column::Peer => &[with],
            };
            let mut push = |row: &str, value: f64| {
                for with in rows {
                    measured.push(format!("node: {row}{with}"), side, value);
                }
            };
            let before = self.daemon_times(side)?;
            let adds = self.one_by_one(self.counts.pods, networks)?;
            push("CNI ADD, one by one", 1e3 * median(adds));
            let times = (before, self.daemon_times(side)?);
            let (add, running) = self.burst(networks)?;
            push("pods at once, mean CNI ADD", 1e3 * add);
            push("pods at once, last Running", running);
            let (plugins, daemon) = self.metered_burst(networks)?;
            if side == Column::Floor {
                let row = "node: plugins' CPU per pod";
                measured.push(row, side, 1e3 * plugins);
                // Here the plugin of the second network counts, called directly.
                let with_macvlan = 1e3 * (plugins + self.direct()?);
                measured.push(format!("{row}, macvlan"), side, with_macvlan);
            } else {
                push("plugins' CPU per pod", 1e3 * plugins);
                push("CPU of the daemon's pod per pod", 1e3 * daemon);
            }
            if let (Some(before), Some(after)) = times {
                let (daemon, delegates) = after.means_since(&before)?;
                let row = format!("node: CNI ADD, one by one{with}, of it in");
                measured.push(format!("{row} our daemon"), side, 1e3 * daemon);
                measured.push(format!("{row} plugins"), side, 1e3 * delegates);
            }
        }
        self.by_cnitool(side, measured)
    }

    /// Returns the CPU usage of the idle node, as a share of one core.
    fn idle(&mut self) -> anyhow::Result<f64> {
        // After this time the work that an installation causes is done.
        thread::sleep(self.counts.settle);
        let before = self.node_cpu()?;
        let start = Instant::now();
        thread::sleep(self.counts.idle);
        Ok((self.node_cpu()? - before) / start.elapsed().as_secs_f64())
    }

    /// Returns the times that our daemon reports of itself.
    fn daemon_times(&self, side: Column) -> anyhow::Result<Option<DaemonTimes>> {
        if side != Column::Ours {
            return Ok(None);
        }
        let program = self.fixture.env.program("multus-daemon");
        let program = program.to_str().context("its path is not UTF-8")?;
        let status = self.node().run(&[program, "status", "--json"])?;
        let status = serde_json::from_str(&status).context("the daemon's status")?;
        Ok(Some(DaemonTimes::of(&status)))
    }

    /// Returns the seconds of each CNI ADD of pods that start one after the other.
    fn one_by_one(&mut self, count: usize, networks: Option<&str>) -> anyhow::Result<Vec<f64>> {
        let empty = self.sandboxes()?;
        let mut adds = Vec::new();
        for _ in 0..count {
            let before = Adds::read(self.node())?;
            self.create(1, networks)?;
            let after = sh::until(PATIENCE, "a pod gets its network", || {
                let now = Adds::read(self.node())?;
                ensure!(now.count > before.count, "no ADD has ended");
                Ok(now)
            })?;
            adds.push(after.mean_since(&before)?);
        }
        self.wait_running(count)?;
        self.delete(empty)?;
        Ok(adds)
    }

    /// Returns the mean seconds of a CNI ADD of pods that start at once, and the seconds until the last one runs.
    fn burst(&mut self, networks: Option<&str>) -> anyhow::Result<(f64, f64)> {
        let empty = self.sandboxes()?;
        let before = Adds::read(self.node())?;
        let start = Instant::now();
        self.create(self.counts.burst, networks)?;
        self.wait_running(self.counts.burst)?;
        let running = start.elapsed().as_secs_f64();
        let add = Adds::read(self.node())?.mean_since(&before)?;
        self.delete(empty)?;
        Ok((add, running))
    }

    /// Returns the CPU seconds per pod for its start and end: of the plugins, and of the daemon's pod without them.
    fn metered_burst(&mut self, networks: Option<&str>) -> anyhow::Result<(f64, f64)> {
        let empty = self.sandboxes()?;
        let group = self.daemon_group()?;
        let daemon = || group.as_deref().map_or(Ok(0.0), usage::seconds);
        self.metered.install(self.node())?;
        let (plugins_before, daemon_before) = (self.metered.seconds()?, daemon()?);
        self.create(self.counts.burst, networks)?;
        self.wait_running(self.counts.burst)?;
        self.delete(empty)?;
        let used = (
            self.metered.seconds()? - plugins_before,
            daemon()? - daemon_before,
        );
        Metered::remove(self.node())?;
        #[expect(clippy::cast_precision_loss, reason = "there are dozens")]
        let count = self.counts.burst as f64;
        Ok((used.0 / count, used.1 / count))
    }

    /// Returns the control group of the daemon's pod, or `None` without one.
    fn daemon_group(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(uid) = self.daemon()? else {
            return Ok(None);
        };
        let node = cgroup::cpu_accounting()?.join(format!("multus-e2e-{}", self.node().name));
        find(&node, &format!("pod{uid}")).map(Some)
    }

    /// Measures ADDs that `cnitool` makes for pods which the kubelet never starts.
    fn by_cnitool(&mut self, side: Column, measured: &mut Measured) -> anyhow::Result<()> {
        let empty = self.sandboxes()?;
        let daemon = self.daemon_group()?;
        for (networks, with) in [
            (None, ""),
            (Some(format!("{NETWORK},{NETWORK}")), ", 3 networks"),
        ] {
            let pods = self.create_waiting(self.counts.burst, networks.as_deref())?;
            self.metered.install(self.node())?;
            let used = self
                .cnitool
                .measure(self.node(), daemon.as_deref(), &pods)?;
            Metered::remove(self.node())?;
            self.delete(empty)?;
            let row = format!("node: cnitool, CPU of an ADD without plugins{with}");
            measured.push(row, side, 1e3 * used.all);
            if daemon.is_some() {
                let row = format!("node: cnitool, of it in the daemon's pod{with}");
                measured.push(row, side, 1e3 * used.daemon);
            }
        }
        Ok(())
    }

    /// Makes pods that wait for a volume for ever, so that nobody but `cnitool` adds them; returns their names.
    fn create_waiting(
        &mut self,
        count: usize,
        networks: Option<&str>,
    ) -> anyhow::Result<Vec<String>> {
        let missing = json!({"name": "missing", "configMap": {"name": "missing"}});
        let mount = json!({"name": "missing", "mountPath": "/missing"});
        let mut names = Vec::new();
        for _ in 0..count {
            self.pods_made += 1;
            let name = format!("bench-{}", self.pods_made);
            let mut pod = objects::pod(&name, &self.node().name, networks);
            pod["spec"]["volumes"] = json!([missing]);
            pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
            self.fixture.cluster.api.request("POST", PODS, &pod)?;
            names.push(name);
        }
        Ok(names)
    }

    /// Returns the mean CPU seconds of an ADD and DEL of the second network's plugin, called directly.
    fn direct(&self) -> anyhow::Result<f64> {
        let node = self.node();
        let netns = "bench-direct";
        node.run(&["ip", "netns", "add", netns])?;
        let call = |verb: &str| Batch {
            program: format!("{BIN_DIR}/macvlan"),
            concurrency: 1,
            hang_on: None,
            group: None,
            calls: vec![Call {
                args: Vec::new(),
                env: [
                    ("CNI_COMMAND", verb),
                    ("CNI_CONTAINERID", "bench-direct"),
                    ("CNI_NETNS", &format!("/run/netns/{netns}")),
                    ("CNI_IFNAME", "net1"),
                    ("CNI_PATH", BIN_DIR),
                    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
                stdin: macvlan().to_string(),
            }],
        };
        self.metered.install(node)?;
        let before = self.metered.seconds()?;
        for _ in 0..self.counts.pods {
            call("ADD").run(node)?;
            call("DEL").run(node)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "there are a few")]
        let cpu = (self.metered.seconds()? - before) / self.counts.pods as f64;
        Metered::remove(node)?;
        node.run(&["ip", "netns", "delete", netns])?;
        Ok(cpu)
    }

    /// Returns the CPU seconds of everything on the node.
    fn node_cpu(&self) -> anyhow::Result<f64> {
        let pods = cgroup::cpu_accounting()?.join(format!("multus-e2e-{}", self.node().name));
        Ok(self.node_account.seconds()? + self.cnitool.runtime_seconds()? + usage::seconds(&pods)?)
    }

    /// Returns the uid of the daemon's pod, or `None` without one.
    fn daemon(&self) -> anyhow::Result<Option<String>> {
        let path = format!("/api/v1/namespaces/kube-system/pods?labelSelector=app%3D{NAME}");
        let pods = self
            .fixture
            .cluster
            .api
            .request("GET", &path, &Value::Null)?
            .json()?;
        Ok(pods["items"][0]["metadata"]["uid"]
            .as_str()
            .map(ToOwned::to_owned))
    }

    fn create(&mut self, count: usize, networks: Option<&str>) -> anyhow::Result<()> {
        for _ in 0..count {
            self.pods_made += 1;
            let pod = objects::pod(
                &format!("bench-{}", self.pods_made),
                &self.node().name,
                networks,
            );
            self.fixture.cluster.api.request("POST", PODS, &pod)?;
        }
        Ok(())
    }

    /// Waits until `count` pods run.
    fn wait_running(&self, count: usize) -> anyhow::Result<()> {
        sh::until(PATIENCE, "pods run", || {
            let path = format!("{PODS}?fieldSelector=status.phase%3DRunning");
            let pods = self
                .fixture
                .cluster
                .api
                .request("GET", &path, &Value::Null)?
                .json()?;
            let running = pods["items"].as_array().map_or(0, Vec::len);
            ensure!(running == count, "{running} of {count} run");
            Ok(())
        })
    }

    /// Deletes all pods, and waits until no more than `sandboxes` sandboxes are left.
    fn delete(&self, sandboxes: usize) -> anyhow::Result<()> {
        self.fixture
            .cluster
            .api
            .request("DELETE", PODS, &Value::Null)?;
        sh::until(PATIENCE, "pods are deleted", || {
            let pods = self
                .fixture
                .cluster
                .api
                .request("GET", PODS, &Value::Null)?
                .json()?;
            let left = pods["items"].as_array().map_or(0, Vec::len);
            let sandboxes_left = self.sandboxes()?;
            ensure!(
                left == 0 && sandboxes_left <= sandboxes,
                "{left} pods and {sandboxes_left} sandboxes are left"
            );
            Ok(())
        })
    }

    /// Counts the network namespaces of pods on the node.
    fn sandboxes(&self) -> anyhow::Result<usize> {
        let names = self.node().list("/run/netns")?;
        Ok(names.iter().filter(|name| name.starts_with("cni-")).count())
    }
}

/// Restarts the node's containerd with its metrics on a port.
fn serve_metrics(env: &TestEnv, cluster: &mut Cluster) -> anyhow::Result<()> {
    let Member { runtime, node, .. } = &mut cluster.members[0];
    let config = runtime.paths.config.clone();
    let text = fs::read_to_string(node.path(&config)).with_context(|| config.clone())?;
    node.write(
        &config,
        format!("{text}[metrics]\n  address = \"{METRICS}\"\n"),
    )?;
    node.end(&runtime.containerd, "TERM")?;
    runtime.containerd = runtime::serve(env, node, ContainerdVersion::V2, &config)?;
    sh::until(60, "containerd serves its metrics", || Adds::read(node)).map(drop)
}

/// containerd's metrics of ADDs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Adds {
    count: f64,
    seconds: f64,
}

impl Adds {
    fn read(node: &Node) -> anyhow::Result<Self> {
        let read = spawn_in(node, || {
            let mut stream =
                TcpStream::connect(METRICS).context("containerd does not serve its metrics")?;
            stream.write_all(b"GET /v1/metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })?;
        let Ok(text) = read.join() else {
            anyhow::bail!("the thread that reads containerd's metrics panicked");
        };
        Ok(Self::of(&text?))
    }

    /// Parses the metrics, which are absent before the first ADD.
    fn of(text: &str) -> Self {
        let value = |end: &str| {
            let line = text.lines().find(|line| {
                let name = line.split('{').next().unwrap_or_default();
                name.starts_with("containerd_cri_network_plugin_operations_duration_seconds")
                    && name.ends_with(end)
                    && line.contains("\"set_up_pod\"")
            });
            let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
            number.unwrap_or(0.0)
        };
        Self {
            count: value("_count"),
            seconds: value("_sum"),
        }
    }

    fn mean_since(&self, before: &Self) -> anyhow::Result<f64> {
        let count = self.count - before.count;
        ensure!(count >= 1.0, "no ADD has ended");
        Ok((self.seconds - before.seconds) / count)
    }
}

/// The ADDs that our daemon has done, and their seconds, in all and in delegates.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DaemonTimes {
    count: f64,
    seconds: f64,
    delegate_seconds: f64,
}

impl DaemonTimes {
    /// Takes them from what `multus-daemon status --json` prints.
    fn of(status: &Value) -> Self {
        let sum = |list: &str, field: &str| {
            let all = status[list].as_array().into_iter().flatten();
            all.filter(|one| one["command"] == "ADD" && one["outcome"] == "done")
                .filter_map(|one| one[field].as_f64())
                .sum()
        };
        Self {
            count: sum("verbs", "count"),
            seconds: sum("verbs", "totalSeconds"),
            delegate_seconds: sum("delegates", "totalSeconds"),
        }
    }

    /// Returns the mean seconds of an ADD, in all and in its delegates.
    fn means_since(&self, before: &Self) -> anyhow::Result<(f64, f64)> {
        let count = self.count - before.count;
        ensure!(count >= 1.0, "the daemon has done no ADD");
        Ok((
            (self.seconds - before.seconds) / count,
            (self.delegate_seconds - before.delegate_seconds) / count,
        ))
    }
}

/// Finds the directory of this name below another one.
fn find(directory: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                if entry.file_name() == name {
                    return Ok(entry.path());
                }
                directories.push(entry.path());
            }
        }
    }
    anyhow::bail!(
        "there is no control group {name} below {}",
        directory.display()
    )
}

fn macvlan() -> Value {
    json!({"cniVersion": "1.0.0", "name": NETWORK, "type": "macvlan", "master": "eth0", "mode": "bridge",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": SUBNET}]]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_containerd_are_parsed() {
        let text = "# TYPE containerd_cri_network_plugin_operations_duration_seconds_seconds histogram\n\
            containerd_cri_network_plugin_operations_duration_seconds_seconds_bucket{operation_type=\"set_up_pod\",le=\"0.1\"} 3\n\
            containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type=\"set_up_pod\"} 0.5\n\
            containerd_cri_network_plugin_operations_duration_seconds_seconds_count{operation_type=\"set_up_pod\"} 4\n\
            containerd_cri_network_plugin_operations_duration_seconds_seconds_count{operation_type=\"tear_down_pod\"} 9\n";
        let adds = Adds::of(text);
        assert_eq!(
            adds,
            Adds {
                count: 4.0,
                seconds: 0.5
            }
        );
        let before = Adds::of("");
        assert!((adds.mean_since(&before).unwrap() - 0.125).abs() < 1e-9);
        assert!(adds.mean_since(&adds).is_err());
    }

    #[test]
    fn times_are_those_of_successful_adds() {
        let status = json!({
            "verbs": [
                {"command": "ADD", "outcome": "done", "count": 4, "totalSeconds": 0.2},
                {"command": "ADD", "outcome": "failed", "count": 1, "totalSeconds": 9.0},
                {"command": "DEL", "outcome": "done", "count": 4, "totalSeconds": 7.0},
            ],
            "delegates": [
                {"plugin": "bridge", "command": "ADD", "outcome": "done", "count": 4, "totalSeconds": 0.1},
                {"plugin": "macvlan", "command": "ADD", "outcome": "done", "count": 4, "totalSeconds": 0.06},
            ],
        });
        let times = DaemonTimes::of(&status);
        let none = DaemonTimes::of(&json!({}));
        let (daemon, delegates) = times.means_since(&none).unwrap();
        assert!((daemon - 0.05).abs() < 1e-9 && (delegates - 0.04).abs() < 1e-9);
        assert!(times.means_since(&times).is_err());
    }
}
