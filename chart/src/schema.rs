//! `values.schema.json` (draft 7): what values there are. A key that does not exist is refused, so that a typo cannot be silent.

use api::options::{self, Kind, OPTIONS};
use serde_json::{Map, Value, json};

/// The schema as text.
pub fn values_schema() -> String {
    let image = || {
        object(&[
            ("repository", text()),
            ("tag", text()),
            (
                "pullPolicy",
                json!({"enum": ["", "Always", "IfNotPresent", "Never"]}),
            ),
        ])
    };
    let schema = object(&[
        ("image", image()),
        (
            "imagePullSecrets",
            json!({"type": ["array", "null"], "items": {"type": "object"}}),
        ),
        ("serviceAccount", object(&[("name", text())])),
        (
            "pod",
            object(&[(
                "resources",
                object(&[
                    ("enabled", switch()),
                    ("multus", any()),
                    ("dynamicNetworksController", any()),
                ]),
            )]),
        ),
        ("labels", object(&[("nodeSelector", any())])),
        (
            "config",
            object(&[("cni_conf", cni_conf()), ("daemon_conf", daemon_conf())]),
        ),
        (
            "perNodeCertificate",
            object(&[
                ("enabled", switch()),
                ("bootstrapKubeconfig", text()),
                ("certDir", text()),
                ("certDuration", text()),
                ("exclusive", switch()),
                (
                    "approver",
                    object(&[("enabled", switch()), ("resources", any())]),
                ),
            ]),
        ),
        (
            "manifests",
            object(
                &[
                    "serviceAccount",
                    "clusterRole",
                    "clusterRoleBinding",
                    "configMap",
                    "daemonSet",
                    "dhcpDaemonSet",
                ]
                .map(|key| (key, switch())),
            ),
        ),
        (
            "tolerations",
            json!({"type": ["array", "null"], "items": {"type": "object"}}),
        ),
        (
            "cniplugins",
            object(&[("image", image()), ("skipcnis", text())]),
        ),
        ("dhcpDaemonSet", object(&[("image", image())])),
        ("global", json!({"type": ["object", "null"]})),
        ("rke2-whereabouts", whereabouts()),
        (
            "thickPlugin",
            object(&[("enabled", switch()), ("image", image())]),
        ),
        (
            "dynamicNetworksController",
            object(&[
                ("enabled", switch()),
                ("image", image()),
                (
                    "sockets",
                    object(&[("containerd", text()), ("multus", text())]),
                ),
            ]),
        ),
    ]);
    let Value::Object(mut schema) = schema else {
        unreachable!("an object was just made")
    };
    schema.shift_insert(
        0,
        "$schema".into(),
        json!("http://json-schema.org/draft-07/schema#"),
    );
    serde_json::to_string_pretty(&schema).expect("a JSON value always serialises") + "\n"
}

fn cni_conf() -> Value {
    let words = [
        "confDir",
        "binDir",
        "multusConfFile",
        "multusAutoconfigDir",
        "kubeconfig",
        "globalNamespaces",
        "readinessIndicatorFile",
        "multusBinFile",
        "multusCniConfDir",
        "masterCniFilename",
        "logFile",
        "logLevel",
        "cniVersion",
        "additionalBinDir",
    ];
    let switches = [
        "cleanupConfigOnExit",
        "namespaceIsolation",
        "skipConfigWatch",
        "skipMultusBinaryCopy",
        "overrideNetworkName",
        "renameConfFile",
        "logToStderr",
    ];
    let keys: Vec<(&str, Value)> = words
        .map(|key| (key, text()))
        .into_iter()
        .chain(switches.map(|key| (key, switch())))
        .collect();
    object(&keys)
}

/// Keys of the option table have their type; others belong to the network configuration and pass.
fn daemon_conf() -> Value {
    let properties: Map<String, Value> = OPTIONS
        .iter()
        .map(|option| (option.name.to_owned(), option_schema(option)))
        .collect();
    json!({"type": ["object", "null"], "properties": properties})
}

fn option_schema(option: &options::Opt) -> Value {
    let kind = match option.kind {
        Kind::Bool => json!({"type": ["boolean", "null"]}),
        Kind::Int => json!({"type": ["integer", "null"]}),
        Kind::String => json!({"type": ["string", "null"]}),
        Kind::List => json!({"type": ["array", "null"]}),
        Kind::Object => json!({"type": ["object", "null"]}),
        Kind::Any => json!({}),
    };
    let Value::Object(mut schema) = kind else {
        unreachable!("every arm is an object")
    };
    schema.insert("description".into(), json!(option.doc));
    Value::Object(schema)
}

/// Values of the published subchart, which is not part of this chart: accepted, and refused by the chart when it is enabled.
fn whereabouts() -> Value {
    let keys = [
        "image",
        "updateStrategy",
        "imagePullSecrets",
        "nameOverride",
        "fullnameOverride",
        "namespaceOverride",
        "serviceAccount",
        "podAnnotations",
        "podSecurityContext",
        "securityContext",
        "resources",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "cniConf",
        "nodeSliceController",
        "reconciler",
        "global",
    ];
    let keys: Vec<(&str, Value)> = keys
        .map(|key| (key, any()))
        .into_iter()
        .chain([("enabled", switch())])
        .collect();
    object(&keys)
}

fn object(properties: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> = properties
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    json!({"type": ["object", "null"], "additionalProperties": false, "properties": properties})
}

fn text() -> Value {
    json!({"type": ["string", "null"]})
}

/// Published charts took words for switches, too.
fn switch() -> Value {
    json!({"enum": [true, false, "true", "false", "", null]})
}

fn any() -> Value {
    json!({})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(values: &str) -> Vec<String> {
        let schema: Value = serde_json::from_str(&values_schema()).unwrap();
        let values: Value = serde_yaml::from_str(values).unwrap();
        jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&values)
            .map(|error| error.to_string())
            .collect()
    }

    #[test]
    fn our_own_values_are_accepted() {
        let files = crate::pack::files(crate::Chart::Main, crate::IDENTITIES[0], "5.0.0").unwrap();
        let (_, values) = files
            .iter()
            .find(|(path, _)| path == "values.yaml")
            .unwrap();
        assert_eq!(problems(std::str::from_utf8(values).unwrap()), [""; 0]);
    }

    #[test]
    fn published_keys_are_accepted() {
        let values = "
image: {repository: r, tag: t, pullPolicy: IfNotPresent}
config:
  cni_conf: {confDir: /etc/cni/net.d, cleanupConfigOnExit: 'true', namespaceIsolation: false}
  daemon_conf: {chrootDir: /hostroot, cniVersion: 0.3.1, socketDir: /host/run/multus/, unknownKeyOfADelegate: 1}
cniplugins: {image: {repository: r, tag: t}, skipcnis: flannel}
dhcpDaemonSet: {image: {repository: b, tag: '1'}}
rke2-whereabouts: {enabled: false}
dynamicNetworksController: {enabled: false, sockets: {containerd: /a, multus: /b}}
global: {systemDefaultRegistry: x, rke2DataDir: /d, cattle: {systemDefaultRegistry: x}}
";
        assert_eq!(problems(values), [""; 0]);
    }

    #[test]
    fn typos_are_refused_by_name() {
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
    fn no_object_of_ours_takes_any_key() {
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
        let schema: Value = serde_json::from_str(&values_schema()).unwrap();
        let mut found = Vec::new();
        open("", &schema, &mut found);
        assert_eq!(found, [".config.daemon_conf"]);
    }
}
