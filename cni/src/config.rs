//! Network configurations: a single plugin (`conf`) or a list of them (`conflist`), read without loss.
//!
//! Keys are neither dropped nor reordered, since those that this module does not know belong to the plugins.

use serde_json::{Map, Value};

use crate::env::{EnvError, check_network_name};
use crate::version::{SUPPORTED, Version, VersionError};

/// A network: one plugin or a chain of them.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// The network's name, valid as part of a file name.
    pub name: String,
    /// The version as written; empty if the configuration states none.
    pub cni_version: String,
    /// Whether the configuration is a list.
    pub is_list: bool,
    /// Whether CHECK succeeds without running a plugin.
    pub disable_check: bool,
    /// Whether GC succeeds without running a plugin.
    pub disable_gc: bool,
    /// The plugins in the order of ADD; never empty.
    pub plugins: Vec<Plugin>,
    value: Map<String, Value>,
    bytes: Vec<u8>,
}

/// One plugin of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// The program's name (`type`).
    pub kind: String,
    /// The capabilities that are `true`, in the order written.
    pub capabilities: Vec<String>,
    /// The plugin's complete configuration.
    pub value: Map<String, Value>,
}

/// The reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not JSON.
    #[error("network configuration is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is JSON, but no object.
    #[error("network configuration is not a JSON object")]
    NotAnObject,
    /// The name is missing or empty.
    #[error("network configuration has no name")]
    NameMissing,
    /// The name cannot be part of a file name.
    #[error(transparent)]
    Name(EnvError),
    /// `cniVersion` or an entry of `cniVersions` is not a version.
    #[error("network {network:?} has an invalid cniVersion: {source}")]
    Version {
        network: String,
        /// The value that is not a version.
        source: VersionError,
    },
    /// The configuration names neither a plugin nor a list of plugins.
    #[error("network {0:?} has neither a type nor plugins: name its plugin in \"type\"")]
    NothingToRun(String),
    /// The list of plugins is empty.
    #[error("network {0:?} has an empty list of plugins: name at least one")]
    NoPlugins(String),
    /// A plugin of the list has no type.
    #[error("plugin {index} of network {network:?} has no type")]
    TypeMissing {
        network: String,
        /// The position in the list, from 0.
        index: usize,
    },
    /// A field has the wrong JSON type.
    #[error("{field} of network {network:?} is not {expected}")]
    FieldType {
        /// The network; empty while its name is not yet known.
        network: String,
        field: &'static str,
        /// The expected type, in words.
        expected: &'static str,
    },
}

impl NetworkConfig {
    /// Returns the type of the first plugin, which usually creates the interface.
    pub fn kind(&self) -> &str {
        self.plugins.first().map_or("", |plugin| &plugin.kind)
    }

