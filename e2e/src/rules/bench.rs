//! What a case works with: the programs under test on a node, pods to attach, and everything that can be seen from outside.

mod daemon;
mod events;
mod fake;
mod kubelet;
mod pods;
mod see;

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, Output, Stdio},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

pub(super) use self::{
    daemon::Settings,
    fake::DIR as FAKE_DIR,
    kubelet::PodResources,
    pods::{DEFAULT_NETWORK, NETWORKS, Pod, PodForm, STATUS},
    see::{WITH_A, WITH_A_AND_B},
};
use super::{definitions, plugin};
use crate::{
    control_plane::api_client::ApiClient,
    http::{self, HttpResponse},
    node::{Kernel, Service},
    sh,
    single_node::{BIN_DIR, SingleNode},
    test_env::TestEnv,
};

/// What a pod of the daemon's would find there.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// A shim and a daemon that belong together.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) daemon: PathBuf,
    pub(crate) shim: PathBuf,
    /// The plugin that does nothing.
    pub(super) passthru: PathBuf,
}

impl Programs {
    /// Those of the release.
    pub(crate) fn ours(work: &TestEnv) -> anyhow::Result<Self> {
        let shim = work.program("multus-shim");
        // It is the shim under another name.
        let passthru = work.dir.join("passthru");
        fs::copy(&shim, &passthru).with_context(|| format!("cannot copy {}", shim.display()))?;
        Ok(Self {
            daemon: work.program("multus-daemon"),
            shim,
            passthru,
        })
    }

