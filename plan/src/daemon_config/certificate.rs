//! Reads the key `perNodeCertificate` of the daemon's file.

use std::{path::PathBuf, time::Duration};

use serde_json::{Map, Value};

use crate::{
    daemon_config::{ConfigError, path},
    json,
};

/// The shortest validity that an API server accepts.
pub const SHORTEST: Duration = Duration::from_mins(10);
/// The longest validity that the approver accepts: a year.
pub const LONGEST: Duration = Duration::from_hours(365 * 24);
/// The default validity. Each renewal is a request that stays in the cluster for an hour.
const DEFAULT_DURATION: Duration = Duration::from_hours(24);
/// The default directory of key and certificate.
const DEFAULT_DIR: &str = "/var/lib/multus/certs";

const KEYS: [&str; 4] = ["enabled", "bootstrapKubeconfig", "certDir", "certDuration"];

/// How this node's daemon obtains its certificate. Paths are those of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The kubeconfig with which certificates are requested. `None` stands for the identity that the daemon would have without a
    /// certificate: its pod's service account.
    pub bootstrap: Option<PathBuf>,
    /// The directory of key and certificate.
    pub dir: PathBuf,
    /// The requested validity of a certificate.
    pub duration: Duration,
}

/// The reason why the key's value is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The value has a key that does not exist.
    #[error("key \"perNodeCertificate\" has no \"{0}\": its keys are {known}", known = KEYS.join(", "))]
    Unknown(String),
    /// The value is not a duration, or one out of range.
    #[error(
        "key \"certDuration\" is `{0}`, but must be a duration from 10m to 8760h, such as 24h or 1h30m"
    )]
    Duration(String),
}

impl Settings {
    /// Reads the key. Returns `None` where it is absent or not enabled.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Option<Self>, ConfigError> {
        let Some(keys) = json::object(config, "perNodeCertificate")? else {
            return Ok(None);
        };
        let unknown = |key: &&String| !KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        if let Some(key) = keys.keys().find(unknown) {
            return Err(SettingsError::Unknown(key.clone()).into());
        }
        let settings = Self {
            bootstrap: path(keys, "bootstrapKubeconfig")?,
            dir: path(keys, "certDir")?.unwrap_or_else(|| DEFAULT_DIR.into()),
            duration: match json::non_empty(keys, "certDuration")? {
                None => DEFAULT_DURATION,
                Some(text) => duration(&text).ok_or(SettingsError::Duration(text))?,
            },
        };
        Ok(json::boolean(keys, "enabled")?.then_some(settings))
    }
}

/// Parses hours, minutes and seconds as Go writes them, without fractions, within the range that an API server and the approver accept.
fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest.as_bytes()[digits] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    let duration = Duration::from_secs(seconds);
    (SHORTEST..=LONGEST).contains(&duration).then_some(duration)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Option<Settings>, String> {
        let map = Map::from_iter([("perNodeCertificate".to_owned(), value)]);
        Settings::read(&map).map_err(|error| error.to_string())
    }

    #[test]
    fn certificates_are_off_by_default() {
        assert_eq!(read(json!(null)), Ok(None));
        assert_eq!(read(json!({})), Ok(None));
        assert_eq!(read(json!({"enabled": false, "certDir": "/x"})), Ok(None));
    }

    #[test]
    fn upstreams_keys_are_read() {
        let settings = read(json!({
            "enabled": true, "bootstrapKubeconfig": "/hostroot/var/lib/kubelet/kubeconfig",
            "certDir": "/hostroot/etc/certs", "certDuration": "24h"
        }));
        let expected = Settings {
            bootstrap: Some("/var/lib/kubelet/kubeconfig".into()),
            dir: "/etc/certs".into(),
            duration: Duration::from_hours(24),
        };
        assert_eq!(settings, Ok(Some(expected)));
    }

    #[test]
    fn defaults_need_no_path() {
        let expected = Settings {
            bootstrap: None,
            dir: "/var/lib/multus/certs".into(),
            duration: Duration::from_hours(24),
        };
        assert_eq!(read(json!({"enabled": true})), Ok(Some(expected)));
    }

    #[test]
    fn invalid_values_are_reported_with_their_key() {
        for (value, part) in [
            (json!({"enable": true}), "has no \"enable\""),
            (json!({"certDir": "certs"}), "\"certDir\" is `certs`"),
            (
                json!({"enabled": "yes"}),
                "\"enabled\" must be true or false",
            ),
            (json!({"certDuration": "5m"}), "from 10m to 8760h"),
            (json!([]), "\"perNodeCertificate\" must be an object"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn durations_are_parsed_like_gos() {
        for (text, expected) in [
            ("10m", Some(600)),
            ("600s", Some(600)),
            ("1h30m", Some(5400)),
            ("8760h", Some(31_536_000)),
            ("8760h1s", None),
            ("9m59s", None),
            ("10", None),
            ("h", None),
            ("1.5h", None),
            ("-1h", None),
            ("99999999999999999999h", None),
            ("9999999999999999h", None),
            ("20µ", None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(duration(text), expected, "{text}");
        }
    }
}
