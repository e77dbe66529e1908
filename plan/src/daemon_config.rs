//! The daemon's own file, `daemon-config.json`: read once, typed, the raw keys kept for the overlay on each request.

pub mod certificate;
mod effect;
pub mod logging;
mod typo;

use self::logging::Logging;
pub use typo::{distance, meant, misspelled};

use std::path::{Path, PathBuf};

use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

use crate::{
    json::{self, WrongType},
    netconf::{Netconf, NetconfError},
    node_path::node_path,
};

/// Where the file stands unless `--config` says otherwise (upstream's place).
pub const DEFAULT_PATH: &str = "/etc/cni/net.d/multus.d/daemon-config.json";

/// What the daemon itself reads of its file. Paths are those of the node.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Config {
    /// Every key as written; laid over each request.
    pub raw: Map<String, Value>,
    /// Directory of the socket.
    pub socket_dir: PathBuf,
    /// Directory of state files.
    pub cni_dir: PathBuf,
    /// Where configurations are; `None` asks the runtime.
    pub conf_dir: Option<PathBuf>,
    /// One more directory of plugins.
    pub bin_dir: Option<PathBuf>,
    /// Where the shim goes; `None` asks the runtime.
    pub shim_dir: Option<PathBuf>,
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
    /// How the node gets a certificate of its own; `None` uses the identity of the pod.
    pub certificate: Option<certificate::Settings>,
    /// Where the kubelet tells of devices.
    pub kubelet_dir: PathBuf,
    /// Whether annotations of running pods are followed.
    pub dynamic_networks: bool,
    /// Whether an uninstall detaches what is left first.
    pub detach_on_uninstall: bool,
    /// Whether the node's plugin dhcp is kept serving.
    pub dhcp: bool,
    /// At most so many connections of the socket at once; `None` is no limit.
    pub connection_limit: Option<usize>,
    /// At most so many ADDs and DELs at work at once; `None` goes by the node's processors.
    pub verbs_at_once: Option<usize>,
    /// Where metrics are served; `None` is nowhere.
    pub metrics_port: Option<u16>,
    /// Where the daemon's own log goes.
    pub logging: Logging,
}

/// Each verb at work has a thread.
const MOST_VERBS: usize = 1000;
/// The words for how much is logged.
const LOG_LEVELS: [&str; 4] = ["panic", "error", "verbose", "debug"];

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub reason: ConfigError,
}

