//! A node with a real containerd that has a sandbox for the daemon, an API server behind a proxy, many pods, and plugins that wait on
//! demand.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::{
        Components, ControlPlane,
        api_client::ApiClient,
        http_proxy::{self, HttpProxy},
        objects,
    },
    daemon::{self, Access, SOCKET, STATE_DIR},
    http,
    node::{
        Node, Service,
        cri::{self, Client},
        inspect,
        layout::{ContainerdVersion, Layout},
        network::NodeNetwork,
        runtime::{NodePlugins, Runtime},
    },
    sh,
    single_node::{BIN_DIR, DAEMON_CONFIG, GENERATED, PRIMARY},
    test_env::TestEnv,
};

/// The daemon's soft limit of open files at its start, which most runtimes set for containers.
pub(super) const SOFT_LIMIT: &str = "1024";
/// The pods of the namespace `default`. The pod of this number is alone in another namespace, and has the default network only.
pub(super) const PODS: usize = 260;
/// The plugins of the default network and of the network that each pod requests.
pub(super) const DEFAULT_PLUGIN: &str = "load-default";
pub(super) const SECOND_PLUGIN: &str = "load-second";
/// The directory of the plugins' record and of their gates.
const DIRECTORY: &str = "/run/load";
/// The uid of the daemon's pod.
const POD_UID: &str = "8f1f2f5e-0000-4000-8000-000000001d0a";

pub(super) struct LoadFixture<'a> {
    pub(super) node: Node,
    pub(super) proxy: HttpProxy,
    pub(super) runtime: Runtime,
    api: ApiClient,
    control: ControlPlane,
    daemon: RefCell<Option<Service>>,
    uids: Vec<String>,
    env: &'a TestEnv,
    _network: NodeNetwork,
}

/// One line of the record of calls that the plugins write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// `begin` or `end`.
    pub(super) moment: String,
    pub(super) plugin: String,
    pub(super) verb: String,
    pub(super) container: String,
    pub(super) soft_limit: String,
}

impl<'a> LoadFixture<'a> {
    pub(super) fn new(env: &'a TestEnv) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        let control = ControlPlane::start(&node, Components::ApiServer)?;
        let runtime = Runtime::start(
            env,
            &node,
            (Layout::Kubeadm, ContainerdVersion::V2),
            NodePlugins::Reference,
        )?;
        let mut client = Client::connect(node.path(&runtime.paths.socket))?;
        client.run(&cri::host_network_sandbox(POD_UID))?;
        install_plugins(&node)?;
        let config = json!({"cniVersion": "1.0.0", "type": SECOND_PLUGIN});
        let second = objects::network("second", &config);
        objects::definitions(env, &control, &node, &[second])?;
        node.write(DAEMON_CONFIG, json!({"logLevel": "debug"}).to_string())?;
        let fixture = Self {
            api: ApiClient::start(&node, &control.admin())?,
            proxy: HttpProxy::start(&node, &control.pki)?,
            daemon: RefCell::default(),
            uids: Vec::new(),
            node,
            runtime,
            control,
            env,
            _network: network,
        };
        fixture.with_pods()
    }

    /// Creates the pods, and a network namespace for each.
    fn with_pods(mut self) -> anyhow::Result<Self> {
        let mut namespaces = String::new();
        for number in 0..=PODS {
            let (name, namespace) = (pod_name(number), namespace(number));
            let networks = (number < PODS).then_some("second");
            let mut pod = objects::pod(&name, &self.node.name, networks);
            pod["metadata"]["namespace"] = namespace.into();
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            let made = self.api.request("POST", &path, &pod)?.json()?;
            let uid = made["metadata"]["uid"].as_str();
            self.uids.push(uid.context("a pod has a uid")?.to_owned());
            namespaces.extend(["netns add ", &name, "\n"]);
        }
        let mut batch = self.node.command("ip");
        sh::feed(batch.args(["-batch", "-"]), namespaces.as_bytes())?;
        Ok(self)
    }

    /// Starts a daemon with the pod uid of the sandbox.
    pub(super) fn launch(&self) -> anyhow::Result<()> {
        let kubeconfig = self.node.dir.join("daemon.conf");
        let server = format!("https://127.0.0.1:{}", http_proxy::PORT);
        self.control.pki.kubeconfig(&kubeconfig, &server, "admin")?;
        let limited = format!("ulimit -Sn {SOFT_LIMIT} && exec \"$0\" \"$@\"");
        let access = Access::Kubeconfig(&kubeconfig);
        let daemon = daemon::launch(&self.node, "daemon", "sh", access, |command| {
            command
                .env("POD_UID", POD_UID)
                .args(["-c", &limited])
                .arg(self.env.program("multus-daemon"))
                .args(["run", "--root", "/", "--config", DAEMON_CONFIG])
        })?;
        *self.daemon.borrow_mut() = Some(daemon);
        Ok(())
    }

