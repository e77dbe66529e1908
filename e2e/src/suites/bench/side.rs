//! One side of a bench: a shim and a daemon on a node of their own, with an API server that costs nothing.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    PLUGIN, api_server,
    driver::{Batch, Call, Times},
    pods,
    usage::{self, Account},
};
use crate::{
    control_plane::pki::Pki,
    node::{Node, Service, network::NodeNetwork},
    report::say,
    rules::Programs,
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED, PRIMARY},
    test_env::TestEnv,
};

/// What a pod of the daemon's would find there.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The network of the bridge, outside of the directory in which daemons look for a primary one.
const BRIDGE: &str = "/etc/cni/bench/bridge.conflist";
/// A socket on which nothing is answered.
const HANGING: &str = "/run/bench-hanging";
/// Pods of each kind on a node; as many verbs can be under way at once.
pub(crate) const PODS: usize = 64;
/// Pods of the long list.
const MANY: usize = 3000;
/// A node's file system for what lies in this directory: sparse, and with more inodes than a run frees.
const STATE_PLACE: &str = "/var/lib/cni";
const STATE_BYTES: u64 = 1 << 30;
const STATE_INODES: &str = "131072";
/// Port of the API server with the node's pods, and of the one with many.
const FEW_PORT: u16 = 6443;
const MANY_PORT: u16 = 7443;

/// A side.
pub(crate) struct Side {
    pub(crate) node: Node,
    programs: Programs,
    pki: Pki,
    daemon: Option<(Service, Account)>,
    starts: u32,
    /// So that no two containers have the same id.
    batches: u32,
}

/// What a daemon that lists many pods took.
pub(crate) struct Listed {
    /// Bytes of memory at most.
    pub(crate) peak: u64,
    /// From its start to its configuration.
    pub(crate) start: Duration,
    /// From the end of the list to its configuration.
    pub(crate) after: Duration,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// So many networks of the plugin that answers at once.
    Instant(usize),
    /// The bridge alone.
    Bridge,
}

/// Containers of a batch, which a later one takes away again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Containers {
    batch: u32,
    network: Network,
    count: usize,
}

impl Side {
    /// A node with an API server, and no daemon yet.
    pub(crate) fn new(
        env: &TestEnv,
        network: &NodeNetwork,
        number: u8,
        programs: Programs,
        plugin: &Path,
    ) -> anyhow::Result<Self> {
        let node = Node::start(env, network, number, &[&env.bin])?;
        if let Err(error) = mount_state(&node) {
            say(&format!(
                "{}: state lies on the machine's own file system, whose recent churn is measured as well: {error:#}",
                node.name
            ));
        }
        let pki = Pki::new(node.dir.join("pki"), "IP:127.0.0.1")?;
        let own = std::env::current_exe()?;
        for (port, count) in [(FEW_PORT, 2 * PODS), (MANY_PORT, MANY)] {
            let folder = node.dir.join(format!("api-{port}"));
            fs::create_dir_all(&folder)?;
            for file in ["apiserver.crt", "apiserver.key"] {
                fs::copy(pki.file(file), folder.join(file))?;
            }
            node.serve(&format!("api-{port}"), &own, |command| {
                command
                    .args([
                        api_server::NAME,
                        &port.to_string(),
                        &count.to_string(),
                        &node.name,
                    ])
                    .arg(&folder)
            })?;
        }
        for name in ["bridge", "host-local"] {
            let place = format!("{BIN_DIR}/{name}");
            node.write(&place, b"")?;
            fs::copy(env.plugins.join(name), node.path(&place))?;
        }
        let place = format!("{BIN_DIR}/{PLUGIN}");
        node.write(&place, b"")?;
        fs::copy(plugin, node.path(&place))?;
        let primary =
            json!({"cniVersion": "1.0.0", "name": "primary", "plugins": [{"type": PLUGIN}]});
        node.write(PRIMARY, primary.to_string())?;
        node.write(BRIDGE, list(&bridge()).to_string())?;
        node.write(&format!("{ACCOUNT}/token"), "bench")?;
        node.write(&format!("{ACCOUNT}/namespace"), "kube-system")?;
        node.write(&format!("{ACCOUNT}/ca.crt"), fs::read(pki.file("ca.crt"))?)?;
        for index in 0..PODS {
            node.run(&["ip", "netns", "add", &netns(index)])?;
        }
        Ok(Self {
            node,
            programs,
            pki,
            daemon: None,
            starts: 0,
            batches: 0,
        })
    }

