//! Generates configurations for networks that have none, only a plugin with the network's name: a case of the original proposal of
//! network definitions. The configuration has the highest version that both the plugin's VERSION result and this program know.

use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

use super::{PluginVersions, Plugins, draft::Draft};

/// The capabilities of the reference plugins 1.9.1, as their `runtimeConfig` reads them. In CNI a plugin cannot declare capabilities,
/// only its configuration can: a generated one declares those of known plugins. Any other plugin needs a configuration of its own.
const CAPABILITIES: [(&str, &[&str]); 7] = [
    ("bandwidth", &["bandwidth"]),
    ("bridge", &["mac"]),
    ("host-device", &["deviceID"]),
    ("macvlan", &["mac"]),
    ("portmap", &["portMappings"]),
    ("tap", &["mac"]),
    ("tuning", &["mac"]),
];

/// Returns the configuration of a network with the name of a plugin, or `None` where there is no such plugin.
pub(super) fn generated(name: &str, plugins: &dyn Plugins) -> Option<Result<Draft, String>> {
    let answer = plugins.versions(name)?;
    Some(answer.and_then(|PluginVersions { versions }| {
        let version = highest(&versions).ok_or_else(|| {
            format!(
                "spec.config is empty, and plugin {name} supports CNI {}, none of which multus supports: write a spec.config, or replace the plugin",
                versions.join(", ")
            )
        })?;
        let texts = [
            ("cniVersion", version.to_string()),
            ("name", name.to_owned()),
            ("type", name.to_owned()),
        ];
        let mut map: Map<_, _> = texts
            .into_iter()
            .map(|(key, text)| (key.to_owned(), Value::String(text)))
            .collect();
        if let Some((_, known)) = CAPABILITIES.iter().find(|(plugin, _)| *plugin == name) {
            let switches = known.iter().map(|one| ((*one).to_owned(), Value::Bool(true)));
            map.insert("capabilities".to_owned(), Value::Object(switches.collect()));
        }
        Ok(Draft::from_map(map))
    }))
}

fn highest(versions: &[String]) -> Option<Version> {
    let known = versions.iter().filter_map(|text| text.parse().ok());
    known.filter(|version| SUPPORTED.contains(version)).max()
}
