//! One side of a bench: a shim and a daemon on a node of their own, with an API server that uses next to no CPU.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    PLUGIN, api_server,
    driver::{Batch, Call, Times},
    pods,
    row::Column,
    usage::{self, Account},
};
use crate::{
    control_plane::pki::Pki,
    daemon::{self, Access},
    node::{Node, Service, network::NodeNetwork},
    report::say,
    rules::Programs,
    sandbox::Sandbox,
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED, PRIMARY},
    test_env::TestEnv,
};

/// The configuration of the bridge network, outside the directory in which daemons look for the default network.
const BRIDGE: &str = "/etc/cni/bench/bridge.conflist";
/// That of a bridge network whose addresses are of the whole cluster.
const SHARED_BRIDGE: &str = "/etc/cni/bench/shared.conflist";
/// The plugins of the bridge network.
const BRIDGE_PLUGINS: [&str; 2] = ["bridge", "host-local"];
/// Ours of both bridge networks.
const OUR_PLUGINS: &str = "bridge,host-local,multus-ipam";
/// The directory of a socket without answers.
const HANGING: &str = "/run/bench-hanging";
/// Pods of each kind on a node, and so the most concurrent calls.
pub(crate) const PODS: u32 = 64;
/// The mount point of a file system for the node's state: a sparse image, with more inodes than a run frees.
const STATE_MOUNT: &str = "/var/lib/cni";
const STATE_BYTES: u64 = 1 << 30;
const STATE_INODES: &str = "131072";
const API_PORT: u16 = 6443;

pub(crate) struct Side {
    pub(crate) column: Column,
    node: Node,
    programs: Programs,
    /// The directory of the reference's plugins.
    reference: PathBuf,
    daemon: Option<(Service, Account)>,
    /// Makes container IDs unique.
    batches: u32,
}

/// The networks of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// This number of networks with the plugin that answers immediately.
    Instant(u32),
    /// One bridge network.
    Bridge,
    /// The same with our plugin `multus-ipam`.
    SharedBridge,
}

/// The containers of a batch of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Containers {
    batch: u32,
    network: Network,
    count: u32,
}

impl Side {
    /// Starts a node with its API server, without a daemon.
    pub(crate) fn new(
        env: &TestEnv,
        network: &NodeNetwork,
        column: Column,
        programs: Programs,
        plugin: &Path,
    ) -> anyhow::Result<Self> {
        let node = Node::start(env, network, 1 + column as u8, &[&env.bin])?;
        if let Err(error) = mount_state(&node) {
            say(&format!(
                "{}: the state is on the machine's own file system, whose recent activity affects the measurements: {error:#}",
                node.name
            ));
        }
        let pki = Pki::new(node.dir.join("pki"), "IP:127.0.0.1")?;
        api_server::start(&node, API_PORT, &pki)?;
        node.run(&["mkdir", "-p", BIN_DIR])?;
        let place = format!("{BIN_DIR}/{PLUGIN}");
        node.write(&place, b"")?;
        fs::copy(plugin, node.path(&place))?;
        let default_network =
            json!({"cniVersion": "1.0.0", "name": "primary", "plugins": [{"type": PLUGIN}]});
        node.write(PRIMARY, default_network.to_string())?;
        node.write(BRIDGE, list(&bridge()).to_string())?;
        node.write(SHARED_BRIDGE, list(&shared_bridge()).to_string())?;
        daemon::write_account_with(&node, &pki, "bench")?;
        for index in 0..PODS {
            node.run(&["ip", "netns", "add", &netns(index)])?;
        }
        let side = Self {
            column,
            node,
            programs,
            reference: env.plugins.clone(),
            daemon: None,
            batches: 0,
        };
        side.use_reference()?;
        Ok(side)
    }

    /// Puts the reference's plugins of the bridge network in the place of others.
    pub(crate) fn use_reference(&self) -> anyhow::Result<()> {
        for name in BRIDGE_PLUGINS {
            let place = self.node.path(&format!("{BIN_DIR}/{name}"));
            // A copy onto a link would replace what the link leads to.
            if fs::symlink_metadata(&place).is_ok() {
                fs::remove_file(&place)?;
            }
            fs::copy(self.reference.join(name), &place)
                .with_context(|| format!("cannot put {name} on {}", self.node.name))?;
        }
        Ok(())
    }

    /// Puts plugins of ours in the place of the reference's; `program` is all of them.
    pub(crate) fn use_ours(&self, program: &Path) -> anyhow::Result<()> {
        sh::run(
            Command::new(program)
                .arg("install")
                .arg(self.node.path(BIN_DIR))
                .args(["--replace", "--only", OUR_PLUGINS]),
        )?;
        Ok(())
    }