    /// Starts the daemon on the node's own pods and waits until it is ready.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.launch(FEW_PORT)?;
        sh::until(60, "the daemon is ready", || self.config(&json!({})))?;
        // Its socket may come after its configuration.
        let batch = self.batch(1, Network::Instant(1));
        sh::until(60, "the daemon attaches a pod", || {
            self.verb("ADD", batch, 1)
        })?;
        self.verb("DEL", batch, 1).map(drop)
    }

    fn launch(&mut self, port: u16) -> anyhow::Result<()> {
        let file = json!({
            "cniVersion": "1.0.0", "multusConfigFile": "auto", "multusAutoconfigDir": CONF_DIR, "cniConfigDir": CONF_DIR,
            "binDir": BIN_DIR, "socketDir": "/run/multus/", "logLevel": "error", "logToStderr": true,
        });
        let node = &self.node;
        node.write(DAEMON_CONFIG, file.to_string())?;
        // One implementation keeps it over its end, the other does not.
        let _ = fs::remove_file(node.path(GENERATED));
        self.starts += 1;
        let name = format!("daemon-{}", self.starts);
        let daemon = node.serve(&name, &self.programs.daemon, |command| {
            command
                .env("MULTUS_NODE_NAME", &node.name)
                .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                .env("KUBERNETES_SERVICE_PORT", port.to_string())
                .env("HOME", "/run/nowhere")
                .env_remove("KUBECONFIG")
                .args(["-config", DAEMON_CONFIG])
        })?;
        let account = Account::of(&node.name, node.machine_pid(&daemon)?)?;
        self.daemon = Some((daemon, account));
        Ok(())
    }

    /// Ends the daemon.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        match self.daemon.take() {
            Some((daemon, _account)) => self.node.end(&daemon, "TERM"),
            None => Ok(()),
        }
    }

    /// Starts a daemon that lists many pods, and ends it.
    pub(crate) fn list(&mut self) -> anyhow::Result<Listed> {
        self.stop()?;
        let stamp = self
            .node
            .dir
            .join(format!("api-{MANY_PORT}"))
            .join("listed");
        let _ = fs::remove_file(&stamp);
        let start = SystemTime::now();
        self.launch(MANY_PORT)?;
        let written = self.written()?;
        let listed = sh::until(30, "the list of pods was read", || {
            let text = fs::read_to_string(&stamp).context("nobody read it")?;
            let nanos: u64 = text.parse().context("no time yet")?;
            Ok(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))
        })?;
        let peak = self.account()?.sum(usage::peak)?;
        self.stop()?;
        Ok(Listed {
            peak,
            start: written.duration_since(start)?,
            // A configuration that does not wait for the list is none too late.
            after: written.duration_since(listed).unwrap_or_default(),
        })
    }

    /// The moment at which the configuration was there, to the millisecond.
    fn written(&self) -> anyhow::Result<SystemTime> {
        let path = self.node.path(GENERATED);
        let start = SystemTime::now();
        while !path.exists() {
            ensure!(
                start.elapsed()? < Duration::from_mins(2),
                "no {GENERATED} within two minutes"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(SystemTime::now())
    }

    /// Seconds of processors that the daemon and all that it started took so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        self.account()?.seconds()
    }

    /// Bytes that the daemon has in memory now.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        self.account()?.sum(usage::resident)
    }

    fn account(&self) -> anyhow::Result<&Account> {
        let (_, account) = self.daemon.as_ref().context("no daemon runs")?;
        Ok(account)
    }

    /// Containers that do not exist yet.
    pub(crate) fn batch(&mut self, count: usize, network: Network) -> Containers {
        self.batches += 1;
        Containers {
            batch: self.batches,
            network,
            count,
        }
    }

    /// Calls the shim with a verb for each of the containers.
    pub(crate) fn verb(
        &self,
        verb: &str,
        containers: Containers,
        concurrency: usize,
    ) -> anyhow::Result<Times> {
        let keys = match containers.network {
            Network::Instant(_) => json!({}),
            Network::Bridge => json!({"clusterNetwork": BRIDGE}),
        };
        let config = self.config(&keys)?.to_string();
        self.run(&self.programs.shim, verb, &config, containers, concurrency)
    }

    /// Calls the plugin itself with a verb for each of the containers, once.
    pub(crate) fn direct(&self, verb: &str, containers: Containers) -> anyhow::Result<Times> {
        let (program, config) = match containers.network {
            Network::Instant(_) => (
                PLUGIN,
                json!({"cniVersion": "1.0.0", "name": "primary", "type": PLUGIN}),
            ),
            Network::Bridge => ("bridge", bridge()),
        };
        let program = format!("{BIN_DIR}/{program}");
        self.run(
            Path::new(&program),
            verb,
            &config.to_string(),
            containers,
            1,
        )
    }

    /// Bytes that the shim has in memory while it waits for a daemon that says nothing.
    pub(crate) fn shim_memory(&mut self, count: usize) -> anyhow::Result<Vec<u64>> {
        let containers = self.batch(count, Network::Instant(1));
        let config = self
            .config(&json!({"daemonSocketDir": HANGING}))?
            .to_string();
        let calls = calls("ADD", &config, containers);
        let batch = Batch {
            program: self.programs.shim.display().to_string(),
            concurrency: 1,
            calls,
            hang_on: Some(format!("{HANGING}/multus.sock")),
        };
        let times = batch.run(&self.node)?;
        Ok(times.calls.iter().map(|call| call.memory).collect())
    }

    fn run(
        &self,
        program: &Path,
        verb: &str,
        config: &str,
        containers: Containers,
        concurrency: usize,
    ) -> anyhow::Result<Times> {
        let batch = Batch {
            program: program.display().to_string(),
            concurrency,
            calls: calls(verb, config, containers),
            hang_on: None,
        };
        batch.run(&self.node).with_context(|| verb.to_owned())
    }

    /// The configuration as a runtime hands it to the shim, with other keys.
    fn config(&self, keys: &Value) -> anyhow::Result<Value> {
        let bytes = fs::read(self.node.path(GENERATED))
            .with_context(|| format!("cannot read {GENERATED}"))?;
        let mut config: Value =
            serde_json::from_slice(&bytes).with_context(|| format!("{GENERATED} is no JSON"))?;
        for (key, value) in keys.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Ok(config)
    }

    /// Where the daemon's log is.
    pub(crate) fn log(&self) -> std::path::PathBuf {
        let _ = &self.pki;
        self.node.log(&format!("daemon-{}", self.starts))
    }
}

