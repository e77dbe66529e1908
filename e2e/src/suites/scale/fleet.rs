//! Many daemons on one machine, each with a root directory of its own, and their API server.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::{Components, ControlPlane, api_client::ApiClient, objects},
    daemon, http,
    node::{Node, Service, layout, network::NodeNetwork},
    pool, sh,
    single_node::{BIN_DIR, CONF_DIR, PRIMARY},
    test_env::TestEnv,
};

/// Pods of each node: objects without containers.
pub(super) const PODS_PER_NODE: usize = 10;
/// Network definitions of the cluster.
pub(super) const DEFINITIONS: usize = 20;
/// The directory of the daemons' root directories.
const ROOTS: &str = "/run/scale";
/// The user name of the daemons' service account.
const USER: &str = "system:serviceaccount:kube-system:multus";

pub(super) struct Fleet<'a> {
    pub(super) node: Node,
    pub(super) control: ControlPlane,
    pub(super) nodes: usize,
    pub(super) api: ApiClient,
    pub(super) env: &'a TestEnv,
    /// The shell whose end is that of the daemons.
    daemons: Mutex<Option<Service>>,
    _network: NodeNetwork,
    _watches: InotifyLimit,
}

/// The kernel's limit of inotify instances per user, raised while the daemons of many nodes run as one user.
struct InotifyLimit(String);

impl InotifyLimit {
    const FILE: &str = "/proc/sys/fs/inotify/max_user_instances";
    /// Enough for hundreds of daemons with a few instances each.
    const RAISED: &str = "16384";

    fn raise() -> anyhow::Result<Self> {
        let before = fs::read_to_string(Self::FILE).context(Self::FILE)?;
        let change = || format!("cannot change {}", Self::FILE);
        fs::write(Self::FILE, Self::RAISED).with_context(change)?;
        Ok(Self(before))
    }
}

