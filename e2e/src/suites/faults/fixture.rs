//! One node, its API server, and the daemons that run on it: one as a rule, two while one takes over from the other.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{container::Pod, vdso};
use crate::{
    control_plane::objects,
    control_plane::tcp_proxy::{self, TcpProxy},
    http,
    node::inspect,
    node::layout,
    node::{Kernel, Service},
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, SingleNode},
    test_env::TestEnv,
};

/// The kubectl proxy's socket on the node: one question costs no process.
const API: &str = "/run/api.sock";
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
const SOCKETS: &str = "/run/multus";
/// How much of the daemon's log a failure shows.
const LAST_LINES: usize = 40;
/// A daemon that was asked to end has ended by then, whatever it was at.
const END: u64 = 40;

/// Everything that is disturbed.
pub(super) struct FaultsFixture<'a> {
    pub(super) single_node: SingleNode,
    pub(super) proxy: TcpProxy,
    env: &'a TestEnv,
    log: PathBuf,
    daemons: Mutex<Daemons>,
}

#[derive(Default)]
struct Daemons {
    current: Option<Service>,
    /// Asked to end.
    leaving: Vec<Service>,
}

impl<'a> FaultsFixture<'a> {
    /// The node, without a daemon.
    pub(super) fn new(env: &'a TestEnv) -> anyhow::Result<Self> {
        let shim = PathBuf::from(BIN_DIR).join("multus-shim");
        let primary = layout::primary("1.1.0", 1);
        let single_node = SingleNode::new(env, Kernel::Own, shim, &primary, &[objects::storage()])?;
        let node = &single_node.node;
        let config = json!({"cniConfigDir": CONF_DIR, "binDir": BIN_DIR, "logLevel": "debug"});
        node.write(DAEMON_CONFIG, config.to_string())?;
        node.serve("api", "kubectl", |command| {
            command
                .arg("proxy")
                .arg(format!("--unix-socket={API}"))
                // Its authority may change, and this is the test's own eye.
                .arg("--insecure-skip-tls-verify")
                .arg("--kubeconfig")
                .arg(single_node.control.admin())
        })?;
        let fixture = Self {
            proxy: TcpProxy::start(node)?,
            env,
            log: env
                .dir
                .join("log")
                .join(format!("{}-daemon.log", node.name)),
            daemons: Mutex::default(),
            single_node,
        };
        sh::until(20, "the API server can be asked", || fixture.api("/readyz"))?;
        fixture.apply(&account())?;
        fixture.token()?;
        Ok(fixture)
    }

    /// Writes what a pod of the daemon's service account would have, with a fresh token.
    pub(super) fn token(&self) -> anyhow::Result<()> {
        let SingleNode { node, control, .. } = &self.single_node;
        let words = ["create", "token", "multus", "--namespace=kube-system"];
        let token = control.kubectl(node, &words)?;
        node.write(&format!("{ACCOUNT}/namespace"), "kube-system")?;
        let authority = fs::read(control.pki.file("ca.crt"))?;
        node.write(&format!("{ACCOUNT}/ca.crt"), authority)?;
        node.write(&format!("{ACCOUNT}/token"), token.trim())
    }

