//! Writes `values.schema.json` (draft 7) from the table of values. Unknown keys are refused, so that a typo is never silent.

use api::options::{self, OPTIONS};
use serde_json::{Map, Value, json};

use crate::{
    settings::BuildSettings,
    values::{Kind, Row, VALUES, WITHOUT_EFFECT},
};

/// Values without which nothing can be rendered; the schema refuses a values file that removes one.
const REQUIRED: &[&str] = &[
    "config",
    "image",
    "image.repository",
    "image.tag",
    "manifests",
    "pod",
    "pod.resources",
    "serviceAccount",
    "serviceAccount.name",
    "thickPlugin",
];

/// Returns the schema as text.
pub fn values_schema<'a>(settings: impl Into<BuildSettings<'a>>) -> String {
    let settings = settings.into();
    let mut schema = group(false);
    for row in VALUES {
        put(&mut schema, row.path, row_schema(row));
    }
    for path in WITHOUT_EFFECT {
        put(&mut schema, path, json!({"description": "No effect."}));
    }
    let head = json!("http://json-schema.org/draft-07/schema#");
    let Value::Object(map) = &mut schema else {
        unreachable!("a group is an object")
    };
    map.shift_insert(0, "$schema".into(), head);
    let schema = settings.fill_value(schema);
    serde_json::to_string_pretty(&schema).expect("a JSON value always serialises") + "\n"
}

fn put(schema: &mut Value, path: &str, value: Value) {
    let (groups, key) = path.rsplit_once('.').unwrap_or(("", path));
    let groups = groups.split('.').filter(|name| !name.is_empty());
    let group = groups.fold(schema, |group, name| &mut group["properties"][name]);
    group["properties"][key] = value;
    if REQUIRED.contains(&path) {
        match &mut group["required"] {
            Value::Array(names) => names.push(json!(key)),
            none => *none = json!([key]),
        }
    }
}

