//! Suite `kubevirt`: the webhooks of `KubeVirt` take machines, and its controller plugs networks into running ones, unplugs them and moves
//! machines, on nodes with our release. A sleeping program is every guest, and a stub is virt-handler.

mod claims;
mod virt_handler;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use self::virt_handler::VirtHandler;
use super::cluster::ClusterFixture;
use crate::{
    cluster::Cluster,
    control_plane::{api_client::ApiClient, objects},
    node::{Node, inspect::nothing_left},
    pages::Reader,
    plumbing,
    programs::{Module, Needs, image::Image},
    report::{Checked, Report, say},
    sh::{self, words},
    test_env::{self, TestEnv},
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Containerd,
        Module::Helm,
        Module::Kubernetes,
        Module::Kubevirt,
    ],
};

/// The image of every launcher.
const LAUNCHER: &str = "e2e.invalid/virt-launcher:1";
/// The program that virt-controller starts in the image.
const MONITOR: &str = "/usr/bin/virt-launcher-monitor";
/// A script that sleeps until it gets SIGTERM.
const SLEEPING: &str = "#!/bin/sh\ntrap 'exit 0' TERM\nsleep 2147483647 &\nwait\n";
/// The namespace of virt-controller, and the name of its settings.
const KUBEVIRT: &str = "kubevirt";
/// A binding by a plugin, which is an element of the annotation without an interface.
const BINDING: &str = "by-plugin";
const BINDING_PLUGIN: &str = "passt-binding";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AUTHENTICATION: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The port of virt-api.
const WEBHOOKS: u16 = 8443;
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const MACHINE: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm";
const INSTANCE: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm";
const MIGRATIONS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
const LAUNCHERS: &str = "/api/v1/namespaces/default/pods?labelSelector=vm.kubevirt.io/name=vm";
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Seconds after which virt-controller moves a machine whose pod has not got the interface.
const PATIENCE: u64 = 15;
/// The page for people.
const PAGE: &str = "docs/vms.md";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let values = "dynamicNetworksController.enabled=true,ipam.enabled=true";
    let fixture = ClusterFixture::installed(env, values, claims::prepare, report)?;
    let cluster = &fixture.cluster;
    let handler = report.check("virt-handler has an account", || {
        let account = account(cluster, "handler")?;
        Ok(VirtHandler {
            cluster,
            api: ApiClient::named(cluster.server(), "virt-handler", &account)?,
            log: env.dir.join("log/virt-handler.log"),
        })
    })?;
    let suite = Suite {
        fixture: &fixture,
        cluster,
        handler: &handler,
    };
    report.check("virt-api takes machines", || suite.start_api(env))?;
    report.check("virt-controller is the leader", || {
        suite.start_controller(env)
    })?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| handler.run(&stop));
        let checked = suite.check(report);
        stop.store(true, Ordering::Relaxed);
        checked
    })
}

/// A network of the machine besides the one of its pod.
#[derive(Clone, Copy)]
struct Network<'a> {
    name: &'a str,
    definition: &'a str,
    is_absent: bool,
}

impl<'a> Network<'a> {
    const fn new(name: &'a str, definition: &'a str) -> Self {
        Self {
            name,
            definition,
            is_absent: false,
        }
    }

    fn absent(self) -> Self {
        Self {
            is_absent: true,
            ..self
        }
    }

    /// Returns the name that virt-controller gives its interface of the pod.
    fn interface(&self) -> String {
        let digest = test_env::sha256(self.name.as_bytes());
        format!("pod{}", &digest[..11])
    }
}

struct Suite<'a> {
    fixture: &'a ClusterFixture<'a>,
    cluster: &'a Cluster,
    handler: &'a VirtHandler<'a>,
}

