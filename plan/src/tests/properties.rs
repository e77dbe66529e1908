//! Properties of the plan that hold for every pod, tested over generated pods, definitions and configurations.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{DEFAULT_NETWORK, Fixture, pod, with_default};
use crate::{Attachment, PodView};

/// One entry of an annotation.
#[derive(Debug, Clone)]
struct Entry {
    namespace: &'static str,
    name: &'static str,
    interface: Option<&'static str>,
    mac: bool,
    route: Option<&'static [&'static str]>,
}

/// A cluster's options and a pod's annotations.
#[derive(Debug, Clone)]
struct Case {
    isolated: bool,
    globals: &'static str,
    further: Vec<&'static str>,
    default: Option<&'static str>,
    entries: Vec<Entry>,
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (
        prop::sample::select(vec!["", "shop", "infra", "default"]),
        prop::sample::select(vec!["a", "b", "list", "absent"]),
        prop::option::weighted(0.3, prop::sample::select(vec!["ext0", "ext1", "net1"])),
        any::<bool>(),
        prop::option::weighted(
            0.2,
            prop::sample::select(vec![&["10.0.0.1"][..], &["fd00::1"], &[]]),
        ),
    );
    let entry = entry.prop_map(|(namespace, name, interface, mac, route)| Entry {
        namespace,
        name,
        interface,
        mac,
        route,
    });
    prop::collection::vec(entry, 0..6)
}

fn cases() -> impl Strategy<Value = Case> {
    let further = prop::collection::vec(prop::sample::select(vec!["central", "disk"]), 0..3);
    let default = prop::option::weighted(
        0.3,
        prop::sample::select(vec!["central", "infra/a", "shop/a", "a,b", "absent"]),
    );
    (
        any::<bool>(),
        prop::sample::select(vec!["", "infra", "default, infra"]),
        further,
        default,
        entries(),
    )
        .prop_map(|(isolated, globals, further, default, entries)| Case {
            isolated,
            globals,
            further,
            default,
            entries,
        })
}

impl Case {
    fn fixture(&self) -> Fixture {
        let list = r#"{"cniVersion":"1.0.0","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#;
        let mut fixture = Fixture::new()
            .file(
                "/etc/cni/multus/net.d/disk.conf",
                r#"{"cniVersion":"1.0.0","name":"disk","type":"macvlan"}"#,
            )
            .bridge("kube-system", "central")
            .with("namespaceIsolation", json!(self.isolated))
            .with("globalNamespaces", json!(self.globals))
            .with("defaultNetworks", json!(self.further));
        for namespace in ["shop", "infra", "default"] {
            fixture = fixture
                .bridge(namespace, "a")
                .bridge(namespace, "b")
                .nad(namespace, "list", list);
        }
        fixture
    }

    fn annotation(&self) -> String {
        let entries: Vec<Value> = self.entries.iter().map(Entry::json).collect();
        json!(entries).to_string()
    }

    fn pod(&self) -> PodView {
        let pod = pod(&self.annotation());
        match self.default {
            Some(network) => with_default(pod, network),
            None => pod,
        }
    }
}

impl Entry {
    fn json(&self) -> Value {
        let mut entry = json!({"name": self.name});
        for (key, value) in [
            (
                "namespace",
                Some(json!(self.namespace)).filter(|_| !self.namespace.is_empty()),
            ),
            ("interface", self.interface.map(|name| json!(name))),
            ("mac", self.mac.then(|| json!("02:00:00:00:00:01"))),
            ("default-route", self.route.map(|route| json!(route))),
        ] {
            if let Some(value) = value {
                entry[key] = value;
            }
        }
        entry
    }

    fn is_simple(&self) -> bool {
        !self.mac && self.route.is_none()
    }

    /// The entry in the short form.
    fn short(&self) -> String {
        let mut text = self.name.to_owned();
        if !self.namespace.is_empty() {
            text = format!("{}/{text}", self.namespace);
        }
        match self.interface {
            Some(interface) => format!("{text}@{interface}"),
            None => text,
        }
    }

    fn full_name(&self) -> String {
        let namespace = if self.namespace.is_empty() {
            "shop"
        } else {
            self.namespace
        };
        format!("{namespace}/{}", self.name)
    }
}

