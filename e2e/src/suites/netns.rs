//! Suite `netns`: the built shim and daemon with real plugins in network namespaces, against a real API server, all of them without
//! the system calls that the oldest kernel does not have.
//!
//! The test is the runtime: it makes the namespaces and calls the shim as the specification says.

mod dhcp;
mod kubectl_plugin;
mod plug;

use std::path::Path;

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::{Components, objects},
    node::{
        Kernel, Service,
        inspect::{self, Addresses, addresses, nothing_left},
        layout,
    },
    report::{CheckFailed, Report},
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED, SingleNode},
    test_env::TestEnv,
};

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Result<(), CheckFailed> {
    let fixture = report.check("a node with an API server and real plugins", || {
        fixture(env)
    })?;
    report.check("its kernel is an old one", || {
        // openat2, refused for what it was given or not known at all.
        let probe = "syscall(437, -1, 0, 0, 0); print $!+0";
        let errno = fixture.node.run(&["perl", "-e", probe])?;
        ensure!(errno == "38", "openat2 ends with error {errno}");
        Ok(())
    })?;
    let mut daemon = report.check("the daemon becomes ready", || fixture.start_daemon(env))?;
    report.check("the shim answers VERSION and STATUS", || fixture.answers())?;
    report.check("a pod without annotation has its default network", || {
        fixture.attaches("plain", None, &["eth0"]).map(drop)
    })?;
    report.check("short form: a bridge with host-local addresses", || {
        fixture
            .attaches("short", Some("storage"), &["eth0", "net1"])
            .map(drop)
    })?;
    report.check(
        "JSON form: macvlan with chosen interface and static address",
        || {
            let asked = json!([
                {"name": "storage"},
                {"name": "wire", "interface": "wire0", "ips": ["10.77.1.9/24"]},
            ])
            .to_string();
            let inside = fixture.attaches("json", Some(&asked), &["eth0", "net1", "wire0"])?;
            ensure!(inside["wire0"] == ["10.77.1.9/24"], "{inside:?}");
            Ok(())
        },
    )?;
    report.check("CHECK tells a whole pod from a damaged one", || {
        fixture.checks()
    })?;
    report.check("GC takes what the runtime does not list", || {
        fixture.collects()
    })?;
    report.check(
        "DEL twice, the second without namespace, leaves nothing",
        || {
            for pod in ["plain", "short", "json"] {
                fixture.remove(pod)?;
            }
            nothing_left(&fixture.node)
        },
    )?;
    report.check(
        "a failing network takes the others along and keeps its code",
        || fixture.rolls_back(),
    )?;
    report.check(
        "an auxiliary chain: our passthru, then a plugin that tunes the pod",
        || fixture.chains(),
    )?;
    report.check("an absent network and an absent plugin are named", || {
        fixture.refuses("absent", "nowhere", &["absent", "nowhere"])?;
        fixture.refuses(
            "pluginless",
            "pluginless",
            &["pluginless", "e2e-no-such-plugin"],
        )
    })?;
    fixture.tells(env, report)?;
    report.check("DEL needs no API server, nor pod, nor definition", || {
        fixture.deletes_alone()
    })?;
    report.check("DEL without a daemon is kept and made up for", || {
        daemon = fixture.deletes_later(env, &daemon)?;
        Ok(())
    })?;
    daemon = fixture.networks_change(env, daemon, report)?;
    daemon = fixture.leases(env, daemon, report)?;
    report.check("state outlives a killed daemon", || {
        fixture.attaches("survivor", Some("storage"), &["eth0", "net1"])?;
        fixture.node.end(&daemon, "KILL")?;
        daemon = fixture.start_daemon(env)?;
        fixture.remove("survivor")?;
        nothing_left(&fixture.node)
    })?;
    report.check("the configuration stays when the daemon stops", || {
        fixture.node.end(&daemon, "TERM")?;
        ensure!(fixture.node.path(GENERATED).exists(), "{GENERATED} is gone");
        Ok(())
    })
}

