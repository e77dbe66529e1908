//! Builds snapshots from objects as the API server has them.

use serde_json::json;

use super::*;

/// The objects of a cluster.
#[derive(Debug, Default)]
pub(in crate::addresses) struct Fixture {
    pub(in crate::addresses) definitions: Vec<Value>,
    pub(in crate::addresses) blocks: Vec<Value>,
    pub(in crate::addresses) nodes: Vec<Value>,
    pub(in crate::addresses) pods: Vec<Value>,
    pub(in crate::addresses) claims: Option<Vec<Value>>,
}

impl Fixture {
    pub(in crate::addresses) fn new() -> Self {
        Self::default()
    }

    /// Adds a definition with an `ipam` object, whose type is ours unless it names another.
    pub(in crate::addresses) fn define(&mut self, name: &str, ipam: &Value) {
        let mut ipam = ipam.clone();
        let kind = ipam.as_object_mut().unwrap().entry("type");
        kind.or_insert(json!(OWN));
        self.configure(
            name,
            &json!({"cniVersion": "1.0.0", "plugins": [{"type": "macvlan", "ipam": ipam}, {"type": "tuning"}]}).to_string(),
        );
    }

    /// Adds a definition with this configuration.
    pub(in crate::addresses) fn configure(&mut self, name: &str, config: &str) {
        let (namespace, name) = name.split_once('/').unwrap();
        self.definitions.push(
            json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"config": config}}),
        );
    }

    /// Adds a node, whose UID is `uid-` and its name.
    pub(in crate::addresses) fn node(&mut self, name: &str, ready: &str) {
        self.nodes.push(json!({"metadata": {"name": name, "uid": format!("uid-{name}")},
            "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]}}));
    }

    fn block(&mut self, first: &str, node: &str, spec: &Value) -> &mut Value {
        let address = first.parse().unwrap();
        let name = ipam::object::name("", ipam::Block::of(address));
        let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": {(ipam::object::NODE_LABEL): node}}, "spec": {"schema": 1, "space": "", "first": first, "turn": 4}});
        let fields = spec.as_object().unwrap().clone();
        object["spec"].as_object_mut().unwrap().extend(fields);
        self.blocks.push(object);
        self.blocks.last_mut().unwrap()
    }

    /// Adds a block that a node holds.
    pub(in crate::addresses) fn node_block(&mut self, first: &str, node: &str, used: &str) {
        let holder =
            json!({"node": node, "uid": format!("uid-{node}"), "incarnation": "i", "boot": "o"});
        self.block(
            first,
            node,
            &json!({"mode": "node", "holder": holder, "used": used}),
        );
    }

    /// Adds a shared block with pods of the namespace `shop`, each with slot, name and node.
    pub(in crate::addresses) fn shared_block(&mut self, first: &str, pods: &[(usize, &str, &str)]) {
        let mut slots = vec![json!({"owner": "", "pods": []}); 32];
        for (slot, name, node) in pods {
            slots[*slot] = json!({"owner": format!("pod/uid-{name}/container/net1"), "pods": [slot_pod(name, node)]});
        }
        self.block(first, "", &json!({"mode": "shared", "slots": slots}));
    }

    /// Gives a slot of the newest block to a claim, with its pods.
    pub(in crate::addresses) fn claim_slot(
        &mut self,
        slot: usize,
        uid: &str,
        pods: &[(&str, &str)],
    ) {
        let pods: Vec<_> = pods
            .iter()
            .map(|(name, node)| slot_pod(name, node))
            .collect();
        let block = self.blocks.last_mut().unwrap();
        block["spec"]["slots"][slot] =
            json!({"owner": format!("claim/{uid}/shop/{uid}"), "pods": pods});
    }

    /// Adds a running pod of the namespace `shop`, with one address of this network.
    pub(in crate::addresses) fn pod(
        &mut self,
        name: &str,
        node: &str,
        network: &str,
        address: &str,
    ) {
        let status = json!([
            {"name": "cbr0", "interface": "eth0", "ips": ["10.42.0.5"], "default": true},
            {"name": network, "interface": "net1", "ips": [address]},
        ]);
        self.pods.push(json!({
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"),
                "annotations": {"k8s.v1.cni.cncf.io/network-status": status.to_string()}},
            "spec": {"nodeName": node}, "status": {"phase": "Running"},
        }));
    }

    /// Adds a claim of the namespace `shop`.
    pub(in crate::addresses) fn claim(&mut self, name: &str, uid: &str) {
        let claim = json!({"metadata": {"namespace": "shop", "name": name, "uid": uid}});
        self.claims.get_or_insert_default().push(claim);
    }

    pub(in crate::addresses) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            nodes: Some(BTreeMap::new()),
            claims: self.claims.as_ref().map(|_| BTreeSet::new()),
            ..Snapshot::default()
        };
        let netconf = validate::netconf(serde_json::Map::new()).unwrap();
        for object in &self.definitions {
            snapshot.add_definition(object.clone(), &netconf);
        }
        for object in &self.blocks {
            snapshot.add_block(object.clone());
        }
        self.nodes
            .iter()
            .for_each(|object| snapshot.add_node(object));
        self.pods.iter().for_each(|object| snapshot.add_pod(object));
        let claims = self.claims.iter().flatten();
        claims.for_each(|object| snapshot.add_claim(object));
        snapshot
    }
}

