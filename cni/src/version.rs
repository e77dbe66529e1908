//! Versions of the specification.

use std::fmt;
use std::str::FromStr;

/// A version of the specification: three numbers, ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// A text that is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version")]
pub struct VersionError(pub String);

/// The supported versions of configuration and result, oldest first.
pub const SUPPORTED: [Version; 7] = [
    Version::V0_1_0,
    Version::V0_2_0,
    Version::V0_3_0,
    Version::V0_3_1,
    Version::V0_4_0,
    Version::V1_0_0,
    Version::V1_1_0,
];

impl Version {
    /// 0.1.0, which also holds for a configuration without a version.
    pub const V0_1_0: Self = Self::new(0, 1, 0);
    /// 0.2.0, the last one with `ip4` and `ip6`.
    pub const V0_2_0: Self = Self::new(0, 2, 0);
    /// 0.3.0, the first one with `interfaces` and `ips`.
    pub const V0_3_0: Self = Self::new(0, 3, 0);
    pub const V0_3_1: Self = Self::new(0, 3, 1);
    /// 0.4.0, the first one with CHECK and with `prevResult` on DEL.
    pub const V0_4_0: Self = Self::new(0, 4, 0);
    /// 1.0.0, the first one without `version` in `ips`.
    pub const V1_0_0: Self = Self::new(1, 0, 0);
    /// 1.1.0, the first one with GC and STATUS.
    pub const V1_1_0: Self = Self::new(1, 1, 0);
    /// The newest one.
    pub const LATEST: Self = Self::V1_1_0;

    /// Makes a version from its three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Reads `major[.minor[.patch]]`; the empty text is 0.1.0.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| part.parse().ok())
                .flatten()
                .ok_or_else(|| VersionError(text.to_owned()))
        };
        let mut parts = text.split('.');
        let mut next = || parts.next().map_or(Ok(0), number);
        let version = Self::new(next()?, next()?, next()?);
        if parts.next().is_some() {
            Err(VersionError(text.to_owned()))
        } else {
            Ok(version)
        }
    }

    /// Returns whether [`SUPPORTED`] contains this version.
    pub fn is_supported(self) -> bool {
        SUPPORTED.contains(&self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        Self::parse(text)
    }
}

/// Returns the output of VERSION, one line of JSON.
pub fn version_output(supported: &[Version]) -> String {
    // Formatted by hand to keep the shim small: a version needs no escaping.
    let supported: Vec<_> = supported
        .iter()
        .map(|version| format!("\"{version}\""))
        .collect();
    format!(
        "{{\"cniVersion\":\"{}\",\"supportedVersions\":[{}]}}\n",
        Version::LATEST,
        supported.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_ordered() {
        assert_eq!(Version::parse("0.3.1"), Ok(Version::V0_3_1));
        assert_eq!(Version::parse("1.1"), Ok(Version::V1_1_0));
        assert_eq!(Version::parse(""), Ok(Version::V0_1_0));
        for text in [
            "1.0.0.0",
            "v1.0.0",
            "1..0",
            "1.0.0-rc1",
            "+1.0.0",
            " 1.0.0",
            "99999999999.0.0",
            ".",
        ] {
            assert_eq!(
                Version::parse(text),
                Err(VersionError(text.to_owned())),
                "{text}"
            );
        }
        assert!(SUPPORTED.is_sorted());
        assert!(Version::V0_4_0 < Version::V1_0_0);
        assert!(!Version::new(1, 2, 0).is_supported());
    }

    #[test]
    fn version_output_is_one_line() {
        assert_eq!(
            version_output(&SUPPORTED),
            "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n"
        );
    }
}
