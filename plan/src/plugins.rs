//! Networks without any configuration, of which only a plugin of that name is there: the original proposal of network definitions knew
//! them. The plugin is asked for its versions, and the configuration is made from the highest that is understood on both sides.

use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

use super::config::Draft;

/// The plugins of a node.
pub trait Plugins: Send + Sync {
    /// What a plugin says of itself; `None` where there is no such plugin.
    fn ask(&self, plugin: &str) -> Option<Result<Spoken, String>>;
}

/// What a plugin answers to VERSION.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoken {
    /// The versions that it speaks.
    pub versions: Vec<String>,
}

/// The capabilities of the reference plugins 1.9.1, by what their `runtimeConfig` reads. CNI has no way for a plugin to declare its
/// capabilities: a configuration does, and a generated one can for plugins that are known. Any other plugin needs a configuration.
const CAPABILITIES: [(&str, &[&str]); 7] = [
    ("bandwidth", &["bandwidth"]),
    ("bridge", &["mac"]),
    ("host-device", &["deviceID"]),
    ("macvlan", &["mac"]),
    ("portmap", &["portMappings"]),
    ("tap", &["mac"]),
    ("tuning", &["mac"]),
];

/// For who plans where no plugin can be asked.
pub struct NoPlugins;

impl Plugins for NoPlugins {
    fn ask(&self, _plugin: &str) -> Option<Result<Spoken, String>> {
        None
    }
}

/// The configuration of a network whose plugin has its name; `None` where there is no such plugin.
pub(super) fn generated(name: &str, plugins: &dyn Plugins) -> Option<Result<Draft, String>> {
    let said = plugins.ask(name)?;
    Some(said.and_then(|Spoken { versions }| {
        let version = highest(&versions).ok_or_else(|| {
            format!(
                "spec.config is empty, and plugin {name} speaks CNI {}, none of which is understood here: give the network a configuration, or replace the plugin",
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
