//! Versions as the distros write them: a leading `v`, leading zeros, build metadata. They are compared as numbers, as Helm does,
//! and kept as they stand, since file names and addresses are made from the text.

use std::{cmp::Ordering, fmt, str::FromStr};

/// A version: how it is written, and what it means.
#[derive(Debug, Clone)]
pub struct Version {
    text: String,
    numbers: [u64; 3],
    before: Vec<Part>,
    build: String,
}

/// A part of what follows `-`; numbers come before words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

/// Text that is no version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no version: write x.y.z, as in 5.0.0, v4.3.017 or 4.0.201+upv4.0.2")]
pub struct ParseError(String);

impl Version {
    /// Whether both name the same release for Helm, however they are written.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.numbers, &self.before, &self.build) == (other.numbers, &other.before, &other.build)
    }

    /// Which is newer; the text decides between two that are the same but for their build or their writing.
    pub fn order(&self, other: &Self) -> Ordering {
        let released = |version: &Self| version.before.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then(released(self).cmp(&released(other)))
            .then_with(|| self.before.cmp(&other.before))
            .then_with(|| self.text.cmp(&other.text))
    }
}

impl FromStr for Version {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError(text.to_owned());
        let plain = text.strip_prefix('v').unwrap_or(text);
        let (plain, build) = split(plain, '+');
        let (plain, before) = split(plain, '-');
        let is_word = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !part.is_empty() && part.bytes().all(is_plain)
        };
        for tail in [build, before].into_iter().flatten() {
            if !tail.split('.').all(is_word) {
                return Err(bad());
            }
        }
        let numbers: Option<Vec<_>> = plain.split('.').map(number).collect();
        let numbers: [u64; 3] = numbers
            .and_then(|numbers| numbers.try_into().ok())
            .ok_or_else(bad)?;
        let part =
            |part: &str| number(part).map_or_else(|| Part::Word(part.to_owned()), Part::Number);
        Ok(Self {
            text: text.to_owned(),
            numbers,
            before: before.map_or_else(Vec::new, |text| text.split('.').map(part).collect()),
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

/// Digits alone; leading zeros count for nothing.
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
    fn the_distros_versions_have_their_order() {
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
    fn one_release_is_written_in_several_ways() {
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
    fn what_is_none_is_refused() {
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
