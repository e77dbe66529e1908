//! Reads the key `ownPlugins` of the daemon's file.

use api::plugins::{NAMES, WHEREABOUTS};
use serde_json::{Map, Value};

use crate::{daemon_config::ConfigError, json};

const KEYS: [&str; 4] = ["install", "only", "skip", "first"];

/// Which of our plugins this node gets, and when they are preferred to others of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPlugins {
    /// The names of the plugins to install, in the order of [`NAMES`].
    pub names: Vec<&'static str>,
    /// Whether ours are searched before all others, and not after them.
    pub first: bool,
}

/// The reason why the key's value is invalid.
#[derive(Debug, thiserror::Error)]
pub enum OwnPluginsError {
    /// The value has a key that does not exist.
    #[error("key \"ownPlugins\" has no \"{0}\": its keys are {known}", known = KEYS.join(", "))]
    Key(String),
    /// There is no plugin of this name.
    #[error("key \"ownPlugins\" names `{0}`, but multus-rs has only {known}", known = NAMES.join(", "))]
    Plugin(String),
}

impl OwnPlugins {
    /// Reads the key; without it, all plugins are installed and searched last. That of whereabouts is one of them where its pools are served,
    /// also behind `only`, which chooses among the others.
    pub(crate) fn read(
        config: &Map<String, Value>,
        serves_whereabouts: bool,
    ) -> Result<Self, ConfigError> {
        let empty = Map::new();
        let keys = json::object(config, "ownPlugins")?.unwrap_or(&empty);
        let unknown = |key: &&String| !KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        if let Some(key) = keys.keys().find(unknown) {
            return Err(OwnPluginsError::Key(key.clone()).into());
        }
        let is_installed = json::optional_boolean(keys, "install")?.unwrap_or(true);
        let only = json::strings(keys, "only")?.unwrap_or_default();
        // Others' plugins may be named here, too: the published chart's value has flannel.
        let skip = json::strings(keys, "skip")?.unwrap_or_default();
        if let Some(name) = only.iter().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(OwnPluginsError::Plugin(name.clone()).into());
        }
        let contains = |list: &[String], name: &str| list.iter().any(|entry| entry == name);
        let is_wanted = |name: &&str| {
            is_installed && (only.is_empty() || contains(&only, name)) && !contains(&skip, name)
        };
        let mut names: Vec<_> = NAMES.iter().copied().filter(is_wanted).collect();
        if serves_whereabouts && is_installed && !contains(&skip, WHEREABOUTS) {
            names.push(WHEREABOUTS);
        }
        Ok(Self {
            names,
            first: json::boolean(keys, "first")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<OwnPlugins, String> {
        let config = Map::from_iter([("ownPlugins".to_owned(), value)]);
        OwnPlugins::read(&config, false).map_err(|error| error.to_string())
    }

    #[test]
    fn all_plugins_are_installed_and_searched_last_by_default() {
        for value in [json!(null), json!({}), json!({"install": null, "only": []})] {
            let plugins = read(value).unwrap();
            assert_eq!((plugins.names.as_slice(), plugins.first), (NAMES, false));
        }
    }

    #[test]
    fn names_are_chosen() {
        let names = |value| read(value).unwrap().names;
        assert_eq!(
            names(json!({"only": ["static", "macvlan"]})),
            ["macvlan", "static"]
        );
        assert_eq!(
            names(json!({"only": ["macvlan"], "skip": ["macvlan"]})),
            [""; 0]
        );
        assert!(!names(json!({"skip": ["flannel", "macvlan"]})).contains(&"macvlan"));
        assert!(names(json!({"install": false})).is_empty());
        assert!(read(json!({"First": true})).unwrap().first);
    }

    #[test]
    fn mistakes_are_refused() {
        let error = |value| read(value).unwrap_err();
        assert!(error(json!({"only": ["macvaln"]})).contains("names `macvaln`"));
        assert!(error(json!({"frist": true})).contains("no \"frist\""));
        assert!(error(json!({"only": "macvlan"})).contains("list"));
        assert!(error(json!([])).contains("object"));
    }
}