impl FileError {
    /// Whether there simply is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.reason, ConfigError::Read(error) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("mount it there, or name another with --config")]
    Read(#[source] std::io::Error),
    /// It is no JSON object.
    #[error("it is no JSON object: {0}")]
    Json(String),
    /// A key has a value of the wrong type.
    #[error(transparent)]
    Type(#[from] WrongType),
    /// The part about the node's certificate.
    #[error(transparent)]
    Certificate(#[from] certificate::SettingsError),
    /// The keys that are laid over each request.
    #[error(transparent)]
    Netconf(#[from] NetconfError),
    /// A path is relative.
    #[error("key \"{key}\" is `{value}`, but must be an absolute path on the node")]
    Relative {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// A number that means nothing.
    #[error(
        "key \"{key}\" is {value}, but must be a whole number from 1 to {most}; remove the key to do without"
    )]
    Number {
        /// The key.
        key: &'static str,
        /// Its value.
        value: Value,
        /// The highest that there is.
        most: u64,
    },
    /// A word that is none of those that are understood.
    #[error("key \"{key}\" is `{value}`, but must be one of {known}")]
    Word {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is understood.
        known: String,
    },
}

impl Config {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let read = || {
            let bytes = std::fs::read(path).map_err(ConfigError::Read)?;
            let json = serde_json::from_slice(&bytes);
            match json.map_err(|error| ConfigError::Json(error.to_string()))? {
                Value::Object(map) => Self::parse(map),
                other => Err(ConfigError::Json(format!("it holds {other}"))),
            }
        };
        read().map_err(|reason| FileError {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads the keys. Unknown ones are kept, as they belong to the requests, unless they are nearly known.
    pub fn parse(raw: Map<String, Value>) -> Result<Self, ConfigError> {
        typo::check_types(&raw)?;
        let word = |key| json::non_empty(&raw, key);
        let auto = |value: Option<String>| value.filter(|text| !text.eq_ignore_ascii_case("auto"));
        let config = Self {
            socket_dir: path(&raw, "socketDir")?.unwrap_or_else(|| api::DEFAULT_SOCKET_DIR.into()),
            cni_dir: path(&raw, "cniDir")?.unwrap_or_else(|| api::DEFAULT_CNI_DIR.into()),
            conf_dir: path(&raw, "cniConfigDir")?,
            bin_dir: path(&raw, "binDir")?,
            shim_dir: path(&raw, "shimDir")?,
            autoconfig_dir: path(&raw, "multusAutoconfigDir")?,
            primary_file: word("multusMasterCNI")?,
            config_file: auto(word("multusConfigFile")?).map(PathBuf::from),
            cni_version: auto(word("cniVersion")?).map(cni_version).transpose()?,
            override_network_name: json::switch(&raw, "overrideNetworkName")?,
            chroot_dir: word("chrootDir")?.map(PathBuf::from),
            cri_socket: path(&raw, "criSocket")?,
            readiness_file: path(&raw, "readinessindicatorfile")?,
            certificate: certificate::Settings::read(&raw)?,
            kubelet_dir: path(&raw, "kubeletDir")?.unwrap_or_else(|| "/var/lib/kubelet".into()),
            detach_on_uninstall: json::switch(&raw, "detachOnUninstall")?,
            dhcp: json::switch(&raw, "dhcp")?,
            dynamic_networks: json::switch(&raw, "dynamicNetworks")?,
            connection_limit: number(&raw, "connectionLimit", usize::MAX)?,
            verbs_at_once: number(&raw, "verbsAtOnce", MOST_VERBS)?,
            metrics_port: number(&raw, "metricsPort", u16::MAX)?,
            logging: Logging::read(&raw, log_level(json::text(&raw, "logLevel")?)?)?,
            raw: Map::new(),
        };
        path(&raw, "confDir")?;
        // What would make every request fail makes the start fail, which ends a rollout at its first pod.
        let config = Self { raw, ..config };
        config.own_netconf()?;
        Ok(config)
    }

    /// The effective configuration of a request that brought this.
    pub fn netconf(&self, request: &[u8]) -> Result<Netconf, NetconfError> {
        Netconf::effective(request, &self.raw, self.is_generated())
    }

    /// The same for what the daemon does by itself.
    pub fn own_netconf(&self) -> Result<Netconf, NetconfError> {
        Netconf::without_request(&self.raw, self.is_generated())
    }

    /// Whether the daemon writes Multus' configuration, instead of having it given ready-made.
    fn is_generated(&self) -> bool {
        self.config_file.is_none()
    }

    /// Keys that are set and change nothing here, each with what to do instead; for the log of a start.
    pub fn without_effect(&self) -> Vec<String> {
        [misspelled(&self.raw), effect::missing(&self.raw)].concat()
    }
}

fn cni_version(value: String) -> Result<String, ConfigError> {
    let known = value.parse().is_ok_and(Version::is_supported);
    if known {
        return Ok(value);
    }
    let versions = SUPPORTED.map(|version| version.to_string());
    Err(ConfigError::Word {
        key: "cniVersion",
        value,
        known: format!("auto, {}", versions.join(", ")),
    })
}

fn log_level(value: String) -> Result<String, ConfigError> {
    let level = value.to_lowercase();
    if level.is_empty() || LOG_LEVELS.contains(&level.as_str()) {
        return Ok(level);
    }
    Err(ConfigError::Word {
        key: "logLevel",
        value,
        known: LOG_LEVELS.join(", "),
    })
}

/// A whole number above nought.
fn number<T: TryFrom<u64> + TryInto<u64>>(
    raw: &Map<String, Value>,
    key: &'static str,
    most: T,
) -> Result<Option<T>, ConfigError> {
    let value = match json::get(raw, key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = value.as_u64().filter(|number| *number > 0);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.map(Some).ok_or_else(|| ConfigError::Number {
        key,
        value: value.clone(),
        most: most.try_into().unwrap_or(u64::MAX),
    })
}

/// A path of the node.
pub(crate) fn path(
    raw: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = json::non_empty(raw, key)? else {
        return Ok(None);
    };
    let path = node_path(&text);
    if !path.is_absolute() {
        return Err(ConfigError::Relative { key, value: text });
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use api::rules::{RULES, Rule};
    use serde_json::json;

    use super::*;

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

    #[track_caller]
    fn refused(value: Value, expected: &str) {
        let error = config(value).unwrap_err().to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn wrong_values_are_named() {
        refused(
            json!({"binDir": "bin"}),
            "key \"binDir\" is `bin`, but must be an absolute path on the node",
        );
        refused(
            json!({"SocketDir": 1}),
            "key \"socketDir\" must be a string",
        );
        refused(
            json!({"namespaceIsolation": "yes"}),
            "key \"namespaceIsolation\" must be true or false",
        );
        refused(
            json!({"logLevel": "verbos"}),
            "key \"logLevel\" is `verbos`, but must be one of panic, error, verbose, debug",
        );
        refused(
            json!({"cniVersion": "9.9.9"}),
            "key \"cniVersion\" is `9.9.9`, but must be one of auto, 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
        );
        refused(
            json!({"connectionLimit": 0}),
            "key \"connectionLimit\" is 0, but must be a whole number from 1 to 18446744073709551615; remove the key to do without",
        );
        refused(
            json!({"metricsPort": 70000}),
            "key \"metricsPort\" is 70000, but must be a whole number from 1 to 65535; remove the key to do without",
        );
        refused(
            json!({"defaultNetworks": [1]}),
            "CNI configuration of multus: key \"defaultNetworks\" must be a list of strings",
        );
    }

    #[test]
    fn misspelled_key_is_a_warning() {
        let config = config(json!({"namespaceIsolaton": true})).unwrap();
        assert_eq!(
            config.without_effect(),
            ["there is no key \"namespaceIsolaton\": did you mean \"namespaceIsolation\"?"]
        );
    }

    #[test]
    fn every_rule_of_the_table_holds() {
        for (key, rule) in RULES {
            let (good, bad): (Vec<Value>, Vec<Value>) = match rule {
                Rule::AbsolutePath => (vec![json!("/x"), json!("")], vec![json!("x")]),
                Rule::Words(words) => (
                    words.iter().map(|word| json!(word)).collect(),
                    vec![json!("warning")],
                ),
                Rule::UpTo(most) => (
                    vec![json!(1), json!(most)],
                    [json!(0), json!(-1)]
                        .into_iter()
                        .chain(most.checked_add(1).map(|more| json!(more)))
                        .collect(),
                ),
            };
            for value in good {
                config(json!({*key: value})).unwrap();
            }
            for value in bad {
                config(json!({*key: value})).unwrap_err();
            }
        }
    }

    #[test]
    fn keys_of_others_and_any_case_are_kept() {
        let config = config(json!({"LOGLEVEL": "Debug", "keyOfADelegate": [1]})).unwrap();
        assert_eq!(config.logging.level, "debug");
        assert_eq!(config.raw["keyOfADelegate"], json!([1]));
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon-config.json");
        assert!(Config::load(&path).unwrap_err().is_not_found());
        for (text, expected) in [
            ("", "it is no JSON object: EOF"),
            ("{\"logLevel\": \"debug\",", "it is no JSON object: EOF"),
            ("[1]", "it is no JSON object: it holds [1]"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Config::load(&path).unwrap_err();
            assert!(error.to_string().ends_with("daemon-config.json"), "{error}");
            assert!(error.reason.to_string().starts_with(expected), "{error:?}");
        }
    }
}