    /// Ends the daemon as a kubelet does.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        match self.daemon.take() {
            Some(daemon) => self.node.end(&daemon, "TERM"),
            None => Ok(()),
        }
    }

    /// Waits until the daemon is ready; returns how long that took.
    pub(super) fn wait_ready(&self, seconds: u64) -> anyhow::Result<Duration> {
        let start = Instant::now();
        sh::until(seconds, "the daemon is ready", || {
            self.ensure_ready()?;
            let generated = self.node.path(GENERATED);
            ensure!(generated.exists(), "ready without {GENERATED}");
            Ok(())
        })?;
        Ok(start.elapsed())
    }

    /// Fails unless the daemon is ready.
    pub(super) fn ensure_ready(&self) -> anyhow::Result<()> {
        http::send(&self.node.path(SOCKET), "GET", "/readyz", "", b"")?
            .well()
            .map(drop)
    }

    /// Returns the peak resident memory of the daemon in kB.
    pub(super) fn peak_memory(&self) -> anyhow::Result<u64> {
        let daemon = self.daemon.borrow();
        let pid = daemon.as_ref().context("no daemon was started")?.pid;
        let status = fs::read_to_string(self.node.path(&format!("/proc/{pid}/status")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let line = line.context("the daemon's status has no VmHWM")?;
        let number = line.split_whitespace().next().unwrap_or_default();
        Ok(number.parse()?)
    }

    /// Counts the connections to the daemon's socket, accepted or queued.
    pub(super) fn connections(&self) -> anyhow::Result<usize> {
        let table = fs::read_to_string(self.node.path("/proc/1/net/unix"))?;
        // The accepted side has the path of the listener, whose own state is 01.
        let is_connection = |line: &&str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() == 8
                && (words[7].contains("multus.sock") || words[7].contains("/daemon-"))
                && matches!(words[5], "02" | "03")
        };
        Ok(table.lines().filter(is_connection).count())
    }

    /// Waits until there are exactly `count` connections.
    pub(super) fn wait_connections(&self, count: usize) -> anyhow::Result<()> {
        sh::until(60, &format!("the daemon has {count} connections"), || {
            let now = self.connections()?;
            ensure!(now == count, "it has {now}");
            Ok(())
        })
    }

    /// Returns the calls of plugins so far, oldest first.
    pub(super) fn calls(&self) -> anyhow::Result<Vec<Call>> {
        let text = fs::read_to_string(self.node.path(&format!("{DIRECTORY}/calls")));
        let text = text.unwrap_or_default();
        let read = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().context("a record has five words");
            Ok(Call {
                moment: word()?,
                plugin: word()?,
                verb: word()?,
                container: word()?,
                soft_limit: word()?,
            })
        };
        text.lines().map(read).collect()
    }

    /// Makes a plugin wait in a verb until the gate is opened.
    pub(super) fn close_gate(&self, plugin: &str, verb: &str) -> anyhow::Result<Gate> {
        let path = format!("{DIRECTORY}/{plugin}.{verb}");
        self.node.run(&["mkfifo", &path])?;
        Ok(Gate {
            path: self.node.path(&path),
            open: None,
        })
    }

    /// Makes a plugin take two seconds for a verb, until the returned file is deleted.
    pub(super) fn slow_down(&self, plugin: &str, verb: &str) -> anyhow::Result<PathBuf> {
        let path = format!("{DIRECTORY}/{plugin}.{verb}.slow");
        self.node.write(&path, "")?;
        Ok(self.node.path(&path))
    }

    /// Lists the entries of the DEL journal.
    pub(super) fn journal(&self) -> anyhow::Result<Vec<String>> {
        let names = self.node.list(&format!("{STATE_DIR}/.multus-rs/pending"))?;
        let is_entry = |name: &String| api::journal::is_entry(name);
        Ok(names.into_iter().filter(is_entry).collect())
    }

    /// Returns whether the state has a container.
    pub(super) fn has_state(&self, container: &str) -> bool {
        self.node.path(&format!("{STATE_DIR}/{container}")).exists()
    }

    /// Waits until nothing of containers is left.
    pub(super) fn wait_until_clean(&self) -> anyhow::Result<()> {
        sh::until(60, "nothing is left", || {
            let left = inspect::pod_artifacts(&self.node)?;
            ensure!(left.is_empty(), "{} files: {:?}", left.len(), left.first());
            Ok(())
        })
    }

    /// Reads a pod from the API server.
    pub(super) fn pod(&self, number: usize) -> anyhow::Result<Value> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            namespace(number),
            pod_name(number)
        );
        self.api.request("GET", &path, &Value::Null)?.json()
    }

    pub(super) fn uid(&self, number: usize) -> &str {
        &self.uids[number]
    }
}

/// Returns the namespace of a pod.
pub(super) fn namespace(number: usize) -> &'static str {
    if number == PODS {
        "kube-public"
    } else {
        "default"
    }
}

/// Returns the name of a pod, which is also that of its network namespace.
pub(super) fn pod_name(number: usize) -> String {
    format!("load-{number}")
}

/// A named pipe at which plugins wait; dropping it opens it.
pub(super) struct Gate {
    path: PathBuf,
    open: Option<File>,
}

impl Gate {
    /// Lets all waiting plugins continue, and later ones pass.
    pub(super) fn open(&mut self) -> anyhow::Result<()> {
        let file = File::options().read(true).write(true).open(&self.path);
        self.open = Some(file.with_context(|| self.path.display().to_string())?);
        Ok(())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.open.is_none() {
            let _ = self.open();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn install_plugins(node: &Node) -> anyhow::Result<()> {
    for name in [DEFAULT_PLUGIN, SECOND_PLUGIN] {
        let path = format!("{BIN_DIR}/{name}");
        node.write(&path, include_bytes!("plugin.sh"))?;
        fs::set_permissions(node.path(&path), fs::Permissions::from_mode(0o755))?;
    }
    node.write(&format!("{DIRECTORY}/calls"), "")?;
    let default_network = json!({
        "cniVersion": "1.0.0", "name": "primary", "plugins": [{"type": DEFAULT_PLUGIN}],
    });
    node.write(PRIMARY, default_network.to_string())
}

/// Counts the started calls of a plugin with a verb, by container.
pub(super) fn started_calls<'a>(
    calls: &'a [Call],
    plugin: &str,
    verb: &str,
) -> BTreeMap<&'a str, usize> {
    let mut count = BTreeMap::new();
    for call in calls {
        if call.moment == "begin" && call.plugin == plugin && call.verb == verb {
            *count.entry(call.container.as_str()).or_default() += 1;
        }
    }
    count
}
