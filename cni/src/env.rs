//! The variables that a runtime sets, as types that can only hold valid values.

use std::fmt;
use std::str::FromStr;

/// A verb of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    /// Attaches a container to a network.
    Add,
    /// Detaches a container from a network.
    Del,
    /// Verifies that an attachment is as ADD left it.
    Check,
    /// Reports whether ADD could be served.
    Status,
    /// Releases resources that no attachment of a list needs.
    Gc,
    /// Names the supported versions.
    Version,
}

impl Command {
    /// Returns the value of `CNI_COMMAND`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// Returns whether the verb concerns one attachment and thus needs a container and an interface.
    pub const fn is_about_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }

    /// Returns the variables that must not be empty.
    pub const fn required_variables(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            Self::Status | Self::Gc => &["CNI_PATH"],
            Self::Version => &[],
        }
    }
}

/// Why a value of the environment (or a network's name) is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The verb is not known.
    #[error("unknown CNI_COMMAND: {0}")]
    Command(String),
    /// The container ID is not valid.
    #[error("invalid container id {0:?}: {1}")]
    ContainerId(String, &'static str),
    /// The interface name is not valid.
    #[error("invalid interface name {0:?}: {1}")]
    IfName(String, &'static str),
    /// The network name is not valid.
    #[error("invalid network name {0:?}: {1}")]
    NetworkName(String, &'static str),
}

/// A valid container ID, safe as one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(String);

impl ContainerId {
    /// The longest ID that leaves room for the rest of a file name; runtimes use 64 bytes.
    pub const MAX_BYTES: usize = 128;

    /// Validates a text.
    pub fn parse(text: &str) -> Result<Self, EnvError> {
        let refused = |reason| EnvError::ContainerId(text.to_owned(), reason);
        check_identifier(text).map_err(refused)?;
        if text.len() > Self::MAX_BYTES {
            Err(refused("it is longer than 128 bytes"))
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A valid interface name of 1 to 15 bytes, safe as one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IfName(String);

impl IfName {
    /// The longest name that the kernel accepts.
    pub const MAX_BYTES: usize = 15;

    /// Validates a text.
    pub fn parse(text: &str) -> Result<Self, EnvError> {
        let reason = if text.is_empty() {
            "it is empty"
        } else if text.len() > Self::MAX_BYTES {
            "it is longer than 15 bytes"
        } else if text == "." || text == ".." {
            "it is a directory"
        } else if text.contains(|character: char| {
            matches!(character, '/' | ':') || character.is_whitespace() || character.is_control()
        }) {
            "it holds a '/', a ':', a control character or white space"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(EnvError::IfName(text.to_owned(), reason))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Validates the name of a network; a valid one is safe as one component of a path.
pub fn check_network_name(name: &str) -> Result<(), EnvError> {
    check_identifier(name).map_err(|reason| EnvError::NetworkName(name.to_owned(), reason))
}

/// Accepts a letter or digit, then letters, digits, `_`, `.` and `-`.
fn check_identifier(text: &str) -> Result<(), &'static str> {
    let valid = text
        .as_bytes()
        .first()
        .is_some_and(u8::is_ascii_alphanumeric)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if valid {
        Ok(())
    } else {
        Err("it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'")
    }
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for IfName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for Command {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        [
            Self::Add,
            Self::Del,
            Self::Check,
            Self::Status,
            Self::Gc,
            Self::Version,
        ]
        .into_iter()
        .find(|command| command.as_str() == text)
        .ok_or_else(|| EnvError::Command(text.to_owned()))
    }
}

impl FromStr for ContainerId {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        Self::parse(text)
    }
}

impl FromStr for IfName {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ids_are_validated() {
        for text in ["a", "0f1e2d", "A.b_c-d", "9"] {
            assert_eq!(ContainerId::parse(text).unwrap().as_str(), text);
        }
        for text in [
            "",
            "../evil",
            ".",
            "..",
            "-a",
            "_a",
            "a/b",
            "a b",
            "a\n",
            "ä",
            "a\0",
            &"a".repeat(129),
        ] {
            assert!(ContainerId::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn interface_names_are_validated() {
        for text in ["eth0", "a", "123456789012345", "net1.100", "Stor_0", "..."] {
            assert_eq!(IfName::parse(text).unwrap().as_str(), text);
        }
        for text in [
            "",
            "1234567890123456",
            ".",
            "..",
            "a/b",
            "a:1",
            "a b",
            "a\t",
            "a\u{b}",
            "a\u{a0}",
            "a\0",
        ] {
            assert!(IfName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn commands_round_trip() {
        for text in ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"] {
            assert_eq!(text.parse::<Command>().unwrap().to_string(), text);
        }
        assert_eq!(
            "add".parse::<Command>(),
            Err(EnvError::Command("add".into()))
        );
    }
}
