//! Generates the content of our configuration, as a function over values.

use std::path::Path;

use cni::version::Version;
use plan::{daemon_config::Config, node_path::node_path};
use serde_json::{Map, Value, json};

use super::DefaultNetwork;

/// The configuration of the default network has no name that ours could have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("overrideNetworkName is set, but {file} has no name: add a name to it, or unset the key")]
pub struct NoName {
    /// The file of the default network.
    pub file: String,
}

/// Returns our configuration. `dir` is the directory of the default network's file on the node, and `accepted` the highest version that
/// the runtime accepts.
pub fn generate(
    config: &Config,
    dir: &Path,
    default_network: &DefaultNetwork,
    accepted: Option<&str>,
) -> Result<Vec<u8>, NoName> {
    let own_version = default_network
        .value
        .get("cniVersion")
        .and_then(Value::as_str);
    // With an unsupported version the shim would refuse every request, and no pod would start.
    let own_version = own_version
        .filter(|version| !version.is_empty() && version.parse().is_ok_and(Version::is_supported));
    let version = config
        .cni_version
        .as_deref()
        .or(accepted)
        .or(own_version)
        .unwrap_or("0.4.0");
    let name = match default_network
        .value
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
    {
        Some(name) if config.override_network_name => name,
        None if config.override_network_name => {
            let file = default_network.file.clone();
            return Err(NoName { file });
        }
        _ => "multus-cni-network",
    };
    let mut out = Map::new();
    out.insert("cniVersion".into(), json!(version));
    out.insert("name".into(), json!(name));
    out.insert("type".into(), json!("multus-shim"));
    let capabilities = capabilities(&config.raw, &default_network.value);
    if !capabilities.is_empty() {
        out.insert("capabilities".into(), Value::Object(capabilities));
    }
    out.insert(
        "clusterNetwork".into(),
        json!(dir.join(&default_network.file)),
    );
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
            // The shim runs on the node, where the mounts of upstream's pod do not exist.
            let file = value.as_str().filter(|_| key == "logFile").map(node_path);
            out.insert(key.into(), file.map_or(value.clone(), |file| json!(file)));
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

/// Returns the capabilities that the daemon's file and the plugins of the default network declare; only `true` counts.
fn capabilities(
    own: &Map<String, Value>,
    default_network: &Map<String, Value>,
) -> Map<String, Value> {
    let mut lists: Vec<&Value> = match default_network.get("plugins") {
        Some(Value::Array(plugins)) => plugins
            .iter()
            .filter_map(|plugin| plugin.get("capabilities"))
            .collect(),
        _ => default_network.get("capabilities").into_iter().collect(),
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
        default_network: &str,
        accepted: Option<&str>,
    ) -> Result<Value, NoName> {
        let default_network = DefaultNetwork {
            file: "10-flannel.conflist".into(),
            value: serde_json::from_str(default_network).unwrap(),
        };
        let bytes = generate(
            config,
            Path::new("/etc/cni/net.d"),
            &default_network,
            accepted,
        )?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    fn generated(config: &Config, accepted: Option<&str>) -> Value {
        try_generate(config, FLANNEL, accepted).unwrap()
    }

    fn plain() -> Config {
        Config::parse(Map::new()).unwrap()
    }

    #[test]
    fn the_runtimes_version_takes_precedence_and_only_true_capabilities_count() {
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
    fn the_shim_gets_the_path_of_the_log_on_the_node() {
        let set = json!({"logFile": "/host/var/log/multus.log", "logLevel": "verbose"});
        let config = Config::parse(set.as_object().unwrap().clone()).unwrap();
        let generated = generated(&config, None);
        assert_eq!(generated["logFile"], "/var/log/multus.log");
        assert_eq!(generated["logLevel"], "verbose");
    }

    #[test]
    fn an_unsupported_version_is_not_taken_over() {
        for (version, expected) in [
            (json!(""), "0.4.0"),
            (json!("1.2.0"), "0.4.0"),
            (json!("2.0.0"), "0.4.0"),
            (json!(1), "0.4.0"),
            (json!("0.3.1"), "0.3.1"),
        ] {
            let default_network = json!({"cniVersion": version, "type": "bridge"}).to_string();
            let value = try_generate(&plain(), &default_network, None).unwrap();
            assert_eq!(value["cniVersion"], expected, "{version}");
        }
    }

    #[test]
    fn capabilities_come_from_the_daemons_file_and_the_default_network() {
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
            "capabilities that the default network no longer has are removed"
        );
        let single = r#"{"name":"n","type":"bridge","capabilities":{"ips":true}}"#;
        assert_eq!(
            try_generate(&plain(), single, None).unwrap()["capabilities"],
            json!({"ips": true})
        );
    }

    #[test]
    fn overriding_the_name_needs_a_named_default_network() {
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
    fn paths_are_written_only_where_they_differ_from_the_default() {
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
