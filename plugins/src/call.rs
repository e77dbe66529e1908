//! One call of a plugin: the variables of the CNI specification and the configuration, and how both are read.

use cni::chain::{self, Attachment};
use cni::convert;
use cni::env::EnvError;
use cni::types::Interface;
use cni::version::Version;
use cni::{CniError, CniResult, Command, ContainerId, IfName, env};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Context, Result, failure};

/// The beginning of the error for a configuration that is not what the plugin reads.
pub(crate) const UNREADABLE: &str = "failed to load netconf";

/// One call of a plugin.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// `CNI_CONTAINERID`; empty for verbs without a container.
    pub(crate) container_id: String,
    /// `CNI_NETNS`: the path of the container's network namespace; DEL may come without.
    pub(crate) netns: String,
    /// `CNI_IFNAME`.
    pub(crate) ifname: String,
    /// `CNI_ARGS`.
    pub(crate) args: String,
    /// `CNI_PATH`.
    pub(crate) path: String,
    /// The configuration as it came.
    pub(crate) stdin: Vec<u8>,
    /// The version in which the configuration is and the result will be written.
    pub(crate) version: Version,
    /// The network's name.
    pub(crate) network: String,
    /// `CNI_NETNS_OVERRIDE`: the container's namespace may be the plugin's own.
    pub(crate) may_share_netns: bool,
}

impl Call {
    /// Reads the configuration into a plugin's own type, whose fields have names in lower case: [`fold`] says why.
    pub(crate) fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let what = || UNREADABLE.to_owned();
        let value: Value = serde_json::from_slice(&self.stdin).context(what)?;
        T::deserialize(fold(value)).context(what)
    }

    /// Returns the result of the plugin before this one, or `None` when the configuration has none.
    pub(crate) fn prev_result(&self) -> Result<Option<CniResult>> {
        #[derive(Deserialize)]
        struct Config {
            #[serde(rename = "prevresult")]
            prev_result: Option<Value>,
        }
        let config: Config = self.config()?;
        config
            .prev_result
            .map(|value| {
                convert::parse_value(&value, Some(self.version))
                    .map_err(|error| failure!("could not parse prevResult: {error}"))
            })
            .transpose()
    }

    /// Returns the attachment's interface in the previous result. Without one, as after an ADD that failed, there may be no such link, and
    /// what looks like it may be another attachment's of the same pod.
    pub(crate) fn listed_interface(&self) -> Option<Interface> {
        let result = self.prev_result().ok()??;
        let mut interfaces = result.interfaces.into_iter();
        interfaces.find(|interface| interface.name == self.ifname && !interface.sandbox.is_empty())
    }

    /// Returns the attachments that GC leaves alone, or `None` when the configuration lists none completely: then nothing is stale.
    pub(crate) fn valid_attachments(&self) -> Result<Option<Vec<Attachment>>> {
        let config = serde_json::from_slice(&self.stdin).context(|| UNREADABLE.to_owned())?;
        Ok(chain::valid_attachments(&config))
    }

    /// Returns the attachments that GC leaves alone; a configuration without them is wrong.
    pub(crate) fn require_valid_attachments(&self) -> Result<Vec<Attachment>> {
        self.valid_attachments()?.ok_or_else(|| {
            CniError::new(
                CniError::INVALID_NETWORK_CONFIG,
                "GC needs cni.dev/valid-attachments, a list of objects with containerID and ifname",
            )
        })
    }

    /// Reads `CNI_ARGS`. A key that the plugin does not know is an error, unless `IgnoreUnknown` is set.
    pub(crate) fn known_args(&self, known: &[&str]) -> Result<Args> {
        let mut args = Args::default();
        let mut unknown = Vec::new();
        let mut ignores_unknown = false;
        for pair in self.args.split(';').filter(|_| !self.args.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .filter(|(_, value)| !value.contains('='))
                .ok_or_else(|| failure!("ARGS: invalid pair {pair:?}"))?;
            if key == "IgnoreUnknown" {
                ignores_unknown = matches!(value.to_ascii_lowercase().as_str(), "1" | "true");
            } else if known.contains(&key) {
                args.0.push((key.to_owned(), value.to_owned()));
            } else {
                unknown.push(pair);
            }
        }
        if unknown.is_empty() || ignores_unknown {
            Ok(args)
        } else {
            Err(failure!("ARGS: unknown args {unknown:?}"))
        }
    }
}

#[cfg(any(test, fuzzing))]
impl Call {
    /// A call with this configuration and `CNI_ARGS`, for tests of plugins.
    pub(crate) fn with_config(stdin: &str, args: &str) -> Self {
        Self {
            container_id: "pod".to_owned(),
            netns: "/run/netns/pod".to_owned(),
            ifname: "eth0".to_owned(),
            args: args.to_owned(),
            path: String::new(),
            stdin: stdin.as_bytes().to_vec(),
            version: Version::LATEST,
            network: "net".to_owned(),
            may_share_netns: false,
        }
    }
}

/// The keys of `CNI_ARGS` that a plugin knows.
#[derive(Debug, Default)]
pub(crate) struct Args(Vec<(String, String)>);

impl Args {
    /// Returns the last value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        cni::args::get(&self.0, key)
    }

    /// Returns the parts of a value with commas.
    pub(crate) fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        let text = self.get(key).filter(|text| !text.is_empty());
        text.into_iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
    }
}

/// The objects whose keys are data.
const OPAQUE: [&str; 3] = ["prevresult", "sysctl", "labels"];

