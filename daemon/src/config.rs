//! The daemon's own file, `daemon-config.json`: read once, typed, the raw keys kept for the overlay on each request.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::json::{self, WrongType};

/// Where the file stands unless `--config` says otherwise (upstream's place).
pub const DEFAULT_PATH: &str = "/etc/cni/net.d/multus.d/daemon-config.json";

/// What the daemon itself reads of its file. Paths are those of the node.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Every key as written; laid over each request.
    pub raw: Map<String, Value>,
    /// Directory of the socket.
    pub socket_dir: PathBuf,
    /// Directory of state files.
    pub cni_dir: PathBuf,
    /// Where configurations are; `None` asks the runtime.
    pub conf_dir: Option<PathBuf>,
    /// Where the shim goes; `None` asks the runtime.
    pub bin_dir: Option<PathBuf>,
    /// Where the primary's configuration is; `None` is `conf_dir`.
    pub autoconfig_dir: Option<PathBuf>,
    /// File name of the primary's configuration; `None` takes the first.
    pub primary_file: Option<String>,
    /// A ready-made configuration instead of a generated one.
    pub config_file: Option<PathBuf>,
    /// `cniVersion` of the generated configuration; `None` is the highest that the runtime accepts.
    pub cni_version: Option<String>,
    /// Whether the generated configuration has the primary's name.
    pub override_network_name: bool,
    /// Delegates run chrooted here instead of in the runtime's mount namespace.
    pub chroot_dir: Option<PathBuf>,
    /// The only runtime socket to ask.
    pub cri_socket: Option<PathBuf>,
    /// A file that must exist before anything is served.
    pub readiness_file: Option<PathBuf>,
    /// `debug`, `verbose`, `error` or `panic`.
    pub log_level: String,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON object.
    #[error("{} is not a JSON object: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A key has a value of the wrong type.
    #[error(transparent)]
    Type(#[from] WrongType),
    /// A path is relative.
    #[error("{key} is `{value}`, but must be an absolute path on the node")]
    Relative {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl Config {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let json = |reason: String| ConfigError::Json {
            path: path.to_owned(),
            reason,
        };
        match serde_json::from_slice(&bytes).map_err(|error| json(error.to_string()))? {
            Value::Object(map) => Self::parse(map),
            other => Err(json(format!("it holds {other}"))),
        }
    }

    /// Reads the keys. Unknown ones are kept: they belong to the requests.
    pub fn parse(raw: Map<String, Value>) -> Result<Self, ConfigError> {
        let word = |key| json::non_empty(&raw, key);
        let auto = |value: Option<String>| value.filter(|text| !text.eq_ignore_ascii_case("auto"));
        let config = Self {
            socket_dir: path(&raw, "socketDir")?.unwrap_or_else(|| api::DEFAULT_SOCKET_DIR.into()),
            cni_dir: path(&raw, "cniDir")?.unwrap_or_else(|| api::DEFAULT_CNI_DIR.into()),
            conf_dir: path(&raw, "cniConfigDir")?,
            bin_dir: path(&raw, "binDir")?,
            autoconfig_dir: path(&raw, "multusAutoconfigDir")?,
            primary_file: word("multusMasterCNI")?,
            config_file: auto(word("multusConfigFile")?).map(PathBuf::from),
            cni_version: auto(word("cniVersion")?),
            override_network_name: json::switch(&raw, "overrideNetworkName")?,
            chroot_dir: word("chrootDir")?.map(PathBuf::from),
            cri_socket: path(&raw, "criSocket")?,
            readiness_file: path(&raw, "readinessindicatorfile")?,
            log_level: json::text(&raw, "logLevel")?,
            raw: Map::new(),
        };
        Ok(Self { raw, ..config })
    }
}

/// A path of the node: what upstream's charts mounted below `/host` or `/hostroot` is meant without that.
fn path(raw: &Map<String, Value>, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = json::non_empty(raw, key)? else {
        return Ok(None);
    };
    let path = Path::new(&text);
    let stripped = ["/hostroot", "/host"]
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix).ok());
    let path = stripped.map_or_else(|| path.to_owned(), |rest| Path::new("/").join(rest));
    if !path.is_absolute() {
        return Err(ConfigError::Relative { key, value: text });
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Value) -> Result<Config, ConfigError> {
        let Value::Object(map) = value else {
            panic!("{value}")
        };
        Config::parse(map)
    }

    #[test]
    fn upstreams_file_is_understood() {
        let config = config(json!({
            "chrootDir": "/hostroot", "cniVersion": "0.3.1", "CniConfigDir": "/host/etc/cni/net.d",
            "multusAutoconfigDir": "/host/etc/cni/net.d", "multusConfigFile": "auto", "socketDir": "/host/run/multus/"
        }))
        .unwrap();
        assert_eq!(
            config.conf_dir.as_deref(),
            Some(Path::new("/etc/cni/net.d"))
        );
        assert_eq!(config.socket_dir, Path::new("/run/multus"));
        assert_eq!(config.cni_version.as_deref(), Some("0.3.1"));
        assert_eq!(config.config_file, None);
    }

    #[test]
    fn empty_means_ask_the_node() {
        let config =
            config(json!({"cniConfigDir": "", "binDir": null, "cniVersion": "auto"})).unwrap();
        assert_eq!(
            (config.conf_dir, config.bin_dir, config.cni_version),
            (None, None, None)
        );
        assert_eq!(config.cni_dir, Path::new("/var/lib/cni/multus"));
    }

    #[test]
    fn wrong_values_are_named() {
        assert!(
            config(json!({"binDir": "bin"}))
                .unwrap_err()
                .to_string()
                .contains("binDir is `bin`")
        );
        assert!(
            config(json!({"socketDir": 1}))
                .unwrap_err()
                .to_string()
                .contains("socketDir")
        );
    }
}
