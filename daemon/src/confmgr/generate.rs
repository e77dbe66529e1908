//! Which file is the primary, and what our configuration says: functions over values.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::Config;

/// A primary configuration that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Primary {
    /// Its file name.
    pub file: String,
    /// Its content.
    pub value: Map<String, Value>,
}

/// No configuration can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The file that was asked for is not there.
    #[error("multusMasterCNI names `{file}`, which is not in {dir}")]
    NoSuchFile {
        /// The name.
        file: String,
        /// The directory.
        dir: String,
    },
    /// There is nothing to be used.
    #[error(
        "no primary CNI configuration in {dir}{}: install a network plugin, or wait for the one that is installed",
        passed_over(rejected)
    )]
    None {
        /// The directory.
        dir: String,
        /// Files that were passed over, with the reason.
        rejected: Vec<String>,
    },
    /// The primary has no name to take over.
    #[error("overrideNetworkName is set, but {file} has no name")]
    NoName {
        /// The primary's file.
        file: String,
    },
}

fn passed_over(list: &[String]) -> String {
    if list.is_empty() {
        String::new()
    } else {
        format!(" (passed over: {})", list.join("; "))
    }
}

/// The first usable file by byte order; `names` are sorted, `read` gives a file's content.
pub fn choose(
    dir: &Path,
    names: &[String],
    wanted: Option<&str>,
    read: impl Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<Primary, GenerateError> {
    let mut rejected = Vec::new();
    for name in names {
        let candidate = match wanted {
            Some(wanted) => name == wanted,
            None => is_candidate(name),
        };
        if candidate {
            match read(name).and_then(|bytes| usable(&bytes)) {
                Ok(value) => {
                    return Ok(Primary {
                        file: name.clone(),
                        value,
                    });
                }
                Err(reason) => rejected.push(format!("{name}: {reason}")),
            }
        }
    }
    let dir = dir.display().to_string();
    match wanted {
        Some(file) if rejected.is_empty() => Err(GenerateError::NoSuchFile {
            file: file.to_owned(),
            dir,
        }),
        _ => Err(GenerateError::None { dir, rejected }),
    }
}

fn is_candidate(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    !name.starts_with("00-multus")
        && !name.starts_with('.')
        && matches!(extension, Some("conf" | "conflist"))
}

/// A configuration that is complete and does not lead back to us.
fn usable(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let Value::Object(value) =
        serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?
    else {
        return Err("not a JSON object".to_owned());
    };
    let plugins: Vec<&Map<String, Value>> = match value.get("plugins") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_object).collect(),
        _ => vec![&value],
    };
    let kind = |plugin: &Map<String, Value>| {
        plugin
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let kinds: Vec<String> = plugins.into_iter().map(kind).collect();
    if kinds.is_empty() || kinds.iter().any(String::is_empty) {
        return Err("a plugin has no type".to_owned());
    }
    if kinds
        .iter()
        .any(|kind| kind == "multus" || kind == "multus-shim")
    {
        return Err("it calls multus itself".to_owned());
    }
    Ok(value)
}

/// Our configuration. `dir` is the primary's directory on the node, `accepted` the highest version that the runtime accepts.
pub fn generate(
    config: &Config,
    dir: &Path,
    primary: &Primary,
    accepted: Option<&str>,
) -> Result<Vec<u8>, GenerateError> {
    let own_version = primary.value.get("cniVersion").and_then(Value::as_str);
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
            return Err(GenerateError::NoName {
                file: primary.file.clone(),
            });
        }
        _ => "multus-cni-network",
    };
    let mut out = Map::new();
    out.insert("cniVersion".into(), json!(version));
    out.insert("name".into(), json!(name));
    out.insert("type".into(), json!("multus-shim"));
    let capabilities = capabilities(&primary.value);
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

/// What any plugin of the primary asks the runtime for; only `true` counts.
fn capabilities(primary: &Map<String, Value>) -> Map<String, Value> {
    let lists: Vec<&Value> = match primary.get("plugins") {
        Some(Value::Array(plugins)) => plugins
            .iter()
            .filter_map(|plugin| plugin.get("capabilities"))
            .collect(),
        _ => primary.get("capabilities").into_iter().collect(),
    };
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

    fn pick(files: &[(&str, &str)], wanted: Option<&str>) -> Result<Primary, GenerateError> {
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        choose(Path::new("/etc/cni/net.d"), &names, wanted, |name| {
            let (_, text) = files.iter().find(|(file, _)| *file == name).unwrap();
            Ok(text.as_bytes().to_vec())
        })
    }

    #[test]
    fn the_first_usable_file_by_name() {
        let files = [
            ("00-multus.conf", FLANNEL),
            ("05-old.conf", r#"{"type":"multus","name":"x"}"#),
            ("07-half.conflist", "{"),
            ("10-flannel.conflist", FLANNEL),
            ("20-other.conflist", FLANNEL),
            ("99.json", FLANNEL),
        ];
        assert_eq!(pick(&files, None).unwrap().file, "10-flannel.conflist");
        assert_eq!(
            pick(&files, Some("20-other.conflist")).unwrap().file,
            "20-other.conflist"
        );
        let error = pick(&files[..3], None).unwrap_err().to_string();
        assert!(
            error.contains("05-old.conf: it calls multus itself") && error.contains("07-half"),
            "{error}"
        );
        assert!(
            pick(&files, Some("30"))
                .unwrap_err()
                .to_string()
                .contains("`30`")
        );
    }

    fn generated(config: &Config, accepted: Option<&str>) -> Value {
        let primary = pick(&[("10-flannel.conflist", FLANNEL)], None).unwrap();
        serde_json::from_slice(
            &generate(config, Path::new("/etc/cni/net.d"), &primary, accepted).unwrap(),
        )
        .unwrap()
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
