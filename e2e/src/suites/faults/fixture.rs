//! One node, its API server, and its daemons: usually one, and two while a rolling update replaces one by the next.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::vdso;
use crate::{
    control_plane::{
        objects,
        tcp_proxy::{self, TcpProxy},
    },
    daemon::{self, Access},
    http,
    node::{Kernel, Service, inspect, layout},
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, SingleNode},
    test_env::TestEnv,
};

/// The socket of a `kubectl proxy` on the node, so that a request starts no process.
const API: &str = "/run/api.sock";
const SOCKETS: &str = "/run/multus";
/// Lines of the daemon's log that a failure shows.
const LAST_LINES: usize = 40;
/// Seconds in which a daemon ends after SIGTERM, whatever it is doing.
const TERMINATION: u64 = 40;

/// The node whose parts the faults hit.
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
    /// Those that got SIGTERM.
    terminating: Vec<Service>,
}

/// A pod of the API server.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
}

impl<'a> FaultsFixture<'a> {
    /// Starts the node without a daemon.
    pub(super) fn new(env: &'a TestEnv) -> anyhow::Result<Self> {
        let shim = PathBuf::from(BIN_DIR).join("multus-shim");
        let default_network = layout::default_network("1.1.0", 1);
        let single_node = SingleNode::new(
            env,
            Kernel::Own,
            shim,
            &default_network,
            &[objects::storage()],
        )?;
        let node = &single_node.node;
        let config = json!({"cniConfigDir": CONF_DIR, "binDir": BIN_DIR, "logLevel": "debug"});
        node.write(DAEMON_CONFIG, config.to_string())?;
        node.serve("api", "kubectl", |command| {
            command
                .arg("proxy")
                .arg(format!("--unix-socket={API}"))
                // A fault replaces the certificate authority, and the test must still read objects.
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
        sh::until(20, "the API server answers", || fixture.get("/readyz"))?;
        fixture.apply(&daemon::service_account()?)?;
        fixture.write_token()?;
        Ok(fixture)
    }

    /// Writes the files that a pod with the daemon's service account has, with a new token.
    pub(super) fn write_token(&self) -> anyhow::Result<()> {
        daemon::write_account(&self.single_node.node, &self.single_node.control)
    }

    /// Creates or changes objects.
    pub(super) fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.single_node.apply(objects)
    }

    /// Runs kubectl as the administrator.
    pub(super) fn kubectl(&self, args: &[&str]) -> anyhow::Result<()> {
        self.single_node.kubectl(args).map(drop)
    }

    /// Creates the CRD of network definitions, and the network that the pods request.
    pub(super) fn create_definitions(&self) -> anyhow::Result<()> {
        let SingleNode { node, control, .. } = &self.single_node;
        objects::definitions(self.env, control, node, &[objects::storage()])
    }

    /// Sends a GET to the API server.
    fn get(&self, path: &str) -> anyhow::Result<http::HttpResponse> {
        http::send(&self.single_node.node.path(API), "GET", path, "", b"")?.well()
    }

    /// Creates pods with a second network.
    pub(super) fn create_pods<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<[Pod; N]> {
        let node = &self.single_node.node.name;
        self.apply(&names.map(|name| objects::pod(name, node, Some("storage"))))?;
        let pods: anyhow::Result<Vec<_>> = names.iter().map(|name| self.pod(name)).collect();
        let pods = pods?.try_into();
        pods.map_err(|_| anyhow::anyhow!("there is a pod for each name"))
    }

    fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        let object = self.object(name)?;
        let uid = object["metadata"]["uid"].as_str();
        Ok(Pod {
            name: name.to_owned(),
            uid: uid.context("a pod has a uid")?.to_owned(),
        })
    }

    /// Reads a pod from the API server.
    pub(super) fn object(&self, pod: &str) -> anyhow::Result<Value> {
        self.get(&format!("/api/v1/namespaces/default/pods/{pod}"))?
            .json()
    }

