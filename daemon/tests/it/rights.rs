//! The chart's RBAC rules against the requests of these tests: every request to the fake API server must be granted, and every granted
//! right must be used.

use std::collections::{BTreeMap, BTreeSet};

use serde_yaml::Value;
use testkit::api_server::{Kind, ReceivedRequest};

use crate::{
    approve, certificate, devices, lifecycle,
    node::{NodeFixture, pod},
    publish, verify,
};

const DAEMON: &str = include_str!("../../../chart/template/main/templates/clusterRole.yaml");
const PUBLISHED: &str = include_str!("../../../chart/template/main/templates/publishedRole.yaml");
const PUBLISHED_NETWORKS: &str =
    include_str!("../../../chart/template/main/templates/networksRole.yaml");
const CERTIFICATE: &str =
    include_str!("../../../chart/template/main/templates/certificateRole.yaml");
const TEST: &str = include_str!("../../../chart/template/main/templates/tests/release.yaml");
const APPROVER: &str = include_str!("../../../chart/template/main/templates/approver.yaml");

/// A verb on a resource: `group/resource verb`, with the prefix `namespaced:` for rights of a Role.
type Rights = BTreeSet<String>;

/// The rights of a template's roles.
fn granted(template: &str) -> Rights {
    let mut rights = Rights::new();
    for text in template.split("\n---\n") {
        let is = |kind: &str| text.lines().any(|line| line == kind);
        let scope = match (is("kind: ClusterRole"), is("kind: Role")) {
            (true, _) => "",
            (_, true) => "namespaced:",
            _ => continue,
        };
        let document = parse(text);
        for rule in document["rules"].as_sequence().unwrap() {
            let strings = |key: &str| {
                let values = rule[key].as_sequence().unwrap().iter();
                values
                    .map(|value| value.as_str().unwrap())
                    .collect::<Vec<_>>()
            };
            for group in strings("apiGroups") {
                for resource in strings("resources") {
                    for verb in strings("verbs") {
                        rights.insert(format!("{scope}{group}/{resource} {verb}"));
                    }
                }
            }
        }
    }
    assert!(!rights.is_empty());
    rights
}

/// Parses a template without its directives: lines with nothing else are removed, and directives in values are replaced by a word.
fn parse(template: &str) -> Value {
    let directive = |line: &&str| !line.trim_start().starts_with("{{");
    let lines = template.lines().filter(directive).map(|line| {
        let mut line = line.to_owned();
        while let (Some(begin), Some(end)) = (line.find("{{"), line.find("}}")) {
            line.replace_range(begin..end + 2, "word");
        }
        line + "\n"
    });
    serde_yaml::from_str(&lines.collect::<String>()).unwrap()
}

/// The right that a request needs.
fn needed(ask: &ReceivedRequest) -> String {
    let (method, path) = ask.method_and_path.split_once(' ').unwrap();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => panic!("{path} is not a resource"),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let resource = match rest {
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, sub] => format!("{resource}/{sub}"),
        _ => panic!("{path} is not a resource"),
    };
    let verb = match (method, rest.len()) {
        ("WATCH", _) => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        _ => panic!("{method} has no verb"),
    };
    // The only right of a Role: DaemonSets of one namespace.
    let scope = if group == "apps" { "namespaced:" } else { "" };
    format!("{scope}{group}/{resource} {verb}")
}

/// Whether a request reads no resource: every client of a cluster may ask whether the API server lives.
fn needs_right(ask: &ReceivedRequest) -> bool {
    ask.method_and_path != "GET /livez/ping"
}

/// Fails when a daemon or an approver has sent a request that the chart does not grant.
pub(crate) fn check(asks: &[ReceivedRequest]) {
    let all: BTreeMap<bool, Rights> = [
        (
            false,
            [DAEMON, CERTIFICATE, PUBLISHED, PUBLISHED_NETWORKS]
                .into_iter()
                .flat_map(granted)
                .collect(),
        ),
        (true, granted(APPROVER)),
    ]
    .into();
    for ask in asks.iter().filter(|ask| needs_right(ask)) {
        let rights = &all[&(ask.user == approve::USER)];
        let needed = needed(ask);
        assert!(
            rights.contains(&needed),
            "the chart does not grant {needed}: {ask:?}"
        );
    }
}