impl Drop for InotifyLimit {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

impl<'a> Fleet<'a> {
    /// Starts the API server and creates all objects, without a daemon.
    pub(super) fn new(env: &'a TestEnv, nodes: usize) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        let policy = env.dir.join("audit-policy.json");
        // Only the requests of the daemons are logged.
        let rules = json!([{"level": "Metadata", "users": [USER]}, {"level": "None"}]);
        let text = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules});
        fs::write(&policy, text.to_string())?;
        let arguments = [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit_log(env).display()),
        ];
        let control = ControlPlane::start_with(&node, Components::ApiServer, arguments.into())?;
        let fleet = Self {
            api: ApiClient::start(&node, &control.admin())?,
            node,
            control,
            nodes,
            env,
            daemons: Mutex::default(),
            _network: network,
            _watches: InotifyLimit::raise()?,
        };
        fleet.create_objects()?;
        fleet.create_pods()?;
        fleet.create_roots()?;
        fleet.count_bytes()?;
        Ok(fleet)
    }

    /// Creates service account, DaemonSet and network definitions, and writes the account's token.
    fn create_objects(&self) -> anyhow::Result<()> {
        let definitions: Vec<_> = (0..DEFINITIONS)
            .map(|number| {
                let config = json!({
                    "cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge", "mtu": 1500,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.{number}.0.0/16"), "gateway": format!("10.{number}.0.1")}]]},
                });
                objects::network(&format!("network-{number}"), &config)
            })
            .collect();
        objects::definitions(self.env, &self.control, &self.node, &definitions)?;
        self.control
            .apply(&self.node, &daemon::service_account()?)?;
        self.control.apply(&self.node, &[daemon_set()])?;
        daemon::write_account(&self.node, &self.control)
    }

    /// Creates pods with as many fields as in a real cluster.
    fn create_pods(&self) -> anyhow::Result<()> {
        pool::all(0..self.nodes * PODS_PER_NODE, |number| {
            let (name, node) = (format!("pod-{number}"), node_name(number / PODS_PER_NODE));
            let path = "/api/v1/namespaces/default/pods";
            self.api.request("POST", path, &pod(&name, &node))?;
            let path = format!("{path}/{name}/status");
            self.api.request("PATCH", &path, &status(number))
        })
        .map(drop)
    }

    fn create_roots(&self) -> anyhow::Result<()> {
        let default_network = layout::default_network("1.0.0", 1);
        for number in 0..self.nodes {
            let root = format!("{ROOTS}/{number}");
            self.node
                .write(&format!("{root}{PRIMARY}"), &default_network)?;
            fs::create_dir_all(self.node.path(&format!("{root}{BIN_DIR}")))?;
        }
        self.configure(json!({}))
    }

    /// Writes the file of all daemons, with these options.
    pub(super) fn configure(&self, options: Value) -> anyhow::Result<()> {
        let mut config = options;
        config["cniConfigDir"] = CONF_DIR.into();
        config["binDir"] = BIN_DIR.into();
        self.node
            .write(&format!("{ROOTS}/config.json"), config.to_string())
    }

    /// Returns the path of a plugin of a node, as this process sees it.
    pub(super) fn plugin(&self, number: usize, plugin: &str) -> PathBuf {
        self.node
            .path(&format!("{ROOTS}/{number}{BIN_DIR}/{plugin}"))
    }

    /// Adds packet counters for the address by which daemons, and not the test, reach the API server.
    fn count_bytes(&self) -> anyhow::Result<()> {
        let address = self.node.address();
        for args in [
            ["-d", &address, "--dport", "6443"],
            ["-s", &address, "--sport", "6443"],
        ] {
            let [side, address, port, number] = args;
            self.node.run(&[
                "iptables", "-A", "INPUT", side, address, "-p", "tcp", port, number,
            ])?;
        }
        Ok(())
    }

    /// Returns the bytes to and from the API server so far, including the headers of TCP and IP.
    pub(super) fn bytes(&self) -> anyhow::Result<[u64; 2]> {
        let text = self
            .node
            .run(&["iptables", "-n", "-v", "-x", "-L", "INPUT"])?;
        let of = |mark: &str| {
            let line = text.lines().find(|line| line.contains(mark));
            let line = line.with_context(|| format!("no rule with {mark}: {text}"))?;
            let bytes = line.split_whitespace().nth(1).unwrap_or_default();
            anyhow::Ok(bytes.parse()?)
        };
        Ok([of("dpt:6443")?, of("spt:6443")?])
    }

    /// Starts the daemons.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        let logs = self.env.dir.join("log/daemons");
        fs::create_dir_all(&logs)?;
        let script = format!(
            "trap 'trap - TERM; kill 0' TERM\nnumber=0\nwhile [ $number -lt {} ]; do\n\
             MULTUS_NODE_NAME=scale-$number \"$0\" run --root {ROOTS}/$number --config {ROOTS}/config.json >>\"$1/$number.log\" 2>&1 &\n\
             number=$((number + 1))\ndone\nwait",
            self.nodes
        );
        let address = self.node.address();
        let daemons = self.node.serve("daemons", "sh", |command| {
            command
                .env("KUBERNETES_SERVICE_HOST", address)
                .env("KUBERNETES_SERVICE_PORT", "6443")
                .env("POD_NAMESPACE", "kube-system")
                .env("MULTUS_DAEMONSET", "rke2-multus")
                .env("HOME", "/run/nowhere")
                .env_remove("KUBECONFIG")
                .env_remove("POD_UID")
                .args(["-c", &script])
                .arg(self.env.program("multus-daemon"))
                .arg(logs)
        })?;
        *self.daemons() = Some(daemons);
        Ok(())
    }

    /// Ends the daemons.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        let daemons = self.daemons().take();
        daemons.map_or(Ok(()), |daemons| self.node.end(&daemons, "TERM"))
    }

    fn daemons(&self) -> MutexGuard<'_, Option<Service>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each daemon is ready, one after the other.
    pub(super) fn wait_ready(&self, seconds: u64) -> anyhow::Result<()> {
        let mut ready = 0;
        sh::until(seconds, "all daemons are ready", || {
            while ready < self.nodes {
                self.is_ready(ready)
                    .with_context(|| format!("{ready} are ready, the next one is not"))?;
                ready += 1;
            }
            Ok(())
        })
    }

    fn is_ready(&self, number: usize) -> anyhow::Result<()> {
        let socket = format!("{ROOTS}/{number}/run/multus/multus.sock");
        let socket = self.node.path(&socket);
        http::send(&socket, "GET", "/readyz", "", b"")?
            .well()
            .map(drop)
    }

    /// Returns the sum of an API server's metric over all series whose labels contain `labels`.
    pub(super) fn metric(&self, name: &str, labels: &str) -> anyhow::Result<f64> {
        // An overloaded API server refuses this request for a while.
        let answer = sh::until(60, "the API server serves its metrics", || {
            self.api.request("GET", "/metrics", &Value::Null)
        })?;
        let text = answer.text();
        let series = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// Returns the CPU seconds of API server and etcd since their starts.
    pub(super) fn cpu(&self) -> anyhow::Result<[f64; 2]> {
        let [server, etcd] = self.control.processes();
        Ok([self.cpu_of(server)?, self.cpu_of(etcd)?])
    }

    fn cpu_of(&self, pid: u32) -> anyhow::Result<f64> {
        /// Ticks per second in `/proc`, the same on every architecture.
        const TICKS: f64 = 100.0;
        let stat = fs::read_to_string(self.node.path(&format!("/proc/{pid}/stat")))?;
        // The second word is the name of the process, in brackets and with any characters.
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        let args = rest.split(' ').skip(11).take(2);
        let ticks: Vec<f64> = args.filter_map(|word| word.parse().ok()).collect();
        ensure!(ticks.len() == 2, "/proc/{pid}/stat has no times: {stat}");
        Ok(ticks.iter().sum::<f64>() / TICKS)
    }

    /// Returns the CPU seconds of all daemons, and the mean of their resident memory in kB.
    pub(super) fn usage(&self) -> anyhow::Result<(f64, f64)> {
        let (mut cpu, mut memory, mut count) = (0.0, 0.0, 0.0);
        for name in self.node.list("/proc")? {
            let Ok(pid) = name.parse::<u32>() else {
                continue;
            };
            let read = |file: &str| {
                let path = self.node.path(&format!("/proc/{pid}/{file}"));
                fs::read_to_string(path).unwrap_or_default()
            };
            if read("comm").trim() != "multus-daemon" {
                continue;
            }
            cpu += self.cpu_of(pid)?;
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let word = line.and_then(|line| line.split_whitespace().next());
            memory += word
                .and_then(|word| word.parse::<f64>().ok())
                .unwrap_or_default();
            count += 1.0;
        }
        Ok((cpu, memory / f64::max(count, 1.0)))
    }

    /// Kills the API server, restarts it, and waits until it is ready.
    pub(super) fn restart_server(&self) -> anyhow::Result<()> {
        self.control.stop_server(&self.node)?;
        self.control.start_server(&self.node, Components::ApiServer)
    }
}

