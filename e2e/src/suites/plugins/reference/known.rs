//! Specs that fail with the reference's own programs, each with its reason.
//!
//! A row holds only where the kernel lacks its feature, or everywhere without one. A row that matches no failure is stale.

use std::collections::BTreeSet;

use super::super::feature::Feature;

/// A reason why specs of a suite fail.
#[derive(Debug)]
pub(super) struct Known {
    suite: &'static str,
    /// Part of the name of the spec or of the text of its failure.
    pattern: &'static str,
    reason: &'static str,
    /// The feature of the kernel without which they fail.
    without: Option<Feature>,
}

const KNOWN: &[Known] = &[
    Known {
        suite: "bridge",
        pattern: r#"could not add \"bridge0\": operation not supported"#,
        reason: "bridges of this kernel filter no VLANs",
        without: Some(Feature::VlanFiltering),
    },
    Known {
        suite: "bridge",
        pattern: r#"ARGS: unknown args [\"MAC="#,
        reason: "the test's CNI_ARGS lack IgnoreUnknown, which the address plugin reads only as a program",
        without: None,
    },
    Known {
        suite: "bridge",
        pattern: "checks ip release in case of error",
        reason: "the test sets a variable of the plugin to make it fail",
        without: None,
    },
    Known {
        suite: "dummy",
        pattern: "failed to create dummy: operation not supported",
        reason: "the kernel has no dummy links",
        without: Some(Feature::Dummy),
    },
    Known {
        suite: "firewall",
        pattern: "incompatible CNI versions",
        reason: "the test calls the plugin with versions that it rejects as a program",
        without: None,
    },
    Known {
        suite: "host-device",
        pattern: "lstat /sys/bus/pci/devices/0000:00:00.1",
        reason: "the test puts a fake /sys into the plugin",
        without: None,
    },
    Known {
        suite: "host-device",
        pattern: "DeviceID mlx5_core.sf.4 not found",
        reason: "the test puts a fake /sys into the plugin",
        without: None,
    },
    Known {
        suite: "host-local",
        pattern: "ignores whitespace in disk files",
        reason: "the test's container id has spaces, which a program rejects",
        without: None,
    },
    Known {
        suite: "ipvlan",
        pattern: "failed to create ipvlan: operation not supported",
        reason: "the kernel has no ipvlan links",
        without: Some(Feature::Ipvlan),
    },
    Known {
        suite: "ipvlan",
        pattern: "failed to rename ipvlan to",
        reason: "the kernel has no ipvlan links",
        without: Some(Feature::Ipvlan),
    },
    Known {
        suite: "tuning",
        pattern: "operation not supported",
        reason: "ifb links, which stand for dummy ones here, have no address to set",
        without: Some(Feature::Dummy),
    },
    Known {
        suite: "tuning",
        pattern: "does not allow ifname with path separator",
        reason: "a program rejects the name before the plugin sees it",
        without: None,
    },
    Known {
        suite: "vlan",
        pattern: "failed to create vlan: operation not supported",
        reason: "the kernel has no VLAN links",
        without: Some(Feature::Vlan),
    },
    Known {
        suite: "vrf",
        pattern: "operation not supported",
        reason: "the kernel has no VRF links",
        without: Some(Feature::Vrf),
    },
];

/// The rows of one suite that hold on a kernel.
pub(super) struct Rows(Vec<&'static Known>);

impl Rows {
    pub(super) fn of(suite: &str, features: &BTreeSet<Feature>) -> Self {
        let holds = |row: &&Known| {
            let is_absent = |feature| !features.contains(&feature);
            row.suite == suite && row.without.is_none_or(is_absent)
        };
        Self(KNOWN.iter().filter(holds).collect())
    }

    /// Returns the specs without a row, by name and failure, and the rows without a spec, as lines.
    pub(super) fn mismatches(&self, failures: &[(&str, &str)]) -> Vec<String> {
        let matches = |row: &Known, (name, failure): (&str, &str)| {
            name.contains(row.pattern) || failure.contains(row.pattern)
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