impl Suite<'_> {
    fn check(&self, report: &mut Report) -> Checked {
        let (lan, wire) = (
            Network::new("office", "lan"),
            Network::new("street", "wire"),
        );
        report.check("a machine runs whose binding is a plugin", || {
            self.start_machine()
        })?;
        report.check("docs/vms.md: a network is plugged and unplugged", || {
            let reader = Reader::new(self.fixture.env, "kubevirt")?;
            self.fixture.follow(&reader, PAGE, "plug")?;
            self.ensure_plugged(Network::new("desk", "office"))?;
            self.ensure_ports("br-office", 1)?;
            self.fixture.follow(&reader, PAGE, "unplug")?;
            self.ensure_unplugged()?;
            self.ensure_ports("br-office", 0)?;
            reader.ensure_all_followed()
        })?;
        report.check("a bridge and a macvlan are plugged into it", || {
            self.plug(&[], lan)?;
            self.plug(&[lan], wire)?;
            self.ensure_ports("br-lan", 1)
        })?;
        report.check(
            "unplugged, they leave no link in the pod and none on the node, and can be plugged again",
            || {
                self.unplug(&[lan, wire])?;
                self.ensure_no_plumbing()?;
                self.ensure_ports("br-lan", 0)?;
                self.plug(&[], wire)?;
                self.unplug(&[wire])?;
                self.ensure_no_plumbing()
            },
        )?;
        report.check(
            "a definition that changes under the machine changes neither its pod nor what unplugging detaches",
            || self.change_definition(lan),
        )?;
        report.check(
            "another definition for a network moves the machine, and both pods have their networks meanwhile",
            || self.migrate(lan, Network::new("office", "yard")),
        )?;
        report.check("the machine is deleted, and nothing is left", || {
            self.cluster
                .kubectl(&["delete", "virtualmachine", "vm", "--timeout=90s"])?;
            self.nodes().try_for_each(nothing_left)
        })?;
        let Some(program) = env::var_os(claims::PROGRAM) else {
            say(&format!(
                "not run: claims of ipam-extensions, because {} names no program of it",
                claims::PROGRAM
            ));
            return Ok(());
        };
        self.claims(program.as_ref(), report)
    }

    /// Starts virt-api on the node of the control plane. No machine is made or changed without its webhooks.
    fn start_api(&self, env: &TestEnv) -> anyhow::Result<()> {
        let (cluster, node) = (self.cluster, self.cluster.server());
        let printed = sh::run(&mut node.command(env.kubevirt.join(KUBEVIRT)))?;
        let objects = printed.lines().map(serde_json::from_str);
        let objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
        let (webhooks, definitions): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|object| object["webhooks"].is_array());
        for definition in definitions {
            cluster.api.request("POST", DEFINITIONS, &definition)?;
        }
        cluster.kubectl(&words!(
            "wait --for=condition=Established crd --all --timeout=60s"
        ))?;
        cluster.kubectl(&["create", "namespace", KUBEVIRT])?;
        cluster.apply(&settings())?;
        // The operator writes that it has installed everything; without it virt-controller has no settings.
        let path =
            format!("/apis/kubevirt.io/v1/namespaces/{KUBEVIRT}/kubevirts/{KUBEVIRT}/status");
        let installed =
            json!({"status": {"phase": "Deployed", "defaultArchitecture": test_env::arch()}});
        cluster.api.request("PATCH", &path, &installed)?;
        // virt-api takes requests of the API server for others where this certificate says so, which has no part in webhooks.
        let pki = &cluster.control.pki;
        let authority = fs::read_to_string(pki.file("ca.crt"))?;
        let trusted = json!({"data": {"requestheader-client-ca-file": authority}});
        cluster.api.request("PATCH", AUTHENTICATION, &trusted)?;
        let (kubeconfig, address) = (account(cluster, "apiserver")?, node.address());
        pki.sign(
            "virt-api",
            "/CN=virt-api",
            &format!("subjectAltName=IP:{address}"),
        )?;
        node.serve("virt-api", env.kubevirt.join("virt-api"), |command| {
            command
                .arg(format!("--listen={address}"))
                .arg(format!("--port={WEBHOOKS}"))
                .arg("--kubeconfig")
                .arg(kubeconfig);
            for (option, end) in [
                ("tls-cert", "crt"),
                ("tls-key", "key"),
                ("handler-cert", "crt"),
                ("handler-key", "key"),
            ] {
                let file = pki.file(&format!("virt-api.{end}"));
                command.arg(format!("--{option}-file")).arg(file);
            }
            command
        })?;
        let authority = STANDARD.encode(authority);
        for mut configuration in webhooks {
            for webhook in configuration["webhooks"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                let path = webhook["clientConfig"]["service"]["path"].as_str();
                let path = path.context("a webhook has a path")?;
                let url = format!("https://{address}:{WEBHOOKS}{path}");
                webhook["clientConfig"] = json!({"url": url, "caBundle": authority});
            }
            cluster.apply(&[configuration])?;
        }
        let trial = format!("{MACHINES}?dryRun=All");
        sh::until(60, "virt-api takes a machine", || {
            let taken = cluster.api.request("POST", &trial, &machine(&[]));
            taken.map(drop)
        })?;
        let twice = machine(&[Network::new("default", "lan")]);
        let refused = cluster.api.request("POST", &trial, &twice);
        let refused = refused
            .err()
            .context("virt-api takes two networks of one name")?;
        let reason = format!("{refused:#}");
        ensure!(
            reason.contains("admission webhook"),
            "it is refused: {reason}"
        );
        Ok(())
    }

    /// Starts virt-controller there.
    fn start_controller(&self, env: &TestEnv) -> anyhow::Result<()> {
        let (cluster, node) = (self.cluster, self.cluster.server());
        for member in &cluster.members {
            let bin_dir = &member.runtime.paths.bin_dir;
            // The program has the name of its package, `cmd`.
            let plugin = member.node.path(&format!("{bin_dir}/{BINDING_PLUGIN}"));
            fs::copy(env.kubevirt.join("cmd"), plugin)?;
            member.runtime.import(&member.node, &launcher(env)?)?;
        }
        let kubeconfig = account(cluster, "controller")?;
        self.handler.prepare_nodes(&machine(&[]))?;
        node.serve(
            "virt-controller",
            env.kubevirt.join("virt-controller"),
            |command| {
                command
                    .arg("--kubeconfig")
                    .arg(kubeconfig)
                    .arg(format!("--launcher-image={LAUNCHER}"))
            },
        )?;
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{KUBEVIRT}/leases/virt-controller");
        sh::until(60, "virt-controller has its lease", || {
            let lease = cluster.api.get(&path)?;
            ensure!(
                lease["spec"]["holderIdentity"].is_string(),
                "the lease has no holder"
            );
            Ok(())
        })
    }

    fn start_machine(&self) -> anyhow::Result<()> {
        self.cluster.apply(&[machine(&[])])?;
        self.machine_runs()?;
        let pod = self.launcher()?;
        let node = plumbing::of(self.nodes(), &pod)?.node;
        let state = "/var/lib/cni/multus";
        let attached = node.run(&words!(
            "grep --recursive --files-with-matches {BINDING_PLUGIN} {state}"
        ));
        attached.context("the binding's plugin did not run")?;
        // An entry for it, of an interface `net1`, would make virt-controller count the names of the others.
        let interfaces = interfaces(&pod)?;
        ensure!(interfaces.len() == 1, "the status has {interfaces:?}");
        Ok(())
    }

    fn machine_runs(&self) -> anyhow::Result<()> {
        sh::until(90, "the machine runs", || {
            let phase = self.instance()?["status"]["phase"].clone();
            ensure!(phase == "Running", "it is {phase}");
            Ok(())
        })
        .with_context(|| self.events())
    }

    /// Adds a network to a machine that has these; prints how long the pod's annotation was ahead of its status.
    fn plug(&self, present: &[Network], added: Network) -> anyhow::Result<()> {
        self.set_networks(&[present, &[added]].concat())?;
        self.ensure_plugged(added)
    }

    /// Waits until a machine has a network that was just added to it.
    fn ensure_plugged(&self, added: Network) -> anyhow::Result<()> {
        let (pod, interface) = (self.launcher()?, added.interface());
        let name = objects::name(&pod)?;
        let planned = when(|| {
            let pod = self.cluster.pod(name)?;
            let request = pod["metadata"]["annotations"][NETWORKS].as_str();
            Ok(request.is_some_and(|text| text.contains(&interface)))
        });
        let planned = planned.context("virt-controller does not change the annotation")?;
        let attached = when(|| {
            let found = interfaces(&self.cluster.pod(name)?)?;
            Ok(found.contains(&(format!("default/{}", added.definition), interface.clone())))
        });
        let attached = attached.context("the interface is not in the network status")?;
        let milliseconds = attached.duration_since(planned).as_millis();
        say(&format!("        {}: {milliseconds} ms", added.definition));
        sh::until(PATIENCE, "the machine has the interface", || {
            self.ensure_not_to_be_moved()?;
            let source = self.source_of(added.name)?;
            ensure!(
                source == "domain, multus-status",
                "the interface is of {source:?}"
            );
            let pod = plumbing::of(self.nodes(), &self.cluster.pod(name)?)?;
            let renamed = format!("{}-nic", interface.trim_start_matches("pod"));
            let is_port =
                |(link, bridge): &(String, String)| *link == renamed && bridge.starts_with("k6t-");
            ensure!(
                pod.links()?.iter().any(is_port),
                "{renamed} is no port of the machine's bridge"
            );
            Ok(())
        })
    }

    /// Takes networks from the machine.
    fn unplug(&self, removed: &[Network]) -> anyhow::Result<()> {
        let absent: Vec<_> = removed.iter().map(|network| network.absent()).collect();
        self.set_networks(&absent)?;
        self.ensure_unplugged()
    }

    /// Waits until a machine has no network besides that of its pod.
    fn ensure_unplugged(&self) -> anyhow::Result<()> {
        sh::until(60, "the machine has lost the interfaces", || {
            self.ensure_not_to_be_moved()?;
            let networks = self.instance()?["spec"]["networks"].clone();
            ensure!(
                networks.as_array().is_some_and(|all| all.len() == 1),
                "it has {networks}"
            );
            let found = interfaces(&self.launcher()?)?;
            ensure!(found.len() == 1, "the status has {found:?}");
            Ok(())
        })
    }

    /// Fails while the machine's pod has a link with the name that `KubeVirt` gives an interface.
    fn ensure_no_plumbing(&self) -> anyhow::Result<()> {
        let links = plumbing::of(self.nodes(), &self.launcher()?)?.links()?;
        let left = links.iter().find(|(name, _)| name.ends_with("-nic"));
        ensure!(left.is_none(), "the pod has {left:?}");
        Ok(())
    }

    fn change_definition(&self, network: Network) -> anyhow::Result<()> {
        self.plug(&[], network)?;
        let before = self.launcher()?["metadata"]["annotations"].clone();
        self.cluster
            .apply(&[bridge(network.definition, "br-other")])?;
        let after = self.launcher()?["metadata"]["annotations"].clone();
        ensure!(before == after, "the pod has changed: {after}");
        self.unplug(&[network])?;
        self.ensure_ports("br-lan", 0)?;
        // Plugged again, the machine gets what the definition says now.
        self.plug(&[], network)?;
        self.ensure_ports("br-other", 1)
    }

    /// Changes the definition of a network, and moves the machine.
    fn migrate(&self, from: Network, to: Network) -> anyhow::Result<()> {
        let source = self.launcher()?;
        self.set_networks(&[to])?;
        sh::until(
            PATIENCE,
            "virt-controller wants to move the machine",
            || {
                ensure!(self.is_to_be_moved()?, "it does not");
                Ok(())
            },
        )?;
        self.move_machine("move")?;
        let target = self.launcher()?;
        let source = self.cluster.pod(objects::name(&source)?)?;
        for (pod, network) in [(&source, from), (&target, to)] {
            let expected = (
                format!("default/{}", network.definition),
                network.interface(),
            );
            let found = interfaces(pod)?;
            ensure!(
                found.contains(&expected),
                "instead of {expected:?} there is {found:?}"
            );
        }
        let nodes = [&source, &target].map(|pod| pod["spec"]["nodeName"].clone());
        ensure!(nodes[0] != nodes[1], "both pods are on {}", nodes[0]);
        let left = plumbing::of(self.nodes(), &source)?.node;
        self.handler.end_launcher(objects::name(&source)?)?;
        nothing_left(left)?;
        sh::until(PATIENCE, "the machine has its interface again", || {
            let source = self.source_of(to.name)?;
            ensure!(
                source == "domain, multus-status",
                "the interface is of {source:?}"
            );
            ensure!(!self.is_to_be_moved()?, "it is to be moved again");
            Ok(())
        })
    }

    /// Moves the machine to the other node.
    fn move_machine(&self, name: &str) -> anyhow::Result<()> {
        let migration = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"vmiName": "vm"},
        });
        self.cluster.apply(&[migration])?;
        sh::until(120, "the machine has moved", || {
            let path = format!("{MIGRATIONS}/{name}");
            let migration = self.cluster.api.get(&path)?;
            let phase = &migration["status"]["phase"];
            ensure!(phase == "Succeeded", "the migration is {phase}");
            Ok(())
        })
    }

    /// Fails unless a bridge has so many ports on the node of the machine's pod; without the bridge it has none.
    fn ensure_ports(&self, bridge: &str, count: usize) -> anyhow::Result<()> {
        let node = plumbing::of(self.nodes(), &self.launcher()?)?.node;
        let links: Value = serde_json::from_str(&node.run(&["ip", "-json", "link"])?)?;
        let links = links.as_array().into_iter().flatten();
        let ports = links.filter(|link| link["master"] == bridge).count();
        ensure!(
            ports == count,
            "{bridge} has {ports} ports instead of {count}"
        );
        Ok(())
    }

    /// Returns the events of all pods, which say why one does not start.
    fn events(&self) -> String {
        let list = ["get", "events", "--field-selector=involvedObject.kind=Pod"];
        self.cluster.kubectl(&list).unwrap_or_default()
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.cluster.members.iter().map(|member| &member.node)
    }

    fn set_networks(&self, networks: &[Network]) -> anyhow::Result<()> {
        let template = &machine(networks)["spec"]["template"];
        let interfaces = &template["spec"]["domain"]["devices"]["interfaces"];
        let change = json!({"spec": {"template": {"spec": {
            "networks": template["spec"]["networks"],
            "domain": {"devices": {"interfaces": interfaces}},
        }}}});
        self.cluster.api.request("PATCH", MACHINE, &change)?;
        Ok(())
    }

    fn instance(&self) -> anyhow::Result<Value> {
        self.cluster.api.get(INSTANCE)
    }

    /// Returns the pod in which the machine is.
    fn launcher(&self) -> anyhow::Result<Value> {
        let node = self.instance()?["status"]["nodeName"].clone();
        let pods = self.cluster.api.get(LAUNCHERS)?;
        let pods = pods["items"].as_array().context("it is a list")?;
        let pod = pods.iter().find(|pod| pod["spec"]["nodeName"] == node);
        pod.cloned().context("the machine has no pod")
    }

    /// Returns who reports an interface of the machine.
    fn source_of(&self, network: &str) -> anyhow::Result<String> {
        let instance = self.instance()?;
        let mut interfaces = instance["status"]["interfaces"]
            .as_array()
            .into_iter()
            .flatten();
        let interface = interfaces.find(|interface| interface["name"] == network);
        let interface = interface.context("the machine's status has no such interface")?;
        Ok(interface["infoSource"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    fn is_to_be_moved(&self) -> anyhow::Result<bool> {
        let instance = self.instance()?;
        let mut conditions = instance["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        Ok(conditions.any(|one| one["type"] == "MigrationRequired" && one["status"] == "True"))
    }

    fn ensure_not_to_be_moved(&self) -> anyhow::Result<()> {
        if self.is_to_be_moved()? {
            bail!("virt-controller wants to move the machine");
        }
        Ok(())
    }
}

/// Returns the instant at which a condition holds, which is checked without a pause.
fn when(mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<Instant> {
    let end = Instant::now() + Duration::from_secs(PATIENCE);
    while !holds()? {
        ensure!(Instant::now() < end, "not within {PATIENCE} s");
    }
    Ok(Instant::now())
}

/// Returns the definition and interface of each entry of a pod's network status.
fn interfaces(pod: &Value) -> anyhow::Result<Vec<(String, String)>> {
    let entries = objects::status(pod)?.into_iter();
    Ok(entries
        .map(|(name, interface, _)| (name, interface))
        .collect())
}

/// Writes a kubeconfig of one of `KubeVirt`'s service accounts, which its webhooks know by their names; they may do everything. Returns its
/// path.
fn account(cluster: &Cluster, name: &str) -> anyhow::Result<PathBuf> {
    let pki = &cluster.control.pki;
    let user = format!("system:serviceaccount:{KUBEVIRT}:kubevirt-{name}");
    let certificate = format!("kubevirt-{name}");
    let subject = format!("/O=system:masters/CN={user}");
    pki.sign(&certificate, &subject, "extendedKeyUsage=clientAuth")?;
    let server = format!("https://{}:6443", cluster.server().address());
    let path = pki.file(&format!("{certificate}.conf"));
    fs::write(&path, pki.client_kubeconfig(&server, &certificate))?;
    Ok(path)
}

/// Builds the image of the launchers; returns its archive.
fn launcher(env: &TestEnv) -> anyhow::Result<PathBuf> {
    let program = env.dir.join("sleeping");
    fs::write(&program, SLEEPING)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let image = Image {
        name: "virt-launcher",
        references: &[LAUNCHER.to_owned()],
        programs: &[(program, MONITOR)],
        entrypoint: &[MONITOR],
        user: "",
    };
    image.archive(env)
}

/// Returns a definition of a bridge.
fn bridge(name: &str, link: &str) -> Value {
    let config = json!({"cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": link});
    objects::network(name, &config)
}

/// Returns the definitions, and the settings of virt-controller.
fn settings() -> Vec<Value> {
    let wire = json!({"cniVersion": "1.0.0", "name": "wire", "type": "macvlan", "master": "eth0"});
    let binding = json!({"cniVersion": "1.0.0", "name": BINDING, "type": BINDING_PLUGIN});
    let configuration = json!({
        "developerConfiguration": {"useEmulation": true, "featureGates": ["LiveUpdateNADRef"]},
        "network": {"binding": {BINDING: {"networkAttachmentDefinition": format!("default/{BINDING}")}}},
    });
    vec![
        bridge("lan", "br-lan"),
        bridge("yard", "br-yard"),
        objects::network("wire", &wire),
        objects::network(BINDING, &binding),
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": KUBEVIRT, "namespace": KUBEVIRT},
            "spec": {"imagePullPolicy": "Never", "configuration": configuration},
        }),
    ]
}

/// Returns the machine, with these networks besides the one of its pod.
fn machine(further: &[Network]) -> Value {
    let mut interfaces = vec![json!({"name": "default", "binding": {"name": BINDING}})];
    let mut networks = vec![json!({"name": "default", "pod": {}})];
    for network in further {
        let mut interface = json!({"name": network.name, "bridge": {}});
        if network.is_absent {
            interface["state"] = "absent".into();
        }
        interfaces.push(interface);
        networks.push(json!({"name": network.name, "multus": {"networkName": network.definition}}));
    }
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm", "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": "vm"}}, "spec": {
            "architecture": test_env::arch(),
            "terminationGracePeriodSeconds": 0,
            "networks": networks,
            "domain": {
                "cpu": {"model": "qemu64"},
                "machine": {"type": "q35"},
                "resources": {"requests": {"memory": "16Mi"}},
                "devices": {
                    "autoattachGraphicsDevice": false, "autoattachMemBalloon": false, "autoattachSerialConsole": false,
                    "interfaces": interfaces,
                },
            },
        }}},
    })
}
