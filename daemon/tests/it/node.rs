//! A directory in place of a node: configuration, fake plugins with records of their calls, and the daemon's state.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use api::Request;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::api_server::{ApiServer, Kind};

use crate::{
    daemon::{Daemon, SocketClient},
    rights, wait_for,
};

pub(crate) const NODE: &str = "node-a";
/// The interface of the default network; `eth0` may exist where the tests run.
pub(crate) const IFNAME: &str = "pod0";
const STATE: &str = "var/lib/cni/multus";

/// A node with the default network's plugin `primary` and an API server.
pub(crate) struct NodeFixture {
    dir: TempDir,
    /// The directory of the daemon's program and of the shim that it installs.
    program: TempDir,
    pub(crate) api: ApiServer,
}

#[derive(Debug)]
pub(crate) struct PluginCall {
    /// Verb, plugin and interface.
    pub(crate) what: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Value,
}

/// Blocks a plugin until it is dropped.
pub(crate) struct PluginBlock {
    path: PathBuf,
    _fifo: File,
}

impl NodeFixture {
    pub(crate) fn new() -> Self {
        let node = Self::with(ApiServer::start());
        node.install_primary();
        node
    }

    /// A node without a default network.
    pub(crate) fn with(api: ApiServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let daemon = program.path().join("multus-daemon");
        fs::hard_link(env!("CARGO_BIN_EXE_multus-daemon"), daemon).unwrap();
        fs::write(program.path().join("multus-shim"), "the shim").unwrap();
        fs::write(program.path().join("multus-cni-plugins"), "the plugins").unwrap();
        let node = Self { dir, program, api };
        for dir in ["etc/cni/net.d", "opt/cni/bin", "calls", "answers", "gates"] {
            fs::create_dir_all(node.path(dir)).unwrap();
        }
        // The daemon searches plugins below the node's root and runs them by the same path without it, so both paths must lead to the same file.
        let own = node.root().strip_prefix("/").unwrap().to_owned();
        fs::create_dir_all(node.path(own.parent().unwrap())).unwrap();
        symlink("/", node.path(own)).unwrap();
        node.configure(&json!({}));
        node.write("kubeconfig", &node.api.kubeconfig());
        node
    }

    /// Writes the daemon's file: the node's directories, and `more`.
    pub(crate) fn configure(&self, more: &Value) {
        let mut config = json!({
            "cniConfigDir": "/etc/cni/net.d", "multusAutoconfigDir": "/etc/cni/net.d",
            "binDir": self.bin_dir(), "logLevel": "debug",
        });
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        self.write("daemon-config.json", &config.to_string());
    }

    pub(crate) fn install_primary(&self) {
        self.install_primary_of("1.0.0");
    }

    pub(crate) fn install_primary_of(&self, version: &str) {
        self.install_plugin("primary");
        let config =
            json!({"cniVersion": version, "name": "cbr0", "plugins": [{"type": "primary"}]});
        self.write("etc/cni/net.d/10-primary.conflist", &config.to_string());
    }

