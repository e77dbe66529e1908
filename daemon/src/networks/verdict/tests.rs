//! The verdicts on networks, as a table: what their plugins need, and the facts of a node.

use std::sync::Arc;

use cni::version::Version;
use serde_json::{Value, json};

use super::*;

/// A node with our plugins, one of somebody else, links of several kinds, and devices of one resource.
struct Node {
    links: Result<NodeLinks, String>,
    paths: Vec<&'static str>,
    resources: Result<BTreeSet<String>, String>,
    status: Status,
}

impl NodeFacts for Node {
    fn find_plugin(&self, plugin: &str) -> Result<(), String> {
        let is_there = api::plugins::NAMES.contains(&plugin) || plugin == "sriov";
        let missing = || format!("plugin {plugin} is in none of /bin");
        is_there.then_some(()).ok_or_else(missing)
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
        if config.version() >= Version::V1_1_0 {
            self.status.clone()
        } else {
            Status::NotServed
        }
    }
}

fn node() -> Node {
    let link = |index: u8, name: &str, kind: &str, hardware| Link {
        index: index.into(),
        name: name.to_owned(),
        kind: kind.to_owned(),
        hardware,
        mac: vec![2, 0, 0, 0, 0, index],
        other_names: vec![format!("{name}-by-another-name")],
        ..Link::default()
    };
    let all = vec![
        link(1, "lo", "", 772),
        link(2, "ens5", "", 1),
        link(3, "br0", "bridge", 1),
        link(4, "wg0", "wireguard", 0xfffe),
    ];
    Node {
        links: Ok(NodeLinks {
            all,
            of_default_route: Some(2),
        }),
        paths: vec!["/sys/bus/pci/devices/0000:18:02.5"],
        resources: Ok(["x/fast".to_owned()].into()),
        status: Status::Ready,
    }
}

/// Checks a table: in each line the plugins of a network, `=>`, and the verdict with its reason. Of the first plugin, the keys
/// `cniVersion` and `resourceName` are those of the definition.
#[track_caller]
fn check(node: &Node, table: &str) {
    for line in table.trim().lines() {
        let (plugins, expected) = line.split_once(" => ").unwrap();
        let mut plugins: Value = serde_json::from_str(&format!("[{plugins}]")).unwrap();
        let first = plugins[0].as_object_mut().unwrap();
        let version = first.remove("cniVersion").unwrap_or_else(|| "1.0.0".into());
        let resource = first.remove("resourceName");
        let config = json!({"cniVersion": version, "name": "n", "plugins": plugins});
        let network = Attachment {
            name: "shop/n".to_owned(),
            is_default: false,
            config: Arc::new(NetworkConfig::parse(config.to_string().as_bytes()).unwrap()),
            selection: None,
            device: resource.map(|resource| plan::Device {
                resource: resource.as_str().unwrap().to_owned(),
                id: None,
            }),
        };
        let found = verdict(&Ok(network), node);
        let found = [found.word(), found.reason()].join(": ");
        assert_eq!(found.trim_end_matches(": "), expected.trim(), "{line}");
    }
}

