//! The definitions of docs/plugins.md, each as the page has it, with the plugins of the release.
//!
//! Where the kernel has no such link, the ADD has to fail with the kernel's refusal, and with nothing else.

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::NetnsFixture;
use crate::{
    node::{Node, Service, dhcp, inspect::nothing_left},
    report::{CheckFailed, Report},
    sh,
    single_node::DAEMON_CONFIG,
};

const PAGE: &str = include_str!("../../../../docs/plugins.md");
/// The network namespace of the DHCP server, a neighbour of the pods on the node's link.
const NEIGHBOUR: &str = "neighbour";
const LEASES: &str = "10.31.0.";

/// A section of the page with a definition.
struct Section {
    name: String,
    definition: Value,
    /// The annotation that the text names, if it does; else the definition's name.
    annotation: String,
}

/// A definition of the page, with the interface that it gives a pod.
struct Case {
    name: &'static str,
    /// The beginning of the address; empty for none.
    address: &'static str,
    /// The arguments of `ip link add` for a link of this kind, when the kernel may lack it; the plugin's words before the refusal.
    kind: Option<(&'static [&'static str], &'static str)>,
}

const CASES: &[Case] = &[
    case("macvlan-dhcp", LEASES),
    case("macvlan-fixed", "192.168.1.50/24"),
    Case {
        kind: Some((
            &["type", "ipvlan", "mode", "l2"],
            "failed to create ipvlan: ",
        )),
        ..case("ipvlan", "192.168.2.1")
    },
    Case {
        kind: Some((&["type", "vlan", "id", "100"], "failed to create vlan: ")),
        ..case("vlan100", "10.100.0.")
    },
    case("bridge", "10.50.0."),
    case("nic", ""),
];

const fn case(name: &'static str, address: &'static str) -> Case {
    Case {
        name,
        address,
        kind: None,
    }
}

impl NetnsFixture<'_> {
    /// Takes the daemon over in order to restart it with the plugins of the release first.
    pub(super) fn page(&self, daemon: &Service, report: &mut Report) -> Result<(), CheckFailed> {
        let node = &self.single_node.node;
        let (sections, daemon, server) = report.check(
            "docs/plugins.md: its definitions are applied, on a node with the links that it names",
            || {
                let sections = sections()?;
                let names: Vec<_> = sections.iter().map(|one| one.name.as_str()).collect();
                let expected: Vec<_> = CASES.iter().map(|one| one.name).collect();
                ensure!(names == expected, "the page has {names:?}");
                let definitions: Vec<_> =
                    sections.iter().map(|one| one.definition.clone()).collect();
                self.single_node.control.apply(node, &definitions)?;
                self.change_config()?;
                node.end(daemon, "TERM")?;
                let daemon = self.start_daemon()?;
                dhcp::wait_for_service(node)?;
                node.run(&[
                    "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "cable",
                ])?;
                Ok((sections, daemon, start_neighbour(node)?))
            },
        )?;
        for (section, case) in sections.iter().zip(CASES) {
            report.check(&format!("docs/plugins.md: {}", case.name), || {
                self.definition(section, case)
            })?;
        }
        report.check("docs/plugins.md: nothing is left", || {
            node.end(&server, "TERM")?;
            node.end(&daemon, "TERM")?;
            nothing_left_but_cable(node)
        })
    }

    /// Makes the daemon use the plugins of the release, dhcp's service included.
    fn change_config(&self) -> anyhow::Result<()> {
        let file = self.single_node.node.path(DAEMON_CONFIG);
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        config["dhcp"] = json!(true);
        config["ownPlugins"] = json!({"first": true});
        Ok(std::fs::write(file, config.to_string())?)
    }

    /// Attaches a pod, and checks the address of the page's network.
    fn start(&self, pod: &str, section: &Section, case: &Case) -> anyhow::Result<()> {
        let networks = Some(section.annotation.as_str());
        if case.address.is_empty() {
            return self.single_node.add(pod, networks).map(drop);
        }
        let inside = self.attach(pod, networks, &["eth0", "net1"])?;
        let address = inside["net1"].first().context("net1 has no address")?;
        ensure!(address.starts_with(case.address), "net1 has {address}");
        Ok(())
    }

    fn definition(&self, section: &Section, case: &Case) -> anyhow::Result<()> {
        let node = &self.single_node.node;
        let pod = format!("page-{}", case.name);
        let refusal = match case.kind {
            Some((kind, words)) => refusal(node, kind)?.map(|reason| format!("{words}{reason}")),
            None => None,
        };
        match refusal {
            None => {
                self.start(&pod, section, case)?;
                inspect(node, case.name, &pod)?;
            }
            Some(words) => match self.single_node.add(&pod, Some(&section.annotation)) {
                Ok(result) => bail!("the kernel refuses {words}, and the ADD gives {result}"),
                Err(error) => ensure_refusal(&format!("{error:#}"), &words)?,
            },
        }
        self.single_node.remove(&pod)?;
        nothing_left_but_cable(node)
    }
}

/// Fails unless the error ends with these words, apart from its id.
fn ensure_refusal(error: &str, words: &str) -> anyhow::Result<()> {
    let (_, rest) = error
        .split_once(words)
        .with_context(|| format!("no `{words}` in {error}"))?;
    let is_alone = !["fail", "cannot", "error"]
        .iter()
        .any(|one| rest.contains(one));
    ensure!(is_alone, "more than `{words}` in {error}");
    Ok(())
}

