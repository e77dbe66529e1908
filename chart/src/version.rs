//! Versions as the distros write them, with a leading `v`, leading zeros or build metadata. They are compared as numbers, as Helm does,
//! and keep their text, since file names and addresses contain it.

use std::{cmp::Ordering, fmt, str::FromStr};

/// A version: its text and the parsed parts.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    numbers: [u64; 3],
    prerelease: Vec<Part>,
    build: String,
}

/// A part of the prerelease version after `-`; numbers sort before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

/// The text is not a version; it is kept for the message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a version: write x.y.z, as in 1.2.3, v4.3.017 or 4.0.201+upv4.0.2")]
pub struct ParseError(String);

impl Version {
    /// Returns true when both texts are the same version for Helm.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.numbers, &self.prerelease, &self.build)
            == (other.numbers, &other.prerelease, &other.build)
    }

    /// Compares by age; the text decides between versions that differ only in build metadata or spelling.
    pub fn order(&self, other: &Self) -> Ordering {
        let is_release = |version: &Self| version.prerelease.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then(is_release(self).cmp(&is_release(other)))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
            .then_with(|| self.text.cmp(&other.text))
    }
}

impl FromStr for Version {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError(text.to_owned());
        let plain = text.strip_prefix('v').unwrap_or(text);
        let (plain, build) = split(plain, '+');
        let (plain, prerelease) = split(plain, '-');
        let is_word = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !part.is_empty() && part.bytes().all(is_plain)
        };
        for tail in [build, prerelease].into_iter().flatten() {
            if !tail.split('.').all(is_word) {
                return Err(invalid());
            }
        }
        let numbers: Option<Vec<_>> = plain.split('.').map(number).collect();
        let numbers: [u64; 3] = numbers
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(invalid)?;
        let part =
            |part: &str| number(part).map_or_else(|| Part::Word(part.to_owned()), Part::Number);
        Ok(Self {
            text: text.to_owned(),
            numbers,
            prerelease: prerelease
                .map_or_else(Vec::new, |text| text.split('.').map(part).collect()),
            build: build.unwrap_or_default().to_owned(),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    match text.split_once(at) {
        Some((text, tail)) => (text, Some(tail)),
        None => (text, None),
    }
}

/// Parses digits; leading zeros are ignored.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_of_the_distros_are_ordered() {
        let rising = [
            "v4.0.2-alpha",
            "v4.0.2-build2023010901",
            "v4.0.2-build2024020802",
            "v4.0.2",
            "4.0.201+upv4.0.2-build2024020802",
            "v4.2.202",
            "v4.3.008",
            "v4.3.9",
            "v4.3.017",
            "5.0.0-rc.2",
            "5.0.0-rc.10",
            "5.0.0",
        ];
        for (index, left) in rising.iter().enumerate() {
            for (other, right) in rising.iter().enumerate() {
                let found = version(left).order(&version(right));
                assert_eq!(found, index.cmp(&other), "{left} and {right}");
            }
            assert_eq!(version(left).to_string(), *left);
        }
    }

    #[test]
    fn different_spellings_are_the_same_version() {
        for (left, right, expected) in [
            ("v4.3.017", "4.3.17", true),
            ("4.3.0100", "4.3.100", true),
            ("4.3.17", "4.3.17+up4.3.0", false),
            ("4.3.17", "4.3.17-rc1", false),
        ] {
            assert_eq!(version(left).is_same(&version(right)), expected, "{left}");
        }
    }

    #[test]
    fn invalid_versions_are_refused() {
        for text in [
            "",
            "v",
            "4.3",
            "4.3.0.1",
            "4.3.x",
            "vv4.3.0",
            "4.3.0+",
            "4.3.0-",
            "4.3.0+a b",
            "4..0",
            "4.3.0-a..b",
            "-4.3.0",
            "99999999999999999999.0.0",
            "4.3.0/../x",
        ] {
            assert_eq!(
                text.parse::<Version>().unwrap_err(),
                ParseError(text.to_owned())
            );
        }
    }
}
