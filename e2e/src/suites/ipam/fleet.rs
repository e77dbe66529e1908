//! Nodes of one API server, each with a daemon that reaches it through a connection which can fail.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use ipam::{
    guest::{API_VERSION, POOLS, RESERVATIONS, SLICES},
    object::{PATH, RESOURCE},
    wire::{Allocation, Answer, Ask, Attachment, Pod, SOCKET},
};
use serde_json::{Value, json};

use super::{
    super::{
        faults::{files, vdso},
        whereabouts,
    },
    guest,
};
use crate::{
    control_plane::{
        Components, ControlPlane,
        api_client::ApiClient,
        objects,
        tcp_proxy::{Condition, PORT, TcpProxy},
    },
    daemon::{self, Access, STATE_DIR},
    node::{Node, Service, layout, network::NodeNetwork},
    programs::{self, Module},
    sandbox::Running,
    sh::{self, words},
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, PRIMARY},
    test_env::TestEnv,
};

/// The records of a node, in the daemon's directory of state.
const RECORDS: &str = ".multus-rs/ipam";
/// The disk of that directory.
const DISK: &str = "size=64m";
const FILLER: &str = "filler";
const NAMESPACE: &str = "kube-system";
const DAEMON: &str = "multus-daemon";
/// Longer than an ADD takes whose API server does not answer.
const ANSWER_TIME: Duration = Duration::from_mins(1);
/// How long the plugin waits for the next service, and the pause between two attempts.
const REPLACEMENT_TIME: Duration = Duration::from_secs(10);
const REPLACEMENT_PAUSE: Duration = Duration::from_millis(50);
/// The kernel's name of its boot, over which each node has a file of its own.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OWN_BOOT_ID: &str = "/run/boot_id";

pub(super) struct Fleet {
    pub(super) members: Vec<Member>,
    /// The program of whereabouts.
    pub(super) reference: PathBuf,
    pub(super) control: ControlPlane,
    pub(super) server: Node,
    api: ApiClient,
    _network: NodeNetwork,
}

/// A node with its daemon.
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) proxy: TcpProxy,
    /// The release's daemon, and that of the peer, if there is one: each start is one of the next.
    programs: Vec<PathBuf>,
    starts: AtomicUsize,
    pub(super) plugins: PathBuf,
    daemon: Mutex<Option<Service>>,
    boots: AtomicU32,
}

/// The outcome of an ADD.
#[derive(Debug)]
pub(super) enum Outcome {
    Given(String),
    Refused(String),
    /// The service ended before it answered.
    Lost,
}

