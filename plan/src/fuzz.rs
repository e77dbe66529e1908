//! Bounded fuzzing of untrusted input: annotations, network definitions and CNI configurations.
//!
//! A run is short and always the same. `FUZZ_SECONDS=60 cargo test -p plan fuzz::` runs each target that long, from another seed.

use std::path::Path;

use cni::config::NetworkConfig;
use serde_json::{Map, json};

use crate::{Inputs, NoFiles, NoPlugins, PodView, netconf::Netconf, objects};

fn fuzz(corpus: &str, accepts: impl Fn(&[u8]) -> bool) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    testkit::fuzz::corpus::fuzz(&dir.join(corpus), accepts);
}

#[test]
fn annotations() {
    fuzz("annotation", |input| {
        let text = String::from_utf8_lossy(input);
        let Ok(selections) = crate::parse_annotation(&text, "shop") else {
            return false;
        };
        for selection in selections {
            assert!(!selection.name.is_empty() && !selection.namespace.is_empty());
            let interface = selection.interface.as_deref();
            assert!(interface.is_none_or(|name| name.parse::<cni::env::IfName>().is_ok()));
        }
        true
    });
}

/// A cluster with the same definition under every name.
struct SingleDefinition(std::sync::Arc<crate::Nad>);

impl crate::Definitions for SingleDefinition {
    fn nad(&self, _namespace: &str, _name: &str) -> Option<std::sync::Arc<crate::Nad>> {
        Some(std::sync::Arc::clone(&self.0))
    }
}

#[test]
fn definitions() {
    let netconf = json!({"delegates": [{"cniVersion": "1.0.0", "name": "p", "type": "bridge"}]});
    let netconf = Netconf::effective(netconf.to_string().as_bytes(), &Map::new(), true).unwrap();
    let mut pod = PodView {
        namespace: "shop".to_owned(),
        name: "cart".to_owned(),
        ..PodView::default()
    };
    let networks = r#"[{"name": "n", "cni-args": {"tier": "gold"}}, {"name": "n"}]"#;
    pod.annotations
        .insert(crate::NETWORKS_ANNOTATION.to_owned(), networks.to_owned());
    fuzz("nad", |input| {
        let Some(nad) = objects::read_definition(input) else {
            return false;
        };
        let definitions = SingleDefinition(nad);
        let inputs = Inputs {
            netconf: &netconf,
            definitions: &definitions,
            files: &NoFiles,
            plugins: &NoPlugins,
        };
        let Ok(plan) = crate::attachments(Some(&pod), inputs) else {
            return false;
        };
        assert_eq!(plan.len(), 3);
        for attachment in &plan {
            let config = &attachment.config;
            assert!(!config.name.is_empty() && !config.plugins.is_empty());
        }
        let with_args = plan[1].config.plugins.iter();
        for plugin in with_args {
            assert_eq!(plugin.value["args"]["cni"]["tier"], "gold");
        }
        true
    });
}

#[test]
fn configurations() {
    fuzz("config", |input| {
        let Ok(config) = NetworkConfig::parse(input) else {
            return false;
        };
        assert!(!config.name.is_empty() && !config.name.contains('/'));
        assert!(config.plugins.iter().all(|plugin| !plugin.kind.is_empty()));
        assert_eq!(config.bytes(), input, "handed on as it was written");
        true
    });
}