    /// Reads a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let mut config = Self::from_map(object(bytes)?)?;
        config.bytes = bytes.to_vec();
        Ok(config)
    }

    /// Reads a configuration; `name` stands in for a missing or empty name.
    pub fn parse_named(bytes: &[u8], name: &str) -> Result<Self, ConfigError> {
        let mut value = object(bytes)?;
        if text(&value, "name", "")?.is_empty() {
            value.insert("name".to_owned(), Value::String(name.to_owned()));
            return Self::from_map(value);
        }
        Self::parse(bytes)
    }

    /// Reads a configuration that is already parsed as JSON.
    pub fn from_map(value: Map<String, Value>) -> Result<Self, ConfigError> {
        let name = text(&value, "name", "")?;
        if name.is_empty() {
            return Err(ConfigError::NameMissing);
        }
        check_network_name(&name).map_err(ConfigError::Name)?;
        let (is_list, plugins) = plugins(&name, &value)?;
        Ok(Self {
            cni_version: cni_version(&name, &value)?,
            is_list,
            disable_check: flag(&name, &value, "disableCheck")?,
            disable_gc: flag(&name, &value, "disableGC")?,
            plugins,
            bytes: serde_json::to_vec(&value).expect("JSON values always serialise"),
            value,
            name,
        })
    }

    /// Returns the configuration byte for byte as it was read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the configuration as JSON.
    pub fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    /// Returns the version for comparisons; a configuration without one has 0.1.0.
    pub fn version(&self) -> Version {
        Version::parse(&self.cni_version).expect("checked when read")
    }

    /// Returns the same network with another version, also in its bytes.
    #[must_use]
    pub fn with_version(&self, version: Version) -> Self {
        let mut config = self.clone();
        config.cni_version = version.to_string();
        config.value.shift_remove("cniVersions");
        config
            .value
            .insert("cniVersion".to_owned(), Value::String(version.to_string()));
        config.bytes = serde_json::to_vec(&config.value).expect("JSON values always serialise");
        config
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, ConfigError> {
    match serde_json::from_slice(bytes)? {
        Value::Object(value) => Ok(value),
        _ => Err(ConfigError::NotAnObject),
    }
}

/// Returns whether the object is a list, and its plugins. An object with a type is a plugin, whatever else it contains.
fn plugins(network: &str, value: &Map<String, Value>) -> Result<(bool, Vec<Plugin>), ConfigError> {
    if !text(value, "type", network)?.is_empty() {
        return Ok((false, vec![plugin(network, 0, value)?]));
    }
    let list = match value.get("plugins") {
        None | Some(Value::Null) => return Err(ConfigError::NothingToRun(network.to_owned())),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(ConfigError::NoPlugins(network.to_owned()));
        }
        Some(Value::Array(list)) => list,
        Some(_) => return Err(wrong_type(network, "plugins", "an array")),
    };
    let plugins = list.iter().enumerate().map(|(index, entry)| match entry {
        Value::Object(entry) => plugin(network, index, entry),
        _ => Err(wrong_type(network, "plugins", "an array of objects")),
    });
    Ok((true, plugins.collect::<Result<_, _>>()?))
}

fn plugin(network: &str, index: usize, value: &Map<String, Value>) -> Result<Plugin, ConfigError> {
    let kind = text(value, "type", network)?;
    if kind.is_empty() {
        return Err(ConfigError::TypeMissing {
            network: network.to_owned(),
            index,
        });
    }
    let mut capabilities = Vec::new();
    match value.get("capabilities") {
        None | Some(Value::Null) => {}
        Some(Value::Object(entries)) => {
            for (capability, declared) in entries {
                if declared
                    .as_bool()
                    .ok_or_else(|| wrong_type(network, "capabilities", "an object of booleans"))?
                {
                    capabilities.push(capability.clone());
                }
            }
        }
        Some(_) => return Err(wrong_type(network, "capabilities", "an object of booleans")),
    }
    Ok(Plugin {
        kind,
        capabilities,
        value: value.clone(),
    })
}

/// Returns `cniVersion`, or the newest of `cniVersions` (1.1.0, section 1) that is supported.
fn cni_version(network: &str, value: &Map<String, Value>) -> Result<String, ConfigError> {
    let version_error = |source| ConfigError::Version {
        network: network.to_owned(),
        source,
    };
    let stated = text(value, "cniVersion", network)?;
    Version::parse(&stated).map_err(version_error)?;
    let listed = match value.get("cniVersions") {
        None | Some(Value::Null) => return Ok(stated),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err(wrong_type(network, "cniVersions", "an array of strings")),
    };
    let mut best = if stated.is_empty() {
        None
    } else {
        Version::parse(&stated).ok()
    };
    for entry in listed {
        let entry = entry
            .as_str()
            .ok_or_else(|| wrong_type(network, "cniVersions", "an array of strings"))?;
        let version = Version::parse(entry).map_err(version_error)?;
        if SUPPORTED.contains(&version) {
            best = best.max(Some(version));
        }
    }
    Ok(best.map(|version| version.to_string()).unwrap_or(stated))
}

fn text(
    value: &Map<String, Value>,
    field: &'static str,
    network: &str,
) -> Result<String, ConfigError> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong_type(network, field, "a string")),
    }
}

/// Reads a boolean, which may be written as text, as the reference library allows.
fn flag(
    network: &str,
    value: &Map<String, Value>,
    field: &'static str,
) -> Result<bool, ConfigError> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(wrong_type(network, field, "a boolean")),
    }
}

