//! Suite `netns`: the built shim and daemon with real plugins in network namespaces, against a real API server, all of them without
//! the system calls that the oldest supported kernel does not have.
//!
//! The test plays the runtime: it creates the namespaces and calls the shim as the specification says. CHECK, GC, rollback, errors, DEL
//! without API server or daemon, and restarts are cases of suite `rules`, which runs on the same kernel with `--old-kernel`.

mod dhcp;
mod hot_plug;
mod kubectl_plugin;
mod page;

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    control_plane::objects,
    daemon,
    node::{
        Kernel, Service,
        inspect::{Addresses, addresses, nothing_left},
        layout,
    },
    report::{Checked, Report},
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED, SingleNode},
    test_env::TestEnv,
};

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let fixture = report.check("a node with an API server and real plugins", || {
        NetnsFixture::new(env)
    })?;
    report.check("the node's programs see an old kernel", || {
        // openat2 fails with EBADF or EINVAL where the kernel knows it, and with ENOSYS (38) where it does not.
        let probe = "syscall(437, -1, 0, 0, 0); print $!+0";
        let errno = fixture.single_node.node.run(&["perl", "-e", probe])?;
        ensure!(errno == "38", "openat2 ends with error {errno}");
        Ok(())
    })?;
    let daemon = report.check("the daemon becomes ready", || fixture.start_daemon())?;
    report.check("a pod without annotation has its default network", || {
        fixture.attach("plain", None, &["eth0"]).map(drop)
    })?;
    report.check(
        "short form: a bridge network with host-local addresses",
        || {
            fixture
                .attach("short", Some("storage"), &["eth0", "net1"])
                .map(drop)
        },
    )?;
    report.check(
        "JSON form: a macvlan network with requested interface and static address",
        || {
            let networks = json!([
                {"name": "storage"},
                {"name": "wire", "interface": "wire0", "ips": ["10.77.1.9/24"]},
            ])
            .to_string();
            let inside = fixture.attach("json", Some(&networks), &["eth0", "net1", "wire0"])?;
            ensure!(inside["wire0"] == ["10.77.1.9/24"], "{inside:?}");
            Ok(())
        },
    )?;
    report.check(
        "DEL twice, the second without namespace, leaves nothing",
        || {
            for pod in ["plain", "short", "json"] {
                fixture.single_node.remove(pod)?;
            }
            nothing_left(&fixture.single_node.node)
        },
    )?;
    report.check(
        "an auxiliary chain: passthru, then the tuning plugin",
        || fixture.auxiliary_chain(),
    )?;
    fixture.kubectl_plugin(report)?;
    let daemon = fixture.hot_plug(daemon, report)?;
    let daemon = fixture.dhcp(&daemon, report)?;
    fixture.page(&daemon, report)
}

struct NetnsFixture<'a> {
    env: &'a TestEnv,
    single_node: SingleNode,
}

impl<'a> NetnsFixture<'a> {
    fn new(env: &'a TestEnv) -> anyhow::Result<Self> {
        let broken = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "absent0", "ipam": {"type": "static"}});
        let definitions = [
            objects::storage(),
            objects::wire(),
            objects::network("broken", &broken),
        ];
        // The daemon installs the shim there.
        let shim = Path::new(BIN_DIR).join("multus-shim");
        let single_node = SingleNode::new(
            env,
            Kernel::Old,
            shim,
            &layout::default_network("1.1.0", 1),
            &definitions,
        )?;
        single_node.node.write(
            DAEMON_CONFIG,
            json!({
                "cniConfigDir": CONF_DIR, "binDir": BIN_DIR, "logLevel": "debug",
                // Without a file in the directory of this name there is no auxiliary chain.
                "auxiliaryCNIChainName": "vendor",
                "dhcp": true, "dynamicNetworks": true,
            })
            .to_string(),
        )?;
        Ok(Self { env, single_node })
    }
}

impl NetnsFixture<'_> {
    fn start_daemon(&self) -> anyhow::Result<Service> {
        let SingleNode { control, node, .. } = &self.single_node;
        let daemon = daemon::start(self.env, node, &control.admin(), DAEMON_CONFIG, None)?;
        ensure!(
            node.path(GENERATED).exists(),
            "ready, but there is no {GENERATED}"
        );
        Ok(daemon)
    }

    /// Creates a pod and runs its ADD; checks that result, interfaces and network status agree.
    fn attach(
        &self,
        pod: &str,
        networks: Option<&str>,
        interfaces: &[&str],
    ) -> anyhow::Result<Addresses> {
        let node = &self.single_node.node.name;
        self.attach_pod(&objects::pod(pod, node, networks), interfaces)
    }

    /// The same for an object, which names the node.
    fn attach_pod(&self, pod: &Value, interfaces: &[&str]) -> anyhow::Result<Addresses> {
        let result = self.single_node.add_pod(pod)?;
        let pod = objects::name(pod)?;
        let inside = self.single_node.addresses_in(pod)?;
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(names == interfaces, "the pod has {inside:?}");
        let address = result["ips"][0]["address"].as_str().unwrap_or_default();
        ensure!(
            inside["eth0"] == [address],
            "the result has {address}, the pod {inside:?}"
        );
        objects::ensure_status(&self.single_node.get(&["pod", pod])?, &inside)?;
        Ok(inside)
    }

    /// The tuning plugin accepts no ADD without a previous result, so the daemon puts its passthru plugin in front.
    fn auxiliary_chain(&self) -> anyhow::Result<()> {
        let (file, setting) = (
            format!("{CONF_DIR}/vendor/10-tuning.conf"),
            "net.core.somaxconn",
        );
        let tuning = json!({"type": "tuning", "sysctl": {setting: "777"}});
        self.single_node.node.write(&file, tuning.to_string())?;
        self.single_node.add("tuned", Some("storage"))?;
        let inside = |args: &[&str]| {
            let enter = ["ip", "netns", "exec", "tuned"];
            self.single_node.node.run(&[&enter[..], args].concat())
        };
        let names: Vec<_> = addresses(&inside(&["ip", "-o", "address"])?)
            .into_keys()
            .collect();
        ensure!(names == ["eth0", "net1"], "the pod has {names:?}");
        let value = inside(&["sysctl", "--values", setting])?;
        ensure!(value.trim() == "777", "{setting} is {value}");
        let id = self.single_node.sandbox("tuned")?.id;
        let state = std::fs::read(
            self.single_node
                .node
                .path(&format!("/var/lib/cni/multus/{id}")),
        )?;
        let state: Value = serde_json::from_slice(&state)?;
        let types: Vec<_> = state[2]["ConfList"]["plugins"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|plugin| plugin["type"].clone())
            .collect();
        ensure!(
            types == ["passthru", "tuning"],
            "the third network is {}",
            state[2]
        );
        self.single_node.remove("tuned")?;
        nothing_left(&self.single_node.node)?;
        Ok(std::fs::remove_file(self.single_node.node.path(&file))?)
    }
}
