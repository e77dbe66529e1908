//! What our configuration says: a function over values.

use std::path::Path;

use cni::version::Version;
use plan::daemon_config::Config;
use serde_json::{Map, Value, json};

use super::Primary;

/// The primary has no name to take over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("overrideNetworkName is set, but {file} has no name: give it one, or unset the key")]
pub struct NoName {
    /// The primary's file.
    pub file: String,
}

/// Our configuration. `dir` is the primary's directory on the node, `accepted` the highest version that the runtime accepts.
pub fn generate(
    config: &Config,
    dir: &Path,
    primary: &Primary,
    accepted: Option<&str>,
) -> Result<Vec<u8>, NoName> {
    let own_version = primary.value.get("cniVersion").and_then(Value::as_str);
    // With another one the shim itself would refuse, and no pod would start.
    let own_version = own_version
        .filter(|version| !version.is_empty() && version.parse().is_ok_and(Version::is_supported));
    let version = config
        .cni_version
        .as_deref()
        .or(accepted)
        .or(own_version)
        .unwrap_or("0.4.0");
    let name = match primary
        .value
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        Some(name) if config.override_network_name => name,
        None if config.override_network_name => {
            let file = primary.file.clone();
            return Err(NoName { file });
        }
        _ => "multus-cni-network",
    };
    let mut out = Map::new();
    out.insert("cniVersion".into(), json!(version));
    out.insert("name".into(), json!(name));
    out.insert("type".into(), json!("multus-shim"));
    let capabilities = capabilities(&config.raw, &primary.value);
    if !capabilities.is_empty() {
        out.insert("capabilities".into(), Value::Object(capabilities));
    }
    out.insert("clusterNetwork".into(), json!(dir.join(&primary.file)));
    for key in [
        "namespaceIsolation",
        "globalNamespaces",
        "auxiliaryCNIChainName",
        "logFile",
        "logLevel",
        "logToStderr",
        "logOptions",
    ] {
        if let Some(value) = api::options::get(&config.raw, key).filter(|value| !value.is_null()) {
            out.insert(key.into(), value.clone());
        }
    }
    if let Some(bin_dir) = &config.bin_dir {
        out.insert("binDir".into(), json!(bin_dir));
    }
    if config.cni_dir != Path::new(api::DEFAULT_CNI_DIR) {
        out.insert("cniDir".into(), json!(config.cni_dir));
    }
    if config.socket_dir != Path::new(api::DEFAULT_SOCKET_DIR) {
        out.insert("daemonSocketDir".into(), json!(config.socket_dir));
    }
    let mut bytes =
        serde_json::to_vec(&Value::Object(out)).expect("a JSON value always serialises");
    bytes.push(b'\n');
    Ok(bytes)
}

/// What the daemon's file and any plugin of the primary ask the runtime for; only `true` counts.
fn capabilities(own: &Map<String, Value>, primary: &Map<String, Value>) -> Map<String, Value> {
    let mut lists: Vec<&Value> = match primary.get("plugins") {
        Some(Value::Array(plugins)) => plugins
            .iter()
            .filter_map(|plugin| plugin.get("capabilities"))
            .collect(),
        _ => primary.get("capabilities").into_iter().collect(),
    };
    lists.extend(api::options::get(own, "capabilities"));
    let on = lists
        .into_iter()
        .filter_map(Value::as_object)
        .flatten()
        .filter(|(_, value)| **value == Value::Bool(true));
    on.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLANNEL: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap","capabilities":{"portMappings":true,"x":"true"}}]}"#;

    fn try_generate(
        config: &Config,
        primary: &str,
        accepted: Option<&str>,
    ) -> Result<Value, NoName> {
        let primary = Primary {
            file: "10-flannel.conflist".into(),
            value: serde_json::from_str(primary).unwrap(),
        };
        let bytes = generate(config, Path::new("/etc/cni/net.d"), &primary, accepted)?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    fn generated(config: &Config, accepted: Option<&str>) -> Value {
        try_generate(config, FLANNEL, accepted).unwrap()
    }

    fn plain() -> Config {
        Config::parse(Map::new()).unwrap()
    }

    #[test]
    fn the_runtimes_version_wins_and_only_true_capabilities_count() {
        let expected = json!({"cniVersion":"1.1.0","name":"multus-cni-network","type":"multus-shim","capabilities":{"portMappings":true},"clusterNetwork":"/etc/cni/net.d/10-flannel.conflist"});
        assert_eq!(generated(&plain(), Some("1.1.0")), expected);
        assert_eq!(generated(&plain(), None)["cniVersion"], "1.0.0");
        let set = Config {
            cni_version: Some("0.4.0".into()),
            override_network_name: true,
            ..plain()
        };
        assert_eq!(generated(&set, Some("1.1.0"))["cniVersion"], "0.4.0");
        assert_eq!(generated(&set, None)["name"], "cbr0");
    }

    #[test]
    fn a_version_that_nobody_speaks_is_not_taken_over() {
        for (version, expected) in [
            (json!(""), "0.4.0"),
            (json!("1.2.0"), "0.4.0"),
            (json!("2.0.0"), "0.4.0"),
            (json!(1), "0.4.0"),
            (json!("0.3.1"), "0.3.1"),
        ] {
            let primary = json!({"cniVersion": version, "type": "bridge"}).to_string();
            let value = try_generate(&plain(), &primary, None).unwrap();
            assert_eq!(value["cniVersion"], expected, "{version}");
        }
    }

    #[test]
    fn capabilities_are_those_of_the_file_and_of_the_primary() {
        let raw = json!({"Capabilities": {"bandwidth": true, "mac": false, "ips": "yes"}});
        let config = Config::parse(raw.as_object().unwrap().clone()).unwrap();
        assert_eq!(
            generated(&config, None)["capabilities"],
            json!({"portMappings": true, "bandwidth": true})
        );
        let without = r#"{"name":"n","type":"bridge"}"#;
        assert_eq!(
            try_generate(&config, without, None).unwrap()["capabilities"],
            json!({"bandwidth": true}),
            "what the primary no longer has is gone"
        );
        let single = r#"{"name":"n","type":"bridge","capabilities":{"ips":true}}"#;
        assert_eq!(
            try_generate(&plain(), single, None).unwrap()["capabilities"],
            json!({"ips": true})
        );
    }

    #[test]
    fn the_primarys_name_is_taken_over_only_when_it_has_one() {
        let config = Config {
            override_network_name: true,
            ..plain()
        };
        for nameless in [r#"{"type":"bridge"}"#, r#"{"type":"bridge","name":""}"#] {
            let error = try_generate(&config, nameless, None)
                .unwrap_err()
                .to_string();
            assert!(error.contains("10-flannel.conflist has no name"), "{error}");
        }
    }

    #[test]
    fn places_are_told_only_where_they_differ() {
        let config = Config {
            socket_dir: "/run/other".into(),
            cni_dir: "/state".into(),
            bin_dir: Some("/bin".into()),
            ..plain()
        };
        let value = generated(&config, None);
        assert_eq!(
            (
                &value["daemonSocketDir"],
                &value["cniDir"],
                &value["binDir"]
            ),
            (&json!("/run/other"), &json!("/state"), &json!("/bin"))
        );
    }
}
