//! Networks of pods that run: an annotation that changes, and another controller's requests on `/delegate`.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    control_plane::objects,
    http,
    node::{
        Service,
        inspect::{Addresses, addresses, nothing_left},
    },
    report::{CheckFailed, Report},
    sh,
    single_node::{BIN_DIR, SingleNode},
    test_env::TestEnv,
};

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Longer than the pause before a failed change is tried again, a few times over.
const PATIENCE: u64 = 60;
const SOCKET: &str = "/run/multus/multus.sock";

impl SingleNode {
    /// A pod whose annotation changes; returns the daemon, which is another one by then.
    pub(super) fn networks_change(
        &self,
        env: &TestEnv,
        mut daemon: Service,
        report: &mut Report,
    ) -> Result<Service, CheckFailed> {
        report.check("a changed annotation attaches and detaches in a running pod", || {
            self.attaches("changing", None, &["eth0"])?;
            self.asks("changing", "storage")?;
            self.gets("changing", &["eth0", "net1"])?;
            let wire = json!([{"name": "wire", "interface": "wire0", "ips": ["10.77.1.9/24"]}, {"name": "storage"}]);
            self.asks("changing", &wire.to_string())?;
            let inside = self.gets("changing", &["eth0", "net1", "wire0"])?;
            ensure!(inside["wire0"] == ["10.77.1.9/24"], "{inside:?}");
            let moved = json!([{"name": "wire", "interface": "wire0", "ips": ["10.77.1.10/24"]}]);
            self.asks("changing", &moved.to_string())?;
            self.until("changing", |inside| {
                let given = inside.get("wire0").map(Vec::as_slice);
                let expected = ["10.77.1.10/24".to_owned()];
                ensure!(given == Some(&expected[..]), "{inside:?}");
                Ok(())
            })?;
            self.gets("changing", &["eth0", "wire0"]).map(drop)
        })?;
        report.check(
            "a change that cannot be had leaves the pod as it was, and says so",
            || {
                self.asks("changing", "storage,broken")?;
                self.says("changing", "FailedAddNetwork", "broken")?;
                self.gets("changing", &["eth0", "wire0"])?;
                self.asks("changing", "storage")?;
                self.gets("changing", &["eth0", "net1"]).map(drop)
            },
        )?;
        report.check(
            "what changes while there is no daemon is done by the next one",
            || {
                self.node.end(&daemon, "KILL")?;
                self.asks("changing", "storage@late,storage")?;
                daemon = self.start_daemon(env)?;
                self.gets("changing", &["eth0", "late", "net1"]).map(drop)
            },
        )?;
        report.check(
            "the default route goes to a plugged network, and back when that goes",
            || self.routes_change(),
        )?;
        report.check("another controller plugs and unplugs one network", || {
            self.delegates("changing")
        })?;
        report.check("what was plugged goes with its pod", || {
            self.remove("changing")?;
            nothing_left(&self.node)
        })?;
        Ok(daemon)
    }

    /// The primary's is by its gateway, whoever has it meanwhile; a change that fails midway leaves it where it was.
    fn routes_change(&self) -> anyhow::Result<()> {
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
        self.asks(pod, &storage("10.20.0.1", "route0"))?;
        self.gets(pod, &["eth0", "route0"])?;
        self.leads(pod, &["default via 10.20.0.1 dev route0".to_owned()])?;
        // Another network takes it over, and both give it back.
        self.asks(pod, &storage("10.20.0.1", "route1"))?;
        self.gets(pod, &["eth0", "route1"])?;
        self.leads(pod, &["default via 10.20.0.1 dev route1".to_owned()])?;
        self.asks(pod, "storage,storage@late")?;
        self.gets(pod, &["eth0", "late", "net1"])?;
        self.leads(pod, &before)?;
        self.asks(pod, &storage("10.99.0.1", "route0"))?;
        self.says(pod, "FailedAddNetwork", "10.99.0.1")?;
        self.leads(pod, &before)?;
        self.asks(pod, "storage,storage@late")?;
        self.gets(pod, &["eth0", "late", "net1"])?;
        // Plugins compare the routes of their cached results with the kernel's.
        self.verb("CHECK", pod, None).map(drop)
    }

    /// The IPv4 default routes inside, as iproute prints them.
    fn default_routes(&self, pod: &str) -> anyhow::Result<Vec<String>> {
        let words = [
            "ip", "netns", "exec", pod, "ip", "-4", "route", "show", "default",
        ];
        let text = self.node.run(&words)?;
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    }