/// Checks what the page says about a network beyond the pod's address.
fn inspect(node: &Node, name: &str, pod: &str) -> anyhow::Result<()> {
    let inside = |args: &[&str]| node.run(&[&["ip", "netns", "exec", pod, "ip"], args].concat());
    match name {
        "macvlan-dhcp" | "macvlan-fixed" => {
            let link = inside(&["-details", "link", "show", "net1"])?;
            ensure!(link.contains("macvlan mode bridge"), "{link}");
        }
        "vlan100" => {
            let link = inside(&["-details", "link", "show", "net1"])?;
            ensure!(link.contains("vlan protocol 802.1Q id 100"), "{link}");
        }
        "bridge" => {
            let address = node.run(&["ip", "-o", "address", "show", "br-pods"])?;
            ensure!(address.contains("10.50.0.1/24"), "{address}");
            node.run(&[
                "ip",
                "netns",
                "exec",
                pod,
                "ping",
                "-c1",
                "-W5",
                "10.50.0.1",
            ])?;
            let route = inside(&["route", "get", "172.16.0.9"])?;
            ensure!(route.contains("via 10.50.0.1 dev net1"), "{route}");
        }
        "nic" => {
            inside(&["link", "show", "net1"])?;
            let absent = node.run(&["ip", "link", "show", "eth1"]).is_err();
            ensure!(absent, "the node still has eth1");
        }
        _ => {}
    }
    Ok(())
}

/// Tries to make a link of this kind; returns the kernel's refusal, or `None` where it makes the link.
fn refusal(node: &Node, kind: &[&str]) -> anyhow::Result<Option<String>> {
    let add = ["ip", "link", "add", "link", "eth0", "name", "probe0"];
    let Err(error) = node.run(&[&add, kind].concat()) else {
        node.run(&["ip", "link", "delete", "probe0"])?;
        return Ok(None);
    };
    let text = format!("{error:#}");
    // iproute2 says "Unknown device type" for EOPNOTSUPP.
    ensure!(
        text.contains("Unknown device type") || text.contains("not supported"),
        "{text}"
    );
    Ok(Some("operation not supported".to_owned()))
}

/// Starts a DHCP server on the network of the node's eth0, in a namespace of its own: a macvlan does not reach its own parent.
fn start_neighbour(node: &Node) -> anyhow::Result<Service> {
    let link = [
        "ip", "link", "add", "link", "eth0", "name", "lease0", "netns", NEIGHBOUR,
    ];
    let own = format!("{LEASES}1/24");
    node.run(&["ip", "netns", "add", NEIGHBOUR])?;
    node.run(&[&link[..], &["type", "macvlan", "mode", "bridge"]].concat())?;
    node.run(&[
        "ip", "-n", NEIGHBOUR, "address", "add", &own, "dev", "lease0",
    ])?;
    node.run(&["ip", "-n", NEIGHBOUR, "link", "set", "lease0", "up"])?;
    let range = format!("--dhcp-range={LEASES}10,{LEASES}99,255.255.255.0,1h");
    node.serve("neighbour", "ip", |command| {
        command
            .args(["netns", "exec", NEIGHBOUR, "/usr/sbin/dnsmasq"])
            .args([
                "--keep-in-foreground",
                "--conf-file=/dev/null",
                "--port=0",
                "--user=root",
                "--pid-file=",
                "--dhcp-leasefile=/run/e2e-neighbour-leases",
                "--dhcp-authoritative",
                "--interface=lease0",
                &range,
            ])
    })
}

/// Like [`nothing_left`], with the node's second link in its place.
fn nothing_left_but_cable(node: &Node) -> anyhow::Result<()> {
    sh::until(30, "the node has eth1 again", || {
        node.run(&["ip", "link", "show", "eth1"])
    })?;
    node.run(&["ip", "link", "delete", "eth1"])?;
    nothing_left(node)?;
    node.run(&[
        "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "cable",
    ])
    .map(drop)
}

/// Returns the sections of the page that have a definition.
fn sections() -> anyhow::Result<Vec<Section>> {
    let mut sections = Vec::new();
    for text in PAGE.split("\n### ").skip(1) {
        let Some((words, rest)) = text.split_once("```yaml\n") else {
            continue;
        };
        let (yaml, _) = rest.split_once("```").context("a block has an end")?;
        let definition = Value::deserialize(serde_yaml::Deserializer::from_str(yaml))?;
        let name = definition["metadata"]["name"]
            .as_str()
            .context(yaml.to_owned())?
            .to_owned();
        let annotation = words
            .split_once("annotation: `")
            .and_then(|(_, rest)| rest.split_once('`'));
        sections.push(Section {
            annotation: annotation.map_or(name.clone(), |(annotation, _)| annotation.to_owned()),
            name,
            definition,
        });
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_definition_of_the_page_has_a_case() {
        let sections = sections().unwrap();
        let found: Vec<_> = sections.iter().map(|one| one.name.as_str()).collect();
        let cases: Vec<_> = CASES.iter().map(|one| one.name).collect();
        assert_eq!(found, cases);
        let annotations: BTreeMap<_, _> = sections
            .iter()
            .map(|one| (one.name.as_str(), one.annotation.as_str()))
            .collect();
        assert_eq!(annotations["bridge"], "bridge");
        assert!(annotations["macvlan-fixed"].contains("192.168.1.50/24"));
    }
}