pub(super) fn audit_log(env: &TestEnv) -> PathBuf {
    env.dir.join("log/audit.log")
}

pub(super) fn node_name(number: usize) -> String {
    format!("scale-{number}")
}

/// Returns the daemons' DaemonSet, whose pods are not created.
fn daemon_set() -> Value {
    let labels = json!({"app": "multus"});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "rke2-multus", "namespace": "kube-system"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "daemon", "image": "multus"}]}},
    }})
}

/// Returns a pod with the fields that pods of a Deployment usually have.
fn pod(name: &str, node: &str) -> Value {
    let variables: Vec<_> = (0..10)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("the value of setting {number}")}))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:1.2.3"), "env": variables,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 5},
            "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings"}, {"name": "scratch", "mountPath": "/tmp"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"app.kubernetes.io/name": "cart", "app.kubernetes.io/instance": "shop", "pod-template-hash": "7c9d8f6b5"},
            "annotations": {
                "checksum/config": "3f786850e387550fdab836ed7e6dc881de23001b",
                "k8s.v1.cni.cncf.io/networks": "network-1",
            },
        },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container("main"), container("sidecar")],
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}, {"name": "scratch", "emptyDir": {}}],
        },
    })
}

/// Returns the status of such a pod, as written by kubelet and daemon.
fn status(number: usize) -> Value {
    let address = format!("10.244.{}.{}", number / 250, number % 250);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let container = |name: &str| {
        json!({
            "name": name, "ready": true, "started": true, "restartCount": 0,
            "image": format!("registry.example.com/team/{name}:1.2.3"),
            "imageID": "registry.example.com/team/main@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "containerID": "containerd://e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        })
    };
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let conditions = conditions.map(condition);
    let networks = json!([
        {"name": "cbr0", "interface": "eth0", "ips": [address], "default": true, "dns": {}},
        {"name": "default/network-1", "interface": "net1", "ips": [address], "mac": "02:00:00:00:00:01", "dns": {}},
    ]);
    json!({
        "metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": networks.to_string()}},
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "10.77.0.1",
            "conditions": conditions,
            "containerStatuses": [container("main"), container("sidecar")],
        },
    })
}