fn slot_pod(name: &str, node: &str) -> Value {
    json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "node": node})
}

#[test]
fn only_definitions_with_addresses_from_blocks_are_networks() {
    let mut fixture = Fixture::new();
    fixture.define("shop/ours", &json!({"subnet": "10.1.0.0/16"}));
    fixture.define(
        "shop/theirs",
        &json!({"type": "whereabouts", "range": "10.2.0.0/16", "network_name": "lab"}),
    );
    fixture.define(
        "shop/local",
        &json!({"type": "host-local", "subnet": "10.3.0.0/16"}),
    );
    fixture.configure("shop/file", "");
    fixture.configure("shop/broken", "{\"type\": \"multus-ipam\"");
    fixture.configure("shop/other", "{");
    let snapshot = fixture.snapshot();
    let networks = snapshot.networks.iter();
    let networks: Vec<_> = networks
        .map(|one| (one.name.as_str(), one.space.as_str(), one.is_own))
        .collect();
    let expected = [("shop/ours", "", true), ("shop/theirs", "lab", false)];
    assert_eq!(networks, expected);
    assert_eq!(snapshot.on_nodes, ["shop/file"]);
    let unusable = snapshot.unusable.iter().map(|one| one.object.as_str());
    assert_eq!(unusable.collect::<Vec<_>>(), ["definition shop/broken"]);
}

#[test]
fn a_block_of_a_newer_schema_is_a_gap() {
    let mut fixture = Fixture::new();
    fixture.node_block("10.9.0.0", "a", "0");
    fixture.blocks[0]["spec"]["schema"] = json!(2);
    let snapshot = fixture.snapshot();
    assert_eq!((snapshot.blocks.len(), snapshot.unusable.len()), (0, 0));
    assert_eq!(
        snapshot.gaps,
        ["block 10.9.0.0 is of a newer release: use its kubectl-multus"]
    );
}

#[test]
fn a_kubelet_that_reports_is_not_silent() {
    let mut fixture = Fixture::new();
    for (name, status) in [("a", "True"), ("b", "False"), ("c", "Unknown")] {
        fixture.node(name, status);
    }
    let mut snapshot = fixture.snapshot();
    assert_eq!(snapshot.readiness("a", None), Some(Readiness::Ready));
    assert_eq!(
        snapshot.readiness("b", Some("uid-b")),
        Some(Readiness::NotReady)
    );
    assert_eq!(snapshot.readiness("c", None), Some(Readiness::Silent));
    assert_eq!(snapshot.readiness("c", Some("an-older-one")), None);
    assert_eq!(snapshot.readiness("d", None), None);
    snapshot.nodes = None;
    assert_eq!(snapshot.readiness("d", None), Some(Readiness::Ready));
}
