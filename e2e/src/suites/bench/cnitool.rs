//! ADDs by `cnitool`, CNI's own small runtime, whose CPU time is counted wherever it is spent: in `cnitool` and what it starts, in the
//! daemon's pod, and in the runtime's control group, in which our daemon starts plugins. The plugins themselves have a group of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{
    driver::{Batch, Call},
    usage::{self, Account},
};
use crate::{cluster::Member, node::Node, sh, test_env::TestEnv};

const BIN_DIR: &str = "/opt/cni/bin";
const CONF_DIR: &str = "/etc/cni/net.d";
/// Where `host-local` records addresses.
const ADDRESSES: &str = "/var/lib/cni/networks";
/// Units of times in `/proc/PID/stat` per second.
const TICKS: f64 = 100.0;
/// How often each pod is added and deleted.
const PASSES: u32 = 4;

pub(super) struct Cnitool {
    program: PathBuf,
    /// `cnitool` and what it starts.
    caller: Account,
    /// The runtime, and what our daemon starts there.
    runtime: Account,
    /// The runtime's process ID in its node.
    runtime_pid: String,
}

/// Mean CPU seconds of an ADD, without those of plugins.
pub(super) struct Used {
    pub(super) all: f64,
    /// Those of the daemon's pod.
    pub(super) daemon: f64,
}

impl Cnitool {
    /// Gives the runtime of a node a control group of its own.
    pub(super) fn new(env: &TestEnv, member: &Member) -> anyhow::Result<Self> {
        let runtime = Account::empty("runtime")?;
        // Its process ID is that of the node's namespace.
        let pid = member.runtime.containerd.pid.to_string();
        let processes = runtime.group().join("cgroup.procs");
        let mut enter = member.node.command("sh");
        enter
            .args(["-c", "echo \"$0\" >\"$1\"", &pid])
            .arg(processes);
        sh::run(&mut enter).context("the runtime's control group")?;
        Ok(Self {
            program: env.bin.join("cnitool"),
            caller: Account::empty("cnitool")?,
            runtime,
            runtime_pid: pid,
        })
    }

    pub(super) fn runtime_seconds(&self) -> anyhow::Result<f64> {
        self.runtime.seconds()
    }

    /// Returns the CPU seconds of the runtime's own process.
    fn runtime_alone(&self, node: &Node) -> anyhow::Result<f64> {
        let stat = node.run(&["cat", &format!("/proc/{}/stat", self.runtime_pid)])?;
        // The second field, a name in parentheses, may have spaces.
        let (_, fields) = stat.rsplit_once(')').context("a stat has a name")?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut ticks = || -> anyhow::Result<u32> {
            Ok(fields.next().context("a stat has 52 fields")?.parse()?)
        };
        Ok(f64::from(ticks()? + ticks()?) / TICKS)
    }

    /// Adds and deletes pods of the namespace `default`, one after the other.
    pub(super) fn measure(
        &self,
        node: &Node,
        daemon: Option<&Path>,
        pods: &[String],
    ) -> anyhow::Result<Used> {
        let network = network(node)?;
        let read = || -> anyhow::Result<[f64; 2]> {
            let daemon = daemon.map_or(Ok(0.0), usage::seconds)?;
            // The runtime's own process works for the kubelet meanwhile, which is not a part of an ADD by `cnitool`.
            let started = self.runtime.seconds()? - self.runtime_alone(node)?;
            Ok([self.caller.seconds()? + started + daemon, daemon])
        };
        let since = |[all, daemon]: [f64; 2]| -> anyhow::Result<[f64; 2]> {
            let now = read()?;
            Ok([now[0] - all, now[1] - daemon])
        };
        let (mut used, mut wall) = ([0.0; 2], 0.0);
        for pass in 0..PASSES {
            // `cnitool` makes the container's ID of this path.
            let netns = |pod: &String| format!("{pod}-{pass}");
            for pod in pods {
                node.run(&["ip", "netns", "add", &netns(pod)])?;
            }
            let batch = |verb: &str| {
                let calls = pods
                    .iter()
                    .map(|pod| call(verb, &network, pod, &netns(pod)));
                self.batch(calls.collect())
            };
            let before = read()?;
            wall += batch("add").run(node)?.seconds;
            let more = since(before)?;
            used = [used[0] + more[0], used[1] + more[1]];
            batch("del").run(node)?;
            for pod in pods {
                node.run(&["ip", "netns", "delete", &netns(pod)])?;
            }
        }
        release_addresses(node, "cnitool-")?;
        // The same groups use some CPU without an ADD, which does not count.
        let before = read()?;
        thread::sleep(Duration::from_secs_f64(wall));
        let idle = since(before)?;
        #[expect(clippy::cast_precision_loss, reason = "there are dozens")]
        let count = pods.len() as f64 * f64::from(PASSES);
        Ok(Used {
            all: (used[0] - idle[0]) / count,
            daemon: (used[1] - idle[1]) / count,
        })
    }

    fn batch(&self, calls: Vec<Call>) -> Batch {
        Batch {
            program: self.program.display().to_string(),
            concurrency: 1,
            hang_on: None,
            group: Some(self.caller.group().to_owned()),
            calls,
        }
    }
}

fn call(verb: &str, network: &str, pod: &str, netns: &str) -> Call {
    let pod = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
    let netns = format!("/run/netns/{netns}");
    Call {
        args: [verb, network, &netns].map(ToOwned::to_owned).into(),
        env: [
            ("CNI_ARGS", pod.as_str()),
            ("CNI_PATH", BIN_DIR),
            ("NETCONFPATH", CONF_DIR),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        stdin: String::new(),
    }
}

/// Releases the addresses of containers that are gone, those whose IDs begin so: upstream's DEL calls `bridge` without the ranges of its
/// network, and ignores its error.
pub(super) fn release_addresses(node: &Node, ids: &str) -> anyhow::Result<()> {
    for network in node.list(ADDRESSES)? {
        let directory = format!("{ADDRESSES}/{network}");
        for name in node.list(&directory)? {
            let path = node.path(&format!("{directory}/{name}"));
            let is_record = name.starts_with(|first: char| first.is_ascii_digit());
            if is_record && fs::read(&path)?.starts_with(ids.as_bytes()) {
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// Returns the name of the network that the runtime takes: that of the first file.
fn network(node: &Node) -> anyhow::Result<String> {
    let mut names = node.list(CONF_DIR)?;
    names.retain(|name| name.contains(".conf"));
    names.sort();
    let name = names.first().context("the node has no network")?;
    let path = node.path(&format!("{CONF_DIR}/{name}"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let config: Value = serde_json::from_str(&text).with_context(|| name.clone())?;
    let name = config["name"].as_str().unwrap_or_default();
    ensure!(
        !name.is_empty(),
        "the network of {} has no name",
        path.display()
    );
    Ok(name.to_owned())
}
