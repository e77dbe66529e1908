//! The version of the programs: the workspace's, with the commit and date of the release that built them.
//!
//! Cargo builds the programs without commit and date, so that a commit which changes no source builds no program again. The build of a
//! release writes both into the finished programs ([`Stamp`]). A program that cargo built by itself says that it is a development build.

use std::{hint::black_box, sync::LazyLock};

use serde::Serialize;

/// The bytes of the stamp, the marker before them included.
const LENGTH: usize = 128;
/// The length of the marker by which a build finds the stamp in a program.
const MARKER: usize = 24;

/// The version without anything about its build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The variable of a build with the text of the stamp: for programs that cannot be changed once they are linked, since they are signed.
pub const VARIABLE: &str = "MULTUS_BUILD";

static STAMP: [u8; LENGTH] = {
    let text = match option_env!("MULTUS_BUILD") {
        Some(text) => text,
        None => "",
    };
    let marker = b"multus-rs release stamp:";
    let mut bytes = [0; LENGTH];
    let mut at = 0;
    while at < MARKER {
        bytes[at] = marker[at];
        at += 1;
    }
    while at < LENGTH && at - MARKER < text.len() {
        bytes[at] = text.as_bytes()[at - MARKER];
        at += 1;
    }
    bytes
};

/// The commit and date of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Build {
    pub commit: &'static str,
    /// The day in UTC, as in 2026-01-31.
    pub date: &'static str,
}

/// The text of a stamp, which fits into its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(String);

impl Stamp {
    /// Makes the stamp of a commit and a day, or fails where they are too long.
    pub fn new(commit: &str, date: &str) -> Result<Self, StampError> {
        let text = format!("{commit} {date}");
        if text.len() > LENGTH - MARKER {
            return Err(StampError::TooLong(text));
        }
        Ok(Self(text))
    }

    /// Returns the value of [`VARIABLE`].
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes the stamp into a program, whose size stays the same. A program of another build is changed likewise.
    pub fn write(&self, program: &mut [u8]) -> Result<(), StampError> {
        let marker = &STAMP[..MARKER];
        let mut places = program
            .windows(LENGTH)
            .enumerate()
            .filter(|(_, window)| window[0] == marker[0] && window.starts_with(marker))
            .map(|(at, _)| at);
        let (Some(at), None) = (places.next(), places.next()) else {
            return Err(StampError::NoPlace);
        };
        let place = &mut program[at + MARKER..at + LENGTH];
        place.fill(0);
        place[..self.0.len()].copy_from_slice(self.0.as_bytes());
        Ok(())
    }
}

/// The reason why a program gets no stamp.
#[derive(Debug, PartialEq, Eq)]
pub enum StampError {
    /// The program has no place for it, or several.
    NoPlace,
    /// The text is longer than the place.
    TooLong(String),
}

impl std::fmt::Display for StampError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoPlace => {
                f.write_str("it has not exactly one place for the commit of the release")
            }
            Self::TooLong(text) => write!(f, "`{text}` is too long for its place in programs"),
        }
    }
}

impl std::error::Error for StampError {}

/// Returns commit and date of this program, or `None` for a development build.
pub fn build() -> Option<Build> {
    // The compiler must not know the bytes: those of a release are others.
    parse(&black_box(&STAMP)[MARKER..])
}

fn parse(bytes: &'static [u8]) -> Option<Build> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?;
    let (commit, date) = text.split_once(' ')?;
    Some(Build { commit, date })
}

/// Returns the version with what is known of its build, as in `vX.Y.Z (commit, date)`.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| match build() {
        Some(Build { commit, date }) => format!("v{VERSION} ({commit}, {date})"),
        None => format!("v{VERSION} (development build)"),
    });
    &TEXT
}

/// Returns the line that programs print about themselves, without its end.
pub fn line(program: &str) -> String {
    format!("{program} {}", text())
}

/// Returns the line of a program that runtimes start, in the form of upstream's shim.
pub fn line_of_shim(program: &str) -> String {
    let Build { commit, date } = build().unwrap_or(Build {
        commit: "none",
        date: "none",
    });
    format!("{program}: version:v{VERSION}(release), commit:{commit}, date:{date}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Vec<u8> {
        [&b"\x7fELF"[..], &STAMP, b"end"].concat()
    }

    #[test]
    fn stamp_is_read_back_and_changes_nothing_else() {
        let mut stamped = program();
        let commit = format!("{}-dirty", "0123456789abcdef".repeat(4));
        for (commit, date) in [(commit.as_str(), "2026-01-31"), ("abc", "2026-02-01")] {
            Stamp::new(commit, date)
                .unwrap()
                .write(&mut stamped)
                .unwrap();
            assert_eq!(stamped.len(), program().len());
            assert!(stamped.starts_with(b"\x7fELFmultus-rs release stamp:"));
            assert!(stamped.ends_with(b"end"));
            let place: &'static [u8] = stamped[4 + MARKER..4 + LENGTH].to_vec().leak();
            let found = parse(place).map(|build| (build.commit, build.date));
            assert_eq!(found, Some((commit, date)));
        }
    }

    #[test]
    fn program_without_exactly_one_place_is_refused() {
        let twice = [program(), program()].concat();
        for mut program in [b"\x7fELF".to_vec(), twice] {
            let stamp = Stamp::new("abc", "x").unwrap();
            assert_eq!(stamp.write(&mut program), Err(StampError::NoPlace));
        }
        let long = "x".repeat(LENGTH);
        assert!(matches!(Stamp::new(&long, ""), Err(StampError::TooLong(_))));
    }

    /// Cargo by itself builds the tests.
    #[test]
    fn development_build_says_so() {
        assert_eq!(build(), None);
        assert_eq!(line("x"), format!("x v{VERSION} (development build)"));
        let shim = format!("x: version:v{VERSION}(release), commit:none, date:none");
        assert_eq!(line_of_shim("x"), shim);
    }
}