impl Fleet {
    /// Starts an API server and so many nodes with daemons, every other one of which is that in the directory `peer` at first.
    pub(super) fn new(env: &TestEnv, nodes: u8, peer: Option<&Path>) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let server = Node::start(env, &network, nodes + 1, &[&env.bin])?;
        let control = ControlPlane::start(&server, Components::ApiServer)?;
        let api = ApiClient::start(&server, &control.admin())?;
        objects::definitions(env, &control, &server, &[objects::storage()])?;
        let names: Vec<_> = (1..=nodes).map(|number| format!("n{number}")).collect();
        let objects: Vec<_> = names.iter().map(|name| node_object(name)).collect();
        control.apply(&server, &objects)?;
        control.apply_text(&server, &pool_kinds()?)?;
        let values = ["ipam.enabled=true", "ipam.whereabouts=true"];
        control.apply(&server, &daemon::rights(env, &values)?)?;
        control.apply(&server, &[super::kind_of_claims()?])?;
        // The daemons' own pods: a token that is bound to one says on which node it is.
        let pods: Vec<_> = names.iter().map(|node| daemon_pod(node)).collect();
        control.apply(&server, &pods)?;
        let address: Ipv4Addr = server.address().parse()?;
        let mut members = Vec::new();
        for number in 1..=nodes {
            let node = Node::start(env, &network, number, &[&env.bin])?;
            let mut member = Member::new(env, &control, &server, node, address)?;
            member.programs.extend(peer.map(|dir| dir.join(DAEMON)));
            members.push(member);
        }
        let kubeconfig = env.dir.join("whereabouts.kubeconfig");
        let at = format!("https://{address}:6443");
        control.pki.kubeconfig(&kubeconfig, &at, "admin")?;
        for member in &members {
            guest::write_flat_file(member, guest::FLAT_FILE, &kubeconfig)?;
        }
        let fleet = Self {
            members,
            reference: env.whereabouts.clone(),
            control,
            server,
            api,
            _network: network,
        };
        sh::until(30, "blocks can be made", || fleet.blocks())?;
        sh::until(30, "pools can be made", || fleet.pools())?;
        for member in &fleet.members {
            member.start()?;
        }
        fleet.wait()?;
        Ok(fleet)
    }

    /// Waits until the services of all nodes answer.
    pub(super) fn wait(&self) -> anyhow::Result<()> {
        for member in &self.members {
            let name = &member.node.name;
            sh::until(60, &format!("the IPAM service of {name} answers"), || {
                member.del("unknown")
            })?;
        }
        Ok(())
    }

    /// Ends all faults.
    pub(super) fn heal(&self) -> anyhow::Result<()> {
        for member in &self.members {
            member.proxy.set(Condition::Open);
        }
        self.wait()
    }

    pub(super) fn api(&self) -> &ApiClient {
        &self.api
    }

    pub(super) fn blocks(&self) -> anyhow::Result<Vec<Value>> {
        let list = self.api.request("GET", PATH, &Value::Null)?.json()?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Deletes a block if it has this `resourceVersion`, and returns the answer.
    pub(super) fn delete(&self, block: &Value, version: &Value) -> anyhow::Result<Value> {
        let metadata = &block["metadata"];
        let path = format!("{PATH}/{}", metadata["name"].as_str().unwrap_or_default());
        let preconditions = json!({"uid": metadata["uid"], "resourceVersion": version});
        let options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        self.api.request("DELETE", &path, &options)?.well()?.json()
    }

    /// Returns the addresses in pools, each with pool, offset and pod, and the reservations, each with name and pod.
    pub(super) fn pools(&self) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut taken = Vec::new();
        for pool in self.of_whereabouts(POOLS)? {
            let entries = pool["spec"]["allocations"]
                .as_object()
                .into_iter()
                .flatten();
            let name = text(&pool["metadata"]["name"]);
            taken.extend(
                entries
                    .map(|(offset, entry)| format!("{name} {offset} {}", text(&entry["podref"]))),
            );
        }
        let reservations = self.of_whereabouts(RESERVATIONS)?.into_iter().map(|one| {
            format!(
                "{} {}",
                text(&one["metadata"]["name"]),
                text(&one["spec"]["podref"])
            )
        });
        Ok((taken, reservations.collect()))
    }

    /// Lists objects of whereabouts.
    pub(super) fn of_whereabouts(&self, resource: &str) -> anyhow::Result<Vec<Value>> {
        let path = format!("/apis/{API_VERSION}/{resource}");
        let list = self.api.request("GET", &path, &Value::Null)?.json()?;
        list["items"].as_array().cloned().context("it is a list")
    }

    pub(super) fn ensure_pools_are_empty(&self) -> anyhow::Result<()> {
        let (pools, reservations) = self.pools()?;
        ensure!(pools.is_empty(), "{pools:?}");
        ensure!(reservations.is_empty(), "{reservations:?}");
        Ok(())
    }

    /// Deletes the Node of a machine that runs on, which makes it anew, as kubelet does.
    pub(super) fn renew(&self, member: &Member) -> anyhow::Result<()> {
        let (name, nodes) = (&member.node.name, "/api/v1/nodes");
        let path = format!("{nodes}/{name}");
        self.api.request("DELETE", &path, &Value::Null)?.well()?;
        let object = node_object(name);
        self.api.request("POST", nodes, &object)?.well().map(drop)
    }

    /// Kills the API server and starts it again.
    pub(super) fn restart_server(&self) -> anyhow::Result<()> {
        self.control.stop_server(&self.server)?;
        self.control
            .start_server(&self.server, Components::ApiServer)
    }
}

fn node_object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

