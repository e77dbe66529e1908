//! Hot plug: the changed annotation of a running pod, and requests of another controller on `/delegate`.

use anyhow::ensure;
use serde_json::{Value, json};

use super::NetnsFixture;
use crate::{
    control_plane::objects,
    daemon::SOCKET,
    http,
    node::{
        Service,
        inspect::{Addresses, nothing_left},
    },
    report::{Checked, Report},
    sh,
};

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Seconds in which a change arrives; several times the pause before the daemon retries a failed one.
const PATIENCE: u64 = 60;

impl NetnsFixture<'_> {
    /// Checks a pod whose annotation changes. Returns the daemon that runs at the end, which is another one.
    pub(super) fn hot_plug(&self, mut daemon: Service, report: &mut Report) -> Checked<Service> {
        report.check("a changed annotation attaches and detaches in a running pod", || {
            self.attach("changing", None, &["eth0"])?;
            self.request_networks("changing", "storage")?;
            self.wait_for_interfaces("changing", &["eth0", "net1"])?;
            let wire = json!([{"name": "wire", "interface": "wire0", "ips": ["10.77.1.9/24"]}, {"name": "storage"}]);
            self.request_networks("changing", &wire.to_string())?;
            let inside = self.wait_for_interfaces("changing", &["eth0", "net1", "wire0"])?;
            ensure!(inside["wire0"] == ["10.77.1.9/24"], "{inside:?}");
            let moved = json!([{"name": "wire", "interface": "wire0", "ips": ["10.77.1.10/24"]}]);
            self.request_networks("changing", &moved.to_string())?;
            self.wait_for_addresses("changing", |inside| {
                let found = inside.get("wire0").map(Vec::as_slice);
                let expected = ["10.77.1.10/24".to_owned()];
                ensure!(found == Some(&expected[..]), "{inside:?}");
                Ok(())
            })?;
            self.wait_for_interfaces("changing", &["eth0", "wire0"]).map(drop)
        })?;
        report.check(
            "a failed change leaves the pod as it was, with an event",
            || {
                self.request_networks("changing", "storage,broken")?;
                self.wait_for_event("changing", "FailedAddNetwork", "broken")?;
                self.wait_for_interfaces("changing", &["eth0", "wire0"])?;
                self.request_networks("changing", "storage")?;
                self.wait_for_interfaces("changing", &["eth0", "net1"])
                    .map(drop)
            },
        )?;
        report.check(
            "a daemon applies at its start what changed while no daemon ran",
            || {
                self.single_node.node.end(&daemon, "KILL")?;
                self.request_networks("changing", "storage@late,storage")?;
                daemon = self.start_daemon()?;
                self.wait_for_interfaces("changing", &["eth0", "late", "net1"])
                    .map(drop)
            },
        )?;
        report.check(
            "the default route moves to an attached network, and back when that is detached",
            || self.default_route_moves(),
        )?;
        report.check("another controller attaches and detaches a network", || {
            self.delegate_requests("changing")
        })?;
        report.check("the pod's deletion removes attached networks", || {
            self.single_node.remove("changing")?;
            nothing_left(&self.single_node.node)
        })?;
        Ok(daemon)
    }

    /// The default network gets the default route back with its gateway, whichever network had it meanwhile; a change that fails midway
    /// leaves the route where it was.
    fn default_route_moves(&self) -> anyhow::Result<()> {
        let pod = "changing";
        let before = self.default_routes(pod)?;
        ensure!(
            before.len() == 1 && before[0].contains("dev eth0"),
            "{before:?}"
        );
        let storage = |gateway: &str, interface: &str| {
            json!([{"name": "storage", "interface": interface, "default-route": [gateway]}])
                .to_string()
        };
        self.request_networks(pod, &storage("10.20.0.1", "route0"))?;
        self.wait_for_interfaces(pod, &["eth0", "route0"])?;
        self.wait_for_default_route(pod, &["default via 10.20.0.1 dev route0".to_owned()])?;
        // Another network takes the route over; without both the default network has it again.
        self.request_networks(pod, &storage("10.20.0.1", "route1"))?;
        self.wait_for_interfaces(pod, &["eth0", "route1"])?;
        self.wait_for_default_route(pod, &["default via 10.20.0.1 dev route1".to_owned()])?;
        self.request_networks(pod, "storage,storage@late")?;
        self.wait_for_interfaces(pod, &["eth0", "late", "net1"])?;
        self.wait_for_default_route(pod, &before)?;
        self.request_networks(pod, &storage("10.99.0.1", "route0"))?;
        self.wait_for_event(pod, "FailedAddNetwork", "10.99.0.1")?;
        self.wait_for_default_route(pod, &before)?;
        self.request_networks(pod, "storage,storage@late")?;
        self.wait_for_interfaces(pod, &["eth0", "late", "net1"])?;
        // In CHECK, plugins compare the routes of their cached results with those of the kernel.
        self.single_node.verb("CHECK", pod).map(drop)
    }

    /// Returns the IPv4 default routes of the pod, as iproute prints them.
    fn default_routes(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let args = [
            "ip", "netns", "exec", pod, "ip", "-4", "route", "show", "default",
        ];
        let text = self.single_node.node.run(&args)?;
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    }

    fn wait_for_default_route(&self, pod: &str, expected: &[String]) -> anyhow::Result<()> {
        sh::until(PATIENCE, "the pod has the expected default route", || {
            let found = self.default_routes(pod)?;
            ensure!(
                found == expected,
                "default routes are {found:?}, not {expected:?}"
            );
            Ok(())
        })
    }

    fn request_networks(&self, pod: &str, networks: &str) -> anyhow::Result<()> {
        let annotation = format!("{NETWORKS}={networks}");
        let args = ["annotate", "--overwrite", "pod", pod, &annotation];
        self.single_node.kubectl(&args).map(drop)
    }

    /// Waits until the pod and its network status have these interfaces.
    fn wait_for_interfaces(&self, pod: &str, interfaces: &[&str]) -> anyhow::Result<Addresses> {
        self.wait_for_addresses(pod, |inside| {
            let names: Vec<_> = inside.keys().map(String::as_str).collect();
            ensure!(names == interfaces, "the pod has {inside:?}");
            objects::ensure_status(&self.single_node.get(&["pod", pod])?, inside)
        })
    }

    fn wait_for_addresses(
        &self,
        pod: &str,
        check: impl Fn(&Addresses) -> anyhow::Result<()>,
    ) -> anyhow::Result<Addresses> {
        sh::until(PATIENCE, "the pod has its networks", || {
            let inside = self.single_node.addresses_in(pod)?;
            check(&inside)?;
            Ok(inside)
        })
    }

    /// Waits for an event of the pod with this reason whose message contains `part`.
    fn wait_for_event(&self, pod: &str, reason: &str, part: &str) -> anyhow::Result<()> {
        sh::until(PATIENCE, "the event is there", || {
            let events = self.single_node.get(&["events"])?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let is_it = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["involvedObject"]["name"] == pod
                    && event["reason"] == reason
                    && message.contains(part)
            };
            ensure!(
                events.any(is_it),
                "no event {reason} of {pod} contains `{part}`"
            );
            Ok(())
        })
    }

    /// Sends requests as upstream's controller does, which writes the network status itself.
    fn delegate_requests(&self, pod: &str) -> anyhow::Result<()> {
        let send = |verb: &str| {
            let mut env: std::collections::BTreeMap<_, _> = self
                .single_node
                .sandbox(pod)?
                .env(verb)
                .into_iter()
                .collect();
            env.insert("CNI_IFNAME".to_owned(), "plug0".to_owned());
            let config = json!({
                "cniVersion": "1.0.0", "name": "plugged", "type": "bridge", "bridge": "br-plugged",
                "capabilities": {"mac": true},
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}]]},
            });
            let request = api::Request {
                env,
                config: config.to_string().into_bytes(),
                interface_attributes: Some(api::InterfaceAttributes {
                    mac: "02:00:00:00:00:77".to_owned(),
                    ..api::InterfaceAttributes::default()
                }),
            };
            let (socket, json) = (self.single_node.node.path(SOCKET), "application/json");
            http::send(
                &socket,
                "POST",
                api::PATH_DELEGATE,
                json,
                &request.to_json(),
            )?
            .well()
        };
        let read = |pod: &str| self.single_node.get(&["pod", pod]);
        let before = read(pod)?["metadata"]["annotations"].clone();
        let result = send("ADD")?.json()?["Result"].clone();
        let address = result["ips"][0]["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let show = |interface: &str| {
            let args = [
                "ip", "netns", "exec", pod, "ip", "address", "show", interface,
            ];
            self.single_node.node.run(&args)
        };
        let inside = show("plug0")?;
        ensure!(
            inside.contains(&address) && inside.contains("02:00:00:00:00:77"),
            "the result is {result}, the pod has {inside}"
        );
        send("CHECK")?;
        send("STATUS")?;
        send("DEL")?;
        ensure!(show("plug0").is_err(), "plug0 is still there");
        // Attached again, so that the DEL of the pod has to remove it.
        send("ADD")?;
        let after = read(pod)?["metadata"]["annotations"].clone();
        ensure!(before == after, "the daemon wrote the status: {after}");
        Ok(())
    }
}