    /// Those of another implementation.
    pub(crate) fn peer(dir: &std::path::Path) -> anyhow::Result<Self> {
        let dir = fs::canonicalize(dir)
            .with_context(|| format!("{}: no programs are there", dir.display()))?;
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

/// The workbench.
pub(crate) struct Bench {
    pub(super) scene: SingleNode,
    direct: ApiClient,
    pub(super) programs: RefCell<Programs>,
    pods: RefCell<Vec<Pod>>,
    daemon: RefCell<Option<Service>>,
    starts: RefCell<u32>,
    /// Where the daemon's socket is.
    socket: RefCell<String>,
}

/// What a call of the shim gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Bench {
    /// A node with the recorder as its primary network.
    pub(super) fn new(work: &TestEnv, kernel: Kernel, programs: Programs) -> anyhow::Result<Self> {
        let primary = definitions::primary().to_string();
        let scene = SingleNode::new(
            work,
            kernel,
            programs.shim.clone(),
            &primary,
            &definitions::all(),
        )?;
        let node = &scene.node;
        for name in [plugin::NAME, "recorder-other", "recorder-plain"] {
            let place = format!("{BIN_DIR}/{name}");
            node.write(&place, b"")?;
            fs::copy(std::env::current_exe()?, node.path(&place))?;
        }
        fs::copy(
            &programs.passthru,
            node.path(&format!("{BIN_DIR}/passthru")),
        )?;
        node.write(&format!("{ACCOUNT}/token"), "admin")?;
        node.write(&format!("{ACCOUNT}/namespace"), "kube-system")?;
        node.write(
            &format!("{ACCOUNT}/ca.crt"),
            fs::read(scene.control.pki.file("ca.crt"))?,
        )?;
        let direct = ApiClient::start(node, &scene.control)?;
        Ok(Self {
            scene,
            direct,
            programs: RefCell::new(programs),
            pods: RefCell::default(),
            daemon: RefCell::default(),
            starts: RefCell::default(),
            socket: RefCell::default(),
        })
    }

    /// Whose token daemons that start from now on have.
    pub(super) fn account(&self, token: &str) -> anyhow::Result<()> {
        self.scene.node.write(&format!("{ACCOUNT}/token"), token)
    }

    /// Asks the API server.
    pub(super) fn api(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<HttpResponse> {
        self.direct.request(method, path, body)
    }

    /// Asks the daemon.
    pub(super) fn daemon_says(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<HttpResponse> {
        let socket = self
            .scene
            .node
            .path(&format!("{}/multus.sock", self.socket.borrow()));
        http::send(&socket, method, path, "application/json", body)
    }

    /// A request of the socket, as a shim writes it.
    pub(super) fn request(
        &self,
        env: &[(impl AsRef<str>, impl AsRef<str>)],
        config: &Value,
    ) -> anyhow::Result<HttpResponse> {
        self.ask(api::PATH_CNI, env, config, &Value::Null)
    }

    /// The same on any of its paths, and with attributes of the interface.
    pub(super) fn ask(
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
        self.daemon_says("POST", path, body.to_string().as_bytes())
    }

    /// One call of the shim under test with exactly these CNI variables.
    pub(super) fn shim(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<Outcome> {
        let mut command = self.scene.node.command(&self.programs.borrow().shim);
        command.envs(env.iter().map(|(key, value)| (key, value)));
        Ok(sh::output(&mut command, stdin)?.into())
    }

    /// Starts a call of the shim that is waited for later.
    pub(super) fn spawn(
        &self,
        env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
        stdin: &[u8],
    ) -> anyhow::Result<Running> {
        let mut command = self.scene.node.command(&self.programs.borrow().shim);
        let mut child = command
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the shim")?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        // A shim that ends early says why on stdout.
        let _ = input.write_all(stdin);
        Ok(Running(child))
    }

    /// Undoes what a case did, whether it passed or not.
    pub(super) fn clean(&self) {
        for pod in self.pods.take() {
            // Most of it is gone already.
            if self.state_file(&pod).exists() && self.daemon.borrow().is_some() {
                let _ = self.del(&pod);
            }
            let _ = self.forget(&pod);
            let netns = pod.netns_name();
            let _ = self.scene.node.run(&["ip", "netns", "delete", &netns]);
            let _ = self.delete(&pod);
        }
        let folder = format!("{BIN_DIR}/{}", plugin::FOLDER);
        let _ = fs::remove_dir_all(self.scene.node.path(&folder));
    }

    /// Removes every file that is about a pod's container.
    fn forget(&self, pod: &Pod) -> anyhow::Result<()> {
        let state = "/var/lib/cni/multus";
        for folder in ["", "/results", "/.multus-rs", "/.multus-rs/pending"] {
            let folder = format!("{state}{folder}");
            for name in self.scene.node.list(&folder)? {
                if name.contains(&pod.id) {
                    let _ = fs::remove_file(self.scene.node.path(&format!("{folder}/{name}")));
                }
            }
        }
        Ok(())
    }
}

/// A call under way.
pub(crate) struct Running(Child);

impl Running {
    /// Its end, or an error if it takes longer.
    pub(super) fn within(mut self, seconds: u64) -> anyhow::Result<Outcome> {
        let ended = sh::until(seconds, "the shim ends", || {
            self.0.try_wait()?.context("it still runs")
        });
        if let Err(error) = ended {
            // nsenter and timeout pass it on.
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.0),
                rustix::process::Signal::TERM,
            )?;
            let _ = self.0.wait();
            return Err(error);
        }
        Ok(self.0.wait_with_output()?.into())
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Outcome {
    /// The document on stdout of a call that succeeded.
    pub(super) fn well(&self) -> anyhow::Result<Value> {
        ensure!(
            self.code == Some(0),
            "exit status {:?}: {}{}",
            self.code,
            self.stdout,
            self.stderr
        );
        if self.stdout.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("stdout is not one document: {}", self.stdout))
    }

    /// The error document of a call that failed.
    pub(super) fn error(&self) -> anyhow::Result<Value> {
        ensure!(
            self.code == Some(1),
            "exit status {:?}: {}",
            self.code,
            self.stdout
        );
        let error: Value = serde_json::from_str(&self.stdout)
            .with_context(|| format!("stdout is not one document: {}", self.stdout))?;
        ensure!(
            error["code"].is_u64() && error["msg"].is_string(),
            "no CNI error: {error}"
        );
        Ok(error)
    }

    /// The text of a failure, for what people look for.
    pub(super) fn tells(&self, words: &[&str]) -> anyhow::Result<()> {
        let error = self.error()?.to_string();
        for word in words {
            ensure!(
                error.contains(word),
                "the error does not tell {word}: {error}"
            );
        }
        Ok(())
    }

    pub(super) fn has_code(&self, code: u64) -> anyhow::Result<()> {
        let error = self.error()?;
        ensure!(
            error["code"] == code,
            "code {} instead of {code}: {error}",
            error["code"]
        );
        Ok(())
    }
}