impl Member {
    fn new(
        env: &TestEnv,
        control: &ControlPlane,
        server: &Node,
        node: Node,
        address: Ipv4Addr,
    ) -> anyhow::Result<Self> {
        let config = json!({"cniConfigDir": CONF_DIR, "binDir": BIN_DIR, "ipam": true, "whereabouts": NAMESPACE});
        node.write(DAEMON_CONFIG, config.to_string())?;
        node.write(PRIMARY, layout::default_network("1.1.0", node.number))?;
        fs::create_dir_all(node.path(BIN_DIR))?;
        fs::create_dir_all(node.path(STATE_DIR))?;
        node.run(&["mount", "-t", "tmpfs", "-o", DISK, "state", STATE_DIR])?;
        let pod = format!("multus-{}", node.name);
        let create = format!("create token multus --namespace {NAMESPACE} --bound-object-kind=Pod");
        let token = control.kubectl(server, &words!("{create} --bound-object-name {pod}"))?;
        daemon::write_account_with(&node, &control.pki, token.trim())?;
        let member = Self {
            proxy: TcpProxy::start_to(&node, address)?,
            programs: vec![env.program(DAEMON)],
            starts: AtomicUsize::new(usize::from(node.number)),
            plugins: env.program("multus-cni-plugins"),
            daemon: Mutex::default(),
            boots: AtomicU32::new(0),
            node,
        };
        member.new_boot()?;
        member
            .node
            .run(&["mount", "--bind", OWN_BOOT_ID, BOOT_ID])?;
        Ok(member)
    }

