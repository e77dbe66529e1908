//! Fuzz targets of untrusted input: annotations, network definitions and CNI configurations. `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use std::sync::{Arc, LazyLock};

use cni::config::NetworkConfig;
use serde_json::{Map, json};

use crate::{Inputs, NoFiles, NoPlugins, PodView, netconf::Netconf, objects};

/// The annotation of a pod.
pub fn annotations(input: &[u8]) -> bool {
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
}

/// A cluster with the same definition under every name.
struct SingleDefinition(Arc<crate::Nad>);

impl crate::Definitions for SingleDefinition {
    fn nad(&self, _namespace: &str, _name: &str) -> Option<Arc<crate::Nad>> {
        Some(Arc::clone(&self.0))
    }
}

/// A definition as the API server sends it, in a pod that selects it twice.
pub fn definitions(input: &[u8]) -> bool {
    static INPUTS: LazyLock<(Netconf, PodView)> = LazyLock::new(|| {
        let delegates = json!([{"cniVersion": "1.0.0", "name": "p", "type": "bridge"}]);
        let netconf = json!({ "delegates": delegates }).to_string();
        let netconf = Netconf::effective(netconf.as_bytes(), &Map::new(), true);
        let networks = r#"[{"name": "n", "cni-args": {"tier": "gold"}}, {"name": "n"}]"#;
        let annotation = (crate::NETWORKS_ANNOTATION.to_owned(), networks.to_owned());
        let pod = PodView {
            namespace: "shop".to_owned(),
            name: "cart".to_owned(),
            annotations: [annotation].into(),
            ..PodView::default()
        };
        (netconf.expect("a configuration with one delegate"), pod)
    });
    let (netconf, pod) = &*INPUTS;
    let Some(nad) = objects::read_definition(input) else {
        return false;
    };
    let definitions = SingleDefinition(nad);
    let inputs = Inputs {
        netconf,
        definitions: &definitions,
        files: &NoFiles,
        plugins: &NoPlugins,
    };
    let Ok(plan) = crate::attachments(Some(pod), inputs) else {
        return false;
    };
    assert_eq!(plan.len(), 3);
    for attachment in &plan {
        let config = &attachment.config;
        assert!(!config.name.is_empty() && !config.plugins.is_empty());
    }
    for plugin in &plan[1].config.plugins {
        assert_eq!(plugin.value["args"]["cni"]["tier"], "gold");
    }
    true
}

/// A CNI configuration, of one plugin or of a list.
pub fn configurations(input: &[u8]) -> bool {
    let Ok(config) = NetworkConfig::parse(input) else {
        return false;
    };
    assert!(!config.name.is_empty() && !config.name.contains('/'));
    assert!(config.plugins.iter().all(|plugin| !plugin.kind.is_empty()));
    assert_eq!(config.bytes(), input, "handed on as it was written");
    true
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn annotations() {
        run("plan_annotations", super::annotations);
    }

    #[test]
    fn definitions() {
        run("plan_definitions", super::definitions);
    }

    #[test]
    fn configurations() {
        run("plan_configurations", super::configurations);
    }
}
