use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// A node whose facts are lists.
struct Node {
    plugins: Vec<&'static str>,
    links: Result<NodeLinks, String>,
    paths: Vec<&'static str>,
    resources: Result<BTreeSet<String>, String>,
    status: Status,
}

impl NodeFacts for Node {
    fn find_plugin(&self, plugin: &str) -> Result<(), String> {
        let found = self.plugins.iter().find(|known| **known == plugin);
        found
            .map(drop)
            .ok_or_else(|| format!("plugin {plugin} is in none of /bin"))
    }

    fn links(&self) -> Result<&NodeLinks, String> {
        self.links.as_ref().map_err(Clone::clone)
    }

    fn exists(&self, path: &Path) -> bool {
        self.paths.iter().any(|known| Path::new(known) == path)
    }

    fn resources(&self) -> Result<&BTreeSet<String>, String> {
        self.resources.as_ref().map_err(Clone::clone)
    }

    fn status(&self, config: &NetworkConfig) -> Status {
        if config.version() < cni::version::Version::V1_1_0 {
            return Status::NotServed;
        }
        self.status.clone()
    }
}

fn link(index: u32, name: &str, kind: &str, hardware: u16) -> Link {
    Link {
        index,
        name: name.to_owned(),
        kind: kind.to_owned(),
        hardware,
        mac: vec![2, 0, 0, 0, 0, u8::try_from(index).unwrap()],
        other_names: vec![format!("{name}-by-another-name")],
        ..Link::default()
    }
}

/// A node with our plugins, one of somebody else, links of several kinds, and devices of one resource.
fn node() -> Node {
    let own = ["whereabouts", "sriov"];
    let all = vec![
        link(1, "lo", "", 772),
        link(2, "ens5", "", 1),
        link(3, "br0", "bridge", 1),
        link(4, "tailscale0", "tun", 0xfffe),
    ];
    Node {
        plugins: api::plugins::NAMES.iter().copied().chain(own).collect(),
        links: Ok(NodeLinks {
            all,
            of_default_route: Some(2),
        }),
        paths: vec!["/sys/bus/pci/devices/0000:18:02.5"],
        resources: Ok(["x/fast".to_owned()].into()),
        status: Status::Ready,
    }
}

fn attachment(plugins: &Value, version: &str, resource: Option<&str>) -> Attachment {
    let config = json!({"cniVersion": version, "name": "n", "plugins": plugins});
    Attachment {
        name: "shop/n".to_owned(),
        is_default: false,
        config: Arc::new(NetworkConfig::parse(config.to_string().as_bytes()).unwrap()),
        selection: None,
        device: resource.map(|resource| plan::Device {
            resource: resource.to_owned(),
            id: None,
        }),
    }
}

/// Checks word and reason of a verdict; an empty reason is that of a network that is served.
#[track_caller]
fn check_attachment(node: &Node, attachment: Attachment, word: &str, reason: &str) {
    let found = verdict(&Ok(attachment), node);
    assert_eq!((found.word(), found.reason()), (word, reason));
}

#[track_caller]
fn check(node: &Node, plugin: &Value, word: &str, reason: &str) {
    check_attachment(
        node,
        attachment(&json!([plugin]), "1.0.0", None),
        word,
        reason,
    );
}

#[track_caller]
fn check_resource(node: &Node, resource: &str, word: &str, reason: &str) {
    let plugins = json!([{"type": "sriov"}]);
    check_attachment(
        node,
        attachment(&plugins, "1.0.0", Some(resource)),
        word,
        reason,
    );
}

#[track_caller]
fn check_status(status: Status, word: &str, reason: &str) {
    let node = Node { status, ..node() };
    let plugins = json!([{"type": "sriov"}]);
    check_attachment(&node, attachment(&plugins, "1.1.0", None), word, reason);
}

#[test]
fn masters_must_exist_and_carry_ethernet() {
    let node = node();
    for kind in ["macvlan", "ipvlan", "vlan"] {
        let on = |master: &str| json!({"type": kind, "master": master, "vlanId": 5});
        check(&node, &on("ens5"), "serves", "");
        check(&node, &on("ens5-by-another-name"), "serves", "");
        check(
            &node,
            &on("ens6"),
            "cannot",
            &format!("the node has no link ens6, the master of {kind}"),
        );
        check(
            &node,
            &on("tailscale0"),
            "cannot",
            &format!("link tailscale0, the master of {kind}, is no Ethernet interface"),
        );
        let mut inside = on("net1");
        inside["linkInContainer"] = true.into();
        check(&node, &inside, "serves", "");
    }
    check(&node, &json!({"type": "macvlan"}), "serves", "");
    let mut isolated = self::node();
    isolated.links.as_mut().unwrap().of_default_route = None;
    check(
        &isolated,
        &json!({"type": "macvlan"}),
        "cannot",
        "the node has no default route, whose link would be the master of macvlan: name one in \"master\"",
    );
    isolated.links.as_mut().unwrap().of_default_route = Some(4);
    check(
        &isolated,
        &json!({"type": "ipvlan"}),
        "cannot",
        "link tailscale0, the master of ipvlan, is no Ethernet interface",
    );
}

