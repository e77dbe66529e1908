//! Suite `devices`: networks that need a device, on a real kubelet with a device plugin and a DRA driver, also in hot plug. The daemon
//! runs as a process of the node, without an image.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, kubelet, rare::label},
    control_plane::{Components, objects},
    daemon,
    drivers::{self, device_plugin, dra},
    node::{
        inspect::nothing_left,
        layout::{ContainerdVersion, Layout},
        runtime::{IMAGE, NodePlugins},
    },
    programs::{Module, Needs},
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

pub(crate) const NEEDS: Needs = Needs {
    debian: super::cri::NEEDS.debian,
    modules: &[
        Module::Plugins,
        Module::Containerd,
        Module::DraDriver,
        Module::Kubernetes,
    ],
};

const DAEMON_CONFIG: &str = "/var/lib/multus/e2e-daemon-config.json";
/// The socket of the kubelet's pod resources API.
const KUBELET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

pub(crate) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    let mut fixture = report.check("a node with a kubelet is Ready", || {
        let cluster = Cluster::with(
            env,
            &[(Layout::Kubeadm, ContainerdVersion::V2)],
            Components::AllWithAlpha,
            NodePlugins::Reference,
        )?;
        Ok(DevicesFixture { env, cluster })
    })?;
    let node = fixture.cluster.server();
    report.check("the daemon becomes ready", || {
        drivers::start(node)?;
        fixture.start_daemon()
    })?;
    report.check(
        "device plugin and DRA driver are registered at the kubelet",
        || {
            fixture.cluster.apply(&dra::classes())?;
            drivers::wait_until_registered(&fixture.cluster, &node.name)
        },
    )?;
    report.check(
        "networks get the devices of containers in the order of the containers",
        || {
            fixture.create_pods()?;
            fixture.gives_devices()
        },
    )?;
    report.check(
        "a pod with fewer devices than networks does not start, with an event",
        || fixture.refuses(),
    )?;
    report.check("networks get the devices of claims", || {
        fixture.gives_claimed()
    })?;
    report.check(
        "a network gets the device of an existing claim that the pod names",
        || fixture.gives_named(),
    )?;
    report.check(
        "a network gets the device of a claim for an extended resource",
        || fixture.gives_extended(),
    )?;
    report.check(
        "a network gets the device of a claim that its definition names",
        || fixture.gives_by_claim(),
    )?;
    report.check(
        "hot plug gives a network the free device of a running pod",
        || fixture.hot_plug(),
    )?;
    report.check(
        "without the kubelet's socket its checkpoint is read",
        || fixture.reads_checkpoint(),
    )?;
    report.check(
        "the kubelet hears which networks the node can serve",
        || fixture.offers(),
    )?;
    report.check(
        "a pod that requests a network's resource has the network and no device",
        || fixture.requests(),
    )?;
    report.check("a kubelet that starts again hears it, too", || {
        fixture.offers_again()
    })?;
    report.check("deleted pods leave nothing", || {
        let pods = [
            "ordered",
            "claimed",
            "named",
            "extended",
            "reserved",
            "noted",
            "requesting",
            "again",
        ];
        fixture.cluster.delete(&pods.map(str::to_owned))?;
        nothing_left(fixture.cluster.server())
    })
}

struct DevicesFixture<'a> {
    env: &'a TestEnv,
    cluster: Cluster,
}