/// Renders a plan as text, for comparison.
fn text(plan: &[Attachment]) -> Vec<String> {
    let one = |(index, attachment): (usize, &Attachment)| {
        format!(
            "{} {} {} {}",
            attachment.name,
            attachment.ifname(index, "eth0"),
            attachment.is_default,
            String::from_utf8_lossy(attachment.config.bytes())
        )
    };
    plan.iter().enumerate().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// The plan has all requested networks in their order and nothing else, or it is an error.
    #[test]
    fn a_pod_gets_all_requested_networks_or_an_error(case in cases()) {
        let fixture = case.fixture();
        let Ok(plan) = fixture.plan(Some(&case.pod())) else {
            return Ok(());
        };
        let further = case.further.len();
        prop_assert_eq!(plan.len(), 1 + further + case.entries.len());
        for (attachment, entry) in plan[1 + further..].iter().zip(&case.entries) {
            prop_assert_eq!(&attachment.name, &entry.full_name());
            prop_assert_eq!(attachment.selection.is_some(), true);
        }
        prop_assert!(plan[0].is_default && plan[1..].iter().all(|one| !one.is_default));
        if case.default.is_none() {
            prop_assert_eq!(plan[0].config.bytes(), DEFAULT_NETWORK.as_bytes());
        }
    }

    /// The plan fails exactly in the cases that are listed here.
    #[test]
    fn the_plan_fails_only_for_known_reasons(case in cases()) {
        let fixture = case.fixture();
        let outcome = fixture.plan(Some(&case.pod()));
        let any_entry = |matches: &dyn Fn(&Entry) -> bool| case.entries.iter().any(matches);
        let is_absent = any_entry(&|entry| entry.name == "absent") || case.default == Some("absent");
        let is_open = |namespace: &str| {
            let globals = if case.globals.is_empty() { "default" } else { case.globals };
            namespace == "shop" || globals.split(',').any(|one| one.trim() == namespace)
        };
        let is_closed = case.isolated
            && (any_entry(&|entry| !entry.namespace.is_empty() && !is_open(entry.namespace))
                || case.default == Some("infra/a") && !is_open("infra"));
        let many = case.default == Some("a,b");
        let routes: Vec<_> = case.entries.iter().filter_map(|entry| entry.route).collect();
        let different: BTreeSet<_> = routes.iter().collect();
        let is_contested = different.len() < routes.len()
            || routes.len() > 1 && routes.iter().any(|route| route.is_empty());
        prop_assert_eq!(outcome.is_err(), is_absent || is_closed || many || is_contested, "{:?}", outcome.err());
    }

    /// An interface without a requested name is numbered by its position.
    #[test]
    fn interfaces_are_numbered_by_position(case in cases()) {
        let fixture = case.fixture();
        let Ok(plan) = fixture.plan(Some(&case.pod())) else {
            return Ok(());
        };
        let first = 1 + case.further.len();
        for (index, attachment) in plan.iter().enumerate().skip(1) {
            let entry = index.checked_sub(first).map(|position| &case.entries[position]);
            let expected = match entry.and_then(|entry| entry.interface) {
                Some(name) => name.to_owned(),
                None => format!("net{index}"),
            };
            prop_assert_eq!(attachment.ifname(index, "eth0"), expected);
        }
    }

    /// The same input gives the same plan, and both forms of an annotation give the same plan.
    #[test]
    fn the_plan_is_deterministic_and_both_forms_agree(mut case in cases()) {
        let fixture = case.fixture();
        let plan = |pod: &PodView| fixture.plan(Some(pod)).map(|plan| text(&plan)).map_err(|error| error.to_string());
        prop_assert_eq!(plan(&case.pod()), plan(&case.pod()));
        case.entries.retain(Entry::is_simple);
        case.default = None;
        let short: Vec<_> = case.entries.iter().map(Entry::short).collect();
        let planned_short = plan(&pod(&short.join(",")));
        prop_assert_eq!(plan(&case.pod()), planned_short);
    }

    /// One more network at the end changes nothing for the networks before it.
    #[test]
    fn an_additional_network_changes_no_other(mut case in cases()) {
        let fixture = case.fixture();
        let Ok(before) = fixture.plan(Some(&case.pod())) else {
            return Ok(());
        };
        let last = Entry { namespace: "", name: "b", interface: None, mac: false, route: None };
        case.entries.push(last);
        let after = fixture.plan(Some(&case.pod())).unwrap();
        prop_assert_eq!(text(&after[..before.len()]), text(&before));
    }
}