    /// Starts the daemon with the API server of the node's pods, and waits until it is ready.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        sh::until(60, "the daemon is ready", || self.config(&json!({})))?;
        // The daemon may write its configuration before it listens.
        let batch = self.batch(1, Network::Instant(1));
        sh::until(60, "the daemon attaches a pod", || {
            self.verb("ADD", batch, 1)
        })?;
        self.verb("DEL", batch, 1).map(drop)
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        let file = json!({
            "cniVersion": "1.0.0", "multusConfigFile": "auto", "multusAutoconfigDir": CONF_DIR, "cniConfigDir": CONF_DIR,
            "binDir": BIN_DIR, "socketDir": "/run/multus/", "logLevel": "error", "logToStderr": true,
            "ipam": true,
        });
        let node = &self.node;
        node.write(DAEMON_CONFIG, file.to_string())?;
        // One implementation keeps this file when it ends, the other does not.
        let _ = fs::remove_file(node.path(GENERATED));
        let (program, account) = (&self.programs.daemon, Access::Account(API_PORT));
        let daemon = daemon::launch(node, "daemon", program, account, |command| {
            command.args(["-config", DAEMON_CONFIG])
        })?;
        let account = Account::of(&node.name, node.machine_pid(&daemon)?)?;
        self.daemon = Some((daemon, account));
        Ok(())
    }

    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        match self.daemon.take() {
            Some((daemon, _account)) => self.node.end(&daemon, "TERM"),
            None => Ok(()),
        }
    }

    /// Returns the CPU seconds of the daemon and of all its children so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        self.account()?.seconds()
    }

    /// Returns the present memory of the daemon in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        self.account()?.sum(usage::resident)
    }

    fn account(&self) -> anyhow::Result<&Account> {
        let (_, account) = self.daemon.as_ref().context("no daemon runs")?;
        Ok(account)
    }

    /// Returns new containers.
    pub(crate) fn batch(&mut self, count: u32, network: Network) -> Containers {
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
            Network::SharedBridge => json!({"clusterNetwork": SHARED_BRIDGE}),
        };
        let config = self.config(&keys)?.to_string();
        self.run(&self.programs.shim, verb, &config, containers, concurrency)
    }

    /// Calls the plugin itself once with a verb for each of the containers.
    pub(crate) fn direct(&self, verb: &str, containers: Containers) -> anyhow::Result<Times> {
        let (program, config) = match containers.network {
            Network::Instant(_) => (
                PLUGIN,
                json!({"cniVersion": "1.0.0", "name": "primary", "type": PLUGIN}),
            ),
            Network::Bridge => ("bridge", bridge()),
            Network::SharedBridge => ("bridge", shared_bridge()),
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

    /// Returns the memory of the shim in bytes while it waits for a silent daemon.
    pub(crate) fn shim_memory(&mut self, count: u32) -> anyhow::Result<Vec<u64>> {
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
            group: None,
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
            group: None,
        };
        let (verb, node) = (verb.to_owned(), &self.node);
        batch.run(node).context(verb)
    }

    /// Returns the configuration that a runtime hands to the shim, with further keys.
    fn config(&self, keys: &Value) -> anyhow::Result<Value> {
        let bytes = fs::read(self.node.path(GENERATED))
            .with_context(|| format!("cannot read {GENERATED}"))?;
        let mut config: Value =
            serde_json::from_slice(&bytes).with_context(|| format!("{GENERATED} is not JSON"))?;
        for (key, value) in keys.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Ok(config)
    }

    /// Returns the path of the daemon's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.node.log("daemon")
    }
}

/// Mounts a file system of the node's own for state, results and leases. To create a file, ext4 skips every inode of the directory's group
/// that was freed in the last minutes, so on the machine's file system an earlier build would slow the daemon down. Writes still wait for
/// the same disk. The mount is in the node's mount namespace, and ends with it.
fn mount_state(node: &Node) -> anyhow::Result<()> {
    let image = node.dir.join("state.img");
    File::create(&image)?.set_len(STATE_BYTES)?;
    let image = image.to_str().context("the path is no text")?;
    let options = ["-q", "-F", "-N", STATE_INODES, "-E", "lazy_itable_init=0"];
    node.run(&[&["mkfs.ext4"][..], &options, &[image]].concat())?;
    node.run(&["mkdir", "-p", STATE_MOUNT])?;
    node.run(&["mount", "-o", "loop", image, STATE_MOUNT])?;
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
        Network::Bridge | Network::SharedBridge => 1,
    };
    let one = |index: u32| {
        let pod = index % PODS;
        let sandbox = Sandbox {
            namespace: "default".to_owned(),
            name: pods::name(pod, networks),
            uid: pods::uid(pod, networks),
            id: format!("bench{batch:06}{index:06}"),
            netns_name: netns(pod),
        };
        let path = "/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        let mut env: BTreeMap<_, _> = sandbox.env(verb).into_iter().collect();
        env.insert("PATH".to_owned(), path);
        Call {
            args: Vec::new(),
            env,
            stdin: config.to_owned(),
        }
    };
    (0..count).map(one).collect()
}

fn netns(index: u32) -> String {
    format!("bench-{index}")
}

/// Returns the configuration of the bridge plugin.
fn bridge() -> Value {
    json!({"cniVersion": "1.0.0", "name": "bench", "type": "bridge", "bridge": "bench0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.30.0.0/16"}]]}})
}

fn shared_bridge() -> Value {
    json!({"cniVersion": "1.0.0", "name": "shared", "type": "bridge", "bridge": "bench1", "isGateway": true,
        "ipam": {"type": "multus-ipam", "subnet": "10.40.0.0/16", "gateway": "10.40.0.1"}})
}

/// Returns a network configuration list with this one plugin.
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
    fn container_ids_are_unique_and_pods_repeat() {
        let containers = Containers {
            batch: 3,
            network: Network::Instant(3),
            count: PODS + 1,
        };
        let calls = calls("ADD", "{}", containers);
        let of = |index: u32, name: &str| calls[index as usize].env[name].clone();
        assert_ne!(of(0, "CNI_CONTAINERID"), of(PODS, "CNI_CONTAINERID"));
        assert_eq!(of(0, "CNI_NETNS"), of(PODS, "CNI_NETNS"));
        assert!(of(1, "CNI_ARGS").contains("K8S_POD_NAME=pod-3-1;"));
    }

    #[test]
    fn list_has_version_and_name_of_its_plugin() {
        let list = list(&bridge());
        assert_eq!(
            (&list["cniVersion"], &list["name"]),
            (&json!("1.0.0"), &json!("bench"))
        );
        assert_eq!(list["plugins"][0]["type"], "bridge");
        assert!(list["plugins"][0]["name"].is_null());
    }
}