/// Returns a configuration with its keys in lower case and without nulls. Configurations in the field are written for plugins that
/// accept a key in any case and read null as absence. Where two keys differ only in their case, one that begins with a small letter,
/// as all documented keys do, comes before one that does not, and otherwise the later one counts.
fn fold(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let is_capital = |key: &str| key.starts_with(|first: char| first.is_ascii_uppercase());
            let fields = object.into_iter().filter(|(_, value)| !value.is_null());
            let (capital, small): (Vec<_>, Vec<_>) = fields.partition(|(key, _)| is_capital(key));
            let folded = capital.into_iter().chain(small).map(|(key, value)| {
                let key = key.to_ascii_lowercase();
                let value = if OPAQUE.contains(&key.as_str()) {
                    value
                } else {
                    fold(value)
                };
                (key, value)
            });
            Value::Object(folded.collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(fold).collect()),
        other => other,
    }
}

/// Puts the configuration into the call and checks what every plugin demands of one.
pub(crate) fn with_config(
    mut call: Call,
    command: Command,
    versions: &[Version],
    stdin: Vec<u8>,
) -> Result<Call> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(default, rename = "cniVersion")]
        version: Option<String>,
        #[serde(default)]
        name: Option<String>,
    }
    let header: Header = serde_json::from_slice(&stdin).map_err(|error| {
        let text = format!("error unmarshall network config: {error}");
        CniError::new(CniError::DECODING_FAILURE, text)
    })?;
    let name = header.name.unwrap_or_default();
    if name.is_empty() {
        return Err(CniError::new(
            CniError::INVALID_NETWORK_CONFIG,
            "missing network name",
        ));
    }
    env::check_network_name(&name).map_err(refused)?;
    let stated = header.version.unwrap_or_default();
    let version = Version::parse(&stated)
        .map_err(|error| CniError::new(CniError::DECODING_FAILURE, error.to_string()))?;
    let since = match command {
        Command::Check => Some(Version::V0_4_0),
        Command::Status | Command::Gc => Some(Version::V1_1_0),
        _ => None,
    };
    if since.is_some_and(|since| version < since) {
        return Err(CniError::new(
            CniError::INCOMPATIBLE_VERSION,
            format!("config version does not allow {command}"),
        ));
    }
    if since.is_some() && versions.iter().all(|supported| *supported < version) {
        return Err(CniError::new(
            CniError::INCOMPATIBLE_VERSION,
            format!("plugin version does not allow {command}"),
        ));
    }
    if !versions.contains(&version) {
        let supported: Vec<_> = versions
            .iter()
            .map(|version| format!("{:?}", version.to_string()))
            .collect();
        return Err(
            CniError::new(CniError::INCOMPATIBLE_VERSION, "incompatible CNI versions")
                .with_details(format!(
                    "config is {stated:?}, plugin supports [{}]",
                    supported.join(" ")
                )),
        );
    }
    call.stdin = stdin;
    call.version = version;
    call.network = name;
    Ok(call)
}

/// Returns the error that the reference plugins print for a refused name.
pub(crate) fn refused(error: EnvError) -> CniError {
    match error {
        // The reference has no limit, and so no text.
        EnvError::ContainerId(id, _) if id.len() <= ContainerId::MAX_BYTES => {
            invalid_environment("invalid characters in containerID").with_details(id)
        }
        EnvError::IfName(name, _) if name.len() > IfName::MAX_BYTES => {
            invalid_environment("interface name is too long").with_details(format!(
                "interface name should be less than {} characters",
                IfName::MAX_BYTES + 1
            ))
        }
        EnvError::IfName(name, _) if name == "." || name == ".." => {
            invalid_environment("interface name is . or ..")
        }
        EnvError::IfName(..) => {
            invalid_environment("interface name contains / or : or whitespace characters")
        }
        EnvError::NetworkName(name, _) => CniError::new(
            CniError::INVALID_NETWORK_CONFIG,
            "invalid characters found in network name",
        )
        .with_details(name),
        other => invalid_environment(other.to_string()),
    }
}

pub(crate) fn invalid_environment(text: impl Into<String>) -> CniError {
    CniError::new(CniError::INVALID_ENVIRONMENT, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_names_have_the_reference_texts() {
        let name_error = |name: &str| refused(IfName::parse(name).unwrap_err());
        assert_eq!(
            name_error("a-name-longer-than-15").msg,
            "interface name is too long"
        );
        assert_eq!(
            name_error("a-name-longer-than-15").details,
            "interface name should be less than 16 characters"
        );
        let id_error = |id: &str| refused(ContainerId::parse(id).unwrap_err());
        assert_eq!(id_error("a b").msg, "invalid characters in containerID");
        assert_eq!(id_error("a b").details, "a b");
        assert!(id_error(&"a".repeat(200)).msg.ends_with("128 bytes"));
        assert_eq!(name_error("..").msg, "interface name is . or ..");
        assert_eq!(
            name_error("a b").msg,
            "interface name contains / or : or whitespace characters"
        );
    }

    #[test]
    fn keys_are_folded() {
        assert_eq!(
            fold(json!({
                "address": "a", "Address": {"IP": null}, "MTU": 1, "mTu": 2, "mtU": 3, "null": null,
                "prevResult": {"Keep": null}, "list": [{"Name": "x"}],
            })),
            json!({
                "address": "a", "mtu": 3, "prevresult": {"Keep": null}, "list": [{"name": "x"}],
            })
        );
    }
}