    /// Returns how many requests of the daemon about one block have got an answer: not those by which it follows its blocks.
    pub(super) fn requests(&self) -> anyhow::Result<u64> {
        let socket = self.node.path(daemon::SOCKET);
        let metrics = crate::http::send(&socket, "GET", "/metrics", "", b"")?
            .well()?
            .text();
        let lines = metrics.lines().filter(|line| {
            let is_of_one = !["list", "watch"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")));
            line.starts_with("multus_api_requests_total") && line.contains(RESOURCE) && is_of_one
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(values.sum())
    }

    fn new_boot(&self) -> anyhow::Result<()> {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed);
        fs::write(self.node.path(OWN_BOOT_ID), format!("boot-{boot}\n"))?;
        Ok(())
    }

    /// Fills the disk of the records.
    pub(super) fn fill_disk(&self) -> anyhow::Result<()> {
        files::fill(&self.filler()).map(drop)
    }

    /// Ends what [`Self::fill_disk`] has begun, if it has.
    pub(super) fn clear_disk(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.filler()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn filler(&self) -> PathBuf {
        self.node.path(&format!("{STATE_DIR}/{FILLER}"))
    }

    /// Moves the daemon's wall clock so that it is `seconds` ahead of the machine's, until it ends. Returns whether one was moved.
    pub(super) fn move_clock(&self, seconds: i64) -> anyhow::Result<bool> {
        let daemon = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(daemon) = daemon.as_ref().filter(|_| cfg!(target_arch = "x86_64")) else {
            return Ok(false);
        };
        sh::until(20, "the daemon's clock can be moved", || {
            let move_it = |proc: &Path| vdso::set_offset(proc, seconds);
            self.node.while_stopped(daemon, move_it)
        })?;
        Ok(true)
    }

    pub(super) fn start(&self) -> anyhow::Result<()> {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let service = daemon::launch(
            &self.node,
            "daemon",
            &self.programs[start % self.programs.len()],
            Access::Account(PORT),
            |command| command.args(["run", "--root", "/", "--config", DAEMON_CONFIG]),
        )?;
        *self.daemon.lock().unwrap_or_else(PoisonError::into_inner) = Some(service);
        Ok(())
    }

    /// Kills the daemon.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        let daemon = self
            .daemon
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        daemon.map_or(Ok(()), |daemon| self.node.end(&daemon, "KILL"))
    }

    /// Kills the daemon and starts the next one.
    pub(super) fn crash(&self) -> anyhow::Result<()> {
        self.stop()?;
        self.start()
    }

    /// Starts the machine again, whose daemon was killed.
    pub(super) fn boot(&self) -> anyhow::Result<()> {
        self.new_boot()?;
        self.start()
    }

    /// Keeps a copy of the records while no daemon runs, as a snapshot of the disk has it.
    pub(super) fn take_snapshot(&self) -> anyhow::Result<()> {
        let copy = "rm -rf /run/snapshot && cp -a \"$1\" /run/snapshot";
        let records = format!("{STATE_DIR}/{RECORDS}");
        self.node.run(&["sh", "-c", copy, "sh", &records]).map(drop)
    }

    /// Puts the records of the last snapshot in place of those that are there. Returns whether there was one.
    pub(super) fn roll_back(&self) -> anyhow::Result<bool> {
        if !self.node.path("/run/snapshot").exists() {
            return Ok(false);
        }
        let restore = "rm -rf \"$1\" && mv /run/snapshot \"$1\"";
        let records = format!("{STATE_DIR}/{RECORDS}");
        self.node.run(&["sh", "-c", restore, "sh", &records])?;
        Ok(true)
    }

    /// Leaves no records, as a new disk has none.
    pub(super) fn empty(&self) -> anyhow::Result<()> {
        let records = self.node.path(&format!("{STATE_DIR}/{RECORDS}"));
        fs::remove_dir_all(&records).with_context(|| format!("cannot remove {}", records.display()))
    }

    /// Asks the service as the plugin does; `None` when it ended before it answered.
    fn ask(&self, ask: &Ask) -> anyhow::Result<Option<Answer>> {
        let socket = self.node.path(SOCKET);
        let exchange = || -> std::io::Result<Vec<u8>> {
            let mut stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(ANSWER_TIME))?;
            stream.write_all(&ask.document())?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        // A service that has ended is replaced, and the plugin asks the next one.
        let deadline = Instant::now() + REPLACEMENT_TIME;
        loop {
            let answer = exchange().unwrap_or_default();
            if !answer.is_empty() {
                let answer = Answer::parse(&answer);
                return answer.map(Some).context("an answer cannot be read");
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(REPLACEMENT_PAUSE);
        }
    }

    pub(super) fn add(&self, pod: &str, ipam: &Value) -> anyhow::Result<Outcome> {
        self.allocate(allocation(pod, ipam)?)
    }

    pub(super) fn allocate(&self, allocation: Allocation) -> anyhow::Result<Outcome> {
        Ok(match self.ask(&Ask::Allocate(allocation))? {
            Some(Answer::Done(grants)) => {
                let grant = grants.into_iter().next().context("there is one list")?;
                Outcome::Given(grant.address)
            }
            Some(Answer::Failed { reason, .. }) => Outcome::Refused(reason),
            None => Outcome::Lost,
        })
    }

    /// Frees the addresses of a pod.
    pub(super) fn del(&self, pod: &str) -> anyhow::Result<()> {
        self.del_container(&attachment(pod).container)
    }

    /// Does the same, and names the definition where that is one of whereabouts.
    pub(super) fn del_from(&self, pod: &str, ipam: &Value) -> anyhow::Result<()> {
        if ipam["type"] != "whereabouts" {
            return self.del(pod);
        }
        self.end(&Ask::ReleaseFrom(allocation(pod, ipam)?))
    }

    pub(super) fn del_container(&self, container: &str) -> anyhow::Result<()> {
        self.release(Attachment {
            container: container.to_owned(),
            ifname: "net1".to_owned(),
        })
    }

    /// Frees the addresses of an interface.
    pub(super) fn release(&self, attachment: Attachment) -> anyhow::Result<()> {
        self.end(&Ask::Release(attachment))
    }

    fn end(&self, ask: &Ask) -> anyhow::Result<()> {
        let answer = self.ask(ask)?.context("the service does not answer")?;
        ensure!(matches!(answer, Answer::Done(_)), "{answer:?}");
        Ok(())
    }

    /// Returns the containers and addresses that the node has a record of.
    pub(super) fn records(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for record in self.documents("whereabouts")? {
            let container = record["container"].as_str().unwrap_or_default();
            all.push((container.to_owned(), record["uses"].to_string()));
        }
        for record in self.documents("blocks")? {
            let uses = record["uses"].as_array().into_iter().flatten();
            all.extend(uses.map(|one| {
                let container = one["container"].as_str().unwrap_or_default();
                (
                    container.to_owned(),
                    format!("{} {}", record["first"], one["slot"]),
                )
            }));
        }
        Ok(all)
    }

    /// Reads the records in a directory of the service.
    pub(super) fn documents(&self, dir: &str) -> anyhow::Result<Vec<Value>> {
        let dir = format!("{STATE_DIR}/.multus-rs/ipam/{dir}");
        let dir = self.node.path(&dir);
        let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let texts = entries.filter_map(|entry| fs::read(entry.ok()?.path()).ok());
        Ok(texts
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect())
    }

    /// Runs the plugin `multus-ipam` for a container.
    pub(super) fn plugin(
        &self,
        verb: &str,
        container: &str,
        config: &Value,
    ) -> anyhow::Result<Value> {
        let link = "/opt/cni/multus-ipam";
        self.run_plugin(link, &self.plugins, verb, container, config, None)
    }

    /// Runs a program as the plugin `whereabouts` for a container.
    pub(super) fn whereabouts(
        &self,
        program: &Path,
        verb: &str,
        container: &str,
        config: &Value,
    ) -> anyhow::Result<Value> {
        self.whereabouts_until(program, verb, container, config, None)
    }

    /// Does the same, and kills the program after a time, as a runtime does.
    pub(super) fn whereabouts_until(
        &self,
        program: &Path,
        verb: &str,
        container: &str,
        config: &Value,
        end: Option<Duration>,
    ) -> anyhow::Result<Value> {
        let dir = if program == self.plugins {
            "ours"
        } else {
            "theirs"
        };
        let link = format!("/opt/cni/{dir}/whereabouts");
        self.run_plugin(&link, program, verb, container, config, end)
    }

    fn run_plugin(
        &self,
        name: &str,
        program: &Path,
        verb: &str,
        container: &str,
        config: &Value,
        end: Option<Duration>,
    ) -> anyhow::Result<Value> {
        let link = self.node.path(name);
        if fs::read_link(&link).is_err() {
            fs::create_dir_all(link.parent().context("it is in a directory")?)?;
            std::os::unix::fs::symlink(program, &link)?;
        }
        let mut config = config.clone();
        if verb == "CHECK" {
            config["prevResult"] = json!({"cniVersion": "1.1.0"});
        }
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={container};K8S_POD_UID=uid-{container}"
        );
        let variables = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", "/proc/self/ns/net"),
            ("CNI_NETNS_OVERRIDE", "1"),
            ("CNI_IFNAME", "net1"),
            ("CNI_ARGS", &args),
            ("CNI_PATH", "/opt/cni"),
        ];
        let command = match end {
            None => self.node.command(name),
            Some(end) => {
                let mut command = self.node.command("timeout");
                command.arg("--signal=KILL");
                command.args([&format!("{}", end.as_secs_f64()), name]);
                command
            }
        };
        let answer =
            Running::start(command, &variables, config.to_string().as_bytes())?.answer()?;
        answer.success()
    }
}

/// Returns what a pod asks for that takes any address.
pub(super) fn allocation(pod: &str, ipam: &Value) -> anyhow::Result<Allocation> {
    Ok(Allocation {
        attachment: attachment(pod),
        pod: Pod {
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            uid: format!("uid-{pod}"),
        },
        network: "lan".to_owned(),
        ipam: ipam.as_object().context("it is an object")?.clone(),
        addresses: Vec::new(),
        claim: String::new(),
    })
}

fn attachment(pod: &str) -> Attachment {
    Attachment {
        container: format!("container-{pod}"),
        ifname: "net1".to_owned(),
    }
}

/// Returns the kinds of whereabouts, as its release has them.
pub(crate) fn pool_kinds() -> anyhow::Result<String> {
    let dir = programs::directory_of(Module::Whereabouts, whereabouts::MODULE)?.join("doc/crds");
    let read = |resource: &str| {
        let path = dir.join(format!("whereabouts.cni.cncf.io_{resource}.yaml"));
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    Ok([read(POOLS)?, read(RESERVATIONS)?, read(SLICES)?].join("\n---\n"))
}

fn daemon_pod(node: &str) -> Value {
    let mut pod = objects::pod(&format!("multus-{node}"), node, None);
    pod["metadata"]["namespace"] = NAMESPACE.into();
    pod["spec"]["serviceAccountName"] = "multus".into();
    pod
}
