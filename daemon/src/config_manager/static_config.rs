//! A static configuration, from the option `multusConfigFile`. It is installed unchanged, but only when the runtime can load it.

use std::{
    io,
    path::{Path, PathBuf},
};

use cni::{config::NetworkConfig, types::CniError};
use node::root::Root;
use plan::{daemon_config::Config, netconf::Netconf, node_path::node_path};
use serde_json::{Map, Value};

use super::{default_network::plugin_types, installed::MAX_FILE};

/// The plugin type of upstream's program for nodes without a daemon.
const THIN: &str = "multus";

/// A static configuration that can be installed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StaticConfig {
    /// The file name.
    pub name: String,
    /// The unchanged content.
    pub bytes: Vec<u8>,
    /// Whether a plugin is Multus, ours or upstream's.
    pub calls_multus: bool,
    /// Whether a plugin is the program of upstream's thin mode, which is not ours.
    pub calls_thin: bool,
}

/// Reads the file from the daemon's own file system, where it is usually mounted, else from the node's.
pub(super) fn read(root: &Root, path: &Path) -> Result<Vec<u8>, String> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => root
            .read(node_path(&path.to_string_lossy()), MAX_FILE)
            .map_err(|error| error.to_string()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Returns the configuration by which pods are attached: the daemon's file, which overlays the static configuration, if one is set. The
/// static file is read at each call, by the same rules as when it is installed.
pub fn effective_netconf(root: &Root, config: &Config) -> Result<Netconf, CniError> {
    let Some(path) = &config.config_file else {
        return Ok(config.own_netconf()?);
    };
    let bytes = read(root, path).and_then(|bytes| multus_config(&bytes));
    let bytes = bytes.map_err(|reason| {
        let text = format!("cannot use multusConfigFile {}: {reason}", path.display());
        CniError::new(CniError::IO_FAILURE, text)
    })?;
    Ok(config.netconf(&bytes)?)
}

/// Returns the part of a static configuration that the shim gets: of a list only the plugin, with the list's name and version, as
/// runtimes pass it.
fn multus_config(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let config: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Some(plugin) = multus_of_list(&config) else {
        return Ok(bytes.to_vec());
    };
    let mut plugin = plugin.clone();
    for key in ["name", "cniVersion"] {
        if let Some(value) = config.get(key) {
            plugin.insert(key.to_owned(), value.clone());
        }
    }
    Ok(serde_json::to_vec(&plugin).expect("a JSON map always serialises"))
}

/// Returns Multus' plugin of a list.
fn multus_of_list(config: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let plugins = config.get("plugins").and_then(Value::as_array);
    let mut maps = plugins.into_iter().flatten().filter_map(Value::as_object);
    maps.find(|map| plugin_types(map).into_iter().any(plan::is_multus))
}

/// Returns the directories in which shims journal deletions: the daemon's state directory, and the one that the static configuration names.
pub fn state_dirs(root: &Root, config: &Config) -> Vec<PathBuf> {
    let mut dirs = vec![config.cni_dir.clone()];
    let file = config.config_file.as_ref();
    let named = file.and_then(|path| cni_dir(&read(root, path).ok()?));
    dirs.extend(named.filter(|dir| *dir != config.cni_dir));
    dirs
}

fn cni_dir(bytes: &[u8]) -> Option<PathBuf> {
    let config: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let multus = multus_of_list(&config).unwrap_or(&config);
    let dir = api::options::get(multus, "cniDir")?.as_str()?;
    (!dir.is_empty()).then(|| node_path(dir))
}

/// Makes the checks with which runtimes load a file of that name: a file that they skip would leave the node without a network.
pub(super) fn check(path: &Path, bytes: Vec<u8>) -> Result<StaticConfig, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("it has no file name")?.to_owned();
    let config = NetworkConfig::parse(&bytes).map_err(|error| error.to_string())?;
    match Path::new(&name).extension().and_then(|end| end.to_str()) {
        Some("conflist") if !config.is_list => {
            return Err(
                "it is a single configuration: rename it to a name that ends in .conf".to_owned(),
            );
        }
        Some("conf") if config.is_list => {
            return Err(
                "it is a list of plugins: rename it to a name that ends in .conflist".to_owned(),
            );
        }
        Some("conf" | "conflist") => {}
        _ => {
            return Err(
                "runtimes ignore files whose name does not end in .conf or .conflist: rename it"
                    .to_owned(),
            );
        }
    }
    let kinds = config.plugins.iter().map(|plugin| plugin.kind.as_str());
    let calls_multus = kinds.clone().any(plan::is_multus);
    let calls_thin = kinds.into_iter().any(|kind| kind == THIN);
    Ok(StaticConfig {
        name,
        bytes,
        calls_multus,
        calls_thin,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SINGLE: &str = r#"{"name":"n","type":"multus-shim","clusterNetwork":"/x"}"#;
    const LIST: &str = r#"{"name":"n","plugins":[{"type":"bridge"}]}"#;

    #[test]
    fn loadable_files_are_installed_unchanged() {
        for (name, text, calls_multus) in [("5-a.conf", SINGLE, true), ("a.conflist", LIST, false)]
        {
            let made = check(&Path::new("/mnt").join(name), text.into()).unwrap();
            assert_eq!(
                (made.name.as_str(), made.calls_multus),
                (name, calls_multus)
            );
            assert_eq!(made.bytes, text.as_bytes());
        }
    }

    #[test]
    fn journals_are_found_where_the_shim_writes_them() {
        for (text, dir) in [
            (SINGLE, None),
            (
                r#"{"type":"multus-shim","CniDir":"/host/mine"}"#,
                Some("/mine"),
            ),
            (
                r#"{"plugins":[{"type":"x","cniDir":"/no"},{"type":"multus-shim","cniDir":"/mine"}]}"#,
                Some("/mine"),
            ),
            ("no JSON", None),
        ] {
            assert_eq!(cni_dir(text.as_bytes()), dir.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn the_thin_program_is_detected() {
        for (text, is_thin) in [
            (SINGLE, false),
            (LIST, false),
            (r#"{"name":"n","type":"multus"}"#, true),
        ] {
            let name = if text == LIST { "a.conflist" } else { "a.conf" };
            let made = check(Path::new(name), text.into()).unwrap();
            assert_eq!(made.calls_thin, is_thin, "{text}");
        }
    }

    #[test]
    fn the_daemons_own_work_uses_the_static_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let config = json!({"multusConfigFile": "/host/mine/5.conflist", "kubeletDir": "/k"});
        let config = Config::parse(config.as_object().unwrap().clone()).unwrap();
        let absent = effective_netconf(&root, &config).unwrap_err();
        assert!(absent.msg.contains("/host/mine/5.conflist"), "{absent}");
        let list = json!({"cniVersion": "1.0.0", "name": "made", "plugins": [
            {"type": "tuning"},
            {"type": "multus-shim", "cniDir": "/state", "clusterNetwork": "/x", "namespaceIsolation": true},
        ]});
        root.make_dirs("/mine", 0o755).unwrap();
        root.write_atomic("/mine/5.conflist", list.to_string().as_bytes(), 0o600)
            .unwrap();
        let netconf = effective_netconf(&root, &config).unwrap();
        assert_eq!(netconf.cni_dir, Path::new("/state"));
        assert_eq!(netconf.cluster_network, "/x");
        assert_eq!(netconf.cni_version, "1.0.0");
        assert!(netconf.namespace_isolation);
    }

    #[test]
    fn files_that_runtimes_ignore_are_refused() {
        for (name, text, expected) in [
            ("a.conf", "", "EOF"),
            ("a.conf", "{}", "name"),
            ("a.conf", r#"{"name":"n"}"#, "type"),
            ("a.conf", r#"{"type":"multus-shim"}"#, "name"),
            ("a.conflist", r#"{"name":"n","plugins":[]}"#, "plugins"),
            ("a.conf", LIST, "ends in .conflist"),
            ("a.conflist", SINGLE, "ends in .conf"),
            ("a.txt", SINGLE, "does not end in .conf or .conflist"),
        ] {
            let error = check(Path::new(name), text.into()).unwrap_err();
            assert!(error.contains(expected), "{name} {text}: {error}");
        }
    }
}
