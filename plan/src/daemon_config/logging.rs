//! Reads the options of the daemon's own log.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{
    daemon_config::{ConfigError, path},
    json::{self, WrongType},
};

/// The options of the log in the daemon's file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logging {
    /// `debug`, `verbose`, `error`, `panic`, or empty.
    pub level: String,
    /// Whether to log to stderr.
    pub to_stderr: bool,
    /// A file of the node.
    pub file: Option<PathBuf>,
    /// The rotation of that file.
    pub rotation: Rotation,
}

/// The rotation of a log file, with upstream's options and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Size in megabytes at which a new file begins.
    pub max_size: u32,
    /// Days after which an old file is removed; 0 means never.
    pub max_age: u32,
    /// Number of old files to keep; 0 means all.
    pub max_backups: u32,
    /// Whether old files are compressed.
    pub compress: bool,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            max_size: 100,
            max_age: 5,
            max_backups: 5,
            compress: true,
        }
    }
}

impl Rotation {
    fn read(raw: &Map<String, Value>) -> Result<Self, WrongType> {
        let defaults = Self::default();
        let Some(options) = json::object(raw, "logOptions")? else {
            return Ok(defaults);
        };
        let number = |key, default| match json::get(options, key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number.ok_or_else(|| json::wrong_type(key, "a whole number from 0 on"))
            }
        };
        let compress = json::optional_boolean(options, "compress")?;
        Ok(Self {
            // As with upstream, 0 stands for the default size.
            max_size: match number("maxSize", defaults.max_size)? {
                0 => defaults.max_size,
                size => size,
            },
            max_age: number("maxAge", defaults.max_age)?,
            max_backups: number("maxBackups", defaults.max_backups)?,
            compress: compress.unwrap_or(defaults.compress),
        })
    }
}

impl Logging {
    /// Reads the keys of the daemon's file. The log goes to stderr unless that is switched off.
    pub fn read(raw: &Map<String, Value>, level: String) -> Result<Self, ConfigError> {
        Ok(Self {
            level,
            to_stderr: json::optional_boolean(raw, "logToStderr")?.unwrap_or(true),
            file: path(raw, "logFile")?,
            rotation: Rotation::read(raw)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(raw: &Value) -> Result<Logging, ConfigError> {
        Logging::read(raw.as_object().unwrap(), String::new())
    }

    #[test]
    fn log_options_have_upstreams_defaults() {
        let defaults = read(&json!({})).unwrap();
        assert!(defaults.to_stderr && defaults.file.is_none());
        assert_eq!(defaults.rotation, Rotation::default());
        let logging = read(
            &json!({"logToStderr": false, "logFile": "/host/var/log/multus.log",
            "logOptions": {"maxSize": 1, "maxAge": 0, "maxBackups": 2, "compress": false}}),
        )
        .unwrap();
        assert!(!logging.to_stderr);
        assert_eq!(logging.file, Some("/var/log/multus.log".into()));
        let rotation = Rotation {
            max_size: 1,
            max_age: 0,
            max_backups: 2,
            compress: false,
        };
        assert_eq!(logging.rotation, rotation);
        for wrong in [
            json!({"logToStderr": "no"}),
            json!({"logFile": "multus.log"}),
            json!({"logOptions": {"maxSize": "1M"}}),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
