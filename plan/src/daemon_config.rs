//! The daemon's own file, `daemon-config.json`. It is read once into typed fields; its raw keys also overlay each request.

pub mod certificate;
mod ineffective_keys;
mod known_keys;
pub mod logging;
pub mod own_plugins;

use self::logging::Logging;
use self::own_plugins::{OwnPlugins, OwnPluginsError};
pub use known_keys::{distance, misspelled, suggestion};

use std::path::{Path, PathBuf};

use cni::version::{SUPPORTED, Version};
use serde_json::{Map, Value};

use crate::{
    json::{self, WrongType},
    netconf::{Netconf, NetconfError},
    node_path::node_path,
};

/// The default path of the file, which is also upstream's.
pub const DEFAULT_PATH: &str = "/etc/cni/net.d/multus.d/daemon-config.json";

/// The options that the daemon itself reads. Paths are those of the node.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Config {
    /// Every key as written, for the overlay on each request.
    pub raw: Map<String, Value>,
    /// Directory of the socket.
    pub socket_dir: PathBuf,
    /// Directory of state files.
    pub cni_dir: PathBuf,
    /// The runtime's directory of configurations; `None` asks the runtime.
    pub conf_dir: Option<PathBuf>,
    /// An additional directory of plugins.
    pub bin_dir: Option<PathBuf>,
    /// The directory for the shim; `None` asks the runtime.
    pub shim_dir: Option<PathBuf>,
    /// The directory of the default network's configuration; `None` stands for `conf_dir`.
    pub autoconfig_dir: Option<PathBuf>,
    /// File name of the default network's configuration; `None` takes the first file.
    pub default_network_file: Option<String>,
    /// A static configuration instead of a generated one.
    pub config_file: Option<PathBuf>,
    /// `cniVersion` of the generated configuration; `None` stands for the highest that the runtime accepts.
    pub cni_version: Option<String>,
    /// Whether the generated configuration has the default network's name.
    pub override_network_name: bool,
    /// A root directory for delegates, instead of the runtime's mount namespace.
    pub chroot_dir: Option<PathBuf>,
    /// The only runtime socket to ask.
    pub cri_socket: Option<PathBuf>,
    /// A file that must exist before any pod is served.
    pub readiness_file: Option<PathBuf>,
    /// How the node obtains its own certificate; `None` uses the identity of the pod.
    pub certificate: Option<certificate::Settings>,
    /// The kubelet's directory, below which its socket reports devices.
    pub kubelet_dir: PathBuf,
    /// Whether the daemon follows the annotations of running pods.
    pub dynamic_networks: bool,
    /// Whether an uninstall first detaches the networks of deleted pods.
    pub detach_on_uninstall: bool,
    /// The plugins that come with the daemon.
    pub own_plugins: OwnPlugins,
    /// Whether the daemon holds DHCP leases.
    pub dhcp: bool,
    /// Whether the daemon gives addresses that are unique in the cluster.
    pub ipam: bool,
    /// The namespace of the pools of whereabouts, of which the daemon gives addresses, too.
    pub whereabouts: Option<String>,
    /// How the daemon publishes which definitions its node can serve.
    pub publish: Publish,
    /// The limit of concurrent connections to the socket; `None` means no limit.
    pub connection_limit: Option<usize>,
    /// The limit of concurrent ADDs and DELs; `None` derives it from the node's processors.
    pub verbs_at_once: Option<usize>,
    /// The port for metrics; `None` serves none.
    pub metrics_port: Option<u16>,
    /// The outputs of the daemon's own log.
    pub logging: Logging,
}

/// How a daemon publishes which definitions its node can serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Publish {
    /// Not at all.
    #[default]
    None,
    /// By a file for Node Feature Discovery.
    Features,
    /// By labels of the node's Node.
    Labels,
    /// By extended resources, of which the kubelet hears through its interface for device plugins.
    Resources,
}

/// The highest limit of concurrent verbs: each has a thread.
const MAX_VERBS: usize = 1000;
/// The values of `logLevel`.
const LOG_LEVELS: [&str; 4] = ["panic", "error", "verbose", "debug"];
/// The values of `publish`.
const PUBLISH: [(&str, Publish); 4] = [
    ("none", Publish::None),
    ("features", Publish::Features),
    ("labels", Publish::Labels),
    ("resources", Publish::Resources),
];

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}", path.display())]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The underlying error.
    #[source]
    pub reason: ConfigError,
}