fn wrong_type(network: &str, field: &'static str, expected: &'static str) -> ConfigError {
    ConfigError::FieldType {
        network: network.to_owned(),
        field,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        NetworkConfig::parse(text.as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn single_plugin_is_read_without_loss() {
        let bytes = br#"{"type":"bridge", "zeta":1.0, "big":18446744073709551615,"name":"n","cniVersion":"0.4.0","capabilities":{"ips":true,"mac":false,"bandwidth":true}}"#;
        let config = NetworkConfig::parse(bytes).unwrap();
        assert_eq!(
            (config.name.as_str(), config.is_list, config.version()),
            ("n", false, Version::V0_4_0)
        );
        assert_eq!(config.plugins[0].kind, "bridge");
        assert_eq!(config.plugins[0].capabilities, ["ips", "bandwidth"]);
        assert_eq!(config.bytes(), bytes);
        assert!(
            serde_json::to_string(&config.plugins[0].value)
                .unwrap()
                .contains(r#""zeta":1.0,"big":18446744073709551615"#)
        );
    }

    #[test]
    fn list_of_plugins_is_read() {
        let config = NetworkConfig::parse(br#"{"name":"l","cniVersion":"1.0.0","disableCheck":"true","disableGC":true,"plugins":[{"type":"a"},{"type":"b"}]}"#).unwrap();
        assert!(config.is_list && config.disable_check && config.disable_gc);
        let kinds: Vec<_> = config
            .plugins
            .iter()
            .map(|plugin| plugin.kind.as_str())
            .collect();
        assert_eq!(kinds, ["a", "b"]);
    }

    #[test]
    fn newest_supported_of_several_versions_counts() {
        let config = NetworkConfig::parse(br#"{"name":"l","cniVersion":"0.4.0","cniVersions":["0.3.1","1.1.0","9.0.0"],"type":"a"}"#).unwrap();
        assert_eq!(config.version(), Version::V1_1_0);
        assert_eq!(
            config.with_version(Version::V1_0_0).bytes(),
            br#"{"name":"l","cniVersion":"1.0.0","type":"a"}"#
        );
    }

    #[test]
    fn missing_name_is_filled_in() {
        let config = NetworkConfig::parse_named(br#"{"type":"a"}"#, "storage").unwrap();
        assert_eq!(config.bytes(), br#"{"type":"a","name":"storage"}"#);
        let config =
            NetworkConfig::parse_named(br#"{"type": "a", "name":"own"}"#, "storage").unwrap();
        assert_eq!(config.name, "own");
    }

    #[test]
    fn errors_name_the_invalid_field() {
        assert!(error("{").starts_with("network configuration is not JSON"));
        assert_eq!(error("[]"), "network configuration is not a JSON object");
        assert_eq!(
            error(r#"{"type":"a"}"#),
            "network configuration has no name"
        );
        assert!(
            error(r#"{"name":"../x","type":"a"}"#).starts_with("invalid network name \"../x\"")
        );
        assert_eq!(
            error(r#"{"name":"n"}"#),
            "network \"n\" has neither a type nor plugins: name its plugin in \"type\""
        );
        assert_eq!(
            error(r#"{"name":"n","plugins":[]}"#),
            "network \"n\" has an empty list of plugins: name at least one"
        );
        assert_eq!(
            error(r#"{"name":"n","plugins":[{"type":"a"},{}]}"#),
            "plugin 1 of network \"n\" has no type"
        );
        assert_eq!(
            error(r#"{"name":"n","plugins":{}}"#),
            "plugins of network \"n\" is not an array"
        );
        assert_eq!(
            error(r#"{"name":"n","type":7}"#),
            "type of network \"n\" is not a string"
        );
        assert_eq!(
            error(r#"{"name":"n","type":"a","cniVersion":"x"}"#),
            "network \"n\" has an invalid cniVersion: \"x\" is not a version"
        );
        assert_eq!(
            error(r#"{"name":"n","type":"a","capabilities":{"ips":"yes"}}"#),
            "capabilities of network \"n\" is not an object of booleans"
        );
        assert_eq!(
            error(r#"{"name":"n","type":"a","disableGC":1}"#),
            "disableGC of network \"n\" is not a boolean"
        );
    }
}