    /// Creates or changes objects.
    pub(super) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.single_node
            .control
            .apply(&self.single_node.node, objects)
    }

    /// Runs kubectl as the administrator.
    pub(super) fn kubectl(&self, words: &[&str]) -> anyhow::Result<()> {
        let SingleNode { node, control, .. } = &self.single_node;
        control.kubectl(node, words).map(drop)
    }

    /// Makes the kind of network definitions, and the network that pods here ask for.
    pub(super) fn define(&self) -> anyhow::Result<()> {
        let SingleNode { node, control, .. } = &self.single_node;
        objects::definitions(self.env, control, node, &[objects::storage()])
    }

    /// Reads an object of the API server.
    pub(super) fn api(&self, path: &str) -> anyhow::Result<http::HttpResponse> {
        http::send(&self.single_node.node.path(API), "GET", path, "", b"")?.well()
    }

    /// Pods that ask for a second network.
    pub(super) fn pods(&self, names: &[&str]) -> anyhow::Result<Vec<Pod>> {
        let node = &self.single_node.node.name;
        let wanted = names
            .iter()
            .map(|name| objects::pod(name, node, Some("storage")));
        self.apply(&wanted.collect::<Vec<_>>())?;
        names.iter().map(|name| self.pod(name)).collect()
    }

    fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        let object = self.object(name)?;
        let uid = object["metadata"]["uid"].as_str();
        Ok(Pod {
            name: name.to_owned(),
            uid: uid.context("a pod has a uid")?.to_owned(),
        })
    }

    /// A pod as the API server has it.
    pub(super) fn object(&self, pod: &str) -> anyhow::Result<Value> {
        self.api(&format!("/api/v1/namespaces/default/pods/{pod}"))?
            .json()
    }

    /// Starts a daemon where there is none.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        self.daemons().current = Some(self.launch()?);
        Ok(())
    }

    /// Kills the daemon, and starts it again at once, as a kubelet does.
    pub(super) fn crash(&self) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        self.kill(&mut daemons)?;
        daemons.current = Some(self.launch()?);
        Ok(())
    }

    /// Kills the daemon, and nobody starts it.
    pub(super) fn halt(&self) -> anyhow::Result<()> {
        self.kill(&mut self.daemons())
    }

    fn kill(&self, daemons: &mut Daemons) -> anyhow::Result<()> {
        match daemons.current.take() {
            Some(daemon) => self.single_node.node.end(&daemon, "KILL"),
            None => Ok(()),
        }
    }

    /// From now on the daemon's wall clock is so many seconds off.
    pub(super) fn set_clock_off(&self, seconds: i64) -> anyhow::Result<()> {
        let daemons = self.daemons();
        let daemon = daemons.current.as_ref().context("no daemon was started")?;
        let node = &self.single_node.node;
        sh::until(20, "the daemon's clock can be moved", || {
            node.stopped(daemon, |proc| vdso::set_off(proc, seconds))
        })
    }

    /// Why the daemon is not ready; none if it is.
    pub(super) fn complaint(&self) -> Option<String> {
        let daemons = self.daemons();
        let daemon = daemons.current.as_ref()?;
        self.is_ready(daemon).err().map(|error| error.to_string())
    }

    /// What all daemons have said so far.
    pub(super) fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// The year in which the daemon last said something, by its clock.
    pub(super) fn year(&self) -> anyhow::Result<i64> {
        let log = self.log()?;
        let mut years = log.lines().filter_map(|line| line.get(..4)?.parse().ok());
        years.next_back().context("the log has no time")
    }

    /// A rolling update: the next daemon starts, then the former one is asked to end, once the next is ready or before.
    /// Nobody waits with the end of one that is not ready itself.
    pub(super) fn update(&self, is_patient: bool) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        let is_ready = |daemon| self.is_ready(daemon).is_ok();
        let is_patient = is_patient && daemons.current.as_ref().is_some_and(is_ready);
        let next = self.launch()?;
        let ready = if is_patient {
            sh::until(60, "the next daemon is ready", || self.is_ready(&next))
        } else {
            Ok(())
        };
        if let Some(former) = daemons.current.replace(next) {
            let pid = former.pid.to_string();
            self.single_node.node.run(&["kill", "-TERM", &pid])?;
            daemons.leaving.push(former);
        }
        ready
    }

    /// Waits until one daemon is there, and ready.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        for former in std::mem::take(&mut daemons.leaving) {
            sh::until(END, "a daemon that was asked to end has ended", || {
                ensure!(!self.single_node.node.runs(&former), "it still runs");
                Ok(())
            })?;
        }
        let current = daemons.current.as_ref().context("no daemon was started")?;
        sh::until(60, "the daemon is ready", || self.is_ready(current))
    }

    /// Fails while pods have left anything, or daemons that are no more.
    pub(super) fn is_clean(&self) -> anyhow::Result<()> {
        // What could not be deleted is tried again after a minute.
        sh::until(90, "nothing is left", || {
            let mut left = inspect::leftovers(&self.single_node.node)?;
            left.extend(self.debris()?);
            ensure!(left.is_empty(), "{}", left.join(", "));
            Ok(())
        })
    }

    /// Removes leases without a holder; how many there were.
    pub(super) fn remove_nameless_leases(&self) -> anyhow::Result<usize> {
        let mut removed = 0;
        for network in ["cbr0", "storage"] {
            let folder = format!("/var/lib/cni/networks/{network}");
            for name in self.single_node.node.list(&folder)? {
                let path = self.single_node.node.path(&format!("{folder}/{name}"));
                if name != "lock" && path.metadata()?.len() == 0 {
                    fs::remove_file(path)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// What is at the places of daemon, shim and configuration that does not belong there.
    fn debris(&self) -> anyhow::Result<Vec<String>> {
        let node = &self.single_node.node;
        let daemons = self.daemons();
        let own = daemons.current.iter().chain(&daemons.leaving);
        let own: Vec<_> = own.map(socket_name).collect();
        let list = |dir: &'static str| -> anyhow::Result<Vec<String>> {
            let names = node.list(dir)?.into_iter();
            Ok(names.map(|name| format!("{dir}/{name}")).collect())
        };
        let mut found = list(SOCKETS)?;
        found.extend(list(CONF_DIR)?);
        found.extend(list(BIN_DIR)?);
        found.retain(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.starts_with('.')
                || name.starts_with("daemon-") && !own.iter().any(|own| own == name)
        });
        Ok(found)
    }

    /// Adds what a reader of a failure needs next.
    pub(super) fn told<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        outcome.map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        anyhow::anyhow!("{error:#}\nthe daemon's last lines:\n{}", last.join("\n"))
    }

    fn launch(&self) -> anyhow::Result<Service> {
        let node = &self.single_node.node;
        node.serve("daemon", self.env.program("multus-daemon"), |command| {
            command
                .env("MULTUS_NODE_NAME", &node.name)
                .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                .env("KUBERNETES_SERVICE_PORT", tcp_proxy::PORT.to_string())
                .env("HOME", "/run/nowhere")
                .env_remove("KUBECONFIG")
                .args(["run", "--root", "/", "--config", DAEMON_CONFIG])
        })
    }

    fn is_ready(&self, daemon: &Service) -> anyhow::Result<()> {
        let socket = self
            .single_node
            .node
            .path(SOCKETS)
            .join(socket_name(daemon));
        http::send(&socket, "GET", "/readyz", "", b"")?
            .well()
            .map(drop)
    }

    fn daemons(&self) -> MutexGuard<'_, Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket that is one daemon's own.
fn socket_name(daemon: &Service) -> String {
    format!("daemon-{}.sock", daemon.pid)
}

/// The daemon's account with what the chart grants it.
pub(super) fn account() -> Vec<Value> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let read = &["get", "list", "watch"];
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "multus", "namespace": "kube-system"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "multus"}, "rules": [
            rule("k8s.cni.cncf.io", "network-attachment-definitions", read),
            rule("", "pods", read),
            rule("", "pods/status", &["patch"]),
            rule("", "events", &["create"]),
        ]}),
        binding(),
    ]
}

/// What gives the account its rights.
pub(super) fn binding() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "multus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "multus"},
        "subjects": [{"kind": "ServiceAccount", "name": "multus", "namespace": "kube-system"}]})
}