/// Gives the node a file system of its own for state, results and leases. To make a file, ext4 passes over every inode of the directory's
/// group that was freed in the last minutes: on the machine's file system, a build would be measured as well. What waits for the disk
/// still does. The mount is in the node's mount namespace, and goes with it.
fn mount_state(node: &Node) -> anyhow::Result<()> {
    let image = node.dir.join("state.img");
    File::create(&image)?.set_len(STATE_BYTES)?;
    let image = image.to_str().context("the path is no text")?;
    let options = ["-q", "-F", "-N", STATE_INODES, "-E", "lazy_itable_init=0"];
    node.run(&[&["mkfs.ext4"][..], &options, &[image]].concat())?;
    node.run(&["mkdir", "-p", STATE_PLACE])?;
    node.run(&["mount", "-o", "loop", image, STATE_PLACE])?;
    Ok(())
}

fn calls(verb: &str, config: &str, containers: Containers) -> Vec<Call> {
    let Containers {
        batch,
        network,
        count,
    } = containers;
    let networks = match network {
        Network::Instant(networks) => networks,
        Network::Bridge => 1,
    };
    let one = |index: usize| {
        let pod = index % PODS;
        let id = format!("bench{batch:06}{index:06}");
        let (name, uid) = (pods::name(pod, networks), pods::uid(pod, networks));
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
        );
        let env = [
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", format!("/run/netns/{}", netns(pod))),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_ARGS", args),
            ("CNI_PATH", BIN_DIR.to_owned()),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ];
        let env: BTreeMap<_, _> = env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        Call {
            env,
            stdin: config.to_owned(),
        }
    };
    (0..count).map(one).collect()
}

fn netns(index: usize) -> String {
    format!("bench-{index}")
}

/// The bridge as a plugin gets it.
fn bridge() -> Value {
    json!({"cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": "bench0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.30.0.0/16"}]]}})
}

/// A list of this one plugin.
fn list(plugin: &Value) -> Value {
    let mut plugin = plugin.clone();
    let (version, name) = (plugin["cniVersion"].take(), plugin["name"].take());
    if let Some(keys) = plugin.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    json!({"cniVersion": version, "name": name, "plugins": [plugin]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_a_batch_are_unlike_and_their_pods_come_again() {
        let containers = Containers {
            batch: 3,
            network: Network::Instant(3),
            count: PODS + 1,
        };
        let calls = calls("ADD", "{}", containers);
        let of = |index: usize, name: &str| calls[index].env[name].clone();
        assert_ne!(of(0, "CNI_CONTAINERID"), of(PODS, "CNI_CONTAINERID"));
        assert_eq!(of(0, "CNI_NETNS"), of(PODS, "CNI_NETNS"));
        assert!(of(1, "CNI_ARGS").contains("K8S_POD_NAME=pod-3-1;"));
    }

    #[test]
    fn a_list_has_the_keys_of_its_plugin() {
        let list = list(&bridge());
        assert_eq!(
            (&list["cniVersion"], &list["name"]),
            (&json!("1.0.0"), &json!("bench"))
        );
        assert_eq!(list["plugins"][0]["type"], "bridge");
        assert!(list["plugins"][0]["name"].is_null());
    }
}
