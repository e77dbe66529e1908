//! The keys of the daemon's file about its own log.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{
    daemon_config as config,
    json::{self, WrongType},
};

/// What the daemon's file says of its log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logging {
    /// `debug`, `verbose`, `error`, `panic`, or empty.
    pub level: String,
    /// Whether it goes to stderr.
    pub to_stderr: bool,
    /// A file of the node.
    pub file: Option<PathBuf>,
    /// When that file is rotated.
    pub rotation: Rotation,
}

/// When a log file is rotated, and what becomes of the old ones; upstream's words and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Size in megabytes from which on a new file is begun.
    pub max_size: u32,
    /// Days after which an old file is removed; 0 is never.
    pub max_age: u32,
    /// Number of old files that are kept; 0 is all.
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
        let usual = Self::default();
        let Some(options) = json::object(raw, "logOptions")? else {
            return Ok(usual);
        };
        let number = |key, usual| match json::get(options, key) {
            None | Some(Value::Null) => Ok(usual),
            Some(value) => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number.ok_or_else(|| json::wrong(key, "a whole number from 0 on"))
            }
        };
        let compress = json::decided(options, "compress")?;
        Ok(Self {
            // Nought is the usual size, as upstream has it.
            max_size: match number("maxSize", usual.max_size)? {
                0 => usual.max_size,
                size => size,
            },
            max_age: number("maxAge", usual.max_age)?,
            max_backups: number("maxBackups", usual.max_backups)?,
            compress: compress.unwrap_or(usual.compress),
        })
    }
}

impl Logging {
    /// Reads the keys of the daemon's file; its log goes to stderr unless that is switched off.
    pub fn read(raw: &Map<String, Value>, level: String) -> Result<Self, config::ConfigError> {
        Ok(Self {
            level,
            to_stderr: json::decided(raw, "logToStderr")?.unwrap_or(true),
            file: config::path(raw, "logFile")?,
            rotation: Rotation::read(raw)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(raw: &Value) -> Result<Logging, config::ConfigError> {
        Logging::read(raw.as_object().unwrap(), String::new())
    }

    #[test]
    fn the_keys_are_read_with_upstreams_defaults() {
        let usual = read(&json!({})).unwrap();
        assert!(usual.to_stderr && usual.file.is_none());
        assert_eq!(usual.rotation, Rotation::default());
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
