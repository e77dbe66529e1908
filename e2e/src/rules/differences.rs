//! `DIFFERENCES.md`: the cases that upstream Multus is known to fail, each with its reason.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

const TEXT: &str = include_str!("../../DIFFERENCES.md");

/// The reason by the name of the case.
#[derive(Debug, Default)]
pub(super) struct Differences(BTreeMap<String, String>);

impl Differences {
    /// Reads the table, whose columns are the case, upstream's behaviour, ours, and the reason.
    pub(super) fn read() -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for line in TEXT.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            ensure!(
                cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()),
                "DIFFERENCES.md: a line of the table does not have four cells: {line}"
            );
            let case = cells[0].trim_matches('`').to_owned();
            let reason = (*cells.last().context("four cells have a last one")?).to_owned();
            ensure!(
                found.insert(case, reason).is_none(),
                "DIFFERENCES.md: a case is there twice: {line}"
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
    fn every_difference_names_a_case() {
        for case in Differences::read().unwrap().0.keys() {
            assert!(cases::all().any(|known| known.name == case), "{case}");
        }
    }
}