fn row_schema(row: &Row) -> Value {
    let mut schema = match row.kind {
        Kind::Group => group(false),
        Kind::OpenGroup => group(true),
        Kind::Switch => json!({"enum": [true, false, "true", "false", "", null]}),
        Kind::Text => json!({"type": ["string", "null"]}),
        // With a dot at a wrong place Kubernetes refuses it.
        Kind::Name => json!({"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}),
        Kind::Tag => {
            json!({"type": ["string", "null"], "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"})
        }
        Kind::Port => json!({"type": ["integer", "null"], "minimum": 1, "maximum": 65535}),
        Kind::Count => json!({"type": ["integer", "null"], "minimum": 1}),
        Kind::Amount => {
            json!({"type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+%$"})
        }
        Kind::PullPolicy => json!({"enum": ["", "Always", "IfNotPresent", "Never", null]}),
        Kind::Texts => json!({"type": ["array", "null"], "items": {"type": "string"}}),
        Kind::Objects => json!({"type": ["array", "null"], "items": {"type": "object"}}),
        Kind::Variables => {
            let variable =
                json!({"type": "object", "properties": {"value": {"type": ["string", "null"]}}});
            json!({"type": ["array", "null"], "items": variable})
        }
        Kind::Object => json!({"type": ["object", "null"]}),
        Kind::Strings => {
            json!({"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}})
        }
        Kind::DaemonConfig => daemon_conf(),
    };
    schema["description"] = json!(row.doc);
    if let Some(default) = row.default_value() {
        schema["default"] = default;
    }
    schema
}

fn group(is_open: bool) -> Value {
    json!({"type": ["object", "null"], "additionalProperties": is_open, "properties": {}})
}

/// Returns the schema of `config.daemon_conf`: keys of the table of options have their type, other keys belong to the network configuration and pass.
fn daemon_conf() -> Value {
    let properties: Map<String, Value> = OPTIONS
        .iter()
        .map(|option| (option.name.to_owned(), option_schema(option)))
        .collect();
    json!({"type": ["object", "null"], "properties": properties})
}

fn option_schema(option: &options::Opt) -> Value {
    let kind = match option.kind {
        options::Kind::Bool => Some("boolean"),
        options::Kind::Int => Some("integer"),
        options::Kind::String => Some("string"),
        options::Kind::List => Some("array"),
        options::Kind::Object => Some("object"),
        options::Kind::Any => None,
    };
    let mut schema = json!({"description": option.doc});
    if let Some(kind) = kind {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(values: &str) -> Vec<String> {
        let schema: Value = serde_json::from_str(&values_schema("5.0.0")).unwrap();
        let mut all: Value = serde_yaml::from_str(&crate::values::values_yaml("5.0.0")).unwrap();
        overlay(&mut all, serde_yaml::from_str(values).unwrap());
        jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&all)
            .map(|error| error.to_string())
            .collect()
    }

    /// Merges values over those of the chart as Helm does: null removes a key.
    fn overlay(target: &mut Value, values: Value) {
        match (target, values) {
            (Value::Object(target), Value::Object(values)) => {
                for (key, value) in values {
                    if value.is_null() {
                        target.shift_remove(&key);
                    } else {
                        overlay(target.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (target, value) => *target = value,
        }
    }

    #[test]
    fn values_of_the_pages_are_accepted() {
        let pages = docs::Pages::of_checkout().unwrap();
        let blocks = pages.blocks(|check| *check == docs::Check::Values);
        assert!(blocks.len() > 2);
        for (page, block) in blocks {
            let problems = problems(&block.text);
            assert_eq!(problems, [""; 0], "{}:{}", page.path, block.line);
        }
    }

    #[test]
    fn required_values_cannot_be_removed() {
        for path in REQUIRED {
            let keys: Vec<&str> = path.split('.').collect();
            let values = format!("{}: null{}", keys.join(": {"), "}".repeat(keys.len() - 1));
            let problems = problems(&values);
            assert_eq!(problems.len(), 1, "{values}: {problems:?}");
            assert!(problems[0].contains("required"), "{problems:?}");
        }
        assert_eq!(
            problems("{tolerations: null, imagePullSecrets: null, global: null}"),
            [""; 0]
        );
    }

    #[test]
    fn the_charts_default_values_are_accepted() {
        let files = crate::pack::files(crate::Chart::Main, crate::IDENTITIES[0], "5.0.0").unwrap();
        let (_, values) = files
            .iter()
            .find(|(path, _)| path == "values.yaml")
            .unwrap();
        assert_eq!(problems(std::str::from_utf8(values).unwrap()), [""; 0]);
    }

    #[test]
    fn keys_of_the_published_chart_are_accepted() {
        let values = "
image: {repository: r, tag: t, pullPolicy: IfNotPresent}
config:
  cni_conf: {confDir: /etc/cni/net.d, cleanupConfigOnExit: 'true', namespaceIsolation: false}
  daemon_conf: {chrootDir: /hostroot, cniVersion: 0.3.1, socketDir: /host/run/multus/, unknownKeyOfADelegate: 1}
cniplugins: {image: {repository: r, tag: t}, skipcnis: flannel}
dhcpDaemonSet: {image: {repository: b, tag: '1'}}
rke2-whereabouts: {enabled: false}
dynamicNetworksController: {enabled: false, sockets: {containerd: /a, multus: /b}}
global: {systemDefaultRegistry: x, rke2DataDir: /d, cattle: {systemDefaultRegistry: x, clusterId: c}}
";
        assert_eq!(problems(values), [""; 0]);
    }

    #[test]
    fn typos_are_refused() {
        for (values, word) in [
            ("thickPlugn: {}", "thickPlugn"),
            ("image: {repositry: r}", "repositry"),
            ("image: {pullPolicy: Allways}", "Allways"),
            ("image: {tag: 5}", "string"),
            ("pod: {resources: {enable: true}}", "enable"),
            ("labels: {nodeselector: {}}", "nodeselector"),
            ("config: {cni_conf: {bindir: /x}}", "bindir"),
            ("config: {daemon_config: {}}", "daemon_config"),
            ("manifests: {daemonSet: maybe}", "maybe"),
            ("tolerations: {operator: Exists}", "array"),
            ("podLabels: {a: 1}", "string"),
            ("updateStrategy: {rollingUpdat: {}}", "rollingUpdat"),
            ("updateStrategy: {rollingUpdate: {maxSurge: half}}", "half"),
            ("podDisruptionBudget: {minAvailable: 50%}", "integer"),
            ("perNodeCertificate: {enable: true}", "enable"),
            ("perNodeCertificate: {certDuration: 10}", "string"),
            ("rke2-whereabouts: {enable: true}", "enable"),
            (
                "config: {daemon_conf: {namespaceIsolation: [1]}}",
                "boolean",
            ),
        ] {
            let problems = problems(values);
            assert_eq!(problems.len(), 1, "{values}: {problems:?}");
            assert!(problems[0].contains(word), "{values}: {problems:?}");
        }
    }

    #[test]
    fn only_listed_objects_accept_unknown_keys() {
        fn open(path: &str, schema: &Value, found: &mut Vec<String>) {
            let Some(properties) = schema["properties"].as_object() else {
                return;
            };
            if schema["additionalProperties"] != false {
                found.push(path.to_owned());
            }
            for (key, value) in properties {
                open(&format!("{path}.{key}"), value, found);
            }
        }
        let schema: Value = serde_json::from_str(&values_schema("5.0.0")).unwrap();
        let mut found = Vec::new();
        open("", &schema, &mut found);
        assert_eq!(found, [".config.daemon_conf", ".global", ".global.cattle"]);
    }
}
