//! Suite `cri`: both versions of containerd, with an empty store and without a registry, import the archive as an agent does, run the
//! daemon from it, and attach sandboxes.
//!
//! The test plays the kubelet, as a CRI client. Pods are objects of a real API server.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::{
    control_plane::{Components, ControlPlane, objects},
    daemon::STATE_DIR,
    node::{
        Node,
        cri::{self, Client, ContainerConfig, KeyValue, Mount, PodSandboxConfig},
        inspect::{addresses, nothing_left},
        layout::{ContainerdVersion, Layout},
        network::NodeNetwork,
        runtime::{NodePlugins, Runtime},
    },
    programs::{Module, Needs},
    report::{Checked, Report},
    sh::{self, words},
    test_env::{TestEnv, arch},
};

pub(crate) const NEEDS: Needs = Needs {
    debian: "busybox containerd dnsmasq etcd ip iptables macvlan openssl runc skopeo sysctl umoci",
    modules: &[Module::Plugins, Module::Containerd, Module::Kubernetes],
};

const DAEMON_CONFIG: &str = "/var/lib/multus/e2e-daemon-config.json";
const KUBECONFIG: &str = "/var/lib/multus/e2e-kubeconfig";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    for (containerd_version, layout) in [
        (ContainerdVersion::V1, Layout::K3s),
        (ContainerdVersion::V2, Layout::Kubeadm),
    ] {
        let of = |what: &str| format!("containerd {containerd_version}, {layout:?} layout: {what}");
        let mut fixture = report
            .check(&of("a node with an empty store and no registry"), || {
                CriFixture::new(env, layout, containerd_version)
            })?;
        report.check(&of("the complete archive is imported"), || {
            fixture.import(env)
        })?;
        report.check(
            &of("the daemon of the image discovers the directories and becomes ready"),
            || fixture.start_daemon(&json!({})),
        )?;
        report.check(&of("a sandbox gets its default network"), || {
            fixture.attach("plain", None, &["eth0"])
        })?;
        report.check(&of("a sandbox gets a second network"), || {
            fixture.attach("second", Some("storage"), &["eth0", "net1"])
        })?;
        report.check(&of("plugins run in the node's mount namespace"), || {
            let namespaces = fixture.probe("runtime")?;
            ensure!(
                !namespaces.is_daemons && namespaces.is_nodes,
                "{namespaces:?}"
            );
            Ok(())
        })?;
        report.check(&of("both DELs leave nothing"), || {
            fixture.delete_sandboxes()
        })?;
        report.check(
            &of("with chrootDir plugins run in the daemon's mount namespace"),
            || {
                fixture.start_daemon(&json!({"chrootDir": "/hostroot"}))?;
                fixture.attach("chrooted", Some("storage"), &["eth0", "net1"])?;
                let namespaces = fixture.probe("chroot")?;
                ensure!(
                    namespaces.is_daemons && !namespaces.is_nodes,
                    "{namespaces:?}"
                );
                fixture.delete_sandboxes()
            },
        )?;
    }
    Ok(())
}

/// A plugin that records its mount namespace and that of the daemon, which is the parent of the process that started the plugin.
const PROBE: &str = "e2e-probe";
const PROBE_SAW: &str = "/var/lib/multus/e2e-probe";
const PROBE_SCRIPT: &str = "#!/bin/sh\n\
    [ \"$CNI_COMMAND\" = ADD ] && read -r stat </proc/$PPID/stat && set -- ${stat##*) } \\\n\
    && readlink /proc/self/ns/mnt /proc/$2/ns/mnt >/var/lib/multus/e2e-probe\n\
    echo '{\"cniVersion\":\"1.0.0\"}'\n";

/// Whether a plugin ran in the mount namespace of the daemon, and in that of the node.
#[derive(Debug)]
struct PluginNamespaces {
    is_daemons: bool,
    is_nodes: bool,
}

/// One node with a runtime and an API server.
struct CriFixture {
    /// The sandbox of the daemon.
    daemon: Option<String>,
    sandboxes: Vec<String>,
    runtime: Runtime,
    client: Client,
    control: ControlPlane,
    node: Node,
    reference: String,
    _network: NodeNetwork,
}

