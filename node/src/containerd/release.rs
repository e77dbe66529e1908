//! Releases of containerd and versions of its configuration files.

use toml::{Table, Value};

/// A release of containerd, as far as releases read files differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Release {
    /// Reads versions as `v2.4.2`, `1.6.20~ds1` and `v1.7.27-k3s1`; there is no release 0.
    pub fn parse(version: &str) -> Option<Self> {
        let mut parts = version.trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok().filter(|major| *major > 0)?;
        let digits = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        let minor = parts.next().and_then(digits).unwrap_or_default();
        Some(Self { major, minor })
    }

    /// Returns the oldest release that reads a file of this version, for a containerd whose release is not known.
    pub fn for_config(version: i64) -> Self {
        match version {
            ..=2 => Self { major: 1, minor: 6 },
            3 => Self { major: 2, minor: 1 },
            _ => Self { major: 2, minor: 3 },
        }
    }

    /// Returns whether the release merges the tables of several files; older ones take the last file's table whole.
    pub(super) fn merges(self) -> bool {
        self.major >= 2
    }
}

/// Returns the version that a file declares; without one it is 1.
pub(super) fn config_version(table: &Table) -> i64 {
    match table.get("version").and_then(Value::as_integer) {
        None | Some(0) => 1,
        Some(version) => version,
    }
}