impl FileError {
    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&self.reason, ConfigError::Read(error) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("mount it there, or name another with --config")]
    Read(#[source] std::io::Error),
    /// The content is not a JSON object.
    #[error("it is not a JSON object: {0}")]
    Json(String),
    /// A key has a value of the wrong type.
    #[error(transparent)]
    Type(#[from] WrongType),
    /// The key `perNodeCertificate` is invalid.
    #[error(transparent)]
    Certificate(#[from] certificate::SettingsError),
    /// The key `ownPlugins` is invalid.
    #[error(transparent)]
    OwnPlugins(#[from] OwnPluginsError),
    /// A key of those that overlay each request is invalid.
    #[error(transparent)]
    Netconf(#[from] NetconfError),
    /// A path is relative.
    #[error("key \"{key}\" is `{value}`, but must be an absolute path on the node")]
    Relative {
        key: &'static str,
        /// The value as written.
        value: String,
    },
    /// A number is out of range.
    #[error(
        "key \"{key}\" is {value}, but must be a whole number from 1 to {max}; remove the key for the default"
    )]
    Number {
        key: &'static str,
        /// The value as written.
        value: Value,
        /// The highest valid number.
        max: u64,
    },
    /// A word is not one of the valid ones.
    #[error("key \"{key}\" is `{value}`, but must be one of {known}")]
    Word {
        key: &'static str,
        /// The value as written.
        value: String,
        /// The valid words.
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
                other => Err(ConfigError::Json(format!("its content is {other}"))),
            }
        };
        read().map_err(|reason| FileError {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads the keys. Unknown keys are kept, as they belong to the requests.
    pub fn parse(raw: Map<String, Value>) -> Result<Self, ConfigError> {
        known_keys::check_types(&raw)?;
        let word = |key| json::non_empty(&raw, key);
        let auto = |value: Option<String>| value.filter(|text| !text.eq_ignore_ascii_case("auto"));
        let whereabouts = word("whereabouts")?.filter(|_| json::boolean(&raw, "ipam") == Ok(true));
        let config = Self {
            socket_dir: path(&raw, "socketDir")?.unwrap_or_else(|| api::DEFAULT_SOCKET_DIR.into()),
            cni_dir: path(&raw, "cniDir")?.unwrap_or_else(|| api::DEFAULT_CNI_DIR.into()),
            conf_dir: path(&raw, "cniConfigDir")?,
            bin_dir: path(&raw, "binDir")?,
            shim_dir: path(&raw, "shimDir")?,
            autoconfig_dir: path(&raw, "multusAutoconfigDir")?,
            default_network_file: word("multusMasterCNI")?,
            config_file: auto(word("multusConfigFile")?).map(PathBuf::from),
            cni_version: auto(word("cniVersion")?).map(cni_version).transpose()?,
            override_network_name: json::boolean(&raw, "overrideNetworkName")?,
            chroot_dir: word("chrootDir")?.map(PathBuf::from),
            cri_socket: path(&raw, "criSocket")?,
            readiness_file: path(&raw, "readinessindicatorfile")?,
            certificate: certificate::Settings::read(&raw)?,
            kubelet_dir: path(&raw, "kubeletDir")?.unwrap_or_else(|| "/var/lib/kubelet".into()),
            detach_on_uninstall: json::boolean(&raw, "detachOnUninstall")?,
            own_plugins: OwnPlugins::read(&raw, whereabouts.is_some())?,
            dhcp: json::boolean(&raw, "dhcp")?,
            ipam: json::boolean(&raw, "ipam")?,
            whereabouts,
            publish: publish(json::string(&raw, "publish")?)?,
            dynamic_networks: json::boolean(&raw, "dynamicNetworks")?,
            connection_limit: number(&raw, "connectionLimit", usize::MAX)?,
            verbs_at_once: number(&raw, "verbsAtOnce", MAX_VERBS)?,
            metrics_port: number(&raw, "metricsPort", u16::MAX)?,
            logging: Logging::read(&raw, log_level(json::string(&raw, "logLevel")?)?)?,
            raw: Map::new(),
        };
        path(&raw, "confDir")?;
        // A value that would make every request fail makes the start fail instead, which ends a rollout at its first pod.
        let config = Self { raw, ..config };
        config.own_netconf()?;
        Ok(config)
    }

    /// Returns the effective configuration of a request with this configuration.
    pub fn netconf(&self, request: &[u8]) -> Result<Netconf, NetconfError> {
        let netconf = Netconf::effective(request, &self.raw, self.is_generated());
        netconf.map(|netconf| self.with_own_plugins(netconf))
    }

    /// Returns the effective configuration of the daemon's own work, without a request.
    pub fn own_netconf(&self) -> Result<Netconf, NetconfError> {
        let netconf = Netconf::without_request(&self.raw, self.is_generated());
        netconf.map(|netconf| self.with_own_plugins(netconf))
    }

    fn with_own_plugins(&self, mut netconf: Netconf) -> Netconf {
        netconf.own_plugins_first = self.own_plugins.first;
        netconf
    }

    /// Whether the daemon generates Multus' configuration instead of installing a static one.
    fn is_generated(&self) -> bool {
        self.config_file.is_none()
    }

    /// Returns a sentence for each key that is set without effect, with a hint what to do instead. They are logged at the start.
    pub fn without_effect(&self) -> Vec<String> {
        [
            misspelled(&self.raw),
            ineffective_keys::without_effect(&self.raw),
        ]
        .concat()
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

fn publish(value: String) -> Result<Publish, ConfigError> {
    let mut known = PUBLISH.iter();
    let is_it = |word: &str| word.eq_ignore_ascii_case(&value);
    match known.find(|(word, _)| is_it(word)) {
        Some((_, publish)) => Ok(*publish),
        None if value.is_empty() => Ok(Publish::None),
        None => Err(ConfigError::Word {
            key: "publish",
            value,
            known: PUBLISH.map(|(word, _)| word).join(", "),
        }),
    }
}

/// Reads a whole number from 1 to `max`.
fn number<T: TryFrom<u64> + TryInto<u64>>(
    raw: &Map<String, Value>,
    key: &'static str,
    max: T,
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
        max: max.try_into().unwrap_or(u64::MAX),
    })
}

/// Reads an absolute path of the node.
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
    fn upstreams_file_is_read() {
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
    fn empty_values_leave_the_decision_to_the_node() {
        let config =
            config(json!({"cniConfigDir": "", "binDir": null, "cniVersion": "auto"})).unwrap();
        assert_eq!(
            (config.conf_dir, config.bin_dir, config.cni_version),
            (None, None, None)
        );
        assert_eq!(config.cni_dir, Path::new("/var/lib/cni/multus"));
    }

    #[test]
    fn addresses_are_off_by_default_and_no_request_needs_the_key() {
        assert!(!config(json!({})).unwrap().ipam);
        let config = config(json!({"ipam": true})).unwrap();
        assert!(config.ipam);
        // Upstream's configuration may have an object under this key.
        let request = br#"{"name": "n", "clusterNetwork": "a", "ipam": {"type": "host-local"}}"#;
        config.netconf(request).unwrap();
    }

    #[test]
    fn pools_of_whereabouts_are_served_only_with_addresses() {
        for (value, expected) in [
            (json!({"ipam": true}), None),
            (json!({"whereabouts": "kube-system"}), None),
            (json!({"ipam": true, "whereabouts": ""}), None),
            (
                json!({"ipam": true, "whereabouts": "kube-system"}),
                Some("kube-system"),
            ),
        ] {
            let config = config(value).unwrap();
            assert_eq!(config.whereabouts.as_deref(), expected);
            let names = config.own_plugins.names;
            assert_eq!(names.contains(&"whereabouts"), expected.is_some());
        }
        let ipam =
            json!({"ipam": true, "whereabouts": "a", "ownPlugins": {"skip": ["whereabouts"]}});
        assert!(
            !config(ipam)
                .unwrap()
                .own_plugins
                .names
                .contains(&"whereabouts")
        );
    }

    #[track_caller]
    fn refused(value: Value, expected: &str) {
        let error = config(value).unwrap_err().to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn invalid_values_are_reported_with_their_key() {
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
            json!({"ipam": {"type": "multus-ipam"}}),
            "key \"ipam\" must be true or false",
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
            "key \"connectionLimit\" is 0, but must be a whole number from 1 to 18446744073709551615; remove the key for the default",
        );
        refused(
            json!({"metricsPort": 70000}),
            "key \"metricsPort\" is 70000, but must be a whole number from 1 to 65535; remove the key for the default",
        );
        refused(
            json!({"defaultNetworks": [1]}),
            "CNI configuration of multus: key \"defaultNetworks\" must be a list of strings",
        );
    }

    #[test]
    fn a_misspelled_key_is_a_warning() {
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
    fn unknown_keys_are_kept_and_case_does_not_matter() {
        let config = config(json!({"LOGLEVEL": "Debug", "keyOfADelegate": [1]})).unwrap();
        assert_eq!(config.logging.level, "debug");
        assert_eq!(config.raw["keyOfADelegate"], json!([1]));
    }

    #[test]
    fn an_unusable_file_is_reported_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon-config.json");
        assert!(Config::load(&path).unwrap_err().is_not_found());
        for (text, expected) in [
            ("", "it is not a JSON object: EOF"),
            ("{\"logLevel\": \"debug\",", "it is not a JSON object: EOF"),
            ("[1]", "it is not a JSON object: its content is [1]"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Config::load(&path).unwrap_err();
            assert!(error.to_string().ends_with("daemon-config.json"), "{error}");
            assert!(error.reason.to_string().starts_with(expected), "{error:?}");
        }
    }
}
