//! Values of the chart, checked against the schema that the chart's table of values makes. Everything else that the chart refuses, only its templates
//! know: `helm` renders them.

use std::sync::LazyLock;

use chart::{schema::values_schema, values::values_yaml};
use serde_json::{Map, Value, json};

use super::schema::{self, ValueProblem};

/// The chart's default values with explicit values merged over them.
#[derive(Debug, Clone)]
pub(super) struct Values {
    pub(super) explicit: Map<String, Value>,
    all: Value,
}

impl Values {
    /// Merges `explicit` over the chart's defaults; a key that is null removes the chart's key, as in Helm.
    pub(super) fn new(explicit: &Map<String, Value>) -> Self {
        let mut all = defaults();
        merge(&mut all, explicit, true);
        let explicit = explicit.clone();
        Self { explicit, all }
    }

    /// Returns the value at a path; null when there is none.
    pub(super) fn get(&self, path: &str) -> &Value {
        path.split('.').fold(&self.all, |value, key| &value[key])
    }

    /// Returns true when a switch is on; published charts also accepted the text "true".
    pub(super) fn is_on(&self, path: &str) -> bool {
        text_of(self.get(path)) == "true"
    }

    /// Returns whether the chart installs plugins and no multiplexer.
    pub(super) fn is_standalone(&self) -> bool {
        self.is_on("cniplugins.standalone")
    }

    /// Returns everything that the chart's schema refuses.
    pub(super) fn problems(&self) -> Vec<ValueProblem> {
        static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
            serde_json::from_str(&values_schema(chart::VERSION))
                .expect("the schema is generated as JSON")
        });
        schema::check(&SCHEMA, &self.all, "")
    }

    /// Returns the daemon's configuration as far as it is known without Helm: the chart's own, and the keys of `config.daemon_conf`.
    pub(super) fn known_daemon_config(&self) -> Map<String, Value> {
        let mut config = json!({
            "cniVersion": "auto",
            "multusConfigFile": "auto",
            "logLevel": "verbose",
            "logToStderr": true,
        });
        if let Some(own) = self.get("config.daemon_conf").as_object() {
            let mut own = own.clone();
            own.retain(|_, value| !value.is_null());
            merge(&mut config, &own, false);
        }
        config.as_object().cloned().unwrap_or_default()
    }
}

/// Returns the chart's default values, as its `values.yaml` has them.
fn defaults() -> Value {
    serde_yaml::from_str(&values_yaml(chart::VERSION)).expect("the chart's own values are YAML")
}

/// Merges `values` into `target`: objects are merged key by key, anything else is replaced. With `null_removes` a null removes the key, as in the
/// chart's own values; between two files of values it stays, so that it can remove the chart's key later.
pub(super) fn merge(target: &mut Value, values: &Map<String, Value>, null_removes: bool) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let map = target
        .as_object_mut()
        .expect("anything else was replaced by an object");
    for (key, value) in values {
        match value {
            // A key that the chart does not have stays, and its schema refuses it.
            Value::Null if null_removes && map.contains_key(key) => drop(map.remove(key)),
            Value::Object(values) => {
                merge(map.entry(key).or_insert(Value::Null), values, null_removes);
            }
            value => drop(map.insert(key.clone(), value.clone())),
        }
    }
}

/// Returns a path of the node; values written for upstream's container have it below `/host` or `/hostroot`.
pub(super) fn node_path(text: &str) -> String {
    for mount in ["/hostroot", "/host"] {
        match text.strip_prefix(mount) {
            Some("") => return "/".to_owned(),
            Some(rest) if rest.starts_with('/') => return rest.to_owned(),
            _ => {}
        }
    }
    text.to_owned()
}

/// Returns a value as a template prints it; null is empty.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