fn fixture(env: &TestEnv) -> anyhow::Result<SingleNode> {
    let broken = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "absent0", "ipam": {"type": "static"}});
    let pluginless = json!({"cniVersion": "1.0.0", "type": "e2e-no-such-plugin"});
    let definitions = [
        objects::storage(),
        objects::wire(),
        objects::network("broken", &broken),
        objects::network("pluginless", &pluginless),
    ];
    // The daemon puts its own shim there.
    let shim = Path::new(BIN_DIR).join("multus-shim");
    let fixture = SingleNode::new(
        env,
        Kernel::Old,
        shim,
        &layout::primary("1.1.0", 1),
        &definitions,
    )?;
    fixture.node.write(
        DAEMON_CONFIG,
        json!({
            "cniConfigDir": CONF_DIR, "binDir": BIN_DIR, "logLevel": "debug",
            // There is none before a file lies in the directory of that name.
            "auxiliaryCNIChainName": "vendor",
            "dhcp": true, "dynamicNetworks": true,
        })
        .to_string(),
    )?;
    Ok(fixture)
}

impl SingleNode {
    fn start_daemon(&self, env: &TestEnv) -> anyhow::Result<Service> {
        let program = env.program("multus-daemon");
        let admin = self.control.admin();
        let daemon = self.node.serve("daemon", &program, |command| {
            command
                .env("MULTUS_NODE_NAME", &self.node.name)
                .env("KUBECONFIG", &admin)
                .args(["run", "--root", "/", "--config", DAEMON_CONFIG])
        })?;
        sh::until(60, "the daemon is ready", || {
            let mut status = self.node.command(&program);
            sh::run(status.args([
                "status",
                "--ready",
                "--root",
                "/",
                "--config",
                DAEMON_CONFIG,
            ]))
        })?;
        ensure!(
            self.node.path(GENERATED).exists(),
            "ready, but there is no {GENERATED}"
        );
        Ok(daemon)
    }

