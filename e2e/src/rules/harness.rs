//! Everything that a case works with: the programs under test on a node, pods to attach, and what can be observed from outside.

mod conf_dir;
mod daemon;
mod events;
mod fake_daemon;
mod fake_kubelet;
mod observe;
mod pods;

use std::{cell::RefCell, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

pub(super) use self::{
    conf_dir::MULTUS_CONF_DIR,
    daemon::DaemonSetup,
    fake_daemon::DIR as FAKE_DAEMON_DIR,
    fake_kubelet::PodResources,
    observe::{WITH_A, WITH_A_AND_B},
    pods::{DEFAULT_NETWORK, NETWORKS, Pod, PodSpec, STATUS},
};
use super::{definitions, recorder};
use crate::{
    control_plane::{ControlPlane, api_client::ApiClient},
    daemon as daemon_process,
    http::{self, HttpResponse},
    node::{Kernel, Node, Service},
    single_node::{BIN_DIR, SingleNode},
    test_env::TestEnv,
};

/// A shim and a daemon of one implementation.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) daemon: PathBuf,
    pub(crate) shim: PathBuf,
    pub(super) passthru: PathBuf,
}

impl Programs {
    /// Returns the programs of the release.
    pub(crate) fn ours(work: &TestEnv) -> anyhow::Result<Self> {
        let shim = work.program("multus-shim");
        // The release's passthru is the shim under another name.
        let passthru = work.dir.join("passthru");
        fs::copy(&shim, &passthru).with_context(|| format!("cannot copy {}", shim.display()))?;
        Ok(Self {
            daemon: work.program("multus-daemon"),
            shim,
            passthru,
        })
    }

    /// Returns the programs of another implementation: `multus-daemon`, `multus-shim` and `passthru` or `passthru-cni`.
    pub(crate) fn peer(dir: &std::path::Path) -> anyhow::Result<Self> {
        let dir = fs::canonicalize(dir)
            .with_context(|| format!("{}: cannot find the directory of --peer", dir.display()))?;
        let passthru = ["passthru", "passthru-cni"].map(|name| dir.join(name));
        let programs = Self {
            daemon: dir.join("multus-daemon"),
            shim: dir.join("multus-shim"),
            passthru: passthru
                .into_iter()
                .find(|path| path.exists())
                .unwrap_or_else(|| dir.join("passthru")),
        };
        for program in [&programs.daemon, &programs.shim, &programs.passthru] {
            ensure!(program.is_file(), "{} is missing", program.display());
        }
        Ok(programs)
    }
}

/// The node with an API server, and the programs under test.
pub(crate) struct Harness {
    single_node: SingleNode,
    direct: ApiClient,
    pub(super) programs: RefCell<Programs>,
    /// The pods of the case that runs.
    pods: RefCell<Vec<Pod>>,
    daemon: RefCell<Option<Service>>,
    /// How many daemons were started; each has a log of its own.
    starts: RefCell<u32>,
    /// The directory of the daemon's socket.
    socket: RefCell<String>,
}

impl Harness {
    /// Starts a node whose default network and definitions use the recording plugin.
    pub(super) fn new(work: &TestEnv, kernel: Kernel, programs: Programs) -> anyhow::Result<Self> {
        let default_network = definitions::default_network().to_string();
        let single_node = SingleNode::new(
            work,
            kernel,
            programs.shim.clone(),
            &default_network,
            &definitions::all(),
        )?;
        let node = &single_node.node;
        for name in [recorder::NAME, "recorder-other", "recorder-plain"] {
            let path = format!("{BIN_DIR}/{name}");
            node.write(&path, b"")?;
            fs::copy(std::env::current_exe()?, node.path(&path))?;
        }
        fs::copy(
            &programs.passthru,
            node.path(&format!("{BIN_DIR}/passthru")),
        )?;
        daemon_process::write_account_with(node, &single_node.control.pki, "admin")?;
        let direct = ApiClient::start(node, &single_node.control.admin())?;
        Ok(Self {
            single_node,
            direct,
            programs: RefCell::new(programs),
            pods: RefCell::default(),
            daemon: RefCell::default(),
            starts: RefCell::default(),
            socket: RefCell::default(),
        })
    }

    pub(super) fn node(&self) -> &Node {
        &self.single_node.node
    }

    pub(super) fn control_plane(&self) -> &ControlPlane {
        &self.single_node.control
    }

    /// Sets the token of daemons that start from now on.
    pub(super) fn set_account_token(&self, token: &str) -> anyhow::Result<()> {
        self.node()
            .write(&format!("{}/token", daemon_process::ACCOUNT_DIR), token)
    }

    /// Sends a request to the API server; another status than 2xx is an error.
    pub(super) fn api(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<HttpResponse> {
        self.direct.request(method, path, body)
    }

    /// Sends a request to the daemon's socket.
    pub(super) fn daemon_request(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<HttpResponse> {
        let socket = self
            .node()
            .path(&format!("{}/multus.sock", self.socket.borrow()));
        http::send(&socket, method, path, "application/json", body)
    }

    /// Sends `POST /cni`, as a shim does.
    pub(super) fn cni_request(
        &self,
        env: &[(impl AsRef<str>, impl AsRef<str>)],
        config: &Value,
    ) -> anyhow::Result<HttpResponse> {
        self.post(api::PATH_CNI, env, config, &Value::Null)
    }

    /// Sends a request with a shim's body, and with `interfaceAttributes` unless they are null.
    pub(super) fn post(
        &self,
        path: &str,
        env: &[(impl AsRef<str>, impl AsRef<str>)],
        config: &Value,
        attributes: &Value,
    ) -> anyhow::Result<HttpResponse> {
        use base64::Engine as _;
        let env: serde_json::Map<_, _> = env
            .iter()
            .map(|(key, value)| (key.as_ref().to_owned(), json!(value.as_ref())))
            .collect();
        let config = base64::engine::general_purpose::STANDARD.encode(config.to_string());
        let mut body = json!({"env": env, "config": config});
        if !attributes.is_null() {
            body["interfaceAttributes"] = attributes.clone();
        }
        self.daemon_request("POST", path, body.to_string().as_bytes())
    }

    /// Undoes what a case did, whether it passed or not.
    pub(super) fn clean_up(&self) {
        for pod in self.pods.take() {
            // Most pods are deleted already, so errors do not matter.
            if self.state_file(&pod).exists() && self.daemon.borrow().is_some() {
                let _ = self.del(&pod);
            }
            let _ = self.remove_files_of(&pod);
            let _ = self.node().run(&["ip", "netns", "delete", &pod.netns_name]);
            let _ = self.delete_pod(&pod);
        }
        let directory = format!("{BIN_DIR}/{}", recorder::DIRECTORY);
        let _ = fs::remove_dir_all(self.node().path(&directory));
    }

    /// Removes every file of a pod's container below the state directory.
    fn remove_files_of(&self, pod: &Pod) -> anyhow::Result<()> {
        let state = "/var/lib/cni/multus";
        for directory in ["", "/results", "/.multus-rs", "/.multus-rs/pending"] {
            let directory = format!("{state}{directory}");
            for name in self.node().list(&directory)? {
                if name.contains(&pod.id) {
                    let _ = fs::remove_file(self.node().path(&format!("{directory}/{name}")));
                }
            }
        }
        Ok(())
    }
}
