//! Reports from a directory in place of the node, with our state or with upstream's.

use api::pod_report::PodReport;
use serde_json::Map;
use std::fs;

use cni::config::NetworkConfig;
use plan::Requested;
use serde_json::json;

use super::*;

const DIR: &str = "/var/lib/cni/multus";

struct Node {
    dir: tempfile::TempDir,
    root: Arc<Root>,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        Self { dir, root }
    }

    fn store(&self) -> Store {
        Store::new(Arc::clone(&self.root), DIR)
    }

    fn put(&self, name: &str, content: &str) {
        let path = self.dir.path().join(&DIR[1..]).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn ask(&self, namespace: &str, name: &str) -> Vec<Container> {
        let (found, unread) = containers(&self.root, Path::new(DIR), (namespace, name)).unwrap();
        assert_eq!(unread, Vec::<String>::new());
        found
    }
}

fn delegate(name: &str, ifname: &str, plugins: &[&str], progress: Progress) -> Delegate {
    let plugins: Vec<_> = plugins.iter().map(|kind| json!({"type": kind})).collect();
    let config = json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins});
    Delegate {
        name: format!("shop/{name}"),
        ifname: ifname.parse().unwrap(),
        config: NetworkConfig::parse(config.to_string().as_bytes())
            .unwrap()
            .into(),
        requested: Requested::default(),
        capability_args: Map::new(),
        args: None,
        progress,
        displaced: Vec::new(),
    }
}

fn state(id: &str, pod: &str, delegates: Vec<Delegate>) -> State {
    State {
        pod: PodRef {
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            uid: "u".to_owned(),
        },
        delegates,
        ..State::unknown(&id.parse().unwrap(), &"eth0".parse().unwrap())
    }
}

#[test]
fn attachments_are_reported_with_plugins_addresses_and_time() {
    let node = Node::new();
    assert_eq!(node.ask("shop", "cart"), []);
    let delegates = vec![
        delegate("storage", "net1", &["bridge", "tuning"], Progress::Started),
        delegate("wire", "net2", &["macvlan"], Progress::Started),
        delegate("late", "net3", &["macvlan"], Progress::Planned),
    ];
    node.store().begin(&state("c1", "cart", delegates)).unwrap();
    node.store()
        .begin(&state("c2", "other", Vec::new()))
        .unwrap();
    let result = json!({"kind": "cniCacheV1", "containerId": "c1", "networkName": "storage", "ifName": "net1",
        "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.20.0.5/24"}]}});
    node.put("results/storage-c1-net1", &result.to_string());
    let [container] = &node.ask("shop", "cart")[..] else {
        panic!("one container")
    };
    assert_eq!((container.id.as_str(), container.uid.as_str()), ("c1", "u"));
    let [storage, wire, late] = &container.attachments[..] else {
        panic!("{container:?}")
    };
    assert_eq!(storage.network, "shop/storage");
    assert_eq!(storage.plugins, ["bridge", "tuning"]);
    assert_eq!(storage.addresses, ["10.20.0.5/24"]);
    assert_eq!(storage.progress, Step::Attached);
    assert!(storage.since.is_some_and(|since| since > 1_600_000_000));
    assert_eq!((wire.progress, wire.since), (Step::Started, None));
    assert_eq!(late.progress, Step::Planned);
}

#[test]
fn pod_of_upstream_is_found_by_the_arguments_of_its_plugins() {
    macro_rules! written {
        ($name:literal) => {
            include_str!(concat!("../../../tests/fixtures/state/v4.3.0/", $name))
        };
    }
    let node = Node::new();
    node.put("c1", written!("c1"));
    for (name, content) in [
        ("cbr0-c1-eth0", written!("results/cbr0-c1-eth0")),
        ("plain-c1-net2", written!("results/plain-c1-net2")),
        ("storage-c1-stor0", written!("results/storage-c1-stor0")),
    ] {
        node.put(&format!("results/{name}"), content);
    }
    assert_eq!(node.ask("shop", "other"), []);
    let found = node.ask("shop", "cart-0");
    let interfaces: Vec<_> = found[0]
        .attachments
        .iter()
        .map(|one| (one.interface.as_str(), one.progress))
        .collect();
    assert_eq!(interfaces[1], ("stor0", Step::Attached), "{interfaces:?}");
    assert_eq!(found[0].attachments[1].addresses, ["10.0.0.9/24"]);
}

#[test]
fn report_of_a_newer_daemon_is_read() {
    let text = json!({"schema": 1, "version": "9", "node": "n", "options": {}, "moon": "full",
        "containers": [{"containerID": "c", "uid": "u", "attachments": [], "colour": "red"}], "failures": []});
    let report: PodReport = serde_json::from_value(text).unwrap();
    assert_eq!(report.containers[0].id, "c");
    assert_eq!(report.problem, None);
}
