//! The shim under its other name, `passthru`.

use serde_json::{Value, json};

use crate::support::{ShimOutput, env, run};

fn passthru(command: &str, config: &Value) -> ShimOutput {
    run("passthru", &env(command), config.to_string().as_bytes())
}

#[test]
fn versions_are_those_with_lists_of_plugins() {
    let output = run("passthru", &[("CNI_COMMAND", "VERSION".to_owned())], b"");
    assert_eq!(
        output.success(),
        "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n"
    );
    assert_eq!(
        passthru("ADD", &json!({"name": "n", "cniVersion": "0.2.0"}))
            .error()
            .code,
        1
    );
}

#[test]
fn add_returns_the_previous_result() {
    let config = json!({"name": "n", "cniVersion": "0.4.0", "prevResult": {
        "cniVersion": "0.4.0", "interfaces": [{"name": "eth0"}], "ips": [{"version": "4", "address": "10.0.0.2/8"}], "dns": {}
    }});
    let result: Value = serde_json::from_str(passthru("ADD", &config).success()).unwrap();
    assert_eq!(result, config["prevResult"]);
    let result: Value = serde_json::from_str(
        passthru("ADD", &json!({"name": "n", "cniVersion": "1.0.0"})).success(),
    )
    .unwrap();
    assert_eq!(result, json!({"cniVersion": "1.0.0", "dns": {}}));
    assert_eq!(
        passthru(
            "ADD",
            &json!({"name": "n", "cniVersion": "1.0.0", "prevResult": 7})
        )
        .error()
        .code,
        6
    );
}

#[test]
fn the_other_verbs_succeed() {
    for command in ["DEL", "CHECK", "GC", "STATUS"] {
        assert_eq!(
            passthru(command, &json!({"name": "n", "cniVersion": "1.1.0"})).success(),
            "",
            "{command}"
        );
    }
}
