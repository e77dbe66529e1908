//! Completes a CNI configuration before its plugins get it. A configuration that needs no change keeps its exact bytes.

use cni::config::NetworkConfig;
use serde_json::{Map, Value, json};

use super::{is_multus, limits};

/// A configuration that is not complete yet.
pub(super) struct Draft {
    map: Map<String, Value>,
    original: Option<Vec<u8>>,
}

impl Draft {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let map = serde_json::from_slice(bytes).map_err(|error| {
            format!("the CNI configuration is not a JSON object: {error}; correct it")
        })?;
        Ok(Self {
            map,
            original: Some(bytes.to_vec()),
        })
    }

    pub(super) fn from_map(map: Map<String, Value>) -> Self {
        Self {
            map,
            original: None,
        }
    }

    /// Returns `name`, or an empty text when it is absent or of another type.
    pub(super) fn name(&self) -> &str {
        text(&self.map, "name")
    }

    /// Reads a switch, which may also be a text: the reference library allows that.
    pub(super) fn switch(&self, key: &str) -> bool {
        match self.map.get(key) {
            Some(Value::Bool(on)) => *on,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// Whether the configuration has a plugin or a list of plugins.
    pub(super) fn is_configuration(&self) -> bool {
        !self.is_list() || self.map.get("plugins").is_some_and(Value::is_array)
    }

    /// Whether a plugin of the configuration is Multus itself.
    pub(super) fn calls_multus(&self) -> bool {
        let plugins = self.map.get("plugins").and_then(Value::as_array);
        let listed = plugins.into_iter().flatten().filter_map(Value::as_object);
        listed
            .chain([&self.map])
            .any(|plugin| is_multus(text(plugin, "type")))
    }

    /// Sets `name` where it is missing or empty. A name that is not a string is an error, not a missing name.
    pub(super) fn name_if_missing(&mut self, name: &str) -> Result<(), String> {
        match self.map.get("name") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => {
                return Err(format!(
                    "\"name\" of the CNI configuration is {other}, but must be a string: put it in quotes"
                ));
            }
        }
        if self.name().is_empty() {
            self.set("name", Value::String(name.to_owned()));
        }
        Ok(())
    }

    /// Sets Multus' own version in a list without one. A single configuration without one is 0.1.0 by the specification.
    pub(super) fn version_if_missing(&mut self, version: &str) {
        if self.is_list() && text(&self.map, "cniVersion").is_empty() && !version.is_empty() {
            self.set("cniVersion", Value::String(version.to_owned()));
        }
    }

    /// Merges `args` into `args.cni` of every plugin.
    pub(super) fn merge_cni_args(&mut self, args: &Map<String, Value>) -> Result<(), String> {
        if args.is_empty() {
            return Ok(());
        }
        self.check_plugins()?;
        self.original = None;
        if !self.is_list() {
            return merge_args(&mut self.map, args);
        }
        self.plugins_mut()
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .try_for_each(|plugin| merge_args(plugin, args))
    }

    /// Writes the device ID into every plugin, under both keys that plugins read.
    pub(super) fn set_device(&mut self, id: &str) {
        self.original = None;
        let keys = ["deviceID", "pciBusID"].map(|key| (key.to_owned(), Value::from(id)));
        if !self.is_list() {
            return self.map.extend(keys);
        }
        for plugin in self
            .plugins_mut()
            .iter_mut()
            .filter_map(Value::as_object_mut)
        {
            plugin.extend(keys.clone());
        }
    }

    pub(super) fn append_plugins(&mut self, plugins: Vec<Map<String, Value>>) {
        if !plugins.is_empty() {
            self.original = None;
            self.plugins_mut()
                .extend(plugins.into_iter().map(Value::Object));
        }
    }

    /// Parses the completed configuration, which fails without plugins, with too many, or with an empty type.
    pub(super) fn finish(self) -> Result<NetworkConfig, String> {
        self.check_plugins()?;
        let bytes = match self.original {
            Some(bytes) => bytes,
            None => serde_json::to_vec(&self.map).expect("a JSON map always serialises"),
        };
        NetworkConfig::parse(&bytes).map_err(|error| error.to_string())
    }

    /// Whether this is a list. A non-empty `type` at the top makes it a single configuration, whatever else it has.
    pub(super) fn is_list(&self) -> bool {
        text(&self.map, "type").is_empty()
    }

    fn check_plugins(&self) -> Result<(), String> {
        let plugins = self.map.get("plugins").and_then(Value::as_array);
        limits::check_plugins(plugins.map_or(0, Vec::len))
    }

    fn set(&mut self, key: &str, value: Value) {
        self.original = None;
        self.map.insert(key.to_owned(), value);
    }

    fn plugins_mut(&mut self) -> &mut Vec<Value> {
        let plugins = self.map.entry("plugins").or_insert_with(|| json!([]));
        if !plugins.is_array() {
            *plugins = json!([]);
        }
        plugins.as_array_mut().expect("made an array just now")
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn merge_args(plugin: &mut Map<String, Value>, args: &Map<String, Value>) -> Result<(), String> {
    let cni = descend(plugin, "args").and_then(|outer| descend(outer, "cni"));
    let cni = cni.ok_or("\"args\" and \"args.cni\" of the CNI configuration must be objects to take the pod's cni-args")?;
    for (key, value) in args {
        cni.insert(key.clone(), value.clone());
    }
    Ok(())
}

fn descend<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let value = map.entry(key).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}
