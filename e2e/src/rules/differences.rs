//! Cases that another implementation is known to fail, each with its reason: `DIFFERENCES.md` for upstream Multus, or a
//! file of the same form for another peer.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, ensure};

const UPSTREAM: &str = include_str!("../../DIFFERENCES.md");

/// The reason by the name of the case.
#[derive(Debug, Default)]
pub(super) struct Differences(BTreeMap<String, String>);

impl Differences {
    /// Reads a file, or `DIFFERENCES.md` where none is named.
    pub(super) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        match file {
            None => Self::parse(UPSTREAM),
            Some(file) => {
                let text = fs::read_to_string(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                Self::parse(&text).with_context(|| file.display().to_string())
            }
        }
    }

    /// Reads the rows of tables whose first cell is a case in backquotes and whose last cell is the reason.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [case, .., reason] = cells.as_slice() else {
                anyhow::bail!("a row has less than two cells: {line}");
            };
            ensure!(!reason.is_empty(), "a case has no reason: {line}");
            let case = case.trim_matches('`').to_owned();
            ensure!(
                found.insert(case, (*reason).to_owned()).is_none(),
                "a case is there twice: {line}"
            );
        }
        Ok(Self(found))
    }

    /// Returns the reason why the peer fails a case.
    pub(super) fn of(&self, case: &str) -> Option<&str> {
        self.0.get(case).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::cases;

    #[test]
    fn every_difference_of_upstream_names_a_case() {
        for case in Differences::read(None).unwrap().0.keys() {
            assert!(cases::all().any(|known| known.name() == *case), "{case}");
        }
    }

    #[test]
    fn differences_of_another_peer_need_a_case_and_a_reason() {
        let differences = Differences::parse("# Ours\n\n| `a-b` | not yet |\n").unwrap();
        assert_eq!(differences.of("a-b"), Some("not yet"));
        assert_eq!(differences.of("c"), None);
        for text in ["| `a` |", "| `a` | |", "| `a` | x |\n| `a` | y |"] {
            assert!(Differences::parse(text).is_err(), "{text}");
        }
    }
}