    fn leads(&self, pod: &str, expected: &[String]) -> anyhow::Result<()> {
        sh::until(PATIENCE, "the default route is as it should be", || {
            let found = self.default_routes(pod)?;
            ensure!(
                found == expected,
                "default routes are {found:?}, not {expected:?}"
            );
            Ok(())
        })
    }

    fn asks(&self, pod: &str, networks: &str) -> anyhow::Result<()> {
        let annotation = format!("{NETWORKS}={networks}");
        let words = ["annotate", "--overwrite", "pod", pod, &annotation];
        self.control.kubectl(&self.node, &words).map(drop)
    }

    /// Waits until inside are these interfaces, and the status tells so.
    fn gets(&self, pod: &str, interfaces: &[&str]) -> anyhow::Result<Addresses> {
        self.until(pod, |inside| {
            let names: Vec<_> = inside.keys().map(String::as_str).collect();
            ensure!(names == interfaces, "inside are {inside:?}");
            objects::status_tells(&self.control.get(&self.node, &["pod", pod])?, inside)
        })
    }

    fn until(
        &self,
        pod: &str,
        is_so: impl Fn(&Addresses) -> anyhow::Result<()>,
    ) -> anyhow::Result<Addresses> {
        sh::until(PATIENCE, "the pod has its networks", || {
            let words = ["ip", "netns", "exec", pod, "ip", "-o", "address"];
            let inside = addresses(&self.node.run(&words)?);
            is_so(&inside)?;
            Ok(inside)
        })
    }

    /// Waits for an event of the pod that names this.
    fn says(&self, pod: &str, reason: &str, part: &str) -> anyhow::Result<()> {
        sh::until(PATIENCE, "an event", || {
            let events = self.control.get(&self.node, &["events"])?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let is_it = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["involvedObject"]["name"] == pod
                    && event["reason"] == reason
                    && message.contains(part)
            };
            ensure!(events.any(is_it), "no {reason} of {pod} that names {part}");
            Ok(())
        })
    }

    /// As upstream's controller does it: the status is its own business.
    fn delegates(&self, pod: &str) -> anyhow::Result<()> {
        let ask = |verb: &str| {
            let id = self.container(pod)?;
            let config = json!({
                "cniVersion": "1.0.0", "name": "given", "type": "bridge", "bridge": "br-given",
                "capabilities": {"mac": true},
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/24"}]]},
            });
            let request = api::Request {
                env: [
                    ("CNI_COMMAND", verb.to_owned()),
                    ("CNI_CONTAINERID", id.clone()),
                    ("CNI_NETNS", format!("/run/netns/{pod}")),
                    ("CNI_IFNAME", "given0".to_owned()),
                    ("CNI_PATH", BIN_DIR.to_owned()),
                    ("CNI_ARGS", Self::arguments(pod, &id)),
                ]
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
                config: config.to_string().into_bytes(),
                interface_attributes: Some(api::InterfaceAttributes {
                    mac: "02:00:00:00:00:77".to_owned(),
                    ..api::InterfaceAttributes::default()
                }),
            };
            let (socket, json) = (self.node.path(SOCKET), "application/json");
            http::send(
                &socket,
                "POST",
                api::PATH_DELEGATE,
                json,
                &request.to_json(),
            )?
            .well()
        };
        let told = |pod: &str| self.control.get(&self.node, &["pod", pod]);
        let before = told(pod)?["metadata"]["annotations"].clone();
        let result = ask("ADD")?.json()?["Result"].clone();
        let address = result["ips"][0]["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let look = |interface: &str| {
            let words = [
                "ip", "netns", "exec", pod, "ip", "address", "show", interface,
            ];
            self.node.run(&words)
        };
        let inside = look("given0")?;
        ensure!(
            inside.contains(&address) && inside.contains("02:00:00:00:00:77"),
            "the result is {result}, inside is {inside}"
        );
        ask("CHECK")?;
        ask("STATUS")?;
        ask("DEL")?;
        ensure!(look("given0").is_err(), "given0 is still there");
        // Once more, so that the pod's end has to take it along.
        ask("ADD")?;
        let after = told(pod)?["metadata"]["annotations"].clone();
        ensure!(before == after, "the status was written: {after}");
        Ok(())
    }
}
