//! Networks without any configuration, of which only a plugin of that name is there: the original proposal of network definitions knew
//! them. The plugin is asked for its versions, and the configuration is made from the highest that is understood on both sides.

use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

use super::config::Draft;

/// The plugins of a node.
pub trait Plugins: Send + Sync {
    /// The versions that a plugin speaks, as it says itself; `None` where there is no such plugin.
    fn versions(&self, plugin: &str) -> Option<Result<Vec<String>, String>>;
}

/// For who plans where no plugin can be asked.
pub struct NoPlugins;

impl Plugins for NoPlugins {
    fn versions(&self, _plugin: &str) -> Option<Result<Vec<String>, String>> {
        None
    }
}

/// The configuration of a network whose plugin has its name; `None` where there is no such plugin.
pub(super) fn generated(name: &str, plugins: &dyn Plugins) -> Option<Result<Draft, String>> {
    let versions = plugins.versions(name)?;
    Some(versions.and_then(|versions| {
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
        let map: Map<_, _> = texts
            .into_iter()
            .map(|(key, text)| (key.to_owned(), Value::String(text)))
            .collect();
        Ok(Draft::from_map(map))
    }))
}

fn highest(versions: &[String]) -> Option<Version> {
    let known = versions.iter().filter_map(|text| text.parse().ok());
    known.filter(|version| SUPPORTED.contains(version)).max()
}