impl CriFixture {
    fn new(
        env: &TestEnv,
        layout: Layout,
        containerd_version: ContainerdVersion,
    ) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        let control = ControlPlane::start(&node, Components::ApiServer)?;
        let probe = objects::network(PROBE, &json!({"cniVersion": "1.0.0", "type": PROBE}));
        objects::definitions(env, &control, &node, &[objects::storage(), probe])?;
        let runtime = Runtime::start(
            env,
            &node,
            (layout, containerd_version),
            NodePlugins::Reference,
        )?;
        let client = Client::connect(node.path(&runtime.paths.socket))?;
        let release: Value = serde_json::from_slice(&env.read("release.json")?)?;
        let reference = release["images"][0]["reference"]
            .as_str()
            .context("release.json names no image")?;
        let probe = node.path(&format!("{}/{PROBE}", runtime.paths.bin_dir));
        fs::write(&probe, PROBE_SCRIPT)?;
        fs::set_permissions(probe, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            daemon: None,
            sandboxes: Vec::new(),
            runtime,
            client,
            control,
            node,
            reference: reference.to_owned(),
            _network: network,
        })
    }

    fn import(&self, env: &TestEnv) -> anyhow::Result<()> {
        let ctr = |args: &[&str]| sh::run(self.runtime.ctr(&self.node).args(args));
        let before = ctr(&["images", "list", "--quiet"])?;
        ensure!(
            !before.contains(&self.reference),
            "the store was not empty: {before}"
        );
        self.runtime.import(&self.node, &env.image_archive())?;
        let lists = String::from_utf8(env.read(&format!(
            "airgap/multus-images-digests.linux-{}.txt",
            arch()
        ))?)?;
        for image in lists.lines() {
            let (name, digest) = image.split_once('@').context("a list names digests")?;
            let found = ctr(&["images", "list", &format!("name=={name}")])?;
            ensure!(found.contains(digest), "{image} was not imported: {found}");
        }
        // All blobs are there, and the layers unpack.
        let check = ctr(&["images", "check", &format!("name=={}", self.reference)])?;
        ensure!(check.contains("complete"), "{check}");
        Ok(())
    }

    /// Starts the daemon with these configuration keys, after ending the former one.
    fn start_daemon(&mut self, more: &Value) -> anyhow::Result<()> {
        if let Some(former) = self.daemon.take() {
            self.client.stop(&former)?;
            self.client.remove(&former)?;
        }
        let mut file = json!({"logLevel": "debug"});
        for (key, value) in more.as_object().into_iter().flatten() {
            file[key] = value.clone();
        }
        self.node.write(DAEMON_CONFIG, file.to_string())?;
        let kubeconfig = std::fs::read_to_string(self.control.admin())?;
        self.node.write(KUBECONFIG, inline(&kubeconfig)?)?;
        let pod = self.pod("multus", None)?.on_node();
        let uid = pod
            .metadata
            .as_ref()
            .map(|metadata| metadata.uid.clone())
            .unwrap_or_default();
        let sandbox = self.client.run(&pod)?;
        self.daemon = Some(sandbox.clone());
        let text = |name: &str| {
            Some(cri::Text {
                name: name.to_owned(),
            })
        };
        let variable = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let config = ContainerConfig {
            metadata: text("multus"),
            image: text(&self.reference),
            args: ["run", "--config", &format!("/hostroot{DAEMON_CONFIG}")]
                .map(str::to_owned)
                .to_vec(),
            envs: vec![
                variable("MULTUS_NODE_NAME", &self.node.name),
                variable("POD_UID", &uid),
                variable("KUBECONFIG", &format!("/hostroot{KUBECONFIG}")),
            ],
            mounts: vec![Mount {
                container: "/hostroot".to_owned(),
                host: "/".to_owned(),
                propagation: cri::HOST_TO_CONTAINER,
            }],
            linux: Some(cri::ContainerLinux {
                security: Some(cri::ContainerSecurity {
                    privileged: true,
                    namespaces: Some(cri::node_namespaces()),
                }),
            }),
        };
        let container = self.client.container(&sandbox, &pod, config)?;
        let program = "/usr/src/multus-cni/bin/multus-daemon";
        sh::until(60, "the daemon is ready", || {
            let mut status = self.runtime.ctr(&self.node);
            status.args(words!(
                "task exec --exec-id ready {container} {program} status --ready"
            ));
            sh::run(status.args(["--config", &format!("/hostroot{DAEMON_CONFIG}")]))
        })?;
        for file in self.runtime.paths.multus_files() {
            ensure!(
                self.node.path(&file).exists(),
                "ready, but there is no {file}"
            );
        }
        Ok(())
    }

    /// Runs a sandbox; fails unless it has exactly these interfaces, and the network status says so.
    fn attach(
        &mut self,
        name: &str,
        networks: Option<&str>,
        interfaces: &[&str],
    ) -> anyhow::Result<()> {
        let pod = self.pod(name, networks)?;
        let sandbox = self.client.run(&pod)?;
        let process = self.client.process(&sandbox)?;
        let target = format!("--target={process}");
        let inside = self
            .node
            .run(&["nsenter", &target, "--net", "ip", "-o", "address"])?;
        let inside = addresses(&inside);
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(names == interfaces, "the sandbox has {inside:?}");
        ensure!(
            self.node.path(&format!("{STATE_DIR}/{sandbox}")).exists(),
            "no state of {sandbox}"
        );
        objects::ensure_status(&self.control.get(&self.node, &["pod", name])?, &inside)?;
        self.sandboxes.push(sandbox);
        Ok(())
    }

    /// Attaches a pod to the network of the probe, and returns where the plugin ran.
    fn probe(&mut self, name: &str) -> anyhow::Result<PluginNamespaces> {
        let pod = self.pod(name, Some(PROBE))?;
        self.sandboxes.push(self.client.run(&pod)?);
        let seen = fs::read_to_string(self.node.path(PROBE_SAW)).context(PROBE_SAW)?;
        let nodes = self.node.run(&["readlink", "/proc/1/ns/mnt"])?;
        let [own, daemons] = seen.lines().collect::<Vec<_>>()[..] else {
            bail!("the plugin recorded {seen}");
        };
        ensure!(own.starts_with("mnt:["), "the plugin recorded {seen}");
        Ok(PluginNamespaces {
            is_daemons: own == daemons,
            is_nodes: own == nodes.trim(),
        })
    }

    /// Stops and removes all sandboxes as a kubelet does. Stop runs the first DEL; stopping again, and remove, may run another one.
    fn delete_sandboxes(&mut self) -> anyhow::Result<()> {
        for sandbox in std::mem::take(&mut self.sandboxes) {
            self.client.stop(&sandbox)?;
            self.client.stop(&sandbox)?;
            self.client.remove(&sandbox)?;
        }
        nothing_left(&self.node)
    }

    /// Creates a pod, and returns the configuration of its sandbox.
    fn pod(&self, name: &str, networks: Option<&str>) -> anyhow::Result<PodSandboxConfig> {
        self.control
            .apply(&self.node, &[objects::pod(name, &self.node.name, networks)])?;
        let object = self.control.get(&self.node, &["pod", name])?;
        let uid = object["metadata"]["uid"].as_str();
        let uid = uid.context("a pod has a uid")?;
        Ok(PodSandboxConfig::for_pod("default", name, uid))
    }
}

/// Embeds the certificate in a kubeconfig, because the daemon's container has no other file.
fn inline(text: &str) -> anyhow::Result<String> {
    let mut config: Value = serde_json::from_str(text)?;
    let cluster = &mut config["clusters"][0]["cluster"];
    let path = cluster["certificate-authority"].take();
    let bytes = std::fs::read(path.as_str().context("a kubeconfig names its authority")?)?;
    *cluster = json!({"server": cluster["server"], "certificate-authority-data": base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD, bytes)});
    Ok(config.to_string())
}