#[test]
fn masters_must_exist_and_carry_ethernet() {
    let mut node = node();
    for kind in ["macvlan", "ipvlan", "vlan"] {
        let table = r#"
{"type": "KIND", "vlanId": 5, "master": "ens5"} => serves
{"type": "KIND", "vlanId": 5, "master": "ens5-by-another-name"} => serves
{"type": "KIND", "vlanId": 5, "master": "net1", "linkInContainer": true} => serves
{"type": "KIND", "vlanId": 5, "master": "ens6"} => cannot: the node has no link ens6, the master of KIND
{"type": "KIND", "vlanId": 5, "master": "wg0"} => cannot: link wg0, the master of KIND, is no Ethernet interface
"#;
        check(&node, &table.replace("KIND", kind));
    }
    check(&node, r#"{"type": "macvlan"} => serves"#);
    node.links.as_mut().unwrap().of_default_route = Some(4);
    check(
        &node,
        r#"{"type": "ipvlan"} => cannot: link wg0, the master of ipvlan, is no Ethernet interface"#,
    );
    node.links.as_mut().unwrap().of_default_route = None;
    check(
        &node,
        r#"
{"type": "dummy", "ipam": {"type": "static"}}, {"type": "ipvlan"} => serves
{"type": "macvlan"} => cannot: the node has no default route, whose link would be the master of macvlan: name one in "master"
"#,
    );
}

#[test]
fn links_that_a_plugin_makes_serve_and_links_that_it_moves_must_exist() {
    check(
        &node(),
        r#"
{"type": "tap"} => serves
{"type": "bridge", "bridge": "br0", "vlan": 7} => serves
{"type": "bridge", "bridge": "br7", "vlan": 7} => serves
{"type": "bridge", "bridge": "ens5"} => cannot: link ens5 of the node is no bridge, so bridge can neither use nor make one of that name
{"type": "host-device", "device": "ens5"} => serves
{"type": "host-device", "hwaddr": "02:00:00:00:00:02"} => serves
{"type": "host-device", "pciBusID": "0000:18:02.5"} => serves
{"type": "host-device", "device": "ens7"} => cannot: the node has no link ens7, which host-device moves into a pod: it is missing, or a pod has it
{"type": "host-device", "hwaddr": "02:00:00:00:00:09"} => cannot: the node has no link with address 02:00:00:00:00:09, which host-device moves into a pod: it is missing, or a pod has it
{"type": "host-device", "pciBusID": "0000:18:02.6"} => cannot: the node has no device /sys/bus/pci/devices/0000:18:02.6, which host-device needs
{"type": "bond", "mode": "active-backup", "miimon": "100", "links": [{"name": "ens5"}, {"name": "ens6"}]} => cannot: the node has no link ens6, which bond moves into a pod: it is missing, or a pod has it
"#,
    );
}

#[test]
fn every_plugin_of_the_chain_must_be_found() {
    check(
        &node(),
        r#"
{"type": "mystery"} => cannot: plugin mystery is in none of /bin
{"type": "tap", "ipam": {"type": "mystery"}} => cannot: plugin mystery is in none of /bin
{"type": "tap"}, {"type": "mystery"} => cannot: plugin mystery is in none of /bin
{"type": "sriov"} => unknown: plugin sriov is there, but what else it needs is not known
{"type": "macvlan", "mode": "x"} => cannot: macvlan refuses its configuration: unknown macvlan mode: "x": correct the definition
"#,
    );
    assert_eq!(
        verdict(&Err(PlanError::NoDefault), &node()).word(),
        "cannot"
    );
}

#[test]
fn services_of_addresses_must_listen() {
    let mut node = node();
    check(
        &node,
        r#"
{"type": "tap", "ipam": {"type": "dhcp"}} => cannot: no DHCP service listens at /run/cni/multus-dhcp.sock or /run/cni/dhcp.sock: set manifests.dhcpDaemonSet in Multus' chart
{"type": "tap", "ipam": {"type": "multus-ipam", "subnet": "10.7.0.0/16"}} => cannot: the daemon gives no addresses of multus-ipam: set ipam.enabled in Multus' chart
"#,
    );
    node.paths = vec!["/run/cni/dhcp.sock", IPAM_SOCKET];
    check(
        &node,
        r#"
{"type": "tap", "ipam": {"type": "dhcp"}} => serves
{"type": "tap", "ipam": {"type": "multus-ipam", "subnet": "10.7.0.0/16"}} => serves
"#,
    );
}

#[test]
fn devices_must_be_registered() {
    let mut node = node();
    check(
        &node,
        r#"
{"type": "sriov", "resourceName": "x/fast"} => serves
{"type": "sriov", "resourceName": "x/slow"} => cannot: the node has no device of x/slow: no device plugin or driver has registered one
{"type": "sriov", "resourceName": "nic"} => unknown: devices of nic, which is no resource, are not known
"#,
    );
    node.resources = Err("kubelet is silent".to_owned());
    check(
        &node,
        r#"{"type": "sriov", "resourceName": "x/fast"} => unknown: kubelet is silent"#,
    );
}

#[test]
fn status_of_plugins_decides_where_their_version_has_it() {
    for (status, expected) in [
        (Status::Ready, "serves"),
        (Status::NotReady("no pool".to_owned()), "cannot: no pool"),
        (Status::NoAnswer("too slow".to_owned()), "unknown: too slow"),
    ] {
        let node = Node { status, ..node() };
        check(
            &node,
            &format!(r#"{{"cniVersion": "1.1.0", "type": "sriov"}} => {expected}"#),
        );
    }
}

#[test]
fn missing_part_decides_before_an_unknown_one() {
    let links = Err("no netlink".to_owned());
    check(
        &Node { links, ..node() },
        r#"
{"type": "macvlan", "master": "ens6"} => unknown: no netlink
{"type": "macvlan", "master": "ens6", "resourceName": "x/slow"} => cannot: the node has no device of x/slow: no device plugin or driver has registered one
"#,
    );
}
