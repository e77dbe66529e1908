//! A block of code on a page, and the check that its mark names.
//!
//! The mark is the second word of a fence, which no renderer shows: ```` ```sh cluster:install ````. A page whose blocks are
//! indented names one check for all of them, in the comment `<!-- blocks: parsed -->`.

use std::fmt;

/// The suites of `cargo xtask e2e` that run blocks of pages.
pub const SUITES: &[&str] = &[
    "airgap", "chart", "cluster", "k3s", "kubevirt", "netns", "rke2", "upgrade", "vpn",
];

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The line of the page at which it begins, from 1.
    pub line: usize,
    /// The first word of the fence; empty for an indented block.
    pub language: String,
    /// The check that its mark names, or what is wrong with the mark.
    pub check: Result<Check, MarkError>,
    /// The code.
    pub text: String,
}

/// The check of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// Each line is a command, which the program it names parses.
    Parsed,
    /// `kubectl multus lint` finds nothing wrong with the objects.
    Linted,
    /// The values schema of the chart accepts it.
    Values,
    /// A suite runs it with the other blocks of the same step, in their order.
    Suite {
        suite: String,
        /// The step; the suite says when it is due.
        step: String,
        /// The name under which the reader saves the block, in place of running it.
        file: Option<String>,
    },
    /// Each line is a message of a program, which is found in the sources.
    Message,
    /// The output of a program, which no test compares.
    Output,
    /// A drawing, or the form of a file or line with places to fill in.
    Drawing,
    /// It cannot run in tests, for this reason.
    Elsewhere(String),
}

/// The reason why a mark is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkError {
    /// There is none.
    Missing,
    /// It names no check.
    Unknown(String),
    /// It has no reason.
    NoReason,
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(
                f,
                "the block names no check: write one behind the language of its fence ({}), or `<!-- blocks: CHECK -->` for indented blocks",
                words()
            ),
            Self::Unknown(word) => {
                write!(f, "there is no check `{word}`: write one of {}", words())
            }
            Self::NoReason => write!(f, "`elsewhere` needs the reason why no test can run it"),
        }
    }
}

fn words() -> String {
    let suites = SUITES.iter().map(|suite| format!("{suite}:STEP"));
    [
        "parsed",
        "linted",
        "values",
        "message",
        "output",
        "drawing",
        "elsewhere REASON",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(suites)
    .collect::<Vec<_>>()
    .join(", ")
}

impl Check {
    /// Parses a mark: what follows the language.
    pub(crate) fn parse(mark: &str) -> Result<Self, MarkError> {
        let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
        let rest = rest.trim();
        match word {
            "" => Err(MarkError::Missing),
            "parsed" => Ok(Self::Parsed),
            "linted" => Ok(Self::Linted),
            "values" => Ok(Self::Values),
            "message" => Ok(Self::Message),
            "output" => Ok(Self::Output),
            "drawing" => Ok(Self::Drawing),
            "elsewhere" if rest.is_empty() => Err(MarkError::NoReason),
            "elsewhere" => Ok(Self::Elsewhere(rest.to_owned())),
            _ => match word.split_once(':') {
                Some((suite, step)) if SUITES.contains(&suite) && !step.is_empty() => {
                    Ok(Self::Suite {
                        suite: suite.to_owned(),
                        step: step.to_owned(),
                        file: rest.strip_prefix("file=").map(str::to_owned),
                    })
                }
                _ => Err(MarkError::Unknown(word.to_owned())),
            },
        }
    }

    /// Returns the word under which blocks are counted.
    pub fn word(&self) -> &str {
        match self {
            Self::Parsed => "parsed",
            Self::Linted => "linted",
            Self::Values => "values",
            Self::Suite { suite, .. } => suite,
            Self::Message => "message",
            Self::Output => "output",
            Self::Drawing => "drawing",
            Self::Elsewhere(_) => "elsewhere",
        }
    }

    /// Returns whether each line of the block is a command.
    pub(crate) fn has_commands(&self) -> bool {
        match self {
            Self::Parsed | Self::Elsewhere(_) => true,
            Self::Suite { file, .. } => file.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mark: &str, expected: &Result<Check, MarkError>) {
        assert_eq!(Check::parse(mark), *expected, "{mark}");
    }

    #[test]
    fn marks_name_checks() {
        check("parsed", &Ok(Check::Parsed));
        check("", &Err(MarkError::Missing));
        check("parse", &Err(MarkError::Unknown("parse".into())));
        check("elsewhere", &Err(MarkError::NoReason));
        check(
            "elsewhere K3s is not run here",
            &Ok(Check::Elsewhere("K3s is not run here".into())),
        );
        for bad in ["cluster", "cluster:", "clusters:a"] {
            check(bad, &Err(MarkError::Unknown(bad.into())));
        }
        let suite = |file: Option<&str>| {
            Ok(Check::Suite {
                suite: "cluster".into(),
                step: "install".into(),
                file: file.map(str::to_owned),
            })
        };
        check("cluster:install", &suite(None));
        check("cluster:install file=lan.yaml", &suite(Some("lan.yaml")));
    }

    #[test]
    fn errors_name_every_check() {
        let text = MarkError::Missing.to_string();
        for word in [
            "parsed",
            "linted",
            "values",
            "cluster:STEP",
            "elsewhere REASON",
        ] {
            assert!(text.contains(word), "{text}");
        }
    }
}