impl DevicesFixture<'_> {
    fn start_daemon(&self) -> anyhow::Result<()> {
        let (node, cluster) = (self.cluster.server(), &self.cluster);
        let definitions = [
            ("nic", device_plugin::RESOURCE),
            ("claimed", dra::RESOURCE),
            ("by-claim", "reserved"),
        ]
        .map(|(name, resource)| drivers::network(name, resource, "10.20.0.0/24"));
        objects::definitions(self.env, &cluster.control, node, &definitions)?;
        let paths = &cluster.members[0].runtime.paths;
        let config = json!({
            "cniConfigDir": paths.conf_dir, "binDir": paths.bin_dir, "logLevel": "debug", "dynamicNetworks": true,
            "publish": "resources",
        });
        node.write(DAEMON_CONFIG, config.to_string())?;
        let admin = cluster.control.admin();
        daemon::start(self.env, node, &admin, DAEMON_CONFIG, None).map(drop)
    }

    /// Returns a pod with one container per element of `devices`, which requests that many devices.
    fn pod(&self, name: &str, networks: &str, devices: &[u8]) -> Value {
        let mut pod = objects::pod(name, &self.cluster.server().name, Some(networks));
        let containers = devices.iter().enumerate().map(|(index, count)| {
            // Sorting by name gives another order than that of the containers.
            let name = format!("c{}", 9 - index);
            let limits = json!({device_plugin::RESOURCE: count.to_string()});
            json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "resources": {"limits": limits}})
        });
        pod["spec"]["containers"] = containers.collect();
        pod
    }

    /// Creates all pods but the last together, so that they start at the same time.
    fn create_pods(&self) -> anyhow::Result<()> {
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "nics"},
            "spec": {"spec": dra::request(dra::CLASS, 2)},
        });
        let claim = |name, class| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
                "spec": dra::request(class, 1),
            })
        };
        let mut extended = objects::pod("extended", "", Some("claimed"));
        objects::unbind(&mut extended);
        extended["spec"]["containers"][0]["resources"] = json!({"limits": {dra::RESOURCE: "1"}});
        self.cluster.apply(&[
            template,
            claim("mine", dra::CLASS),
            claim("reserved", dra::BARE_CLASS),
            self.pod("ordered", "nic,nic,nic", &[1, 2]),
            extended,
            self.pod("short", "nic,nic", &[1]),
            claiming(
                "claimed",
                "claimed,claimed",
                json!({"resourceClaimTemplateName": "nics"}),
            ),
            claiming("named", "claimed", json!({"resourceClaimName": "mine"})),
            claiming(
                "reserved",
                "by-claim",
                json!({"resourceClaimName": "reserved"}),
            ),
        ])
    }

    fn gives_devices(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces("ordered", &["eth0", "net1", "net2", "net3"])?;
        let of = |container| {
            drivers::devices_in_environment(
                cluster,
                ("ordered", container),
                device_plugin::VARIABLE,
            )
        };
        let (first, second) = (of("c9")?, of("c8")?);
        ensure!(
            first > second,
            "{first:?} and {second:?} are in the order of all devices"
        );
        let attached = drivers::attached_devices(cluster.server(), "ordered")?;
        let ids: Vec<_> = attached.values().cloned().collect();
        ensure!(
            ids == [&first[..], &second].concat(),
            "containers have {first:?} and {second:?}, networks {attached:?}"
        );
        drivers::ensure_status(cluster, "ordered", &attached)
    }

    fn refuses(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        sh::until(60, "an event has the reason", || {
            let events = cluster.get(&["events", "--field-selector=involvedObject.name=short"])?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let has_reason = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["source"]["component"] == "multus"
                    && message.contains(device_plugin::RESOURCE)
                    && message.contains("the pod has 1")
            };
            ensure!(events.any(has_reason), "no event of the pod has it");
            Ok(())
        })?;
        cluster.delete(&["short".to_owned()])
    }

    fn gives_claimed(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces("claimed", &["eth0", "net1", "net2"])?;
        let attached = drivers::attached_devices(cluster.server(), "claimed")?;
        let mut ids: Vec<_> = attached.values().map(String::as_str).collect();
        let expected = drivers::claimed_devices(cluster, "claimed")?;
        ensure!(
            ids == expected && ids.len() == 2,
            "the claim has {expected:?}, networks {attached:?}"
        );
        let seen = drivers::devices_in_environment(cluster, ("claimed", "main"), dra::VARIABLE)?;
        ids.sort_unstable();
        ensure!(seen == ids, "the container has {seen:?}");
        drivers::ensure_status(cluster, "claimed", &attached)
    }

    /// The status of a pod does not list an existing claim, only its spec does.
    fn gives_named(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        self.gives_one(("named", "main"), dra::VARIABLE)?;
        let claims = cluster.get(&["pod", "named"])?["status"]["resourceClaimStatuses"].take();
        ensure!(claims.is_null(), "its status names {claims}");
        Ok(())
    }

    /// A container requests the extended resource of a class, and the scheduler creates the claim.
    fn gives_extended(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        self.gives_one(("extended", "main"), dra::VARIABLE)?;
        let claims = cluster.get(&["pod", "extended"])?["status"].take();
        ensure!(
            claims["resourceClaimStatuses"].is_null()
                && claims["extendedResourceClaimStatus"]["requestMappings"][0]["resourceName"]
                    == dra::RESOURCE,
            "its claims are {claims}"
        );
        Ok(())
    }

    /// The device has no attributes: as in upstream up to 4.3.0, the definition names the claim, and the runtime knows the device ID.
    fn gives_by_claim(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces("reserved", &["eth0", "net1"])?;
        let attached = drivers::attached_devices(cluster.server(), "reserved")?;
        ensure!(
            attached.values().eq([dra::BARE.1]),
            "the claim has {:?}, networks {attached:?}",
            dra::BARE
        );
        let seen = drivers::devices_in_environment(cluster, ("reserved", "main"), dra::VARIABLE)?;
        ensure!(seen == [dra::BARE.1], "the container has {seen:?}");
        Ok(())
    }

    /// Without its socket, the kubelet's checkpoint has the devices of the pods.
    fn reads_checkpoint(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        std::fs::remove_file(cluster.server().path(KUBELET)).context(KUBELET)?;
        cluster.apply(&[self.pod("noted", "nic", &[1])])?;
        self.gives_one(("noted", "c9"), device_plugin::VARIABLE)
    }

    /// Fails unless the pod's only network has the only device in its container's variable, and the network status has it, too.
    fn gives_one(&self, (pod, container): (&str, &str), variable: &str) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.ensure_interfaces(pod, &["eth0", "net1"])?;
        let attached = drivers::attached_devices(cluster.server(), pod)?;
        let seen = drivers::devices_in_environment(cluster, (pod, container), variable)?;
        ensure!(
            attached.values().eq(&seen) && seen.len() == 1,
            "the container has {seen:?}, networks {attached:?}"
        );
        drivers::ensure_status(cluster, pod, &attached)
    }

    /// A definition that the node can serve is a resource of it, until it is deleted.
    fn offers(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let definition = |name| drivers::network(name, &label(name), "10.21.0.0/24");
        cluster.apply(&[definition("gone"), definition("lan")])?;
        self.until_offered("gone", "1k")?;
        self.until_offered("lan", "1k")?;
        cluster.kubectl(&["delete", "network-attachment-definitions", "gone"])?;
        self.until_offered("gone", "0")
    }

    fn until_offered(&self, name: &str, expected: &str) -> anyhow::Result<()> {
        let resource = label(name);
        sh::until(60, "the node has the resource", || {
            let node = self.cluster.get(&["node", &self.cluster.server().name])?;
            let count = node["status"]["allocatable"][&resource].as_str();
            ensure!(
                count.unwrap_or("0") == expected,
                "{count:?} of {resource} are allocatable"
            );
            Ok(())
        })
    }

    /// A kubelet forgets its plugins when it ends.
    fn offers_again(&mut self) -> anyhow::Result<()> {
        let member = &mut self.cluster.members[0];
        kubelet::restart(&member.node, &mut member.kubelet)?;
        let cluster = &self.cluster;
        // A kubelet rejects pods for ever that come before the plugin has registered.
        sh::until(60, "a new pod gets a device", || {
            cluster.apply(&[requesting("again")])?;
            let pod = cluster.pod("again")?;
            if pod["status"]["phase"] == "Failed" {
                cluster.delete(&["again".to_owned()])?;
            }
            ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
            Ok(())
        })
    }

    fn requests(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        cluster.apply(&[requesting("requesting")])?;
        cluster.ensure_interfaces("requesting", &["eth0", "net1"])?;
        let attached = drivers::attached_devices(cluster.server(), "requesting")?;
        ensure!(
            attached.is_empty(),
            "its networks have devices {attached:?}"
        );
        Ok(())
    }

    /// The pod has three devices; detaching one network frees its device for another network.
    fn hot_plug(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        let before = drivers::attached_devices(cluster.server(), "ordered")?;
        let ask = |networks: &str| {
            let annotation = format!("k8s.v1.cni.cncf.io/networks={networks}");
            cluster.kubectl(&["annotate", "--overwrite", "pod", "ordered", &annotation])
        };
        ask("nic,nic")?;
        sh::until(60, "a network is detached", || {
            cluster.ensure_interfaces("ordered", &["eth0", "net1", "net2"])
        })?;
        ask("nic,nic,nic@late")?;
        sh::until(60, "a network is attached", || {
            cluster.ensure_interfaces("ordered", &["eth0", "late", "net1", "net2"])
        })?;
        let after = drivers::attached_devices(cluster.server(), "ordered")?;
        ensure!(
            after["late"] == before["net3"],
            "before: {before:?}, after: {after:?}"
        );
        drivers::ensure_status(cluster, "ordered", &after)
    }
}

/// Returns a pod with the network `lan` that requests its resource.
fn requesting(name: &str) -> Value {
    let mut pod = objects::unbound_pod(name, Some("lan"));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {label("lan"): "1"}});
    pod
}

fn claiming(name: &str, networks: &str, claim: Value) -> Value {
    let mut pod = objects::pod(name, "", Some(networks));
    drivers::add_claim(&mut pod, claim);
    pod
}
