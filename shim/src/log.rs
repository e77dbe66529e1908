//! The shim's few log lines. The configuration directs them to a file, stderr or nowhere; they never go to stdout.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use api::time::rfc3339;
use rustix::fs::OFlags;

use crate::output;

/// The log levels, the quietest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Panic,
    Error,
    Verbose,
    Debug,
}

impl Level {
    /// Reads a level; an unknown one is the default, at which nothing is logged.
    pub(crate) fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "error" => Self::Error,
            "verbose" => Self::Verbose,
            "debug" => Self::Debug,
            _ => Self::Panic,
        }
    }
}

/// The destinations of log lines.
pub(crate) struct Log {
    pub(crate) file: Option<PathBuf>,
    pub(crate) to_stderr: bool,
    pub(crate) level: Level,
}

impl Log {
    pub(crate) fn error(&self, text: &str) {
        self.write(Level::Error, text);
    }

    /// Logs a call that succeeded.
    pub(crate) fn verbose(&self, text: &str) {
        self.write(Level::Verbose, text);
    }

    fn write(&self, level: Level, text: &str) {
        if self.level < level {
            return;
        }
        let word = if level == Level::Error {
            "error"
        } else {
            "verbose"
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let line = format!("{} [{word}] {}\n", rfc3339(now), text.replace('\n', " "));
        // Errors are ignored: a log that cannot be written must not fail a pod.
        if self.to_stderr {
            output::write_all(rustix::stdio::stderr(), line.as_bytes());
        }
        if let Some(file) = &self.file {
            // Others may write to the directory, and a link of theirs must not lead us to another file.
            let no_link = OFlags::NOFOLLOW.bits().cast_signed();
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(no_link)
                .open(file);
            let _ = file.map(|file| output::write_all(file.as_fd(), line.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_parsed_and_ordered() {
        assert_eq!(Level::parse("Verbose"), Level::Verbose);
        assert_eq!(Level::parse(""), Level::Panic);
        assert!(Level::Panic < Level::Error && Level::Error < Level::Debug);
    }
}
