//! Values that the schema refuses, and the daemon's configuration as it is known without Helm.

use super::*;

fn values(yaml: &str) -> Values {
    let explicit: Value = serde_yaml::from_str(yaml).unwrap();
    Values::new(explicit.as_object().unwrap())
}

/// Values, and path and a part of the message of the refusal.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "thickPlugn: {}",
        "thickPlugn",
        "does not have this value: did you mean thickPlugin?",
    ),
    (
        "config: {cni_conf: {bindir: /x}}",
        "config.cni_conf.bindir",
        "did you mean binDir?",
    ),
    (
        "config: {cni_conf: {bindir: null}}",
        "config.cni_conf.bindir",
        "does not have this value",
    ),
    (
        "image: {tag: 5}",
        "image.tag",
        "it is 5, but must be string",
    ),
    (
        "tolerations: {operator: Exists}",
        "tolerations",
        "must be array",
    ),
    (
        "image: {pullPolicy: Allways}",
        "image.pullPolicy",
        "must be one of \"Always\", \"IfNotPresent\", \"Never\"",
    ),
    (
        "cniplugins: {only: [1]}",
        "cniplugins.only[0]",
        "must be string",
    ),
    (
        "config: {daemon_conf: {namespaceIsolation: 'yes'}}",
        "config.daemon_conf.namespaceIsolation",
        "must be boolean",
    ),
    (
        "serviceAccount: {name: null}",
        "serviceAccount.name",
        "is required",
    ),
    (
        "updateStrategy: {rollingUpdate: {maxSurge: half}}",
        "updateStrategy.rollingUpdate.maxSurge",
        "a number or a percentage",
    ),
];

#[test]
fn refused_values_are_reported_with_a_hint() {
    for (yaml, path, part) in REFUSED {
        let found = values(yaml).problems();
        assert_eq!(found.len(), 1, "{yaml}: {found:?}");
        assert_eq!(found[0].path, *path, "{yaml}");
        assert!(found[0].text.contains(part), "{yaml}: {found:?}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = values("{image: {tag: 5}, imagee: {}, podLabels: []}").problems();
    let mut paths: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["image.tag", "imagee", "podLabels"]);
}

#[test]
fn accepted_values_have_no_problem() {
    for yaml in [
        "{}",
        "{podLabels: null, config: {cni_conf: {namespaceIsolation: null}, daemon_conf: {logLevel: null}}}",
        "thickPlugin: {enabled: 'true', image: null}",
        "config: {daemon_conf: {metricsPort: 9000.0, keyOfAPlugin: [1]}}",
    ] {
        assert_eq!(values(yaml).problems(), [], "{yaml}");
    }
}

#[test]
fn the_known_configuration_of_the_defaults_is_that_of_the_chart() {
    let rendered = include_str!("../../../../chart/rendered/multus.yaml");
    let rendered = rendered.replace("@VERSION@", "5.0.0");
    let objects = serde_yaml::Deserializer::from_str(&rendered);
    let mut objects =
        objects.map(|object| <Value as serde::Deserialize>::deserialize(object).unwrap());
    let text = objects.find_map(|object| {
        let text = object["data"]["daemon-config.json"].as_str();
        text.map(str::to_owned)
    });
    let known = values("{}").known_daemon_config();
    assert_eq!(
        serde_json::from_str::<Value>(&text.unwrap()).unwrap(),
        Value::Object(known)
    );
    let own =
        values("config: {daemon_conf: {globalNamespaces: b, logLevel: debug, cniVersion: null}}");
    assert_eq!(
        Value::Object(own.known_daemon_config()),
        json!({"cniVersion": "auto", "multusConfigFile": "auto", "logLevel": "debug", "logToStderr": true, "globalNamespaces": "b"})
    );
}