#[test]
fn what_a_plugin_makes_serves() {
    let node = node();
    for name in ["br0", "br7"] {
        check(
            &node,
            &json!({"type": "bridge", "bridge": name, "vlan": 7}),
            "serves",
            "",
        );
    }
    check(
        &node,
        &json!({"type": "bridge", "bridge": "ens5"}),
        "cannot",
        "link ens5 of the node is no bridge, so bridge can neither use nor make one of that name",
    );
    check(&node, &json!({"type": "tap"}), "serves", "");
}

#[test]
fn links_that_are_moved_must_be_there() {
    let node = node();
    let device = |key: &str, value: &str| json!({"type": "host-device", key: value});
    check(&node, &device("device", "ens5"), "serves", "");
    check(&node, &device("hwaddr", "02:00:00:00:00:02"), "serves", "");
    check(&node, &device("pciBusID", "0000:18:02.5"), "serves", "");
    let moved = |name: &str| {
        format!(
            "the node has no {name}, which host-device moves into a pod: it is missing, or a pod has it"
        )
    };
    check(
        &node,
        &device("device", "ens7"),
        "cannot",
        &moved("link ens7"),
    );
    check(
        &node,
        &device("hwaddr", "02:00:00:00:00:09"),
        "cannot",
        &moved("link with address 02:00:00:00:00:09"),
    );
    check(
        &node,
        &device("pciBusID", "0000:18:02.6"),
        "cannot",
        "the node has no device /sys/bus/pci/devices/0000:18:02.6, which host-device needs",
    );
    let bond = json!({"type": "bond", "mode": "active-backup", "miimon": "100", "links": [{"name": "ens5"}, {"name": "ens6"}]});
    check(
        &node,
        &bond,
        "cannot",
        "the node has no link ens6, which bond moves into a pod: it is missing, or a pod has it",
    );
}

#[test]
fn every_plugin_of_the_chain_must_be_found() {
    let node = node();
    check(
        &node,
        &json!({"type": "mystery"}),
        "cannot",
        "plugin mystery is in none of /bin",
    );
    check(
        &node,
        &json!({"type": "macvlan", "ipam": {"type": "mystery"}}),
        "cannot",
        "plugin mystery is in none of /bin",
    );
    let chain = attachment(
        &json!([{"type": "macvlan"}, {"type": "mystery"}]),
        "1.0.0",
        None,
    );
    check_attachment(&node, chain, "cannot", "plugin mystery is in none of /bin");
    check(
        &node,
        &json!({"type": "sriov"}),
        "unknown",
        "plugin sriov is there, but what else it needs is not known",
    );
}

#[test]
fn services_of_addresses_must_listen() {
    let mut node = node();
    let with = |ipam: &Value| json!({"type": "macvlan", "ipam": ipam});
    let (dhcp, range) = (
        json!({"type": "dhcp"}),
        json!({"type": "multus-ipam", "subnet": "10.7.0.0/16"}),
    );
    check(
        &node,
        &with(&dhcp),
        "cannot",
        "no DHCP service listens at /run/cni/multus-dhcp.sock or /run/cni/dhcp.sock: set manifests.dhcpDaemonSet in Multus' chart",
    );
    check(
        &node,
        &with(&range),
        "cannot",
        "the daemon gives no addresses of multus-ipam: set ipam.enabled in Multus' chart",
    );
    node.paths = vec!["/run/cni/dhcp.sock", IPAM_SOCKET];
    check(&node, &with(&dhcp), "serves", "");
    check(&node, &with(&range), "serves", "");
}

#[test]
fn devices_must_be_registered() {
    let mut node = node();
    check_resource(&node, "x/fast", "serves", "");
    check_resource(
        &node,
        "x/slow",
        "cannot",
        "the node has no device of x/slow: no device plugin or driver has registered one",
    );
    check_resource(
        &node,
        "nic",
        "unknown",
        "devices of nic, which is no resource, are not known",
    );
    node.resources = Err("kubelet is silent".to_owned());
    check_resource(&node, "x/fast", "unknown", "kubelet is silent");
}

#[test]
fn status_of_plugins_decides_where_their_version_has_it() {
    check_status(Status::Ready, "serves", "");
    check_status(Status::NotReady("no pool".to_owned()), "cannot", "no pool");
    check_status(
        Status::NoAnswer("too slow".to_owned()),
        "unknown",
        "too slow",
    );
}

#[test]
fn definitions_that_no_pod_could_use_are_served_nowhere() {
    check(
        &node(),
        &json!({"type": "macvlan", "mode": "x"}),
        "cannot",
        "macvlan refuses its configuration: unknown macvlan mode: \"x\": correct the definition",
    );
    let unusable = Err(PlanError::NoDefault);
    assert_eq!(verdict(&unusable, &node()).word(), "cannot");
}

#[test]
fn what_is_missing_counts_more_than_what_is_unknown() {
    let silent = Node {
        links: Err("no netlink".to_owned()),
        ..node()
    };
    check(
        &silent,
        &json!({"type": "macvlan", "master": "ens6"}),
        "unknown",
        "no netlink",
    );
    check(
        &silent,
        &json!({"type": "dummy", "ipam": {"type": "dhcp"}}),
        "cannot",
        "no DHCP service listens at /run/cni/multus-dhcp.sock or /run/cni/dhcp.sock: set manifests.dhcpDaemonSet in Multus' chart",
    );
    check(
        &silent,
        &json!({"type": "macvlan", "master": "ens6", "ipam": {"type": "mystery"}}),
        "cannot",
        "plugin mystery is in none of /bin",
    );
}
