//! The definitions and pods of the pages for people, each as its page has it, with the plugins of the release.
//!
//! Where the kernel has no such link, the ADD has to fail with the kernel's refusal, and with nothing else.

use anyhow::{Context as _, bail, ensure};
use docs::{Check, Pages};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::NetnsFixture;
use crate::{
    control_plane::objects,
    node::{Node, Service, dhcp, inspect::nothing_left},
    report::{Checked, Report},
    sh::{self, words},
    single_node::DAEMON_CONFIG,
};

/// The steps whose pods say in a comment what they get.
const PAGES: [&str; 3] = ["annotations", "definitions", "pods"];

/// The step with the recipe for a node that has to reach its own pods.
const HOST: &str = "host";

/// A definition of a page.
struct Section {
    page: &'static str,
    name: String,
    definition: Value,
    /// A pod with that network; it names no node yet.
    pod: Value,
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
    case("macvlan-dhcp", dhcp::NEIGHBOUR_PREFIX),
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
    case("lan", "192.168.1.2"),
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
    pub(super) fn page(&self, daemon: &Service, report: &mut Report) -> Checked {
        let node = &self.single_node.node;
        let (sections, daemon, server) = report.check(
            "docs/plugins.md and README.md: definitions are applied, on a node with the links that they name",
            || {
                let pages = Pages::of_checkout().context("cannot read the pages")?;
                let mut sections = sections(&pages)?;
                sections.push(example(&pages)?);
                let names: Vec<_> = sections.iter().map(|one| one.name.as_str()).collect();
                let expected: Vec<_> = CASES.iter().map(|one| one.name).collect();
                ensure!(names == expected, "the pages have {names:?}");
                let definitions: Vec<_> =
                    sections.iter().map(|one| one.definition.clone()).collect();
                self.single_node.apply(&definitions)?;
                self.change_config()?;
                node.end(daemon, "TERM")?;
                let daemon = self.start_daemon()?;
                dhcp::wait_for_service(node)?;
                node.run(&[
                    "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "cable",
                ])?;
                Ok((sections, daemon, dhcp::start_neighbour(node)?))
            },
        )?;
        for (section, case) in sections.iter().zip(CASES) {
            report.check(&format!("{}: {}", section.page, case.name), || {
                self.definition(section, case)
            })?;
        }
        report.check(
            "docs/networks.md and pods.md: each pod gets what the page says",
            || self.claimed_pods(),
        )?;
        report.check("docs/plugins.md and README.md: nothing is left", || {
            dhcp::end_neighbour(node, &server)?;
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
    fn start(&self, pod: &Value, case: &Case) -> anyhow::Result<()> {
        if case.address.is_empty() {
            return self.single_node.add_pod(pod).map(drop);
        }
        let inside = self.attach_pod(pod, &["eth0", "net1"])?;
        let address = inside["net1"].first().context("net1 has no address")?;
        ensure!(address.starts_with(case.address), "net1 has {address}");
        Ok(())
    }

    /// Attaches each pod of the pages, and checks its interfaces and addresses.
    fn claimed_pods(&self) -> anyhow::Result<()> {
        let node = &self.single_node.node;
        let pages = Pages::of_checkout().context("cannot read the pages")?;
        let (definitions, pods) = claims(&pages)?;
        self.single_node.apply(&definitions)?;
        for Claimed { at, mut pod, has } in pods {
            pod["spec"]["nodeName"] = json!(node.name);
            let mut interfaces: Vec<_> = has.iter().map(|(name, _)| name.as_str()).collect();
            interfaces.push("eth0");
            interfaces.sort_unstable();
            interfaces.dedup();
            let inside = self
                .attach_pod(&pod, &interfaces)
                .with_context(|| at.clone())?;
            for (interface, address) in &has {
                let is_there = inside[interface.as_str()]
                    .iter()
                    .any(|one| one.starts_with(address.as_str()));
                ensure!(is_there, "{at}: no {address} on {interface}: {inside:?}");
            }
            let name = objects::name(&pod)?;
            if name == "routed" {
                let routes = node.run(&["ip", "netns", "exec", name, "ip", "route"])?;
                for route in [
                    "default via 10.67.0.1 dev net1",
                    "10.99.0.0/16 via 10.67.0.1",
                ] {
                    ensure!(routes.contains(route), "{at}: no {route} in {routes}");
                }
            }
            self.single_node.remove(name)?;
        }
        nothing_left_but_cable(node)
    }

    /// Follows the page's recipe for a node that has to reach a macvlan on its own link.
    fn host_reaches_its_pod(&self, address: &str) -> anyhow::Result<()> {
        let node = &self.single_node.node;
        let (address, _) = address.split_once('/').context("it is a whole address")?;
        let ping = || node.run(&["ping", "-c1", "-W1", address]);
        let lan = ["192.168.1.2/24", "dev", "eth0"];
        node.run(&[&["ip", "address", "add"], &lan[..]].concat())?;
        ensure!(ping().is_err(), "{address} answers without the recipe");
        let pages = Pages::of_checkout().context("cannot read the pages")?;
        for (at, recipe) in blocks(&pages, HOST) {
            node.run(&["sh", "-ec", &recipe]).context(at)?;
        }
        ping().context("the node does not reach its pod")?;
        node.run(&["ip", "link", "delete", "host-lan"])?;
        node.run(&[&["ip", "address", "delete"], &lan[..]].concat())
            .map(drop)
    }

    fn definition(&self, section: &Section, case: &Case) -> anyhow::Result<()> {
        let node = &self.single_node.node;
        let mut pod = section.pod.clone();
        pod["spec"]["nodeName"] = json!(node.name);
        let name = objects::name(&pod)?;
        let refusal = match case.kind {
            Some((kind, words)) => refusal(node, kind)?.map(|reason| format!("{words}{reason}")),
            None => None,
        };
        match refusal {
            None => {
                self.start(&pod, case)?;
                inspect(node, case.name, name)?;
                if case.name == "macvlan-fixed" {
                    self.host_reaches_its_pod(case.address)?;
                }
            }
            Some(words) => match self.single_node.add_pod(&pod) {
                Ok(result) => bail!("the kernel refuses {words}, and the ADD gives {result}"),
                Err(error) => ensure_refusal(&format!("{error:#}"), &words)?,
            },
        }
        self.single_node.remove(name)?;
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
        "macvlan-dhcp" | "macvlan-fixed" | "lan" => {
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
            node.run(&words!("ip netns exec {pod} ping -c1 -W5 10.50.0.1"))?;
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

/// Returns the blocks of a step of this suite: line, and YAML.
fn blocks(pages: &Pages, step: &str) -> Vec<(String, String)> {
    let is_of_step = |check: &Check| matches!(check, Check::Suite { suite, step: own, .. } if suite == "netns" && own == step);
    let blocks = pages.blocks(is_of_step).into_iter();
    blocks
        .map(|(page, block)| (format!("{}:{}", page.path, block.line), block.text.clone()))
        .collect()
}

fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(yaml).map(Value::deserialize);
    Ok(documents.collect::<Result<_, _>>()?)
}

/// Returns the definitions of docs/plugins.md; the words above a block may name the pod's annotation, which else is the definition's name.
fn sections(pages: &Pages) -> anyhow::Result<Vec<Section>> {
    let page = pages.get("docs/plugins.md").context("there is no page")?;
    let mut sections = Vec::new();
    for (_, yaml) in blocks(pages, "plugins") {
        let definition = documents(&yaml)?.pop().context("a block is a definition")?;
        let name = objects::name(&definition)?.to_owned();
        let (above, _) = page
            .text
            .split_once(&yaml)
            .context("the page has its block")?;
        let words = above.rsplit("\n### ").next().unwrap_or_default();
        let annotation = words
            .split_once("k8s.v1.cni.cncf.io/networks: '")
            .and_then(|(_, rest)| rest.split_once("'`"));
        let annotation = annotation.map_or(name.as_str(), |(annotation, _)| annotation);
        sections.push(Section {
            page: "docs/plugins.md",
            pod: objects::pod(&format!("page-{name}"), "", Some(annotation)),
            name,
            definition,
        });
    }
    Ok(sections)
}

/// Returns README's example: a definition and a pod.
fn example(pages: &Pages) -> anyhow::Result<Section> {
    let (_, yaml) = blocks(pages, "readme")
        .pop()
        .context("README has an example")?;
    let [definition, pod] = <[Value; 2]>::try_from(documents(&yaml)?)
        .ok()
        .context("README's example is a definition and a pod")?;
    Ok(Section {
        page: "README.md",
        name: objects::name(&definition)?.to_owned(),
        definition,
        pod,
    })
}

/// A pod of a page with what a comment above it says that the pod has: interfaces with the beginnings of their addresses.
struct Claimed {
    at: String,
    pod: Value,
    has: Vec<(String, String)>,
}

/// Returns the definitions and pods of the pages about annotations, definitions and pods.
fn claims(pages: &Pages) -> anyhow::Result<(Vec<Value>, Vec<Claimed>)> {
    let (mut definitions, mut pods) = (Vec::new(), Vec::new());
    for step in PAGES {
        for (at, yaml) in blocks(pages, step) {
            let words = yaml.lines().filter_map(|line| line.strip_prefix("# "));
            let has: Vec<_> = words
                .filter_map(|line| line.split_once(" has "))
                .map(|(interface, address)| (interface.to_owned(), address.to_owned()))
                .collect();
            for object in documents(&yaml)? {
                if object["kind"] == "Pod" {
                    ensure!(!has.is_empty(), "{at}: no comment says what the pod has");
                    pods.push(Claimed {
                        at: at.clone(),
                        pod: object,
                        has: has.clone(),
                    });
                } else {
                    definitions.push(object);
                }
            }
        }
    }
    Ok((definitions, pods))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_definition_of_the_page_has_a_case() {
        let pages = Pages::of_checkout().unwrap();
        let mut sections = sections(&pages).unwrap();
        sections.push(example(&pages).unwrap());
        let found: Vec<_> = sections.iter().map(|one| one.name.as_str()).collect();
        let cases: Vec<_> = CASES.iter().map(|one| one.name).collect();
        assert_eq!(found, cases);
        let annotation = |one: &Section| {
            let annotations = &one.pod["metadata"]["annotations"];
            let networks = &annotations["k8s.v1.cni.cncf.io/networks"];
            (one.name.clone(), networks.as_str().unwrap().to_owned())
        };
        let annotations: BTreeMap<_, _> = sections.iter().map(annotation).collect();
        assert_eq!(annotations["bridge"], "bridge");
        assert_eq!(annotations["lan"], "lan");
        assert!(annotations["macvlan-fixed"].contains("192.168.1.50/24"));
        for section in &sections {
            assert_eq!(section.definition["kind"], "NetworkAttachmentDefinition");
            assert_eq!(section.pod["kind"], "Pod");
        }
    }

    #[test]
    fn every_block_for_this_suite_is_used() {
        let pages = Pages::of_checkout().unwrap();
        let all = pages.blocks(|check| check.word() == "netns").len();
        let used = [&PAGES[..], &["plugins", "readme", HOST]].concat();
        assert_eq!(blocks(&pages, HOST).len(), 1);
        let used: usize = used.iter().map(|step| blocks(&pages, step).len()).sum();
        assert_eq!(all, used);
        let (definitions, pods) = claims(&pages).unwrap();
        assert!(definitions.len() > 3 && pods.len() > 3);
    }
}