    fn answers(&self) -> anyhow::Result<()> {
        let version = self.shim(
            &[("CNI_COMMAND", "VERSION")],
            &json!({"cniVersion": "1.1.0"}),
        )?;
        ensure!(
            version["supportedVersions"].to_string().contains("1.1.0"),
            "{version}"
        );
        self.shim(
            &[("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)],
            &self.config()?,
        )?;
        Ok(())
    }

    /// Makes a pod, attaches it, and compares result, inside and status.
    fn attaches(
        &self,
        pod: &str,
        networks: Option<&str>,
        interfaces: &[&str],
    ) -> anyhow::Result<Addresses> {
        let result = self.add(pod, networks)?;
        let inside = addresses(
            &self
                .node
                .run(&["ip", "netns", "exec", pod, "ip", "-o", "address"])?,
        );
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(names == interfaces, "inside are {inside:?}");
        let given = result["ips"][0]["address"].as_str().unwrap_or_default();
        ensure!(
            inside["eth0"] == [given],
            "the result names {given}, inside are {inside:?}"
        );
        objects::status_tells(&self.control.get(&self.node, &["pod", pod])?, &inside)?;
        Ok(inside)
    }

    fn checks(&self) -> anyhow::Result<()> {
        let result = self.add("checked", Some("storage"))?;
        self.verb("CHECK", "checked", Some(&result))?;
        self.node.run(&[
            "ip", "netns", "exec", "checked", "ip", "link", "delete", "net1",
        ])?;
        match self.verb("CHECK", "checked", Some(&result)) {
            Ok(_) => bail!("CHECK found nothing wrong with a pod that has lost net1"),
            Err(error) => ensure!(error.to_string().contains("storage"), "{error:#}"),
        }
        self.remove("checked")
    }

    fn collects(&self) -> anyhow::Result<()> {
        self.add("forgotten", Some("storage"))?;
        let mut config = self.config()?;
        let valid: Vec<_> = ["plain", "short", "json"]
            .iter()
            .map(|pod| Ok(json!({"containerID": self.container(pod)?, "ifname": "eth0"})))
            .collect::<anyhow::Result<_>>()?;
        config["cni.dev/valid-attachments"] = Value::from(valid);
        let before = inspect::leftovers(&self.node)?;
        let id = self.container("forgotten")?;
        ensure!(
            before.iter().any(|path| path.contains(&id)),
            "no state of {id}: {before:?}"
        );
        self.shim(&[("CNI_COMMAND", "GC"), ("CNI_PATH", BIN_DIR)], &config)?;
        let after = inspect::leftovers(&self.node)?;
        ensure!(
            !after.iter().any(|path| path.contains(&id)),
            "left: {after:?}"
        );
        let inside = self
            .node
            .run(&["ip", "netns", "exec", "short", "ip", "-o", "address"])?;
        ensure!(
            addresses(&inside).contains_key("net1"),
            "GC took from a listed pod: {inside}"
        );
        self.node
            .run(&["ip", "netns", "delete", "forgotten"])
            .map(drop)
    }

    fn rolls_back(&self) -> anyhow::Result<()> {
        self.refuses(
            "half",
            "storage,broken",
            &["half", "broken", "macvlan", "\"code\":999"],
        )?;
        nothing_left(&self.node)
    }

    /// The chain begins with a plugin of ours, which the next one needs: it takes nothing but a previous result.
    fn chains(&self) -> anyhow::Result<()> {
        let (file, setting) = (
            format!("{CONF_DIR}/vendor/10-tuning.conf"),
            "net.core.somaxconn",
        );
        let tuning = json!({"type": "tuning", "sysctl": {setting: "777"}});
        self.node.write(&file, tuning.to_string())?;
        self.add("tuned", Some("storage"))?;
        let inside = |words: &[&str]| {
            let enter = ["ip", "netns", "exec", "tuned"];
            self.node.run(&[&enter[..], words].concat())
        };
        let names: Vec<_> = addresses(&inside(&["ip", "-o", "address"])?)
            .into_keys()
            .collect();
        ensure!(names == ["eth0", "net1"], "inside are {names:?}");
        let value = inside(&["sysctl", "--values", setting])?;
        ensure!(value.trim() == "777", "{setting} is {value}");
        let id = self.container("tuned")?;
        let state = std::fs::read(self.node.path(&format!("/var/lib/cni/multus/{id}")))?;
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
        self.remove("tuned")?;
        nothing_left(&self.node)?;
        Ok(std::fs::remove_file(self.node.path(&file))?)
    }

    /// ADD fails with an error that names these; a runtime then calls DEL once.
    fn refuses(&self, pod: &str, networks: &str, named: &[&str]) -> anyhow::Result<()> {
        let Err(error) = self.add(pod, Some(networks)) else {
            bail!("ADD succeeded");
        };
        let text = error.to_string();
        for word in named {
            ensure!(
                text.contains(word),
                "the error does not name {word}: {text}"
            );
        }
        self.remove(pod)?;
        nothing_left(&self.node)
    }

    fn deletes_alone(&self) -> anyhow::Result<()> {
        let passing = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br-passing",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.21.0.0/24"}]]}});
        self.control
            .apply(&self.node, &[objects::network("passing", &passing)])?;
        self.attaches("lonely", Some("passing"), &["eth0", "net1"])?;
        let id = self.container("lonely")?;
        self.control
            .kubectl(&self.node, &["delete", "pod", "lonely", "--force"])?;
        self.control
            .kubectl(&self.node, &["delete", "net-attach-def", "passing"])?;
        self.control.stop_server(&self.node)?;
        self.del(&id, "lonely")?;
        nothing_left(&self.node)?;
        self.control.start_server(&self.node, Components::ApiServer)
    }

    fn deletes_later(&self, env: &TestEnv, daemon: &Service) -> anyhow::Result<Service> {
        self.attaches("later", Some("storage"), &["eth0", "net1"])?;
        self.node.end(daemon, "KILL")?;
        let id = self.container("later")?;
        self.del(&id, "later")?;
        let pending = self.node.list("/var/lib/cni/multus/.multus-rs/pending")?;
        ensure!(!pending.is_empty(), "the deletion was not written down");
        let daemon = self.start_daemon(env)?;
        nothing_left(&self.node)?;
        self.control
            .kubectl(&self.node, &["delete", "pod", "later", "--force"])?;
        Ok(daemon)
    }
}