    /// Installs a plugin into the runtime's directory; its ADD assigns `10.0.0.<length of its name>`.
    pub(crate) fn install_plugin(&self, name: &str) {
        let here = self.root().to_str().unwrap();
        let script = include_str!("plugin.sh").replace("@HERE@", here);
        let path = self.path("opt/cni/bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let address = format!("10.0.0.{}/24", name.len());
        let result = json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "@IFNAME@", "mac": "02:00:00:00:00:01", "sandbox": "/proc/self/ns/net"}],
            "ips": [{"address": address, "interface": 0}],
        });
        self.write(&format!("answers/{name}.ADD"), &result.to_string());
    }

    /// Makes a plugin fail.
    pub(crate) fn fail(&self, plugin: &str, command: &str, code: u32, msg: &str) {
        let error = json!({"cniVersion": "1.0.0", "code": code, "msg": msg});
        self.write(
            &format!("answers/{plugin}.{command}.error"),
            &error.to_string(),
        );
    }

    /// Makes it succeed again.
    pub(crate) fn heal(&self, plugin: &str, command: &str) {
        self.remove(&format!("answers/{plugin}.{command}.error"));
    }

    pub(crate) fn block_plugin(&self, plugin: &str, command: &str) -> PluginBlock {
        let path = self.path("gates").join(format!("{plugin}.{command}"));
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let fifo = File::options().read(true).write(true).open(&path).unwrap();
        PluginBlock { path, _fifo: fifo }
    }

    /// Adds a definition to the namespace `shop`, and installs a plugin of the same name for it.
    pub(crate) fn define(&self, name: &str) {
        self.install_plugin(name);
        self.api.put(Kind::Definition, definition(name));
    }

    /// Adds the pod `shop/cart` of this node, with these networks.
    pub(crate) fn run_pod(&self, networks: Option<&str>) {
        self.api.put(Kind::Pod, pod(NODE, networks));
    }

    /// A request of the runtime for a container of that pod.
    pub(crate) fn request(&self, command: &str, container: &str) -> Request {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart;K8S_POD_INFRA_CONTAINER_ID={container};K8S_POD_UID=uid-cart;COLOUR=blue"
        );
        let env = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", "/proc/self/ns/net"),
            ("CNI_IFNAME", IFNAME),
            ("CNI_PATH", "/opt/absent"),
            ("CNI_ARGS", &args),
        ];
        Request {
            env: env
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            config: self.config().to_string().into_bytes(),
            interface_attributes: None,
        }
    }

    /// The stdin of a request: our CNI configuration, or a default without one.
    pub(crate) fn config(&self) -> Value {
        match fs::read(self.path("etc/cni/net.d/00-multus.conf")) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => json!({
                "cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim",
                "clusterNetwork": "/etc/cni/net.d/10-primary.conflist",
            }),
        }
    }

    pub(crate) fn start(&self) -> Daemon {
        self.start_with(self.command())
    }

    pub(crate) fn start_with(&self, command: Command) -> Daemon {
        let socket = self.path("run/multus/multus.sock");
        Daemon::start(command, socket, self.path("log"))
    }

    pub(crate) fn socket(&self, path: &str) -> SocketClient {
        SocketClient(self.path(path))
    }

    /// The daemon's program with arguments and environment of this node.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.program.path().join("multus-daemon"));
        command
            .arg("--root")
            .arg(self.root())
            .arg("--config")
            .arg(self.path("daemon-config.json"))
            .env_clear()
            .env("MULTUS_NODE_NAME", NODE)
            .env("KUBECONFIG", self.path("kubeconfig"));
        command
    }

    /// The calls of plugins so far, in order.
    pub(crate) fn calls(&self) -> Vec<PluginCall> {
        let order = fs::read_to_string(self.path("order")).unwrap_or_default();
        let call = |line: &str| {
            let (what, id) = line.rsplit_once(' ').unwrap();
            let read = |kind: &str| {
                fs::read_to_string(self.path("calls").join(format!("{id}.{kind}"))).unwrap()
            };
            let env = read("env");
            let pairs = env.lines().filter_map(|line| line.split_once('='));
            PluginCall {
                what: what.to_owned(),
                env: pairs
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                stdin: serde_json::from_str(&read("stdin")).unwrap(),
            }
        };
        order.lines().map(call).collect()
    }

    /// Verb, plugin and interface of each call so far.
    pub(crate) fn order(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.what).collect()
    }

    /// The same, and deletes the records.
    pub(crate) fn take_order(&self) -> Vec<String> {
        let order = self.order();
        if !order.is_empty() {
            self.remove("order");
        }
        order
    }

    /// Waits until a plugin was called.
    pub(crate) fn wait_for_call(&self, what: &str) {
        wait_for(what, || {
            self.order().iter().any(|call| call == what).then_some(())
        });
    }

    /// The names of state files and sidecars, without the lock file.
    pub(crate) fn state(&self) -> (Vec<String>, Vec<String>) {
        let files = |dir: &str| {
            let Ok(entries) = fs::read_dir(self.path(dir)) else {
                return Vec::new();
            };
            let files = entries
                .map(Result::unwrap)
                .filter(|e| e.file_type().unwrap().is_file());
            let mut names: Vec<_> = files
                .map(|e| e.file_name().into_string().unwrap())
                .filter(|name| name != "container.locks")
                .collect();
            names.sort();
            names
        };
        (files(STATE), files(&format!("{STATE}/.multus-rs")))
    }

    /// Makes a container's state name a network namespace that does not exist.
    pub(crate) fn lose_namespace(&self, container: &str) {
        let sidecar = format!("var/lib/cni/multus/.multus-rs/{container}.json");
        let text = fs::read_to_string(self.path(&sidecar)).unwrap();
        let lost = text.replace("/proc/self/ns/net", "/var/run/netns/lost");
        assert_ne!(text, lost);
        self.write(&sidecar, &lost);
    }

    /// Creates the journal's directory.
    pub(crate) fn journal(&self) -> PathBuf {
        let dir = api::journal::dir(&self.path(STATE));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.path("opt/cni/bin")
    }

    /// The node's root directory.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root().join(below)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).unwrap();
    }
}

/// Verifies after every test that the chart grants all requests to the API server.
impl Drop for NodeFixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            rights::check(&self.api.requests());
        }
    }
}

impl Drop for PluginBlock {
    fn drop(&mut self) {
        // Closing the FIFO afterwards unblocks the plugin, which reads the end of the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// The definition `shop/<name>` of the plugin of that name.
pub(crate) fn definition(name: &str) -> Value {
    let config = json!({"cniVersion": "1.0.0", "type": name, "kept": [1, "two"]});
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"config": config.to_string()}})
}

/// The pod `shop/cart` on a node.
pub(crate) fn pod(node: &str, networks: Option<&str>) -> Value {
    let annotations = match networks {
        Some(networks) => json!({"k8s.v1.cni.cncf.io/networks": networks}),
        None => json!({}),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "cart", "uid": "uid-cart", "annotations": annotations},
        "spec": {"nodeName": node, "containers": []},
    })
}
