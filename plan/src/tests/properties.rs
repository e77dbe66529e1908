//! What holds for every pod of every small cluster: properties of the plan, over generated pods, definitions and configurations.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{PRIMARY, World, pod, with_default};
use crate::{Attachment, PodView};

/// One entry of an annotation.
#[derive(Debug, Clone)]
struct Wish {
    namespace: &'static str,
    name: &'static str,
    interface: Option<&'static str>,
    mac: bool,
    route: Option<&'static [&'static str]>,
}

/// A cluster's switches and the wishes of a pod in it.
#[derive(Debug, Clone)]
struct Situation {
    isolated: bool,
    globals: &'static str,
    further: Vec<&'static str>,
    default: Option<&'static str>,
    wishes: Vec<Wish>,
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let wish = (
        prop::sample::select(vec!["", "shop", "infra", "default"]),
        prop::sample::select(vec!["a", "b", "list", "absent"]),
        prop::option::weighted(0.3, prop::sample::select(vec!["ext0", "ext1", "net1"])),
        any::<bool>(),
        prop::option::weighted(
            0.2,
            prop::sample::select(vec![&["10.0.0.1"][..], &["fd00::1"], &[]]),
        ),
    );
    let wish = wish.prop_map(|(namespace, name, interface, mac, route)| Wish {
        namespace,
        name,
        interface,
        mac,
        route,
    });
    prop::collection::vec(wish, 0..6)
}

fn situations() -> impl Strategy<Value = Situation> {
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
        wishes(),
    )
        .prop_map(|(isolated, globals, further, default, wishes)| Situation {
            isolated,
            globals,
            further,
            default,
            wishes,
        })
}

impl Situation {
    fn world(&self) -> World {
        let list = r#"{"cniVersion":"1.0.0","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#;
        let mut world = World::new()
            .file(
                "/etc/cni/multus/net.d/disk.conf",
                r#"{"cniVersion":"1.0.0","name":"disk","type":"macvlan"}"#,
            )
            .bridge("kube-system", "central")
            .with("namespaceIsolation", json!(self.isolated))
            .with("globalNamespaces", json!(self.globals))
            .with("defaultNetworks", json!(self.further));
        for namespace in ["shop", "infra", "default"] {
            world = world
                .bridge(namespace, "a")
                .bridge(namespace, "b")
                .nad(namespace, "list", list);
        }
        world
    }

    fn annotation(&self) -> String {
        let entries: Vec<Value> = self.wishes.iter().map(Wish::json).collect();
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

impl Wish {
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

    /// The same in the short form.
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

/// A plan as text, for comparison.
fn text(plan: &[Attachment]) -> Vec<String> {
    let one = |(index, attachment): (usize, &Attachment)| {
        format!(
            "{} {} {} {}",
            attachment.name,
            attachment.ifname(index, "eth0"),
            attachment.master,
            String::from_utf8_lossy(attachment.config.bytes())
        )
    };
    plan.iter().enumerate().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// All that was asked for, in that order and nothing else, or an error: never less.
    #[test]
    fn a_pod_gets_all_that_it_asks_for_or_an_error(situation in situations()) {
        let world = situation.world();
        let Ok(plan) = world.plan(Some(&situation.pod())) else {
            return Ok(());
        };
        let further = situation.further.len();
        prop_assert_eq!(plan.len(), 1 + further + situation.wishes.len());
        for (attachment, wish) in plan[1 + further..].iter().zip(&situation.wishes) {
            prop_assert_eq!(&attachment.name, &wish.full_name());
            prop_assert_eq!(attachment.selection.is_some(), true);
        }
        prop_assert!(plan[0].master && plan[1..].iter().all(|one| !one.master));
        if situation.default.is_none() {
            prop_assert_eq!(plan[0].config.bytes(), PRIMARY.as_bytes());
        }
    }

    /// Whatever fails is a reason that is there to be seen.
    #[test]
    fn an_error_has_a_reason(situation in situations()) {
        let world = situation.world();
        let outcome = world.plan(Some(&situation.pod()));
        let of_wishes = |meant: &dyn Fn(&Wish) -> bool| situation.wishes.iter().any(meant);
        let is_absent = of_wishes(&|wish| wish.name == "absent") || situation.default == Some("absent");
        let open = |namespace: &str| {
            let globals = if situation.globals.is_empty() { "default" } else { situation.globals };
            namespace == "shop" || globals.split(',').any(|one| one.trim() == namespace)
        };
        let is_closed = situation.isolated
            && (of_wishes(&|wish| !wish.namespace.is_empty() && !open(wish.namespace))
                || situation.default == Some("infra/a") && !open("infra"));
        let many = situation.default == Some("a,b");
        let routes: Vec<_> = situation.wishes.iter().filter_map(|wish| wish.route).collect();
        let different: BTreeSet<_> = routes.iter().collect();
        let is_contested = different.len() < routes.len()
            || routes.len() > 1 && routes.iter().any(|route| route.is_empty());
        prop_assert_eq!(outcome.is_err(), is_absent || is_closed || many || is_contested, "{:?}", outcome.err());
    }

    /// An interface without a name of its own is numbered by its place; a name that was asked for is used.
    #[test]
    fn interfaces_are_numbered_by_their_place(situation in situations()) {
        let world = situation.world();
        let Ok(plan) = world.plan(Some(&situation.pod())) else {
            return Ok(());
        };
        let first = 1 + situation.further.len();
        for (index, attachment) in plan.iter().enumerate().skip(1) {
            let wish = index.checked_sub(first).map(|place| &situation.wishes[place]);
            let expected = match wish.and_then(|wish| wish.interface) {
                Some(name) => name.to_owned(),
                None => format!("net{index}"),
            };
            prop_assert_eq!(attachment.ifname(index, "eth0"), expected);
        }
    }

    /// The same input gives the same plan, and both forms of an annotation mean the same.
    #[test]
    fn the_plan_is_a_function_and_both_forms_agree(mut situation in situations()) {
        let world = situation.world();
        let plan = |pod: &PodView| world.plan(Some(pod)).map(|plan| text(&plan)).map_err(|error| error.to_string());
        prop_assert_eq!(plan(&situation.pod()), plan(&situation.pod()));
        situation.wishes.retain(Wish::is_simple);
        situation.default = None;
        let short: Vec<_> = situation.wishes.iter().map(Wish::short).collect();
        let of_short = plan(&pod(&short.join(",")));
        prop_assert_eq!(plan(&situation.pod()), of_short);
    }

    /// One more network at the end changes nothing of those before it.
    #[test]
    fn a_further_network_changes_no_other(mut situation in situations()) {
        let world = situation.world();
        let Ok(before) = world.plan(Some(&situation.pod())) else {
            return Ok(());
        };
        let last = Wish { namespace: "", name: "b", interface: None, mac: false, route: None };
        situation.wishes.push(last);
        let after = world.plan(Some(&situation.pod())).unwrap();
        prop_assert_eq!(text(&after[..before.len()]), text(&before));
    }
}