    /// Starts a daemon; none may be running.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        self.daemons().current = Some(self.launch()?);
        Ok(())
    }

    /// Kills the daemon and starts the next one at once, as a kubelet does.
    pub(super) fn crash(&self) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        self.kill(&mut daemons)?;
        daemons.current = Some(self.launch()?);
        Ok(())
    }

    /// Kills the daemon and starts no other.
    pub(super) fn kill_daemon(&self) -> anyhow::Result<()> {
        self.kill(&mut self.daemons())
    }

    fn kill(&self, daemons: &mut Daemons) -> anyhow::Result<()> {
        match daemons.current.take() {
            Some(daemon) => self.single_node.node.end(&daemon, "KILL"),
            None => Ok(()),
        }
    }

    /// Moves the daemon's wall clock so that it is `seconds` ahead of the machine's.
    pub(super) fn set_clock_offset(&self, seconds: i64) -> anyhow::Result<()> {
        let daemons = self.daemons();
        let daemon = daemons.current.as_ref().context("no daemon was started")?;
        let node = &self.single_node.node;
        sh::until(20, "the daemon's clock can be moved", || {
            node.while_stopped(daemon, |proc| vdso::set_offset(proc, seconds))
        })
    }

    /// Returns why the daemon is not ready, or `None` when it is.
    pub(super) fn not_ready_reason(&self) -> Option<String> {
        let daemons = self.daemons();
        let daemon = daemons.current.as_ref()?;
        self.is_ready(daemon).err().map(|error| error.to_string())
    }

    /// Returns the log of all daemons so far.
    pub(super) fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Returns the year of the log's last line, by the daemon's clock.
    pub(super) fn year_of_log(&self) -> anyhow::Result<i64> {
        let log = self.log()?;
        let mut years = log.lines().filter_map(|line| line.get(..4)?.parse().ok());
        years.next_back().context("the log has no time")
    }

    /// Runs a rolling update: starts the next daemon and then ends the former one, after the next is ready when `waits_for_ready`.
    /// A former daemon that is not ready itself is ended at once, as the DaemonSet controller does it.
    pub(super) fn update(&self, waits_for_ready: bool) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        let is_ready = |daemon| self.is_ready(daemon).is_ok();
        let waits_for_ready = waits_for_ready && daemons.current.as_ref().is_some_and(is_ready);
        let next = self.launch()?;
        let ready = if waits_for_ready {
            sh::until(60, "the next daemon is ready", || self.is_ready(&next))
        } else {
            Ok(())
        };
        if let Some(former) = daemons.current.replace(next) {
            let pid = former.pid.to_string();
            self.single_node.node.run(&["kill", "-TERM", &pid])?;
            daemons.terminating.push(former);
        }
        ready
    }

    /// Waits until one daemon is left, and ready.
    pub(super) fn wait_for_one_ready_daemon(&self) -> anyhow::Result<()> {
        let mut daemons = self.daemons();
        for former in std::mem::take(&mut daemons.terminating) {
            sh::until(TERMINATION, "a daemon ends after SIGTERM", || {
                ensure!(!self.single_node.node.runs(&former), "it still runs");
                Ok(())
            })?;
        }
        let current = daemons.current.as_ref().context("no daemon was started")?;
        sh::until(60, "the daemon is ready", || self.is_ready(current))
    }

    /// Waits until the daemon's notes contain a text, or do not.
    pub(super) fn wait_until_noted(&self, text: &str, is_noted: bool) -> anyhow::Result<()> {
        let socket = self.single_node.node.path(daemon::SOCKET);
        sh::until(90, "the daemon's notes", || {
            let answer = http::send(&socket, "GET", "/healthz", "", b"")?.well()?;
            let notes = String::from_utf8_lossy(&answer.body).into_owned();
            ensure!(notes.contains(text) == is_noted, "they are {notes}");
            Ok(())
        })
    }

    /// Fails while pods or ended daemons have left anything.
    pub(super) fn is_clean(&self) -> anyhow::Result<()> {
        // The daemon retries after a minute what it could not delete.
        sh::until(90, "nothing is left", || {
            let mut left = inspect::pod_artifacts(&self.single_node.node)?;
            left.extend(self.stale_files()?);
            ensure!(left.is_empty(), "{}", left.join(", "));
            Ok(())
        })
    }

    /// Removes leases that name no container; returns how many there were.
    pub(super) fn remove_empty_leases(&self) -> anyhow::Result<usize> {
        let mut removed = 0;
        for network in ["cbr0", "storage"] {
            let directory = format!("/var/lib/cni/networks/{network}");
            for name in self.single_node.node.list(&directory)? {
                let path = self.single_node.node.path(&format!("{directory}/{name}"));
                if name != "lock" && path.metadata()?.len() == 0 {
                    fs::remove_file(path)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Returns temporary files and foreign sockets in the directories of daemon, shim and configuration.
    fn stale_files(&self) -> anyhow::Result<Vec<String>> {
        let node = &self.single_node.node;
        let daemons = self.daemons();
        let own = daemons.current.iter().chain(&daemons.terminating);
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

    /// Adds the end of the daemon's log to an error.
    pub(super) fn with_log<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
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
        let program = self.env.program("multus-daemon");
        let account = Access::Account(tcp_proxy::PORT);
        daemon::launch(node, "daemon", program, account, |command| {
            command.args(["run", "--root", "/", "--config", DAEMON_CONFIG])
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

/// The name of a daemon's own socket.
fn socket_name(daemon: &Service) -> String {
    format!("daemon-{}.sock", daemon.pid)
}
