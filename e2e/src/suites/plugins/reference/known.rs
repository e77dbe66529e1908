//! Specs that fail with the reference's own programs, each with its reason.
//!
//! A row holds only where the kernel lacks its feature, or everywhere without one. A row that matches no failure is stale.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::Deserialize;

use super::super::feature::Feature;

/// A reason why specs of a suite fail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Part of the name of the spec or of the text of its failure.
    pattern: String,
    reason: String,
    /// The feature of the kernel without which they fail.
    without: Option<Feature>,
}

/// The rows by suite.
static KNOWN: LazyLock<BTreeMap<String, Vec<Known>>> = LazyLock::new(|| {
    serde_yaml::from_str(include_str!("known.yaml")).expect("the tests here read the same text")
});

/// The rows of one suite that hold on a kernel.
pub(super) struct Rows(Vec<&'static Known>);

impl Rows {
    pub(super) fn of(suite: &str, features: &BTreeSet<Feature>) -> Self {
        let holds = |row: &&Known| {
            let is_absent = |feature| !features.contains(&feature);
            row.without.is_none_or(is_absent)
        };
        Self(
            KNOWN
                .get(suite)
                .into_iter()
                .flatten()
                .filter(holds)
                .collect(),
        )
    }

    /// Returns the specs without a row, by name and failure, and the rows without a spec, as lines.
    pub(super) fn mismatches(&self, failures: &[(&str, &str)]) -> Vec<String> {
        let matches = |row: &Known, (name, failure): (&str, &str)| {
            name.contains(&row.pattern) || failure.contains(&row.pattern)
        };
        let unknown = failures
            .iter()
            .filter(|spec| !self.0.iter().any(|row| matches(row, **spec)))
            .map(|(name, failure)| {
                format!("no reason is known for the failure of {name}: {failure}")
            });
        let stale = self
            .0
            .iter()
            .filter(|row| !failures.iter().any(|spec| matches(row, *spec)))
            .map(|row| {
                format!(
                    "no spec fails with {:?} ({}): remove the row",
                    row.pattern, row.reason
                )
            });
        unknown.chain(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatches(suite: &str, features: &[Feature], failures: &[(&str, &str)]) -> Vec<String> {
        let features = features.iter().copied().collect();
        Rows::of(suite, &features).mismatches(failures)
    }

    #[test]
    fn failures_without_a_row_and_rows_without_a_failure_are_mismatches() {
        let failure = (
            "adds",
            "failed: failed to create dummy: operation not supported",
        );
        assert!(mismatches("dummy", &[], &[failure]).is_empty());
        assert!(mismatches("dummy", &[], &[])[0].ends_with("remove the row"));
        let found = mismatches("dummy", &[], &[failure, ("deletes", "failed: no")]);
        assert_eq!(
            found,
            ["no reason is known for the failure of deletes: failed: no"]
        );
    }

    #[test]
    fn a_row_holds_only_where_the_feature_is_absent() {
        let failure = ("adds", "failed to create dummy: operation not supported");
        assert!(mismatches("dummy", &[Feature::Dummy], &[]).is_empty());
        assert_eq!(mismatches("dummy", &[Feature::Dummy], &[failure]).len(), 1);
    }
}