fn used(asks: &[ReceivedRequest]) -> Rights {
    asks.iter()
        .filter(|ask| needs_right(ask))
        .map(needed)
        .collect()
}

#[test]
fn daemon_uses_all_its_rights() {
    let node = NodeFixture::new();
    node.install_plugin("zebra");
    // A pod of another node is not in the watch, so the daemon gets it.
    let mut pod = pod("node-b", Some("zebra"));
    devices::claim(&node, &mut pod, "0000:18:02.5");
    node.api.put(Kind::Pod, pod);
    lifecycle::select_nodes(&node, "ssd");
    let daemon = node.start().ready();
    // Neither is a definition that is as new as the pod.
    let definition = devices::definition_with_resource("zebra", devices::RESOURCE);
    node.api.put_unseen(Kind::Definition, definition);
    daemon.cni(&node.request("ADD", "c1")).result();
    node.api.wait_for_patches(1);
    daemon.cni(&node.request("DEL", "c1")).done();
    // A repeated warning raises the count of the first one.
    node.fail("zebra", "ADD", 117, "no bananas");
    for times in 1..=2 {
        daemon.cni(&node.request("ADD", "c2")).error();
        node.api.wait_for_event_counts(1 + times);
    }
    daemon.kill();
    // At its end it reads whether its DaemonSet still selects the node.
    let mut daemon = lifecycle::own_pod(&node);
    daemon.terminate();
    assert!(daemon.ended().success());
    assert_eq!(used(&node.api.requests()), granted(DAEMON));
}

#[test]
fn publishing_networks_uses_all_its_rights() {
    let node = publish::node("labels");
    node.install_plugin("zebra");
    let definition = devices::definition_with_resource("zebra", devices::RESOURCE);
    node.api.put(Kind::Definition, definition);
    let _daemon = node.start().ready();
    node.api.wait_for_watch(Kind::Slice);
    publish::until_labelled(&node, &[("zebra", "unknown")]);
    let mut used = used(&node.api.requests());
    used.retain(|right| !granted(DAEMON).contains(right));
    assert_eq!(used, granted(PUBLISHED_NETWORKS));
}

#[test]
fn certificate_requests_use_all_their_rights() {
    let node = certificate::node();
    let _daemon = node.start_with(certificate::command(&node)).ready();
    let asks = node.api.requests();
    let asks: Vec<_> = asks
        .into_iter()
        .filter(|ask| ask.user == certificate::KUBELET)
        .collect();
    assert_eq!(used(&asks), granted(CERTIFICATE));
}

#[test]
fn approver_uses_all_its_rights() {
    let node = approve::node();
    node.api.configure_signer(|signer| signer.conflicts = 1);
    let daemon = node.start();
    let _approver = approve::approver(&node);
    let _daemon = daemon.ready();
    node.api.wait_for_events(1);
    let asks = node.api.requests();
    let asks: Vec<_> = asks
        .into_iter()
        .filter(|ask| ask.user == approve::USER)
        .collect();
    let mut granted = granted(APPROVER);
    // The API server checks this right itself at an approval: no request needs it.
    assert!(granted.remove("certificates.k8s.io/signers approve"));
    assert_eq!(used(&asks), granted);
}

#[test]
fn test_of_a_release_uses_all_its_rights() {
    let node = NodeFixture::new();
    assert!(verify::verify(&node, 2).status.success());
    // It reads only objects of its own namespace.
    let plain = |rights: Rights| -> Rights {
        rights
            .iter()
            .map(|right| right.trim_start_matches("namespaced:").to_owned())
            .collect()
    };
    assert_eq!(plain(used(&node.api.requests())), plain(granted(TEST)));
}
